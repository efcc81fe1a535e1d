// Products of a tile of entries that are sorted by column (st_csr.cu, st_csr_vi.cu).
//
// A block of threads processes a tile, and every thread the same number of slots. The position of
// these slots in memory depends only on the thread's number, so columns are loaded at once. A
// thread multiplies its entries and writes the products to shared memory in the order of rows,
// where they are summed (sums.cuh). Lanes of a warp hold neighbouring columns, so they load few
// lines of x. The part of a row that began in an earlier tile is summed into heads[tile], which
// st_csr_heads adds to y afterwards.
//
// Launch: one block per tile, tile / 8 threads per block; `tile` products in static shared memory.
#pragma once
#include "sums.cuh"
#include "tiles.cuh"

// x: first row; y: number of rows, and entries of the row before << 16; z: index of the tile's
// first wide warp; w: one bit per warp, set if the warp is wide.
using Header = uint4;

// `width` bits for each of a thread's slots, packed.
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

// Number of a thread's rows whose bounds it reads before it sums.
constexpr int EARLY = 2;

// `low` holds 16 bits per slot: its place and, in the remaining bits, the low bits of its column;
// `high` holds EXTRA further bits; `wide` holds 16 more bits for the slots of wide warps.
// values.begin() is called before the loads of x, values.take(thread, v) after they are issued: if
// values were loaded earlier, they would delay the columns, for which the loads of x wait.
template <class T, int size, int EXTRA, class Values>
__device__ __forceinline__ void tile(const Header* __restrict__ tiles,
                                     const uint16_t* __restrict__ ends,
                                     const uint8_t* __restrict__ lasts,
                                     const uint4* __restrict__ bases,
                                     const uint32_t* __restrict__ low,
                                     const uint32_t* __restrict__ high,
                                     const uint32_t* __restrict__ wide, const Values values,
                                     const T* __restrict__ x, T* __restrict__ heads, T* y, T alpha,
                                     T beta) {
    constexpr int threads = size / OWN, bits = place_bits(size), left = 16 - bits;
    __shared__ Products<T, size> products;
    await_previous();
    const uint32_t t = blockIdx.x, warp = threadIdx.x / 32;
    const uint64_t thread = t * uint64_t(threads) + threadIdx.x;
    const Numbers<16> packed(low, thread);
    const Numbers<EXTRA> more(high, thread);
    const uint4 base = __ldg(bases + thread / 32);
    const Header header = __ldg(tiles + t);
    const uint32_t last = lasts[thread];
    values.begin();
    uint32_t away[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) away[k] = packed.of(k) >> bits | more.of(k) << left;
    if (header.w >> warp & 1) {
        const uint64_t at = header.z + __popc(header.w & ((1u << warp) - 1));
        const Numbers<16> most(wide, at * 32 + threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < OWN; k++) away[k] |= most.of(k) << (left + EXTRA);
    }
    T factor[OWN], value[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const uint32_t from = k < 4 ? (k < 2 ? base.x : base.y) : (k < 6 ? base.z : base.w);
        factor[k] = gather(x + (from + away[k]));
    }
    values.take(thread, value);
#pragma unroll
    for (int k = 0; k < OWN; k++) products.at[packed.of(k) & (size - 1)] = value[k] * factor[k];
    // Load the bounds of this thread's first rows early, so that they arrive together with the
    // sums.
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

// The arguments of every kernel of a tile, before and after its values.
#define TILE_ARGS                                                                                 \
    const Header *tiles, const uint16_t *ends, const uint8_t *lasts, const uint4 *bases,          \
        const uint32_t *low, const uint32_t *high, const uint32_t *wide
#define VECTOR_ARGS(T) const T *x, T *heads, T *y, T alpha, T beta
