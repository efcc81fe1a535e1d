// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column, and few
// distinct values (see src/format/stvi.rs).
//
// As stcsr.cu, but that a slot has the number of its value, in 8 bits, in place of the value: the
// values themselves a block keeps in shared memory. Where there is but one (`_one`), slots have none.
//
// Launch: tile / 8 threads a block, one block a tile; `tile` products in static shared memory.
#include "sums.cuh"
#include "tiles.cuh"

// `width` bits of each of a thread's slots, one after the other.
template <int width> struct Numbers {
    uint32_t words[width / 4];
    __device__ __forceinline__ Numbers(const uint32_t* all, uint64_t thread) {
        if constexpr (width == 4) {
            words[0] = __ldcs(all + thread);
        } else if constexpr (width == 8) {
            const uint2 two = __ldcs(reinterpret_cast<const uint2*>(all) + thread);
            words[0] = two.x, words[1] = two.y;
        } else {
            const uint4 four = __ldcs(reinterpret_cast<const uint4*>(all) + thread);
            words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
        }
    }
    __device__ __forceinline__ uint32_t of(int k) const {
        return words[k * width / 32] >> k * width % 32 & ((1u << width) - 1);
    }
};

// The most distinct values.
constexpr uint32_t FEW = 256;

// Rows of a thread whose bounds it reads before it sums.
constexpr int EARLY = 2;

template <class T, int size, int EXTRA, bool one>
__device__ __forceinline__ void tile(const uint4* __restrict__ tiles,
                                     const uint16_t* __restrict__ ends,
                                     const uint8_t* __restrict__ lasts,
                                     const uint4* __restrict__ bases,
                                     const uint32_t* __restrict__ low,
                                     const uint32_t* __restrict__ high,
                                     const uint32_t* __restrict__ wide,
                                     const uint32_t* __restrict__ numbers, uint32_t count,
                                     const T* __restrict__ few, const T* __restrict__ x,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    constexpr int threads = size / OWN, bits = place_bits(size), left = 16 - bits;
    __shared__ Products<T, size> products;
    __shared__ T values[one ? 1 : FEW];
    await_previous();
    const uint32_t t = blockIdx.x, warp = threadIdx.x / 32;
    const uint64_t thread = t * uint64_t(threads) + threadIdx.x;
    const Numbers<16> packed(low, thread);
    const Numbers<EXTRA> more(high, thread);
    const uint4 base = __ldg(bases + thread / 32);
    const uint4 header = __ldg(tiles + t);
    const uint32_t last = lasts[thread];
    if (!one)
        for (uint32_t i = threadIdx.x; i < count; i += threads) values[i] = few[i];
    uint32_t away[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) away[k] = packed.of(k) >> bits | more.of(k) << left;
    if (header.w >> warp & 1) {
        const uint64_t at = header.z + __popc(header.w & ((1u << warp) - 1));
        const Numbers<16> most(wide, at * 32 + threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < OWN; k++) away[k] |= most.of(k) << (left + EXTRA);
    }
    T factor[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const uint32_t from = k < 4 ? (k < 2 ? base.x : base.y) : (k < 6 ? base.z : base.w);
        factor[k] = gather(x + (from + away[k]));
    }
    if constexpr (one) {
        const T value = __ldg(few);
#pragma unroll
        for (int k = 0; k < OWN; k++) products.at[packed.of(k) & (size - 1)] = value * factor[k];
    } else {
        const Numbers<8> number(numbers, thread);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OWN; k++)
            products.at[packed.of(k) & (size - 1)] = values[number.of(k)] * factor[k];
    }
    // Where the first rows of this thread lie is known when their sums are.
    const uint32_t first = header.x, rows = header.y & 0xffff, begun = header.y >> 16;
    uint32_t from[EARLY], to[EARLY];
    ends += first + 2 * uint64_t(t) + 1 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EARLY; k++) {
        from[k] = to[k] = 0;
        if (threadIdx.x + k * threads < rows) from[k] = ends[k * threads], to[k] = ends[k * threads + 1];
    }
    __syncthreads();
    sum_rows(products, last);
    __syncthreads();
    y += first + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EARLY; k++)
        if (threadIdx.x + k * threads < rows) store(y + k * threads, alpha, sum_of(products, from[k], to[k]), beta);
#pragma unroll 1
    for (uint32_t at = EARLY * threads; threadIdx.x + at < rows; at += threads)
        store(y + at, alpha, sum_of(products, ends[at], ends[at + 1]), beta);
    if (begun > 0 && threadIdx.x == 0) heads[t] = sum_of(products, 0, begun);
}

// Threads that a processor is to hold: as many as registers allow without spills, which not all kernels
// of single precision do at 32 a thread.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T, int EXTRA, bool one> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1280;
#else
template <class T, int EXTRA, bool one>
constexpr int RESIDENT = sizeof(T) == 4 && one == (EXTRA == 16) ? 2048 : 1536;
#endif

#define TILE(T, name, size, extra, suffix, one)                                                   \
    extern "C" __global__ void                                                                    \
    __launch_bounds__(size / OWN, RESIDENT<T, extra, one> / (size / OWN))                         \
        stvi_##size##_##name##_##extra##suffix(                                                   \
            const uint4* tiles, const uint16_t* ends, const uint8_t* lasts, const uint4* bases,   \
            const uint32_t* low, const uint32_t* high, const uint32_t* wide,                      \
            const uint32_t* numbers, uint32_t count, const T* few, const T* x, T* heads, T* y,    \
            T alpha, T beta) {                                                                    \
        tile<T, size, extra, one>(tiles, ends, lasts, bases, low, high, wide, numbers, count,     \
                                  few, x, heads, y, alpha, beta);                                 \
    }
#define KINDS(T, name, size, extra)                                                               \
    TILE(T, name, size, extra, , false)                                                           \
    TILE(T, name, size, extra, _one, true)
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
