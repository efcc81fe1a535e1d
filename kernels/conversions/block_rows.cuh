// Merge of the rows of a block row, and the kernel that fills dense b x b blocks from CSR rows
// (convert_blocks.cu, convert_bhll_f32.cu).
//
// A warp processes a hack of 32 block rows: it reads the next entries of all their rows, along the
// rows, to shared memory, where each lane merges the `b` rows of a block row, whose columns ascend.
#pragma once
#include "common.cuh"

constexpr uint32_t none = 0xffffffffu, full = 0xffffffffu;

// Entries of a row that are read at a time: enough for `slots_ahead` blocks of any content.
constexpr uint32_t ahead = 16;
template <int b> constexpr uint32_t slots_ahead = ahead / b;

// The next entries of the rows of a hack: row p of block row l is at [p][l].
template <int b, class T> using Ahead = T[b][32][ahead + 1];

// State of the merge of a lane's block row.
template <int b> struct Merge {
    const Ahead<b, uint32_t>& columns;
    uint32_t at[b], end[b];
    uint32_t taken[b];  // entries consumed since `at`
    uint32_t head[b];   // column of the next entry

    // For a `block_row` past the last one, there are no entries.
    __device__ __forceinline__ Merge(uint32_t nrows, uint64_t block_row, const uint32_t* row_ptr,
                                     const Ahead<b, uint32_t>& columns)
        : columns(columns) {
#pragma unroll
        for (int p = 0; p < b; p++) {
            const uint64_t row = block_row * b + p;
            at[p] = row < nrows ? row_ptr[row] : 0;
            end[p] = row < nrows ? row_ptr[row + 1] : 0;
            taken[p] = 0;
        }
    }
    // Reads the next entries of all rows: read(p, l, k, at, is) stores entry `at` at [p][l][k] if
    // `is`.
    template <class Read> __device__ __forceinline__ void fetch(const Read& read) {
        const uint32_t lane = threadIdx.x;
        __syncwarp();
#pragma unroll
        for (int p = 0; p < b; p++) {
            at[p] += taken[p];
            taken[p] = 0;
#pragma unroll
            for (int part = 0; part < 32; part += 32 / ahead) {
                const uint32_t l = part + lane / ahead, k = lane % ahead;
                const uint32_t from = __shfl_sync(full, at[p], l) + k;
                read(p, l, k, from, from < __shfl_sync(full, end[p], l));
            }
        }
        __syncwarp();
#pragma unroll
        for (int p = 0; p < b; p++) head[p] = columns[p][lane][0];
    }
    __device__ __forceinline__ bool left() const {
        bool left = false;
#pragma unroll
        for (int p = 0; p < b; p++) left |= at[p] + taken[p] < end[p];
        return left;
    }
    // The smallest block column among the entries read and not yet consumed.
    __device__ __forceinline__ uint32_t next() const {
        uint32_t least = none;
#pragma unroll
        for (int p = 0; p < b; p++) least = min(least, head[p]);
        return least == none ? none : least / b;
    }
    // Consumes the entries of this block column: calls take(p, q, k) for each, where k counts from
    // the first entry read.
    template <class Take> __device__ __forceinline__ void pass(uint32_t block_column, const Take& take) {
#pragma unroll
        for (int p = 0; p < b; p++) {
#pragma unroll
            for (int q = 0; q < b; q++) {
                if (head[p] != none && head[p] - block_column * b == q) {
                    take(p, q, taken[p]);
                    taken[p]++;
                    head[p] = columns[p][threadIdx.x][taken[p]];
                }
            }
        }
    }
};

// Fills the slots of a hack of 32 block rows, one lane per block row: columns (where requested),
// and values with fill, -0.0, in between. Values are converted from type T to type Value.
template <class T, class Value, class Column, int b>
__device__ __forceinline__ void fill_blocks(uint32_t nrows, const uint32_t* narrow,
                                            const uint64_t* wide, const uint32_t* base,
                                            const uint32_t* __restrict__ order,
                                            const uint32_t* __restrict__ row_ptr,
                                            const uint32_t* __restrict__ col_idx,
                                            const T* __restrict__ from, Column* columns,
                                            Value* values) {
    __shared__ Ahead<b, uint32_t> next_columns;
    __shared__ Ahead<b, T> next_values;
    const uint32_t h = blockIdx.x, lane = threadIdx.x;
    const uint64_t i = uint64_t(h) * 32 + lane;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t low = base ? base[h] : 0;
    Merge<b> merge(nrows, i * b < nrows && order ? order[i] : i, row_ptr, next_columns);
    for (uint64_t slot = start; slot < end; slot++) {
        if ((slot - start) % slots_ahead<b> == 0) {
            merge.fetch([&](int p, uint32_t l, uint32_t k, uint32_t at, bool is) {
                next_columns[p][l][k] = is ? __ldg(col_idx + at) : none;
                next_values[p][l][k] = is ? __ldg(from + at) : T(0);
            });
        }
        const uint32_t column = merge.next();
        Value block[b][b];
#pragma unroll
        for (int e = 0; e < b * b; e++) block[e / b][e % b] = Value(-0.0);
        if (column != none)
            merge.pass(column, [&](int p, int q, uint32_t k) {
                block[p][q] = Value(next_values[p][lane][k] + T(0));
            });
        if (columns) columns[slot * 32 + lane] = column == none ? Column(none) : Column(column - low);
#pragma unroll
        for (int e = 0; e < b * b; e++)
            values[(slot * b * b + e) * 32 + lane] = block[e / b][e % b];
    }
}
