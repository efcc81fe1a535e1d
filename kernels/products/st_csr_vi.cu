// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column, and few
// distinct values (see src/format/tiled/st_csr_vi.rs): the tiles of sorted.cuh.
//
// A slot stores the 8-bit number of its value instead of the value; a block keeps the values
// themselves in shared memory. Where there is only one value (`_one`), slots have no numbers.
#include "sorted.cuh"

// The maximum number of distinct values.
constexpr uint32_t FEW = FEW_VALUES;

template <class T> struct Single {
    const T* __restrict__ few;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t, T (&v)[OWN]) const {
        const T value = __ldg(few);
#pragma unroll
        for (int k = 0; k < OWN; k++) v[k] = value;
    }
};

template <class T> struct Several {
    const uint32_t* __restrict__ numbers;
    uint32_t count;
    const T* __restrict__ few;
    T* shared;

    __device__ __forceinline__ void begin() const {
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) shared[i] = few[i];
    }
    __device__ __forceinline__ void take(uint64_t thread, T (&v)[OWN]) const {
        const Numbers<8> number(numbers, thread);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OWN; k++) v[k] = shared[number.of(k)];
    }
};

// Threads per processor: as many as registers allow without spills. With 32 registers per thread,
// some kernels of single precision would spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T, int EXTRA, bool one> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1280;
#else
template <class T, int EXTRA, bool one>
constexpr int RESIDENT = sizeof(T) == 4 && one == (EXTRA == 16) ? 2048 : 1536;
#endif

#define KERNEL(T, name, size, extra, suffix, one)                                                 \
    extern "C" __global__ void                                                                    \
    __launch_bounds__(size / OWN, RESIDENT<T, extra, one> / (size / OWN))                         \
        st_csr_vi_##size##_##name##_##extra##suffix(                                              \
            TILE_ARGS, const uint32_t* numbers, uint32_t count, const T* few, VECTOR_ARGS(T))
#define KINDS(T, name, size, extra)                                                               \
    KERNEL(T, name, size, extra, , false) {                                                       \
        __shared__ T shared[FEW];                                                                 \
        const Several<T> values{numbers, count, few, shared};                                     \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide, values, x, heads, y,     \
                             alpha, beta);                                                        \
    }                                                                                             \
    KERNEL(T, name, size, extra, _one, true) {                                                    \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide, Single<T>{few}, x,       \
                             heads, y, alpha, beta);                                              \
    }
#define SIZES(T, name, extra)                                                                     \
    KINDS(T, name, 1024, extra)                                                                   \
    KINDS(T, name, 2048, extra)                                                                   \
    KINDS(T, name, 4096, extra)
#define PRECISION(T, name)                                                                        \
    SIZES(T, name, 4)                                                                             \
    SIZES(T, name, 8)                                                                             \
    SIZES(T, name, 16)
PRECISION(float, f32)
PRECISION(double, f64)
