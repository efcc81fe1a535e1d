// Slots of rows in slices or columns, and the kernel that fills them from CSR rows (convert.cu,
// convert_narrow.cu).
#pragma once
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu;

// Position of the slots of stored rows: slices of `rows` rows whose starts are listed, or columns
// that span all rows and whose starts are listed or are multiples of `pitch`.
struct Slots {
    uint32_t rows;  // per slice; 0 for columns that span all rows
    uint32_t run_log;  // log2 of the entries of a row stored next to each other
    uint64_t pitch;
    const uint32_t* narrow;
    const uint64_t* wide;
    __device__ __forceinline__ uint64_t start(uint32_t at) const {
        return narrow ? narrow[at] : wide ? wide[at] : at * pitch;
    }
    // True if any of `count` stored rows from `first` on has a slot `k`; `width` is the number of
    // columns where these span all rows.
    __device__ __forceinline__ bool reach(uint32_t k, uint32_t width, uint64_t first, uint64_t count,
                                          uint32_t stored) const {
        if (first >= stored) return false;
        // Columns that span all rows only get shorter.
        if (!rows) return k < width && start(k + 1) - start(k) > first;
        const uint64_t last = min(first + count, uint64_t(stored)) - 1;
        for (uint64_t s = first / rows; s <= last / rows; s++)
            if (start(uint32_t(s + 1)) - start(uint32_t(s)) > uint64_t(k) * rows) return true;
        return false;
    }
};

// Writes columns and values of CSR rows to their slots, and padding to the others, for the 1024 /
// depth stored rows from `first` on: slots `k0` to `end` of each row, `depth` at a time in strides
// of `stride`. The slots are transposed in shared memory, so that reads run along rows and writes
// along columns. `to` relabels columns; `base` is subtracted from columns of 16 bits. Either of
// `columns` and `values` may be null. Values are converted from type T to type Value. Blocks of 128
// threads.
template <int depth, class T, class Value, class Column, class Offset>
__device__ __forceinline__ void fill(uint64_t first, uint32_t k0, uint32_t end, uint32_t stride,
                                     uint32_t nrows, uint32_t stored, uint32_t width,
                                     const Slots slots, const uint32_t* __restrict__ order,
                                     const uint32_t* __restrict__ to,
                                     const uint32_t* __restrict__ base,
                                     const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ from, Column* columns, Value* values) {
    constexpr uint32_t threads = 128, rows = 1024 / depth, each = 1024 / threads;
    __shared__ Value value_tile[rows][depth + 1];
    __shared__ uint32_t column_tile[rows][depth + 1];
    __shared__ Offset begins[rows];
    __shared__ uint32_t lengths[rows], widest;
    __syncthreads();
    if (threadIdx.x == 0) widest = 0;
    if (threadIdx.x < rows) {
        const uint64_t i = first + threadIdx.x;
        const uint32_t row = i < nrows && order ? order[i] : uint32_t(i);
        const Offset begin = i < nrows ? row_ptr[row] : 0;
        begins[threadIdx.x] = begin;
        lengths[threadIdx.x] = i < nrows ? uint32_t(row_ptr[row + uint64_t(1)] - begin) : 0;
    }
    __syncthreads();
    // The row that this thread writes, the start of its slots, and their number.
    const uint32_t mine = threadIdx.x % rows;
    const uint64_t i = first + mine;
    uint64_t start = i;
    uint32_t low = 0;
    if (i >= stored) {
        width = 0;
    } else if (slots.rows) {
        const uint32_t s = uint32_t(i / slots.rows);
        start = slots.start(s);
        width = uint32_t((slots.start(s + 1) - start) / slots.rows);
        start += i - uint64_t(s) * slots.rows << slots.run_log;
        if (base) low = base[s];
    }
    const uint32_t length = lengths[mine], all = __reduce_max_sync(full, width);
    if (threadIdx.x % 32 == 0) atomicMax(&widest, all);
    __syncthreads();
    for (; k0 < min(widest, end); k0 += stride) {
        // Columns that span all rows only get shorter.
        if (!slots.rows && slots.start(k0 + 1) - slots.start(k0) <= first) break;
        uint32_t column[each];
        T value[each];
#pragma unroll
        for (uint32_t e = 0; e < each; e++) {
            const uint32_t at = e * threads + threadIdx.x, r = at / depth, k = k0 + at % depth;
            const bool is = k < lengths[r];
            column[e] = is && columns ? __ldcs(col_idx + begins[r] + k) : 0;
            value[e] = is && values ? __ldcs(from + begins[r] + k) : T(0);
        }
        __syncthreads();
#pragma unroll
        for (uint32_t e = 0; e < each; e++) {
            const uint32_t at = e * threads + threadIdx.x, r = at / depth, k = at % depth;
            const bool relabel = to && columns && k0 + k < lengths[r];
            column_tile[r][k] = relabel ? to[column[e]] : column[e];
            value_tile[r][k] = Value(value[e]);
        }
        __syncthreads();
#pragma unroll
        for (uint32_t e = 0; e < each; e++) {
            const uint32_t k = e * (threads / rows) + threadIdx.x / rows, at_k = k0 + k;
            if (at_k >= width) break;
            const uint32_t run = at_k >> slots.run_log;
            uint64_t at = start + (uint64_t(run) * slots.rows << slots.run_log) +
                          (at_k - (run << slots.run_log));
            if (!slots.rows) {
                const uint64_t column_start = slots.start(at_k);
                if (i >= slots.start(at_k + 1) - column_start) break;
                at = column_start + i;
            }
            const bool is = at_k < length;
            if (columns) columns[at] = is ? Column(column_tile[mine][k] - low) : Column(~Column(0));
            if (values) values[at] = is ? value_tile[mine][k] : Value(0);
        }
    }
}

// With `parts` = 0, a block fills the first `cap` slots of 1024 / depth stored rows. Otherwise it
// fills the remaining slots of the few rows that have more: `parts` blocks share 32 times as many
// rows, from all over the matrix, since long rows are often neighbours.
template <int depth, class T, class Value, class Column, class Offset, class... Rest>
__device__ __forceinline__ void fill_part(uint32_t cap, uint32_t parts, uint32_t nrows,
                                          uint32_t stored, uint32_t width, const Slots slots,
                                          Rest... rest) {
    constexpr uint32_t rows = 1024 / depth;
    if (parts == 0) {
        fill<depth, T, Value, Column, Offset>(uint64_t(blockIdx.x) * rows, 0, cap, depth, nrows,
                                              stored, width, slots, rest...);
        return;
    }
    const uint64_t first = uint64_t(blockIdx.x / parts) * rows, pitch = gridDim.x / parts * rows;
    const uint32_t part = blockIdx.x % parts;
    const bool more = slots.reach(cap, width, first + threadIdx.x % 32 * pitch, rows, stored);
    for (uint32_t left = __ballot_sync(full, more); left; left &= left - 1)
        fill<depth, T, Value, Column, Offset>(first + (__ffs(left) - 1) * pitch, cap + part * depth,
                                              full, parts * depth, nrows, stored, width, slots,
                                              rest...);
}
