// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column (see
// src/format/stcsr.rs).
//
// A block of threads takes a tile, and every thread as many of its slots, whose places in memory
// hang on nothing but its number: columns are asked for at once. It multiplies its entries and puts
// the products into shared memory in the order of rows, where they are summed (sums.cuh). Lanes of a
// warp hold neighbouring columns: they ask for few lines of x. A row that began in an earlier tile is
// summed into heads[tile], which stcsr_heads adds to y after.
//
// Launch: tile / 8 threads a block, one block a tile; `tile` products in static shared memory.
#include "sums.cuh"
#include "tiles.cuh"

// x: first row, y: rows and entries of the row before << 16, z: where its wide warps begin among all,
// w: a bit a warp, whether it is wide.
using Header = uint4;

// Bits of a slot's column that are not kept with its place, EXTRA of them, thread by thread.
template <int EXTRA> struct High;
template <> struct High<4> {
    uint32_t bits;
    __device__ __forceinline__ uint32_t of(int k) const { return bits >> 4 * k & 0xf; }
};
template <> struct High<8> {
    uint2 bits;
    __device__ __forceinline__ uint32_t of(int k) const {
        return (k < 4 ? bits.x : bits.y) >> 8 * (k % 4) & 0xff;
    }
};
template <> struct High<16> {
    uint4 bits;
    __device__ __forceinline__ uint32_t of(int k) const {
        const uint32_t pair = k < 4 ? (k < 2 ? bits.x : bits.y) : (k < 6 ? bits.z : bits.w);
        return pair >> 16 * (k % 2) & 0xffff;
    }
};

// Values of slots: 16 bytes a lane, of all lanes of a warp, one piece after the other.
__device__ __forceinline__ void load(const float* warp, float (&v)[OWN]) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const float4 q = __ldcs(reinterpret_cast<const float4*>(warp) + (32 * k + threadIdx.x % 32));
        v[4 * k] = q.x, v[4 * k + 1] = q.y, v[4 * k + 2] = q.z, v[4 * k + 3] = q.w;
    }
}
__device__ __forceinline__ void load(const double* warp, double (&v)[OWN]) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const double2 q = __ldcs(reinterpret_cast<const double2*>(warp) + (32 * k + threadIdx.x % 32));
        v[2 * k] = q.x, v[2 * k + 1] = q.y;
    }
}

// Rows of a thread whose bounds it reads before it sums.
constexpr int EARLY = 2;

template <class T, int size, int EXTRA>
__device__ __forceinline__ void tile(const Header* __restrict__ tiles,
                                     const uint16_t* __restrict__ ends,
                                     const uint8_t* __restrict__ lasts,
                                     const uint4* __restrict__ bases,
                                     const High<16>* __restrict__ low,
                                     const High<EXTRA>* __restrict__ high,
                                     const High<16>* __restrict__ wide,
                                     const T* __restrict__ values, const T* __restrict__ x,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    constexpr int threads = size / OWN, bits = place_bits(size), left = 16 - bits;
    __shared__ Products<T, size> products;
    await_previous();
    const uint32_t t = blockIdx.x, warp = threadIdx.x / 32;
    const uint64_t thread = t * uint64_t(threads) + threadIdx.x;
    const High<16> packed{__ldcs(&low[thread].bits)};
    const High<EXTRA> more{__ldcs(&high[thread].bits)};
    const uint4 base = __ldg(bases + thread / 32);
    const Header header = __ldg(tiles + t);
    const uint32_t last = lasts[thread];
    uint32_t away[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) away[k] = packed.of(k) >> bits | more.of(k) << left;
    if (header.w >> warp & 1) {
        const uint64_t at = header.z + __popc(header.w & ((1u << warp) - 1));
        const High<16> most{__ldcs(&wide[at * 32 + threadIdx.x % 32].bits)};
#pragma unroll
        for (int k = 0; k < OWN; k++) away[k] |= most.of(k) << (left + EXTRA);
    }
    T factor[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const uint32_t from = k < 4 ? (k < 2 ? base.x : base.y) : (k < 6 ? base.z : base.w);
        factor[k] = gather(x + (from + away[k]));
    }
    // Values come while x does: asked for before, they would hold up the columns that x waits for.
    T value[OWN];
    load(values + thread / 32 * (32 * OWN), value);
#pragma unroll
    for (int k = 0; k < OWN; k++) products.at[packed.of(k) & (size - 1)] = value[k] * factor[k];
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

template <class T>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count && tiles[t].y >> 16 > 0) atomicAdd(y + tiles[t].x - 1, alpha * gather(heads + t));
}

// Threads that a processor is to hold: as many as registers allow without spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1280;
#else
template <class T> constexpr int RESIDENT = 1536;
#endif

#define TILE(T, name, size, extra)                                                                \
    extern "C" __global__ void __launch_bounds__(size / OWN, RESIDENT<T> / (size / OWN))          \
        stcsr_##size##_##name##_##extra(                                                          \
            const Header* tiles, const uint16_t* ends, const uint8_t* lasts, const uint4* bases,  \
            const High<16>* low, const High<extra>* high, const High<16>* wide, const T* values,  \
            const T* x, T* heads, T* y, T alpha, T beta) {                                        \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide, values, x, heads, y,     \
                             alpha, beta);                                                        \
    }
#define SIZES(T, name, extra)                                                                     \
    TILE(T, name, 1024, extra)                                                                    \
    TILE(T, name, 2048, extra)                                                                    \
    TILE(T, name, 4096, extra)
#define PRECISION(T, name)                                                                        \
    SIZES(T, name, 4)                                                                             \
    SIZES(T, name, 8)                                                                             \
    SIZES(T, name, 16)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) stcsr_heads_##name(                         \
        uint32_t count, const Header* tiles, const T* heads, T* y, T alpha) {                     \
        add_heads<T>(count, tiles, heads, y, alpha);                                              \
    }
PRECISION(float, f32)
PRECISION(double, f64)
