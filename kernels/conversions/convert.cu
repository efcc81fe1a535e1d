// Conversion of a CSR matrix that the GPU holds to the arrays of other layouts
// (src/format/gpu/convert.rs and the formats' own modules define the sequence of steps). Scans and
// sorts between these steps are CUB's (primitives/primitives.cu).
//
// Launch: blocks of 256 threads unless stated otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices ascend in each row.
#include "fill.cuh"

#include <cub/block/block_radix_sort.cuh>

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
        fill_part<depth, T, T, Column, Offset>(cap, parts, nrows, stored, columns_each, slots,       \
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
