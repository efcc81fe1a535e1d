// Conversion of a CSR matrix that the GPU holds to the arrays of other layouts
// (src/format/gpu/convert.rs and the formats' own modules define the sequence of steps). Scans and
// sorts between these steps are CUB's (primitives/primitives.cu).
//
// Launch: blocks of 256 threads unless stated otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices ascend in each row.
#include "common.cuh"

#include <cub/block/block_radix_sort.cuh>

constexpr uint32_t full = 0xffffffffu;

// *most = max(*most, n); fast where *most is large enough in most calls.
__device__ __forceinline__ void raise(uint32_t* most, uint32_t n) {
    if (n > __ldcg(most)) atomicMax(most, n);
}

// lengths[i] = entries of row i; *longest, initially 0, becomes the largest.
template <class Offset>
__device__ __forceinline__ void lengths(uint32_t nrows, const Offset* row_ptr, uint32_t* lengths,
                                        uint32_t* longest) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t length = i < nrows ? uint32_t(row_ptr[i + 1] - row_ptr[i]) : 0;
    if (i < nrows) lengths[i] = length;
    const uint32_t most = __reduce_max_sync(full, length);
    if (threadIdx.x % 32 == 0) raise(longest, most);
}

// Sort keys: a stable descending sort by them orders rows by descending length within windows. For
// windows that are too large for a block to sort.
extern "C" __global__ void __launch_bounds__(256)
    sort_keys(uint32_t nrows, uint32_t window, uint32_t length_bits, const uint32_t* lengths,
              uint64_t* keys, uint32_t* rows) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= nrows) return;
    const uint64_t last = (nrows - 1) / window;
    keys[i] = (last - i / window) << length_bits | lengths[i];
    rows[i] = uint32_t(i);
}

// Orders rows by descending length within windows, stably: one block per window.
template <int threads, int each>
__device__ __forceinline__ void sort_window(uint32_t nrows, uint32_t window,
                                            const uint32_t* __restrict__ lengths, uint32_t* order) {
    using Sort = cub::BlockRadixSort<uint32_t, threads, each, uint16_t>;
    __shared__ typename Sort::TempStorage storage;
    __shared__ uint32_t all;
    const uint64_t first = uint64_t(blockIdx.x) * window;
    const uint32_t count = uint32_t(min(uint64_t(window), nrows - first));
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    uint32_t length[each], any = 0;
    uint16_t place[each];
#pragma unroll
    for (int k = 0; k < each; k++) {
        // Places past the last row count as rows without entries, which stay last.
        const uint32_t at = threadIdx.x * each + k;
        length[k] = at < count ? lengths[first + at] : 0;
        place[k] = uint16_t(at);
        any |= length[k];
    }
    any = __reduce_or_sync(full, any);
    if (threadIdx.x % 32 == 0) atomicOr(&all, any);
    __syncthreads();
    const int bits = max(32 - __clz(all), 1);
    Sort(storage).SortDescendingBlockedToStriped(length, place, 0, bits);
#pragma unroll
    for (int k = 0; k < each; k++) {
        const uint32_t at = k * threads + threadIdx.x;
        if (at < count) order[first + at] = uint32_t(first + place[k]);
    }
}
extern "C" __global__ void __launch_bounds__(128)
    sort_window_512(uint32_t nrows, uint32_t window, const uint32_t* lengths, uint32_t* order) {
    sort_window<128, 4>(nrows, window, lengths, order);
}
extern "C" __global__ void __launch_bounds__(512)
    sort_window_4096(uint32_t nrows, uint32_t window, const uint32_t* lengths, uint32_t* order) {
    sort_window<512, 8>(nrows, window, lengths, order);
}

extern "C" __global__ void __launch_bounds__(256)
    inverse(uint32_t n, const uint32_t* order, uint32_t* inverse) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) inverse[order[i]] = uint32_t(i);
}

// to[i] = from[order[i]]; without an order, a copy.
extern "C" __global__ void __launch_bounds__(256)
    permute(uint32_t n, const uint32_t* order, const uint32_t* from, uint32_t* to) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[order ? order[i] : i];
}

// Copies the numbers of a conversion to page-locked memory of the host, one per thread.
extern "C" __global__ void __launch_bounds__(256)
    tell_numbers(const uint32_t* __restrict__ numbers, uint32_t* host) {
    host[threadIdx.x] = numbers[threadIdx.x];
}

// Converts offsets to 32 bits, where these hold the last one, which is copied to *total.
extern "C" __global__ void __launch_bounds__(256)
    narrow_offsets(uint64_t n, const uint64_t* wide, uint32_t* narrow, uint64_t* total) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) narrow[i] = uint32_t(wide[i]);
    if (i == n - 1) *total = wide[i];
}

// widths[s] = length of the longest of the `rows` stored rows of slice s, rounded up to a multiple:
// one warp per slice.
extern "C" __global__ void __launch_bounds__(256)
    slice_widths(uint32_t nrows, uint32_t rows, uint32_t slices, uint32_t multiple,
                 const uint32_t* order, const uint32_t* lengths, uint32_t* widths) {
    const uint32_t s = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (s >= slices) return;
    uint32_t longest = 0;
    for (uint32_t r = lane; r < rows; r += 32) {
        const uint64_t i = uint64_t(s) * rows + r;
        if (i < nrows) longest = max(longest, lengths[order ? order[i] : i]);
    }
    longest = __reduce_max_sync(full, longest);
    if (lane == 0) widths[s] = (longest + multiple - 1) / multiple * multiple;
}

// counts[k] = number of rows that reach column k of jagged diagonals, rounded up to `br`. The
// lengths `sorted` descend. The thread of a row fills the columns that end with this row, or the
// whole warp if there are many. counts[width] must be 0 before.
extern "C" __global__ void __launch_bounds__(256)
    jagged_counts(uint32_t nrows, uint32_t br, const uint32_t* sorted, uint32_t* counts) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t lane = threadIdx.x % 32, count = uint32_t((i + br) / br * br);
    const uint32_t end = i < nrows ? sorted[i] : 0, next = i + 1 < nrows ? sorted[i + 1] : 0;
    const bool many = end > next + 32;
    for (uint32_t k = next; !many && k < end; k++) counts[k] = count;
    for (uint32_t left = __ballot_sync(full, many); left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        const uint32_t last = __shfl_sync(full, end, from), of = __shfl_sync(full, count, from);
        for (uint32_t k = __shfl_sync(full, next, from) + lane; k < last; k += 32) counts[k] = of;
    }
}

// First column of each slice (base), and the widest span of all slices (initially 0): one warp per
// slice. Columns are those of the permuted basis where `to` is given.
template <class Offset>
__device__ __forceinline__ void spans(uint32_t nrows, uint32_t rows, uint32_t slices,
                                      const uint32_t* order, const uint32_t* to,
                                      const Offset* row_ptr, const uint32_t* col_idx,
                                      uint32_t* base, uint32_t* widest) {
    const uint32_t s = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (s >= slices) return;
    uint32_t low = full, high = 0;
    for (uint32_t r = lane; r < rows; r += 32) {
        const uint64_t i = uint64_t(s) * rows + r;
        if (i >= nrows) break;
        const uint32_t row = order ? order[i] : uint32_t(i);
        const Offset begin = row_ptr[row], end = row_ptr[row + 1];
        if (begin == end) continue;
        if (to) {
            for (Offset k = begin; k < end; k++) {
                const uint32_t column = to[col_idx[k]];
                low = min(low, column), high = max(high, column);
            }
        } else {
            low = min(low, col_idx[begin]), high = max(high, col_idx[end - 1]);
        }
    }
    low = __reduce_min_sync(full, low), high = __reduce_max_sync(full, high);
    if (lane > 0) return;
    base[s] = low == full ? 0 : low;
    if (low != full) raise(widest, high - low + 1);
}

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
// `columns` and `values` may be null. Blocks of 128 threads.
template <int depth, class T, class Column, class Offset>
__device__ __forceinline__ void fill(uint64_t first, uint32_t k0, uint32_t end, uint32_t stride,
                                     uint32_t nrows, uint32_t stored, uint32_t width,
                                     const Slots slots, const uint32_t* __restrict__ order,
                                     const uint32_t* __restrict__ to,
                                     const uint32_t* __restrict__ base,
                                     const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ from, Column* columns, T* values) {
    constexpr uint32_t threads = 128, rows = 1024 / depth, each = 1024 / threads;
    __shared__ T value_tile[rows][depth + 1];
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
            value_tile[r][k] = value[e];
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
            if (values) values[at] = is ? value_tile[mine][k] : T(0);
        }
    }
}

// With `parts` = 0, a block fills the first `cap` slots of 1024 / depth stored rows. Otherwise it
// fills the remaining slots of the few rows that have more: `parts` blocks share 32 times as many
// rows, from all over the matrix, since long rows are often neighbours.
template <int depth, class T, class Column, class Offset, class... Rest>
__device__ __forceinline__ void fill_part(uint32_t cap, uint32_t parts, uint32_t nrows,
                                          uint32_t stored, uint32_t width, const Slots slots,
                                          Rest... rest) {
    constexpr uint32_t rows = 1024 / depth;
    if (parts == 0) {
        fill<depth, T, Column, Offset>(uint64_t(blockIdx.x) * rows, 0, cap, depth, nrows, stored,
                                       width, slots, rest...);
        return;
    }
    const uint64_t first = uint64_t(blockIdx.x / parts) * rows, pitch = gridDim.x / parts * rows;
    const uint32_t part = blockIdx.x % parts;
    const bool more = slots.reach(cap, width, first + threadIdx.x % 32 * pitch, rows, stored);
    for (uint32_t left = __ballot_sync(full, more); left; left &= left - 1)
        fill<depth, T, Column, Offset>(first + (__ffs(left) - 1) * pitch, cap + part * depth, full,
                                       parts * depth, nrows, stored, width, slots, rest...);
}

// The row of every entry: one warp per 32 rows.
template <class Offset>
__device__ __forceinline__ void row_indices(uint32_t nrows, const Offset* row_ptr,
                                            uint32_t* row_idx) {
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * 32;
    for (uint64_t row = first; row < min(first + 32, uint64_t(nrows)); row++)
        for (uint64_t k = row_ptr[row] + lane; k < row_ptr[row + 1]; k += 32) row_idx[k] = uint32_t(row);
}

// values[slot] = from[source[slot]], except where source is 2^32 - 1.
template <class T>
__device__ __forceinline__ void take_values(uint64_t slots, const uint32_t* source, const T* from,
                                            T* values) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < slots && source[i] != full) values[i] = from[source[i]] + T(0);
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        lengths_##width(uint32_t nrows, const Offset* row_ptr, uint32_t* out,                     \
                        uint32_t* longest) {                                                      \
        lengths<Offset>(nrows, row_ptr, out, longest);                                            \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        spans_##width(uint32_t nrows, uint32_t rows, uint32_t slices, const uint32_t* order,      \
                      const uint32_t* to, const Offset* row_ptr, const uint32_t* col_idx,         \
                      uint32_t* base, uint32_t* widest) {                                         \
        spans<Offset>(nrows, rows, slices, order, to, row_ptr, col_idx, base, widest);            \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        row_indices_##width(uint32_t nrows, const Offset* row_ptr, uint32_t* row_idx) {           \
        row_indices<Offset>(nrows, row_ptr, row_idx);                                             \
    }                                                                                             \
    PRECISIONS(width, Offset, f64, double)                                                        \
    PRECISIONS(width, Offset, f32, float)                                                         \
    PRECISIONS(width, Offset, u8, uint8_t)
#define PRECISIONS(width, Offset, name, T)                                                        \
    DEPTHS(width, Offset, name, T, 32, uint32_t)                                                  \
    DEPTHS(width, Offset, name, T, 16, uint16_t)
#define DEPTHS(width, Offset, name, T, bits, Column)                                              \
    FILL(8, width, Offset, name, T, bits, Column)                                                 \
    FILL(16, width, Offset, name, T, bits, Column)                                                \
    FILL(32, width, Offset, name, T, bits, Column)
#define FILL(depth, width, Offset, name, T, bits, Column)                                         \
    extern "C" __global__ void __launch_bounds__(128) fill##depth##_c##bits##_##width##_##name(   \
        uint32_t cap, uint32_t parts, uint32_t nrows, uint32_t stored, uint32_t columns_each,     \
        uint32_t rows, uint32_t run_log, uint64_t pitch,                                          \
        const uint32_t* narrow, const uint64_t* wide, const uint32_t* order, const uint32_t* to,  \
        const uint32_t* base, const Offset* row_ptr, const uint32_t* col_idx, const T* from,      \
        Column* columns, T* values) {                                                             \
        const Slots slots{rows, run_log, pitch, narrow, wide};                                    \
        fill_part<depth, T, Column, Offset>(cap, parts, nrows, stored, columns_each, slots,       \
                                            order, to, base, row_ptr, col_idx, from, columns,     \
                                            values);                                              \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)

extern "C" __global__ void __launch_bounds__(256)
    take_values_f64(uint64_t slots, const uint32_t* source, const double* from, double* values) {
    take_values(slots, source, from, values);
}
extern "C" __global__ void __launch_bounds__(256)
    take_values_f32(uint64_t slots, const uint32_t* source, const float* from, float* values) {
    take_values(slots, source, from, values);
}
