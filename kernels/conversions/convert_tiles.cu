// Tiles of a CSR matrix that the GPU holds (src/format/csr/csr_tiles.rs), and their conversion to
// tiles sorted by column (src/format/tiled/sorted_tiles/gpu.rs defines the sequence of steps).
// Sorts and sums within a block are CUB's.
//
// Launch: find_tiles in blocks of 256 threads, one warp per chunk of tiles; sort_tiles in blocks of
// tile / 8 threads, one block per tile; wide_tiles in blocks of 256 threads over tiles, pack_tiles
// and update_tiles over threads of the product. Row pointers are 32-bit (`*_narrow`) or 64-bit
// (`*_wide`).
#include "cut_tiles.cuh"
#include "tile_values.cuh"

#include <cub/block/block_radix_sort.cuh>

// Number of sorted entries that share a first column.
constexpr uint32_t BASED = 64;

// The sorted entry of its warp that is number `k` of this lane: lanes hold neighbours.
__device__ __forceinline__ uint32_t nth(uint32_t k) { return 32 * k + threadIdx.x % 32; }

// Writes the ends of a tile's rows, counted in its entries and found by end_of(row), and sets the
// bit of each end's last entry. Called by all threads of a block.
template <int threads, class EndOf>
__device__ __forceinline__ void write_ends(uint32_t first, uint32_t rows, const EndOf& end_of,
                                           uint16_t* ends, uint32_t* last_bits) {
    if (threadIdx.x == 0) ends[0] = 0;
    for (uint32_t r = threadIdx.x; r <= rows; r += threads) {
        const uint32_t end = end_of(first + r);
        ends[r + 1] = uint16_t(end);
        if (end > 0) atomicOr(last_bits + (end - 1) / 32, 1u << (end - 1) % 32);
    }
}

// Writes the first of every BASED sorted columns of a tile, whose last entry is `end`, and for each
// of its warps the largest distance from such a column, without its lowest `left` bits. Counts
// warps with large distances. Called by the first warp of a block.
template <int warps, int left>
__device__ __forceinline__ void find_bases(const uint32_t* columns, uint32_t end,
                                           uint32_t (*first_columns)[4], uint32_t* spans,
                                           Overs* overs) {
    const uint32_t i = threadIdx.x;
    uint32_t span = 0;
    for (uint32_t k = 0; k < 4 && i < warps; k++) {
        const uint32_t at = (4 * i + k) * BASED;
        const uint32_t low = columns[min(at, end)];
        first_columns[i][k] = low;
        span = max(span, columns[min(at + BASED - 1, end)] - low);
    }
    span >>= left;
    if (i < warps) spans[i] = span;
    const uint32_t over[5] = {span >> 4, span >> 8, span >> 16, span >> 20, span >> 24};
#pragma unroll
    for (int k = 0; k < 5; k++) {
        const uint32_t count = __popc(__ballot_sync(full, over[k] != 0));
        if (i == 0 && count > 0) atomicAdd(k < 3 ? overs->wide + k : overs->far + (k - 3), count);
    }
}

template <class T, class Offset, int tile>
__device__ __forceinline__ void sort_tiles(uint32_t bits, const Offset* __restrict__ row_ptr,
                                           const uint32_t* __restrict__ col_idx,
                                           const T* __restrict__ from,
                                           const uint32_t* __restrict__ tile_rows,
                                           const Offset* __restrict__ tile_ptr, uint4* tiles,
                                           uint16_t* ends, uint8_t* lasts, uint4* bases, uint4* low,
                                           uint4* rest, uint32_t* spans, T* values, Overs* overs) {
    constexpr int threads = tile / EACH, warps = threads / 32, left = 16 - place_bits(tile);
    using Sort = cub::BlockRadixSort<uint32_t, threads, EACH, uint16_t>;
    __shared__ union {
        typename Sort::TempStorage sort;
        struct {
            uint32_t columns[tile];
            uint16_t places[tile];
        } sorted;
    } shared;
    // One bit per entry, set if it is the last of its row in this tile; one byte per thread.
    __shared__ uint32_t last_bits[tile / 32];
    __shared__ uint32_t first_columns[warps][4];
    const uint32_t t = blockIdx.x, i = threadIdx.x;
    const Offset start = tile_ptr[t];
    const uint32_t n = uint32_t(tile_ptr[t + 1] - start);
    const uint32_t first = tile_rows[t], rows = tile_rows[t + 1] - first;
    const uint64_t thread = t * uint64_t(threads) + i;
    const auto end_of = [&](uint32_t row) {
        const Offset end = row_ptr[row] - start;
        return end < n ? uint32_t(end) : n;
    };
    if (i == 0) tiles[t] = make_uint4(first, rows | end_of(first) << 16, 0, 0);
    if (i < tile / 32) last_bits[i] = 0;
    __syncthreads();
    ends += first + 2 * uint64_t(t);
    write_ends<threads>(first, rows, end_of, ends, last_bits);

    uint32_t column[EACH];
    uint16_t place[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint32_t at = i * EACH + k;
        column[k] = at < n ? col_idx[start + at] : 0xffffffffu;
        place[k] = uint16_t(at);
    }
    Sort(shared.sort).Sort(column, place, 0, int(bits));
    __syncthreads();
    lasts[thread] = uint8_t(last_bits[i / 4] >> i % 4 * 8);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        shared.sorted.columns[i * EACH + k] = n > 0 ? column[k] : 0;
        shared.sorted.places[i * EACH + k] = n > 0 ? place[k] : 0;
    }
    __syncthreads();
    // Slots past the last entry repeat it; in a tile without entries they are never summed.
    const uint32_t end = max(n, 1u) - 1;
    if (i < 32)
        find_bases<warps, left>(shared.sorted.columns, end, first_columns,
                                spans + t * uint64_t(warps), overs);
    __syncthreads();
    const uint32_t* base = first_columns[i / 32];
    if (i % 32 == 0) bases[thread / 32] = make_uint4(base[0], base[1], base[2], base[3]);
    const bool keeps = values;
    values += thread / 32 * (32 * EACH);
    uint32_t packed[EACH], more[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint32_t at = min(i / 32 * (32 * EACH) + nth(k), end);
        const uint32_t away = shared.sorted.columns[at] - base[k / 2], where = shared.sorted.places[at];
        packed[k] = (away << place_bits(tile) & 0xffff) | placed<T>(where);
        more[k] = away >> left;
        if (keeps) values[value_at<T>(k)] = n > 0 ? from[start + where] : T(0);
    }
    low[thread] = make_uint4(packed[0] | packed[1] << 16, packed[2] | packed[3] << 16,
                             packed[4] | packed[5] << 16, packed[6] | packed[7] << 16);
    rest[2 * thread] = make_uint4(more[0], more[1], more[2], more[3]);
    rest[2 * thread + 1] = make_uint4(more[4], more[5], more[6], more[7]);
}

// counts[t] = wide warps of tile t, where all slots have *extra further bits; also determines
// *extra.
extern "C" __global__ void __launch_bounds__(256)
    wide_tiles(uint32_t tiles, uint32_t warps, const uint32_t* __restrict__ spans,
               const Overs* __restrict__ overs, uint32_t* counts, uint32_t* extra) {
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t bits = extra_bits(*overs, uint64_t(tiles) * warps);
    if (t == 0) *extra = bits;
    if (t >= tiles) return;
    uint32_t count = 0;
    for (uint32_t w = 0; w < warps; w++) count += spans[t * uint64_t(warps) + w] >> bits != 0;
    counts[t] = count;
}

// Writes the column bits that are not next to places: `extra` bits of each slot, and 16 more for
// the slots of wide warps; and the starts of the latter. A warp handles one warp of the product.
extern "C" __global__ void __launch_bounds__(256)
    pack_tiles(uint32_t tiles, uint32_t warps, uint32_t extra, const uint4* __restrict__ rest,
               const uint32_t* __restrict__ spans, const uint32_t* __restrict__ starts, uint4* headers,
               uint32_t* high, uint32_t* wide) {
    const uint64_t thread = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x;
    const uint64_t warp = thread / 32;
    const uint32_t t = uint32_t(warp / warps), w = uint32_t(warp % warps), lane = threadIdx.x % 32;
    if (t >= tiles) return;
    const uint4 a = rest[2 * thread], b = rest[2 * thread + 1];
    uint32_t more[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    uint32_t* const to = high + thread * (extra / 4);
    if (extra == 4) put<4>(more, to);
    if (extra == 8) put<8>(more, to);
    if (extra == 16) put<16>(more, to);
    const uint32_t span = lane < warps ? spans[t * uint64_t(warps) + lane] : 0;
    const uint32_t mask = __ballot_sync(full, span >> extra != 0), start = starts[t];
    if (w == 0 && lane == 0) headers[t].z = start, headers[t].w = mask;
    if (!(mask >> w & 1)) return;
#pragma unroll
    for (int k = 0; k < 8; k++) more[k] >>= extra;
    const uint64_t at = start + __popc(mask & ((1u << w) - 1));
    put<16>(more, wide + 4 * (32 * at + lane));
}

// Packs the numbers of the values (convert_few.cu) of a thread's slots, eight bits each.
template <class T, class Offset>
__device__ __forceinline__ void number_tiles(uint64_t nnz, uint32_t tiles, uint32_t threads,
                                             const Offset* __restrict__ tile_ptr,
                                             const uint4* __restrict__ low,
                                             const uint8_t* __restrict__ from, uint2* numbers) {
    const uint64_t thread = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, t = thread / threads;
    if (t >= tiles) return;
    const uint64_t start = tile_ptr[t];
    const uint4 packed = low[thread];
    uint32_t words[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint64_t at = entry_of<T>(start, packed, threads * EACH, k);
        words[k / 4] |= (at < nnz ? uint32_t(from[at]) : 0u) << 8 * (k % 4);
    }
    numbers[thread] = make_uint2(words[0], words[1]);
}

// *other = min(*other, first row with a value that differs from that of its number's entry).
// `numbers` is null where all entries have the first value. Values are compared by their bits.
template <class T, class Word, class Offset>
__device__ __forceinline__ void check_numbers(uint64_t nnz, uint32_t tiles, uint32_t threads,
                                              const Offset* __restrict__ tile_ptr,
                                              const uint4* __restrict__ low, uint32_t nrows,
                                              const Offset* __restrict__ row_ptr,
                                              const uint2* __restrict__ numbers,
                                              const uint64_t* __restrict__ entries,
                                              const Word* __restrict__ from, uint32_t* other) {
    const uint64_t thread = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, t = thread / threads;
    if (t >= tiles || tile_ptr[t] == tile_ptr[t + 1]) return;
    const uint64_t start = tile_ptr[t];
    const uint4 packed = low[thread];
    const uint2 own = numbers ? numbers[thread] : make_uint2(0, 0);
    uint64_t first = nnz;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint64_t at = entry_of<T>(start, packed, threads * EACH, k);
        const uint32_t number = (k < 4 ? own.x : own.y) >> 8 * (k % 4) & 0xff;
        if (at < first && from[at] != from[entries[number]]) first = at;
    }
    if (first == nnz) return;
    uint32_t low_row = 0, high_row = nrows;
    while (high_row - low_row > 1) {
        const uint32_t middle = low_row + (high_row - low_row) / 2;
        if (row_ptr[middle] <= first) low_row = middle;
        else high_row = middle;
    }
    atomicMin(other, low_row);
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256) find_tiles_##width(                         \
        uint32_t nrows, uint32_t most, uint64_t weight, uint32_t chunks, const Offset* row_ptr,   \
        uint32_t* tile_rows, Offset* tile_ptr, uint32_t* found, uint32_t* taken, uint32_t* total, \
        uint32_t* splits) {                                                                       \
        find_tiles<Offset>(nrows, most, weight, chunks, row_ptr, tile_rows, tile_ptr, found,      \
                           taken, total, splits);                                                 \
    }                                                                                             \
    PRECISIONS(width, Offset, f64, double, uint64_t)                                              \
    PRECISIONS(width, Offset, f32, float, uint32_t)
#define PRECISIONS(width, Offset, name, T, Word)                                                  \
    SORT(width, Offset, name, T, 1024)                                                            \
    SORT(width, Offset, name, T, 2048)                                                            \
    SORT(width, Offset, name, T, 4096)                                                            \
    extern "C" __global__ void __launch_bounds__(256) update_tiles_##width##_##name(              \
        uint64_t nnz, uint32_t tiles, uint32_t threads, const Offset* tile_ptr, const uint4* low, \
        const T* from, T* values) {                                                               \
        update_tiles<T, T, Offset>(nnz, tiles, threads, tile_ptr, low, from, values);                \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) number_tiles_##width##_##name(              \
        uint64_t nnz, uint32_t tiles, uint32_t threads, const Offset* tile_ptr, const uint4* low, \
        const uint8_t* from, uint2* numbers) {                                                    \
        number_tiles<T, Offset>(nnz, tiles, threads, tile_ptr, low, from, numbers);               \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) check_numbers_##width##_##name(             \
        uint64_t nnz, uint32_t tiles, uint32_t threads, const Offset* tile_ptr, const uint4* low, \
        uint32_t nrows, const Offset* row_ptr, const uint2* numbers, const uint64_t* entries,     \
        const Word* from, uint32_t* other) {                                                      \
        check_numbers<T, Word, Offset>(nnz, tiles, threads, tile_ptr, low, nrows, row_ptr,        \
                                       numbers, entries, from, other);                            \
    }
#define SORT(width, Offset, name, T, tile)                                                        \
    extern "C" __global__ void __launch_bounds__(tile / EACH) sort_tiles##tile##_##width##_##name( \
        uint32_t bits, const Offset* row_ptr, const uint32_t* col_idx, const T* from,             \
        const uint32_t* tile_rows, const Offset* tile_ptr, uint4* tiles, uint16_t* ends,          \
        uint8_t* lasts, uint4* bases, uint4* low, uint4* rest, uint32_t* spans, T* values,        \
        Overs* overs) {                                                                           \
        sort_tiles<T, Offset, tile>(bits, row_ptr, col_idx, from, tile_rows, tile_ptr, tiles,     \
                                    ends, lasts, bases, low, rest, spans, values, overs);         \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
