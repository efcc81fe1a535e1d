// Conversion of a CSR matrix that the GPU holds to dense b x b blocks (src/format/blocks.rs).
//
// A thread merges the `b` rows of a block row, whose columns rise. Row pointers are 32-bit.
#include "common.cuh"

constexpr uint32_t none = 0xffffffffu;

// What is left of the rows of a block row.
template <int b> struct Merge {
    const uint32_t* col_idx;
    uint32_t at[b], end[b];
    __device__ __forceinline__ Merge(uint32_t nrows, uint32_t block_row, const uint32_t* row_ptr,
                                     const uint32_t* col_idx)
        : col_idx(col_idx) {
#pragma unroll
        for (int p = 0; p < b; p++) {
            const uint64_t row = uint64_t(block_row) * b + p;
            at[p] = row < nrows ? row_ptr[row] : 0;
            end[p] = row < nrows ? row_ptr[row + 1] : 0;
        }
    }
    // The least block column that is left.
    __device__ __forceinline__ uint32_t next() const {
        uint32_t least = none;
#pragma unroll
        for (int p = 0; p < b; p++)
            if (at[p] < end[p]) least = min(least, __ldg(col_idx + at[p]) / b);
        return least;
    }
    // Takes the entries of this block column: take(p, q, k) of each.
    template <class Take> __device__ __forceinline__ void pass(uint32_t block_column, const Take& take) {
#pragma unroll
        for (int p = 0; p < b; p++) {
#pragma unroll
            for (int q = 0; q < b; q++) {
                const uint64_t column = uint64_t(block_column) * b + q;
                if (at[p] < end[p] && __ldg(col_idx + at[p]) == column) {
                    take(p, q, at[p]);
                    at[p]++;
                }
            }
        }
    }
};

// Number of blocks, and first and last block column, of each block row.
template <int b>
__device__ __forceinline__ void block_lengths(uint32_t nrows, const uint32_t* row_ptr,
                                              const uint32_t* col_idx, uint32_t* lengths,
                                              uint32_t* firsts, uint32_t* lasts) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (uint64_t(i) * b >= nrows) return;
    Merge<b> merge(nrows, i, row_ptr, col_idx);
    uint32_t length = 0, first = none, last = 0;
    for (uint32_t column = merge.next(); column != none; column = merge.next()) {
        if (length == 0) first = column;
        last = column;
        length++;
        merge.pass(column, [](int, int, uint32_t) {});
    }
    lengths[i] = length, firsts[i] = first, lasts[i] = last;
}

// First block column of each hack of 32 block rows, and the widest span of all: a warp a hack.
extern "C" __global__ void __launch_bounds__(256)
    block_spans(uint32_t block_rows, uint32_t hacks, const uint32_t* order, const uint32_t* firsts,
                const uint32_t* lasts, uint32_t* base, uint32_t* widest) {
    const uint32_t h = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (h >= hacks) return;
    const uint32_t i = h * 32 + lane;
    const uint32_t row = i < block_rows ? (order ? order[i] : i) : none;
    const uint32_t low = __reduce_min_sync(none, row != none ? firsts[row] : none);
    const uint32_t high =
        __reduce_max_sync(none, row != none && firsts[row] != none ? lasts[row] : 0);
    if (lane > 0) return;
    base[h] = low == none ? 0 : low;
    if (low != none) atomicMax(widest, high - low + 1);
}

// Fills the slots of a hack of 32 block rows, a lane each: columns (where they are asked for), and
// values with fill, -0.0, in between.
template <class T, class Column, int b>
__device__ __forceinline__ void fill_blocks(uint32_t nrows, const uint32_t* narrow,
                                            const uint64_t* wide, const uint32_t* base,
                                            const uint32_t* order, const uint32_t* row_ptr,
                                            const uint32_t* col_idx, const T* from,
                                            Column* columns, T* values) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, h = i / 32, lane = i % 32;
    const uint32_t block_rows = (nrows + b - 1) / b;
    if (h * 32 >= block_rows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t low = base ? base[h] : 0;
    // Past the last block row there is nothing to merge.
    Merge<b> merge(i < block_rows ? nrows : 0, i < block_rows && order ? order[i] : i, row_ptr,
                   col_idx);
    for (uint64_t slot = start; slot < end; slot++) {
        const uint32_t column = merge.next();
        T block[b][b];
#pragma unroll
        for (int e = 0; e < b * b; e++) block[e / b][e % b] = T(-0.0);
        if (column != none)
            merge.pass(column, [&](int p, int q, uint32_t k) { block[p][q] = __ldg(from + k) + T(0); });
        if (columns) columns[slot * 32 + lane] = column == none ? Column(none) : Column(column - low);
#pragma unroll
        for (int e = 0; e < b * b; e++)
            values[(slot * b * b + e) * 32 + lane] = block[e / b][e % b];
    }
}

#define FILL(b, T, name, Column, bits)                                                            \
    extern "C" __global__ void __launch_bounds__(128) fill_blocks_b##b##_c##bits##_##name(        \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,       \
        const uint32_t* order, const uint32_t* row_ptr, const uint32_t* col_idx, const T* from,   \
        Column* columns, T* values) {                                                             \
        fill_blocks<T, Column, b>(nrows, narrow, wide, base, order, row_ptr, col_idx, from,       \
                                  columns, values);                                               \
    }
#define BLOCKS(b)                                                                                 \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        block_lengths_b##b(uint32_t nrows, const uint32_t* row_ptr, const uint32_t* col_idx,      \
                           uint32_t* lengths, uint32_t* firsts, uint32_t* lasts) {                \
        block_lengths<b>(nrows, row_ptr, col_idx, lengths, firsts, lasts);                        \
    }                                                                                             \
    FILL(b, double, f64, uint32_t, 32)                                                            \
    FILL(b, double, f64, uint16_t, 16)                                                            \
    FILL(b, float, f32, uint32_t, 32)                                                             \
    FILL(b, float, f32, uint16_t, 16)
BLOCKS(2)
BLOCKS(3)
BLOCKS(4)
BLOCKS(5)
BLOCKS(6)
