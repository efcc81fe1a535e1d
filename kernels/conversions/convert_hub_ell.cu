// Conversion of a CSR matrix that the GPU holds to hub-cached ELLPACK
// (src/format/cached/hub_ell/gpu.rs defines the sequence of steps).
//
// Every entry has a bit that is set if its column is a hub, in words of 32 entries. Together with
// the number of set bits before each word, this gives the number of entries in hubs before any
// entry, so that long rows take no more time per entry than short rows.
//
// Launch: blocks of 256 threads. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu, split = HUB_ELL_SPLIT;
constexpr uint16_t none = 0xffff;

// Entries that a warp of fill_hubs processes.
constexpr uint32_t chunk = HUB_ELL_CHUNK;

// counts[c] += entries of column c.
extern "C" __global__ void __launch_bounds__(256)
    count_columns(uint64_t nnz, const uint32_t* col_idx, uint32_t* counts) {
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < nnz) atomicAdd(counts + __ldcs(col_idx + k), 1u);
}

// Sort keys: a stable descending sort by them puts the columns with the most entries first. No
// column has a place among the hubs yet.
extern "C" __global__ void __launch_bounds__(256)
    column_keys(uint32_t ncols, const uint32_t* counts, uint64_t* keys, uint32_t* columns,
                uint16_t* places) {
    const uint64_t c = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= ncols) return;
    keys[c] = counts[c];
    columns[c] = uint32_t(c);
    places[c] = none;
}

// Assigns places to the first `most` of the sorted columns, except for columns with a single entry.
// *hubs counts them; the number of their entries is *covered_low + 2^16 * *covered_high, each of
// which fits 32 bits because `most` is below 2^16.
extern "C" __global__ void __launch_bounds__(256)
    choose_hubs(uint32_t most, const uint32_t* sorted, const uint32_t* counts, uint16_t* places,
                uint32_t* hubs, uint32_t* covered_low, uint32_t* covered_high) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t column = i < most ? sorted[i] : 0, count = i < most ? counts[column] : 0;
    const bool is = count > 1;
    if (is) places[column] = uint16_t(i);
    const uint32_t found = __popc(__ballot_sync(full, is));
    const uint32_t low = __reduce_add_sync(full, is ? count & 0xffff : 0);
    const uint32_t high = __reduce_add_sync(full, is ? count >> 16 : 0);
    if (threadIdx.x % 32 > 0 || found == 0) return;
    atomicAdd(hubs, found), atomicAdd(covered_low, low), atomicAdd(covered_high, high);
}

// bits[w] = bit mask of the entries 32 w to 32 w + 31 that are in hubs, counts[w] = their number.
extern "C" __global__ void __launch_bounds__(256)
    mark_near(uint64_t nnz, uint64_t words, const uint32_t* col_idx,
              const uint16_t* __restrict__ places, uint32_t* bits, uint32_t* counts) {
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, w = k / 32;
    const bool is = k < nnz && places[__ldcs(col_idx + k)] != none;
    const uint32_t all = __ballot_sync(full, is);
    if (threadIdx.x % 32 > 0 || w >= words) return;
    bits[w] = all, counts[w] = __popc(all);
}

// Entries in hubs: their bits, and the number of set bits before each word.
struct Near {
    const uint32_t* bits;
    const uint32_t* narrow;
    const uint64_t* wide;
    // Number of entries in hubs before entry k, modulo 2^32.
    __device__ __forceinline__ uint32_t before(uint64_t k) const {
        const uint64_t w = k / 32;
        const uint32_t sum = narrow ? narrow[w] : uint32_t(wide[w]);
        return sum + __popc(bits[w] & ((1u << (k % 32)) - 1));
    }
};

// Number of entries of a row in hubs, and of its other entries.
struct Parts {
    uint32_t near, far;
};
template <class Offset>
__device__ __forceinline__ Parts parts_of(uint32_t row, const Offset* row_ptr, const Near& near) {
    const Offset begin = row_ptr[row], end = row_ptr[row + uint64_t(1)];
    const uint32_t in = near.before(end) - near.before(begin);
    return {in, uint32_t(end - begin) - in};
}

// The last row of low..high, both included, that starts at `k` or before; row `low` does.
template <class Start>
__device__ __forceinline__ uint32_t row_of(uint64_t k, uint32_t low, uint32_t high,
                                           const Start* __restrict__ starts) {
    while (low < high) {
        const uint32_t middle = high - (high - low) / 2;
        if (starts[middle] <= k) low = middle;
        else high = middle - 1;
    }
    return low;
}

// counts[i] = pieces of row i, of at most 2^shift entries in either part; scaled[i] = 1 if there
// are several or none. Both are 0 past the last row.
template <class Offset>
__device__ __forceinline__ void row_pieces(uint32_t nrows, uint32_t shift, const Offset* row_ptr,
                                           const Near near, uint32_t* counts, uint32_t* scaled) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i > nrows) return;
    uint32_t count = 1;
    if (i < nrows) {
        const Parts parts = parts_of(uint32_t(i), row_ptr, near);
        const uint64_t longest = max(parts.near, parts.far);
        count = uint32_t((longest + (1u << shift) - 1) >> shift);
    }
    counts[i] = i < nrows ? count : 0;
    scaled[i] = count != 1;
}

// rows = the marked rows, in order; starts[i] of them are before row i.
extern "C" __global__ void __launch_bounds__(256)
    list_marked(uint32_t nrows, const uint32_t* marks, const uint32_t* starts, uint32_t* rows) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < nrows && marks[i]) rows[starts[i]] = uint32_t(i);
}

// Sort keys: a descending sort by them orders pieces by descending length of the hub part, then of
// the rest. Also writes the number of each piece, and its row, marked where the row has several
// pieces.
template <class Offset>
__device__ __forceinline__ void piece_keys(uint32_t pieces, uint32_t nrows, uint32_t shift,
                                           const Offset* row_ptr, const Near near,
                                           const uint32_t* starts, uint64_t* keys, uint32_t* own,
                                           uint32_t* rows) {
    const uint64_t q = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (q >= pieces) return;
    const uint32_t row = row_of(q, 0, nrows - 1, starts), start = starts[row];
    const Parts parts = parts_of(row, row_ptr, near);
    const uint64_t before = (q - start) << shift, longest = uint64_t(1) << shift;
    const auto cut = [&](uint64_t length) { return length > before ? min(length - before, longest) : 0; };
    keys[q] = cut(parts.near) << (shift + 1) | cut(parts.far);
    own[q] = uint32_t(q);
    rows[q] = row | (starts[row + 1] - start > 1 ? split : 0);
}

// The sorted pieces: rows, lengths, new position of each piece (at), and the longest of each slice
// of 32.
extern "C" __global__ void __launch_bounds__(256)
    place_pieces(uint32_t pieces, uint32_t slices, uint32_t shift, const uint32_t* sorted,
                 const uint64_t* keys, const uint32_t* piece_rows, uint32_t* rows,
                 uint16_t* near_lengths, uint16_t* far_lengths, uint32_t* at,
                 uint32_t* near_widths, uint32_t* far_widths) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t near = 0, far = 0;
    if (i < pieces) {
        const uint32_t q = sorted[i], key = uint32_t(keys[q]);
        near = key >> (shift + 1), far = key & ((2u << shift) - 1);
        rows[i] = piece_rows[q];
        near_lengths[i] = uint16_t(near), far_lengths[i] = uint16_t(far);
        at[q] = uint32_t(i);
    }
    near = __reduce_max_sync(full, near), far = __reduce_max_sync(full, far);
    // The place past the last slice gets 0, from a warp without a piece.
    if (threadIdx.x % 32 == 0 && i / 32 <= slices) near_widths[i / 32] = near, far_widths[i / 32] = far;
}

// Starts of the slots of slices of 32 pieces; slot(i, k) is slot k of piece i.
struct Slots {
    const uint32_t* narrow;
    const uint64_t* wide;
    __device__ __forceinline__ uint64_t slot(uint32_t i, uint32_t k) const {
        const uint64_t start = narrow ? narrow[i / 32] : wide[i / 32];
        return start + uint64_t(k) * 32 + i % 32;
    }
};

// Writes columns and values of CSR rows to their slots; columns only where requested. A warp
// processes `chunk` entries, one lane per entry.
template <class T, class Offset>
__device__ __forceinline__ void fill_hubs(uint64_t nnz, uint32_t nrows, uint32_t shift,
                                          const Offset* __restrict__ row_ptr,
                                          const uint32_t* __restrict__ col_idx,
                                          const T* __restrict__ from,
                                          const uint16_t* __restrict__ places, const Near near,
                                          const uint32_t* __restrict__ starts,
                                          const uint32_t* __restrict__ at, const Slots near_slots,
                                          const Slots far_slots, uint16_t* near_columns,
                                          T* near_values, uint32_t* far_columns, T* far_values) {
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warp = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const uint64_t first = warp * chunk, end = min(first + chunk, nnz);
    if (first >= end) return;
    // The rows of the chunk's first and last entries.
    const uint32_t bound = row_of(lane == 0 ? first : end - 1, 0, nrows - 1, row_ptr);
    uint32_t low = __shfl_sync(full, bound, 0);
    const uint32_t high = __shfl_sync(full, bound, 1);
    for (uint64_t k0 = first; k0 < end; k0 += 32) {
        const uint64_t k = min(k0 + lane, end - 1);
        const uint32_t row = row_of(k, low, high, row_ptr);
        low = __shfl_sync(full, row, 31);
        if (k0 + lane >= end) continue;
        const uint64_t begin = row_ptr[row];
        const uint32_t before = near.before(k) - near.before(begin);
        const uint32_t rest = uint32_t(k - begin) - before;
        const bool is = near.bits[k / 32] >> (k % 32) & 1;
        // The number of the entry in its part of the row.
        const uint32_t number = is ? before : rest;
        const uint32_t piece = at[starts[row] + (number >> shift)];
        const uint32_t place = number & ((1u << shift) - 1);
        const T value = __ldcs(from + k);
        const uint64_t slot = is ? near_slots.slot(piece, place) : far_slots.slot(piece, place);
        (is ? near_values : far_values)[slot] = value;
        if (!near_columns) continue;
        const uint32_t column = __ldcs(col_idx + k);
        if (is) near_columns[slot] = places[column];
        else far_columns[slot] = column;
    }
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        row_pieces_##width(uint32_t nrows, uint32_t shift, const Offset* row_ptr,                 \
                           const uint32_t* bits, const uint32_t* narrow, const uint64_t* wide,    \
                           uint32_t* counts, uint32_t* scaled) {                                  \
        row_pieces<Offset>(nrows, shift, row_ptr, {bits, narrow, wide}, counts, scaled);          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        piece_keys_##width(uint32_t pieces, uint32_t nrows, uint32_t shift,                       \
                           const Offset* row_ptr, const uint32_t* bits, const uint32_t* narrow,   \
                           const uint64_t* wide, const uint32_t* starts, uint64_t* keys,          \
                           uint32_t* own, uint32_t* rows) {                                       \
        piece_keys<Offset>(pieces, nrows, shift, row_ptr, {bits, narrow, wide}, starts, keys,     \
                           own, rows);                                                            \
    }                                                                                             \
    FILL(width, Offset, f64, double)                                                              \
    FILL(width, Offset, f32, float)
#define FILL(width, Offset, name, T)                                                              \
    extern "C" __global__ void __launch_bounds__(256) fill_hubs_##width##_##name(                 \
        uint64_t nnz, uint32_t nrows, uint32_t shift, const Offset* row_ptr,                      \
        const uint32_t* col_idx, const T* from, const uint16_t* places, const uint32_t* bits,     \
        const uint32_t* narrow, const uint64_t* wide, const uint32_t* starts, const uint32_t* at, \
        const uint32_t* near_narrow, const uint64_t* near_wide, const uint32_t* far_narrow,       \
        const uint64_t* far_wide, uint16_t* near_columns, T* near_values, uint32_t* far_columns,  \
        T* far_values) {                                                                          \
        fill_hubs<T, Offset>(nnz, nrows, shift, row_ptr, col_idx, from, places,                   \
                             {bits, narrow, wide}, starts, at, {near_narrow, near_wide},          \
                             {far_narrow, far_wide}, near_columns, near_values, far_columns,      \
                             far_values);                                                         \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
