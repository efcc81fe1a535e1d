// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column (see
// src/format/tiled/st_csr.rs): the tiles of sorted.cuh, with the value of each slot.
#include "sorted.cuh"

// Values of slots, in pieces of 16 bytes: the first piece of all lanes of a warp, then the second.
template <class T> struct Values {
    const T* __restrict__ values;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t thread, T (&v)[OWN]) const {
        load(values + thread / 32 * (32 * OWN), v);
    }

private:
    static __device__ __forceinline__ void load(const float* warp, float (&v)[OWN]) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float4 q = __ldcs(reinterpret_cast<const float4*>(warp) + (32 * k + threadIdx.x % 32));
            v[4 * k] = q.x, v[4 * k + 1] = q.y, v[4 * k + 2] = q.z, v[4 * k + 3] = q.w;
        }
    }
    static __device__ __forceinline__ void load(const double* warp, double (&v)[OWN]) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const double2 q = __ldcs(reinterpret_cast<const double2*>(warp) + (32 * k + threadIdx.x % 32));
            v[2 * k] = q.x, v[2 * k + 1] = q.y;
        }
    }
};

template <class T>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count && tiles[t].y >> 16 > 0) atomicAdd(y + tiles[t].x - 1, alpha * gather(heads + t));
}

// Threads per processor: as many as registers allow without spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1280;
#else
template <class T> constexpr int RESIDENT = 1536;
#endif

#define TILE(T, name, size, extra)                                                                \
    extern "C" __global__ void __launch_bounds__(size / OWN, RESIDENT<T> / (size / OWN))          \
        st_csr_##size##_##name##_##extra(TILE_ARGS, const T* values, VECTOR_ARGS(T)) {            \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide, Values<T>{values}, x,    \
                             heads, y, alpha, beta);                                              \
    }
#define SIZES(T, name, extra)                                                                     \
    TILE(T, name, 1024, extra)                                                                    \
    TILE(T, name, 2048, extra)                                                                    \
    TILE(T, name, 4096, extra)
#define PRECISION(T, name)                                                                        \
    SIZES(T, name, 4)                                                                             \
    SIZES(T, name, 8)                                                                             \
    SIZES(T, name, 16)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) st_csr_heads_##name(                        \
        uint32_t count, const Header* tiles, const T* heads, T* y, T alpha) {                     \
        add_heads<T>(count, tiles, heads, y, alpha);                                              \
    }
PRECISION(float, f32)
PRECISION(double, f64)
