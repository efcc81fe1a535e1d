// Conversion of a CSR matrix that the GPU holds to the arrays of other layouts (src/format/build.rs
// and the formats' own modules say in which order). Scans, sorts and reductions between these steps
// are CUB's (primitives/primitives.cu).
//
// Launch: blocks of 256 threads unless said otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices rise in each row.
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu;

// lengths[i] = entries of row i.
template <class Offset>
__device__ __forceinline__ void lengths(uint32_t nrows, const Offset* row_ptr, uint32_t* lengths) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < nrows) lengths[i] = uint32_t(row_ptr[i + 1] - row_ptr[i]);
}

// Keys that put rows longest first within windows when they are sorted downwards, stably.
extern "C" __global__ void __launch_bounds__(256)
    sort_keys(uint32_t nrows, uint32_t window, uint32_t length_bits, const uint32_t* lengths,
              uint64_t* keys, uint32_t* rows) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= nrows) return;
    const uint64_t last = (nrows - 1) / window;
    keys[i] = (last - i / window) << length_bits | lengths[i];
    rows[i] = uint32_t(i);
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

extern "C" __global__ void __launch_bounds__(256)
    narrow_offsets(uint64_t n, const uint64_t* wide, uint32_t* narrow) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) narrow[i] = uint32_t(wide[i]);
}

// widths[s] = the longest of the `rows` stored rows of slice s: a warp a slice.
extern "C" __global__ void __launch_bounds__(256)
    slice_widths(uint32_t nrows, uint32_t rows, uint32_t slices, const uint32_t* order,
                 const uint32_t* lengths, uint32_t* widths) {
    const uint32_t s = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (s >= slices) return;
    uint32_t longest = 0;
    for (uint32_t r = lane; r < rows; r += 32) {
        const uint64_t i = uint64_t(s) * rows + r;
        if (i < nrows) longest = max(longest, lengths[order ? order[i] : i]);
    }
    longest = __reduce_max_sync(full, longest);
    if (lane == 0) widths[s] = longest;
}

// Rows of each column of jagged diagonals: rows that reach it, rounded up to `br`. `sorted` lengths
// fall; a thread a row fills the columns that end with it. counts[width] = 0 is set before.
extern "C" __global__ void __launch_bounds__(256)
    jagged_counts(uint32_t nrows, uint32_t br, const uint32_t* sorted, uint32_t* counts) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= nrows) return;
    const uint32_t next = i + 1 < nrows ? sorted[i + 1] : 0;
    for (uint32_t k = next; k < sorted[i]; k++) counts[k] = uint32_t((i + br) / br * br);
}

// First column of each slice (base), and the widest span of all: a warp a slice. Columns are those
// of the permuted basis where `to` is given.
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
    if (low != full) atomicMax(widest, high - low + 1);
}

// Where the slots of stored rows lie: slices of `rows` rows that start at a list, or columns over
// all rows that start at a list or every `pitch` slots.
struct Slots {
    uint32_t rows;  // of a slice; 0 for columns over all rows
    uint64_t pitch;
    const uint32_t* narrow;
    const uint64_t* wide;
    __device__ __forceinline__ uint64_t start(uint32_t at) const {
        return narrow ? narrow[at] : wide ? wide[at] : at * pitch;
    }
};

// Puts columns and values of CSR rows in their slots, and padding in the rest: a warp takes 32
// stored rows, 8 entries of each at a time, which it turns over in shared memory, so that reads run
// along rows and writes along columns. `to` relabels columns; `base` is taken off those of 16 bits.
// Either of `columns` and `values` may be null. Blocks of 128 threads.
template <class T, class Column, class Offset>
__device__ __forceinline__ void fill(uint32_t nrows, uint32_t stored, uint32_t width,
                                     const Slots slots, const uint32_t* __restrict__ order,
                                     const uint32_t* __restrict__ to,
                                     const uint32_t* __restrict__ base,
                                     const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ from, Column* columns, T* values) {
    constexpr int depth = 8;
    __shared__ T value_tile[4][32][depth + 1];
    __shared__ Column column_tile[4][32][depth + 1];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t first = (uint64_t(blockIdx.x) * 4 + warp) * 32, i = first + lane;
    if (first >= stored) return;
    uint64_t begin = 0;
    uint32_t length = 0;
    if (i < nrows) {
        const uint32_t row = order ? order[i] : uint32_t(i);
        begin = row_ptr[row];
        length = uint32_t(row_ptr[row + 1] - begin);
    }
    const uint32_t s = slots.rows ? uint32_t(first / slots.rows) : 0;
    uint64_t start = 0;
    if (slots.rows) {
        start = slots.start(s);
        width = uint32_t((slots.start(s + 1) - start) / slots.rows);
        start += i - uint64_t(s) * slots.rows;
    }
    const uint32_t low = base ? base[s] : 0;
    for (uint32_t k0 = 0; k0 < width; k0 += depth) {
        __syncwarp();
#pragma unroll
        for (int part = 0; part < 32; part += 4) {
            const uint32_t r = part + lane / depth, k = k0 + lane % depth;
            const uint64_t at = __shfl_sync(full, begin, r) + k;
            if (k < __shfl_sync(full, length, r)) {
                if (columns) {
                    const uint32_t column = __ldcs(col_idx + at);
                    column_tile[warp][r][lane % depth] = Column((to ? to[column] : column) - low);
                }
                if (values) value_tile[warp][r][lane % depth] = __ldcs(from + at);
            }
        }
        __syncwarp();
#pragma unroll
        for (int b = 0; b < depth; b++) {
            const uint32_t k = k0 + b;
            if (k >= width) break;
            uint64_t at;
            if (slots.rows) {
                at = start + uint64_t(k) * slots.rows;
            } else {
                const uint64_t column = slots.start(k);
                if (i >= slots.start(k + 1) - column) continue;
                at = column + i;
            }
            if (columns) columns[at] = k < length ? column_tile[warp][lane][b] : Column(~Column(0));
            if (values) values[at] = k < length ? value_tile[warp][lane][b] : T(0);
        }
    }
}

// The diagonals of each hack of rows, in rising order: a block of as many threads a hack as it has
// rows. Each step takes the least offset that a row still has. Every warp keeps the next entries of
// its rows in shared memory, read along the rows.
//
// With `values` null it counts: counts[h] = diagonals of hack h, where there are at most `most`;
// otherwise it writes offsets and values, and fill (-0.0) where a row has no such entry.
constexpr uint32_t ahead = 8;

template <class T, class Offset>
__device__ __forceinline__ void diagonals(uint32_t nrows, uint32_t hack, uint32_t most, const Offset* __restrict__ row_ptr,
                                          const uint32_t* __restrict__ col_idx,
                                          const T* __restrict__ from, uint32_t* counts,
                                          const uint32_t* narrow, const uint64_t* wide,
                                          int32_t* offsets, T* values) {
    constexpr int32_t none = 0x7fffffff;
    extern __shared__ double shared[];
    __shared__ int32_t lowest[2][32];
    const uint32_t h = blockIdx.x, warps = blockDim.x / 32, lane = threadIdx.x % 32;
    T* const value_tile = reinterpret_cast<T*>(shared) + threadIdx.x / 32 * 32 * (ahead + 1);
    uint32_t* const column_tile =
        reinterpret_cast<uint32_t*>(reinterpret_cast<T*>(shared) + blockDim.x * (ahead + 1)) +
        threadIdx.x / 32 * 32 * (ahead + 1);
    const uint64_t row = uint64_t(h) * hack + threadIdx.x;
    Offset at = row < nrows ? row_ptr[row] : 0;
    const Offset end = row < nrows ? row_ptr[row + 1] : 0;
    uint32_t kept = 0, taken = 0;  // entries of this row in the tile, and those of them taken
    const auto refill = [&] {
        __syncwarp();
        at += taken;
        taken = 0;
        kept = uint32_t(min(uint64_t(end - at), uint64_t(ahead)));
#pragma unroll
        for (int part = 0; part < 32; part += 4) {
            const uint32_t r = part + lane / ahead, k = lane % ahead;
            const Offset first = __shfl_sync(full, at, r);
            if (k < __shfl_sync(full, kept, r)) {
                column_tile[r * (ahead + 1) + k] = __ldcs(col_idx + first + k);
                if (values) value_tile[r * (ahead + 1) + k] = __ldcs(from + first + k);
            }
        }
        __syncwarp();
    };
    const uint64_t start = values ? (narrow ? narrow[h] : wide[h]) : 0;
    uint32_t count = 0;
    while (count <= most) {
        if (__any_sync(full, taken == kept && at + taken < end)) refill();
        const uint32_t tile_at = lane * (ahead + 1) + taken;
        const int32_t head = taken < kept ? int32_t(int64_t(column_tile[tile_at]) - int64_t(row)) : none;
        int32_t low = __reduce_min_sync(full, head);
        if (warps > 1) {
            int32_t* seen = lowest[count % 2];
            if (lane == 0) seen[threadIdx.x / 32] = low;
            __syncthreads();
            low = __reduce_min_sync(full, lane < warps ? seen[lane] : none);
        }
        if (low == none) break;
        const bool mine = head == low;
        if (values)
            values[(start + count) * hack + threadIdx.x] = mine ? value_tile[tile_at] + T(0) : T(-0.0);
        taken += mine;
        if (values && offsets && threadIdx.x == 0) offsets[start + count] = low;
        count++;
    }
    if (!values && threadIdx.x == 0) counts[h] = count;
}

// The row of every entry: a warp takes 32 rows.
template <class Offset>
__device__ __forceinline__ void row_indices(uint32_t nrows, const Offset* row_ptr,
                                            uint32_t* row_idx) {
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * 32;
    for (uint64_t row = first; row < min(first + 32, uint64_t(nrows)); row++)
        for (uint64_t k = row_ptr[row] + lane; k < row_ptr[row + 1]; k += 32) row_idx[k] = uint32_t(row);
}

// The last of low..high (both of them rows or one past) that is `right`; all before it are, `low`
// is. It looks around `guess` first.
template <class Test>
__device__ __forceinline__ uint64_t last_right(uint64_t low, uint64_t high, uint64_t guess,
                                               const Test& right) {
    high++;
    if (guess > low + 16 && guess + 16 < high) {
        const uint64_t at = guess - 16 + threadIdx.x % 32;
        const uint32_t rights = __popc(__ballot_sync(full, right(at)));
        if (rights > 0) low = guess - 17 + rights;
        if (rights < 32) high = guess - 16 + rights;
    }
    while (high - low > 1) {
        const uint64_t stride = (high - low + 31) / 32;
        const uint64_t at = low + (threadIdx.x % 32 + 1) * stride;
        const uint32_t rights = __popc(__ballot_sync(full, at < high && right(at)));
        low += rights * stride;
        high = min(high, low + stride);
    }
    return low;
}

// Tiles of at most `most` entries and rows, cut between rows where none is longer (pcsr). A warp
// takes the tiles of a chunk, which starts at the row where entries and rows reach a multiple of
// `weight`. With `starts` null it counts them, and sets *splits where one begins within a row.
template <class Offset>
__device__ __forceinline__ void tiles(uint32_t nrows, uint32_t most, uint64_t weight,
                                      uint32_t chunks, const Offset* __restrict__ row_ptr,
                                      uint32_t* counts, uint32_t* splits, const uint32_t* starts,
                                      uint32_t* tile_rows, Offset* tile_ptr) {
    const uint32_t c = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (c >= chunks) return;
    const bool writes = threadIdx.x % 32 == 0;
    const auto first_row = [&](uint64_t wanted) {
        return last_right(0, nrows, 0, [&](uint64_t i) { return i == 0 || row_ptr[i - 1] + i - 1 < wanted; });
    };
    uint64_t row = first_row(c * weight);
    const uint64_t end = c + 1 < chunks ? first_row((c + 1) * weight) : nrows;
    uint64_t entry = row_ptr[row];
    const uint64_t end_entry = row_ptr[end];
    uint64_t t = starts ? starts[c] : 0;
    bool split = false;
    uint64_t rows_before = 0;
    while (row < end || entry < end_entry) {
        const uint64_t reach = min(entry + most, end_entry);
        if (row_ptr[row] > reach) {
            entry = reach;
        } else {
            const uint64_t last = min(row + most, end);
            const uint64_t begun = row;
            row = last_right(row, last, row + rows_before,
                             [&](uint64_t i) { return row_ptr[i] <= reach; });
            rows_before = row - begun;
            entry = row_ptr[row];
            if (row < last && row_ptr[row + 1] - entry > most && entry < reach) {
                row++;
                entry = reach;
            }
        }
        t++;
        split |= entry < row_ptr[row];
        if (starts && writes) tile_rows[t] = uint32_t(row), tile_ptr[t] = Offset(entry);
    }
    if (starts || !writes) return;
    counts[c] = uint32_t(t);
    if (split) *splits = 1;
}

// values[slot] = from[source[slot]], but where source is 2^32 - 1.
template <class T>
__device__ __forceinline__ void take_values(uint64_t slots, const uint32_t* source, const T* from,
                                            T* values) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < slots && source[i] != full) values[i] = from[source[i]] + T(0);
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        lengths_##width(uint32_t nrows, const Offset* row_ptr, uint32_t* out) {                   \
        lengths<Offset>(nrows, row_ptr, out);                                                     \
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
    extern "C" __global__ void __launch_bounds__(256)                                             \
        tiles_##width(uint32_t nrows, uint32_t most, uint64_t weight, uint32_t chunks,            \
                      const Offset* row_ptr, uint32_t* counts, uint32_t* splits,                  \
                      const uint32_t* starts, uint32_t* tile_rows, Offset* tile_ptr) {            \
        tiles<Offset>(nrows, most, weight, chunks, row_ptr, counts, splits, starts, tile_rows,    \
                      tile_ptr);                                                                  \
    }                                                                                             \
    PRECISIONS(width, Offset, f64, double)                                                        \
    PRECISIONS(width, Offset, f32, float)
#define PRECISIONS(width, Offset, name, T)                                                        \
    FILL(width, Offset, name, T, 32, uint32_t)                                                    \
    FILL(width, Offset, name, T, 16, uint16_t)                                                    \
    extern "C" __global__ void __launch_bounds__(1024)                                            \
        hack_diagonals_##width##_##name(                                                          \
            uint32_t nrows, uint32_t hack, uint32_t most, const Offset* row_ptr,                   \
            const uint32_t* col_idx, const T* from, uint32_t* counts, const uint32_t* narrow,     \
            const uint64_t* wide, int32_t* offsets, T* values) {                                  \
        diagonals<T, Offset>(nrows, hack, most, row_ptr, col_idx, from, counts, narrow, \
                                wide, offsets, values);                                           \
    }
#define FILL(width, Offset, name, T, bits, Column)                                                \
    extern "C" __global__ void __launch_bounds__(128) fill_c##bits##_##width##_##name(            \
        uint32_t nrows, uint32_t stored, uint32_t columns_each, uint32_t rows, uint64_t pitch,    \
        const uint32_t* narrow, const uint64_t* wide, const uint32_t* order, const uint32_t* to,  \
        const uint32_t* base, const Offset* row_ptr, const uint32_t* col_idx, const T* from,      \
        Column* columns, T* values) {                                                             \
        const Slots slots{rows, pitch, narrow, wide};                                             \
        fill<T, Column, Offset>(nrows, stored, columns_each, slots, order, to, base, row_ptr,     \
                                col_idx, from, columns, values);                                  \
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
