// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column (see
// src/format/stcsr.rs).
//
// A block of threads takes a tile. A thread reads groups of 4 entries, multiplies them and puts the
// products into shared memory in the order of rows, where they are summed (sums.cuh). Lanes of a
// warp hold neighbouring columns: they ask for few lines of x. A row that began in an earlier tile is
// summed into heads[tile], which stcsr_heads adds to y after.
//
// Launch: tile / 8 threads a block, one block a tile; `tile` products in static shared memory.
#include "sums.cuh"
#include "tiles.cuh"

// x: first group, y: first row, z: rows and groups << 16 (1 or more), w: entries of the row before.
using Header = uint4;

// Values of group `at` of a tile.
__device__ __forceinline__ void load(const float* tile, uint32_t at, uint32_t, float (&v)[4]) {
    const float4 q = __ldcs(reinterpret_cast<const float4*>(tile + 4 * at));
    v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}
__device__ __forceinline__ void load(const double* tile, uint32_t at, uint32_t groups, double (&v)[4]) {
    const double2 low = __ldcs(reinterpret_cast<const double2*>(tile + pair_at<double>(at, 0, groups)));
    const double2 high = __ldcs(reinterpret_cast<const double2*>(tile + pair_at<double>(at, 1, groups)));
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
}

// Groups that a thread takes.
constexpr int EACH = OWN / 4;

// Rows of a thread whose bounds it reads before it sums: as many as registers allow.
template <class T> constexpr int EARLY = sizeof(T) == 4 ? 2 : 1;

template <class T, int size>
__device__ __forceinline__ void tile(const Header* __restrict__ tiles,
                                     const uint16_t* __restrict__ ends,
                                     const uint8_t* __restrict__ lasts,
                                     const uint4* __restrict__ packed,
                                     const uint32_t* __restrict__ bases,
                                     const T* __restrict__ values, const T* __restrict__ x,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    constexpr int threads = size / OWN, bits = place_bits(size);
    __shared__ Products<T, size> products;
    await_previous();
    const uint32_t t = blockIdx.x;
    const Header header = __ldg(tiles + t);
    const uint32_t last = lasts[t * uint64_t(threads) + threadIdx.x];
    uint32_t base[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++)
        base[k] = __ldg(bases + (t * uint64_t(size / 128) + (threadIdx.x + k * threads) / 32));
    const uint32_t first = header.y, rows = header.z & 0xffff, groups = header.z >> 16;
    ends += first + 2 * uint64_t(t);
    // Threads past the last group do it again: they put the same products in the same places.
    uint4 entry[EACH];
    T value[EACH][4];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint32_t at = min(threadIdx.x + k * threads, groups - 1);
        entry[k] = __ldcs(packed + (header.x + uint64_t(at)));
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint32_t at = min(threadIdx.x + k * threads, groups - 1);
        load(values + header.x * uint64_t(4), at, groups, value[k]);
    }
    T factor[EACH][4];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        factor[k][0] = gather(x + (base[k] + (entry[k].x >> bits)));
        factor[k][1] = gather(x + (base[k] + (entry[k].y >> bits)));
        factor[k][2] = gather(x + (base[k] + (entry[k].z >> bits)));
        factor[k][3] = gather(x + (base[k] + (entry[k].w >> bits)));
    }
    constexpr uint32_t place = (1u << bits) - 1;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        products.at[entry[k].x & place] = value[k][0] * factor[k][0];
        products.at[entry[k].y & place] = value[k][1] * factor[k][1];
        products.at[entry[k].z & place] = value[k][2] * factor[k][2];
        products.at[entry[k].w & place] = value[k][3] * factor[k][3];
    }
    // Where the first rows of this thread lie is known when their sums are.
    uint32_t from[EARLY<T>], to[EARLY<T>];
    ends += 1 + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EARLY<T>; k++) {
        from[k] = to[k] = 0;
        if (threadIdx.x + k * threads < rows) from[k] = ends[k * threads], to[k] = ends[k * threads + 1];
    }
    __syncthreads();
    sum_rows(products, last);
    __syncthreads();
    y += first + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EARLY<T>; k++)
        if (threadIdx.x + k * threads < rows) store(y + k * threads, alpha, sum_of(products, from[k], to[k]), beta);
#pragma unroll 1
    for (uint32_t at = EARLY<T> * threads; threadIdx.x + at < rows; at += threads)
        store(y + at, alpha, sum_of(products, ends[at], ends[at + 1]), beta);
    if (header.w > 0 && threadIdx.x == 0) heads[t] = sum_of(products, 0, header.w);
}

template <class T>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count && tiles[t].w > 0) atomicAdd(y + tiles[t].y - 1, alpha * gather(heads + t));
}

// Threads that a processor is to hold: as many as registers allow without spills. For few tiles in
// double precision, with registers for all loads of x at once.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1152;
#else
template <class T> constexpr int RESIDENT = 1536;
#endif
constexpr int FEW = 1024;

#define TILE(symbol, T, size, resident)                                                           \
    extern "C" __global__ void __launch_bounds__(size / OWN, resident / (size / OWN)) symbol(     \
        const Header* tiles, const uint16_t* ends, const uint8_t* lasts, const uint4* packed,     \
        const uint32_t* bases, const T* values, const T* x, T* heads, T* y, T alpha, T beta) {    \
        tile<T, size>(tiles, ends, lasts, packed, bases, values, x, heads, y, alpha, beta);       \
    }
#define HEADS(T, name)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) stcsr_heads_##name(                         \
        uint32_t count, const Header* tiles, const T* heads, T* y, T alpha) {                     \
        add_heads<T>(count, tiles, heads, y, alpha);                                              \
    }
TILE(stcsr_1024_f32, float, 1024, RESIDENT<float>)
TILE(stcsr_2048_f32, float, 2048, RESIDENT<float>)
TILE(stcsr_4096_f32, float, 4096, RESIDENT<float>)
TILE(stcsr_1024_f64, double, 1024, RESIDENT<double>)
TILE(stcsr_2048_f64, double, 2048, RESIDENT<double>)
TILE(stcsr_4096_f64, double, 4096, RESIDENT<double>)
TILE(stcsr_1024_f64_few, double, 1024, FEW)
TILE(stcsr_2048_f64_few, double, 2048, FEW)
TILE(stcsr_4096_f64_few, double, 4096, FEW)
HEADS(float, f32)
HEADS(double, f64)
