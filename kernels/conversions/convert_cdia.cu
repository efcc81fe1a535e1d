// Conversion of a CSR matrix that the GPU holds to constant diagonals (src/format/dia/cdia/gpu.rs
// defines the sequence of steps), and the kernels that check and store new values. Values are
// compared by their bits, so they are numbers of 32 or 64 bits here.
//
// Launch: blocks of 256 threads; hack_pieces and check_pieces have one block per hack. Row pointers
// are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu, none = 0xffffffffu;

// Rows of a hack, and the number of 32-bit words for their bits.
constexpr uint32_t HACK = CDIA_HACK, WORDS = HACK / 32;

// Entries of a row that a warp processes at a time, and rows that it reads at once.
constexpr uint32_t depth = 8, rows_a_part = 32 / depth;

constexpr uint32_t threads = 256, warps = threads / 32;

// The pieces of a hack.
template <class Word> struct Pieces {
    Word* values;
    int32_t* offsets;
    // Index of one entry per piece: the first in the order of the rows.
    uint64_t* entries;
    // Pieces of a hack in the order of their offsets, counted from the hack's first piece.
    uint32_t* order;
    // Bit r % 32 of word p * WORDS + r / 32 is set if row r of the hack has piece p.
    uint32_t* rows;
    __device__ __forceinline__ Pieces from(uint64_t piece) const {
        return {values + piece, offsets + piece, entries + piece, order + piece,
                rows + piece * WORDS};
    }
};

// Pieces found so far by all warps of a block, in shared memory. All warps search at the same time;
// a warp that misses a piece requests it, and all wait while warp 0 adds it.
template <class Word> struct Found {
    Word* values;
    int32_t* offsets;
    uint32_t* firsts;
    uint32_t* rows;
    uint32_t capacity;
    // Number of pieces; capacity + 1 where there was no room for one.
    uint32_t* count;
    // The piece that each warp requests, and whether it requests one.
    Word* wanted_values;
    int32_t* wanted_offsets;
    bool* missed;

    // The piece with this offset and value; `none` where there is none or there are too many
    // pieces. Called by a warp.
    __device__ __forceinline__ uint32_t find(int32_t offset, Word value, uint32_t lane) const {
        const uint32_t all = *count;
        if (all > capacity) return none;
        for (uint32_t p0 = 0; p0 < all; p0 += 32) {
            const uint32_t p = p0 + lane;
            const bool same = p < all && offsets[p] == offset && values[p] == value;
            const uint32_t any = __ballot_sync(full, same);
            if (any) return p0 + __ffs(any) - 1;
        }
        return none;
    }

    // Adds the pieces that warps request. Every warp calls it, with or without a request, until
    // none requests any. Returns true if any warp did. Not inlined, so that all warps use the same
    // barriers.
    __device__ __noinline__ bool add(bool misses, int32_t offset, Word value) const {
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        if (lane == 0)
            missed[warp] = misses, wanted_offsets[warp] = offset, wanted_values[warp] = value;
        const bool any = __syncthreads_or(misses);
        if (any && warp == 0) {
            // One lane per warp; among warps that request the same piece, the first one adds it.
            bool adds = lane < warps && missed[lane];
            offset = lane < warps ? wanted_offsets[lane] : 0;
            value = lane < warps ? wanted_values[lane] : 0;
            const uint32_t wanted = __ballot_sync(full, adds);
            for (uint32_t w = 0; w < warps; w++) {
                const int32_t its_offset = __shfl_sync(full, offset, w);
                const Word its_value = __shfl_sync(full, value, w);
                const bool same = its_offset == offset && its_value == value;
                adds &= !(same && w < lane && wanted >> w & 1);
            }
            const uint32_t added = __ballot_sync(full, adds), now = *count;
            const uint32_t p = now + __popc(added & ((1u << lane) - 1));
            if (adds && p < capacity) offsets[p] = offset, values[p] = value, firsts[p] = HACK;
            const uint32_t all = now + __popc(added);
            for (uint32_t i = now; i < min(all, capacity); i++) rows[i * WORDS + lane] = 0;
            __syncwarp();
            if (lane == 0) *count = min(all, capacity + 1);
        }
        __syncthreads();
        return any;
    }
};

// Copies n pieces of a hack. Called by a block.
template <class Word>
__device__ __forceinline__ void copy_pieces(const Pieces<Word>& from, const Pieces<Word>& to,
                                            const uint32_t& n) {
    for (uint32_t p = threadIdx.x; p < n; p += threads) {
        to.values[p] = from.values[p], to.offsets[p] = from.offsets[p];
        to.entries[p] = from.entries[p], to.order[p] = from.order[p];
    }
    for (uint32_t i = threadIdx.x; i < n * WORDS; i += threads) to.rows[i] = from.rows[i];
}

// The piece with this offset and value, added if it is new; `none` if there are too many pieces.
// Called by a warp. `asked` is the copy of `found` in shared memory.
template <class Word>
__device__ __forceinline__ uint32_t find_or_add(const Found<Word>& found, const Found<Word>& asked,
                                                int32_t offset, Word value) {
    const uint32_t lane = threadIdx.x % 32, p = found.find(offset, value, lane);
    if (p != none) return p;
    asked.add(true, offset, value);
    return found.find(offset, value, lane);
}

// Reads `depth` entries of each of a warp's 32 rows, from entry k0 of a row on, along the rows: a
// lane reads them from several rows. Lane l holds the bounds of row first + l.
template <class Word, class Offset>
__device__ __forceinline__ void read_entries(uint64_t first, Offset begin, Offset end, uint32_t k0,
                                             const uint32_t* __restrict__ col_idx,
                                             const Word* __restrict__ from,
                                             int32_t (&offset)[depth], Word (&value)[depth]) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t b = 0; b < depth; b++) {
        const uint32_t r = b * rows_a_part + lane / depth;
        const Offset k = __shfl_sync(full, begin, r) + k0 + lane % depth;
        const bool is = k < __shfl_sync(full, end, r);
        offset[b] = is ? int32_t(int64_t(col_idx[k]) - int64_t(first + r)) : 0;
        value[b] = is ? from[k] : 0;
    }
}

// Stores these entries in tiles: row d of a tile gets entry k0 + d of each row of the matrix.
template <class Word>
__device__ __forceinline__ void transpose(uint32_t lane, const int32_t (&offset)[depth],
                                          const Word (&value)[depth], int32_t* offset_tile,
                                          Word* value_tile) {
#pragma unroll
    for (uint32_t b = 0; b < depth; b++) {
        const uint32_t at = lane % depth * 33 + b * rows_a_part + lane / depth;
        offset_tile[at] = offset[b], value_tile[at] = value[b];
    }
}

// Index of the entry in this row and column, which must exist.
template <class Offset>
__device__ __forceinline__ Offset entry_at(uint64_t row, uint32_t column,
                                           const Offset* __restrict__ row_ptr,
                                           const uint32_t* __restrict__ col_idx) {
    Offset low = row_ptr[row], high = row_ptr[row + 1];
    while (low < high) {
        const Offset middle = low + (high - low) / 2;
        if (col_idx[middle] < column) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Orders the `all` pieces of a hack, and writes them to `out` if `keeps`. Counts their diagonals,
// unless the pieces were counted before (`writes`).
template <class Word, class Offset>
__device__ __forceinline__ void write_pieces(uint64_t hack_row, uint32_t all, bool writes,
                                             bool keeps, const Found<Word> found,
                                             const Offset* __restrict__ row_ptr,
                                             const uint32_t* __restrict__ col_idx,
                                             uint32_t* diagonals, const Pieces<Word>& out) {
    uint32_t* const firsts = found.firsts;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Thread t holds pieces t, t + 256, ...; their ranks overwrite their first rows.
    uint32_t news = 0;
    constexpr uint32_t each = 4;
    uint32_t places[each];
#pragma unroll
    for (uint32_t e = 0; e < each; e++) {
        const uint32_t p = e * threads + threadIdx.x;
        if (p >= all) continue;
        const int32_t offset = found.offsets[p];
        uint32_t place = 0, in_order = 0;
        bool is_new = true;
        for (uint32_t q = 0; q < all; q++) {
            const int32_t other = found.offsets[q];
            place += firsts[q] < firsts[p] || (firsts[q] == firsts[p] && other < offset);
            in_order += other < offset || (other == offset && q < p);
            is_new &= other != offset || q >= p;
        }
        places[e] = place;
        news += is_new;
        if (!keeps) continue;
        out.values[place] = found.values[p], out.offsets[place] = offset;
        out.order[in_order] = place;
        const uint64_t row = hack_row + firsts[p];
        out.entries[place] = entry_at(row, uint32_t(int64_t(row) + offset), row_ptr, col_idx);
    }
    __syncthreads();
    if (!writes && news > 0) atomicAdd(diagonals, news);
    if (!keeps) return;
#pragma unroll
    for (uint32_t e = 0; e < each; e++)
        if (e * threads + threadIdx.x < all) firsts[e * threads + threadIdx.x] = places[e];
    __syncthreads();
    for (uint32_t p = warp; p < all; p += warps)
        out.rows[firsts[p] * WORDS + lane] = found.rows[p * WORDS + lane];
}

// The pieces of each hack, ordered by their first rows, and within these by offset.
//
// With `to` null it counts: counts[h] = pieces of hack h (capacity + 1 where there are more),
// *largest = the maximum of a hack and *diagonals = the diagonals of all hacks (both initially 0).
// It keeps the pieces of hacks with at most `keep` of them. Otherwise it writes all pieces, and
// finds those again that were not kept.
template <class Word, class Offset>
__device__ __forceinline__ void hack_pieces(uint32_t nrows, uint32_t capacity, uint32_t keep,
                                            const Offset* __restrict__ row_ptr,
                                            const uint32_t* __restrict__ col_idx,
                                            const Word* __restrict__ from, uint32_t* counts,
                                            uint32_t* largest, uint32_t* diagonals,
                                            const Pieces<Word> kept, const uint32_t* narrow,
                                            const uint64_t* wide, const Pieces<Word> to) {
    extern __shared__ uint64_t shared[];
    __shared__ uint32_t count;
    __shared__ Word wanted_values[warps];
    __shared__ int32_t wanted_offsets[warps];
    __shared__ bool missed[warps];
    __shared__ Found<Word> asked;
    Word* const tiles = reinterpret_cast<Word*>(shared);
    Word* const found_values = tiles + warps * depth * 33;
    int32_t* const offset_tiles = reinterpret_cast<int32_t*>(found_values + capacity);
    int32_t* const found_offsets = offset_tiles + warps * depth * 33;
    uint32_t* const firsts = reinterpret_cast<uint32_t*>(found_offsets + capacity);
    const Found<Word> found = {found_values, found_offsets, firsts,         firsts + capacity, capacity,
                               &count,       wanted_values, wanted_offsets, missed};
    const uint32_t h = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t hack_row = uint64_t(h) * HACK;
    const bool writes = to.values;
    Pieces<Word> out = kept.from(uint64_t(h) * keep);
    if (writes) {
        const Pieces<Word> own = out;
        out = to.from(narrow ? narrow[h] : wide[h]);
        if (counts[h] <= keep) return copy_pieces(own, out, counts[h]);
    }
    if (threadIdx.x == 0) count = 0, asked = found;
    __syncthreads();
    Word* const value_tile = tiles + warp * depth * 33;
    int32_t* const offset_tile = offset_tiles + warp * depth * 33;
    bool fits = true;
    for (uint32_t word = warp; word < WORDS && fits; word += warps) {
        const uint64_t first = hack_row + word * 32, row = first + lane;
        const Offset begin = row < nrows ? row_ptr[row] : 0;
        const Offset end = row < nrows ? row_ptr[row + 1] : 0;
        const uint32_t length = uint32_t(end - begin), longest = __reduce_max_sync(full, length);
        for (uint32_t k0 = 0; k0 < longest && fits; k0 += depth) {
            int32_t offset[depth];
            Word value[depth];
            read_entries(first, begin, end, k0, col_idx, from, offset, value);
            __syncwarp();
            transpose(lane, offset, value, offset_tile, value_tile);
            __syncwarp();
            for (uint32_t d = 0; d < depth && k0 + d < longest && fits; d++) {
                const int32_t own_offset = offset_tile[d * 33 + lane];
                const Word own_value = value_tile[d * 33 + lane];
                uint32_t left = __ballot_sync(full, k0 + d < length);
                while (left != 0) {
                    const uint32_t leader = __ffs(left) - 1;
                    const int32_t wanted = __shfl_sync(full, own_offset, leader);
                    const Word same_value = __shfl_sync(full, own_value, leader);
                    const bool is = own_offset == wanted && own_value == same_value;
                    const uint32_t same = __ballot_sync(full, is) & left;
                    const uint32_t p = find_or_add(found, asked, wanted, same_value);
                    fits = p != none;
                    if (!fits) break;
                    if (lane == 0) {
                        // No other warp processes these rows.
                        found.rows[p * WORDS + word] |= same;
                        atomicMin(firsts + p, word * 32 + leader);
                    }
                    left &= ~same;
                }
            }
        }
    }
    while (asked.add(false, 0, 0)) continue;
    const uint32_t all = count;
    if (!writes && threadIdx.x == 0) {
        counts[h] = all;
        if (all > __ldcg(largest)) atomicMax(largest, all);
    }
    if (all > capacity) return;
    write_pieces(hack_row, all, writes, writes || all <= keep, found, row_ptr, col_idx, diagonals,
                 out);
}

// *over += 1 for each of `sample` evenly spread hacks that has more than `most` pieces.
extern "C" __global__ void __launch_bounds__(256)
    sample_hacks(uint32_t hacks, uint32_t sample, uint32_t most, const uint32_t* counts,
                 uint32_t* over) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < sample && counts[uint64_t(i) * hacks / sample] > most) atomicAdd(over, 1u);
}

// values[p] = the value of the entry of piece p.
template <class Word>
__device__ __forceinline__ void take_pieces(uint32_t pieces, const uint64_t* entries,
                                            const Word* from, Word* values) {
    const uint64_t p = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p < pieces) values[p] = from[entries[p]];
}

// *other = min(*other, first row with a value that differs from that of its piece's entry): a warp
// processes 32 rows at a time, one lane per row.
template <class Word, class Offset>
__device__ __forceinline__ void check_pieces(uint32_t nrows, const uint32_t* narrow,
                                             const uint64_t* wide, const uint64_t* entries,
                                             const uint32_t* order, const uint32_t* rows,
                                             const Offset* __restrict__ row_ptr,
                                             const Word* __restrict__ from, uint32_t* other) {
    const uint32_t h = blockIdx.x, lane = threadIdx.x % 32;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    for (uint32_t word = threadIdx.x / 32; word < WORDS; word += warps) {
        const uint64_t row = uint64_t(h) * HACK + word * 32 + lane;
        if (row >= nrows) continue;
        uint64_t k = row_ptr[row];
        bool differs = false;
        for (uint64_t i = start; i < end; i++) {
            const uint64_t p = start + order[i];
            if (!(rows[p * WORDS + word] >> lane & 1)) continue;
            differs |= from[k] != from[entries[p]];
            k++;
        }
        if (differs) atomicMin(other, uint32_t(row));
    }
}

#define OFFSETS(width, Offset)                                                                    \
    PRECISIONS(width, Offset, f64, uint64_t)                                                      \
    PRECISIONS(width, Offset, f32, uint32_t)
#define PRECISIONS(width, Offset, name, Word)                                                     \
    extern "C" __global__ void __launch_bounds__(threads) hack_pieces_##width##_##name(           \
        uint32_t nrows, uint32_t capacity, uint32_t keep, const Offset* row_ptr,                  \
        const uint32_t* col_idx, const Word* from, uint32_t* counts, uint32_t* largest,           \
        uint32_t* diagonals, Word* kept_values, int32_t* kept_offsets, uint64_t* kept_entries,    \
        uint32_t* kept_order, uint32_t* kept_rows, const uint32_t* narrow, const uint64_t* wide,  \
        Word* values, int32_t* offsets, uint64_t* entries, uint32_t* order, uint32_t* rows) {     \
        hack_pieces<Word, Offset>(                                                                \
            nrows, capacity, keep, row_ptr, col_idx, from, counts, largest, diagonals,            \
            {kept_values, kept_offsets, kept_entries, kept_order, kept_rows}, narrow, wide,       \
            {values, offsets, entries, order, rows});                                             \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(threads) check_pieces_##width##_##name(          \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint64_t* entries,    \
        const uint32_t* order, const uint32_t* rows, const Offset* row_ptr, const Word* from,     \
        uint32_t* other) {                                                                        \
        check_pieces<Word, Offset>(nrows, narrow, wide, entries, order, rows, row_ptr, from,      \
                                   other);                                                        \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
#define TAKE(name, Word)                                                                          \
    extern "C" __global__ void __launch_bounds__(256) take_pieces_##name(                         \
        uint32_t pieces, const uint64_t* entries, const Word* from, Word* values) {               \
        take_pieces<Word>(pieces, entries, from, values);                                         \
    }
TAKE(f64, uint64_t)
TAKE(f32, uint32_t)
