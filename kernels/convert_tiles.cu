// Tiles of a CSR matrix that the GPU holds (src/format/tiles.rs), and their conversion to tiles sorted
// by column (src/format/stcsr.rs says in which order). Sorts and sums of a block are CUB's.
//
// Launch: find_tiles and place_tiles in blocks of 256 threads, a warp a chunk of tiles; tile_groups in
// blocks of 256 threads over tiles; sort_tiles in blocks of tile / 8 threads and update_tiles in
// blocks of 256, one block a tile. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`).
#include "sums.cuh"
#include "tiles.cuh"

#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

constexpr uint32_t GROUP = 4, STEP = 32 * GROUP;
constexpr int EACH = 8;

constexpr uint32_t full = 0xffffffffu;

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

// Tiles of at most `most` entries and rows, cut between rows where none is longer (pcsr): those of
// chunk `c`, by a warp. A chunk starts at the row where entries and rows reach a multiple of
// `weight`. Calls put(t, row, entry) with the end of its t-th tile, and gives how many there are;
// `split` is set where one ends within a row.
template <class Offset, class Put>
__device__ __forceinline__ uint32_t cut_chunk(uint32_t nrows, uint32_t most, uint64_t weight,
                                              uint32_t chunks, uint32_t c,
                                              const Offset* __restrict__ row_ptr, bool& split,
                                              const Put& put) {
    const auto first_row = [&](uint64_t wanted) {
        return last_right(0, nrows, 0, [&](uint64_t i) { return i == 0 || row_ptr[i - 1] + i - 1 < wanted; });
    };
    uint64_t row = first_row(c * weight);
    const uint64_t end = c + 1 < chunks ? first_row((c + 1) * weight) : nrows;
    uint64_t entry = row_ptr[row];
    const uint64_t end_entry = row_ptr[end];
    uint32_t t = 0;
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
        split |= entry < row_ptr[row];
        put(t, uint32_t(row), Offset(entry));
        t++;
    }
    return t;
}

// Tiles of a chunk that are kept from where they are counted to where they are placed; of a chunk
// with more, which only long rows make, they are found again.
constexpr uint32_t KEPT = 64;

// Counts the tiles of all chunks: starts[c] = tiles before chunk c, *total = all of them, *splits = 1
// where one ends within a row. The last block to end sums; *ended is 0 before.
template <class Offset>
__device__ __forceinline__ void find_tiles(uint32_t nrows, uint32_t most, uint64_t weight,
                                           uint32_t chunks, const Offset* __restrict__ row_ptr,
                                           uint32_t* starts, uint32_t* kept_rows, Offset* kept_ptr,
                                           uint32_t* ended, uint32_t* total, uint32_t* splits) {
    using Scan = cub::BlockScan<uint32_t, 256>;
    __shared__ typename Scan::TempStorage storage;
    __shared__ bool last;
    const uint32_t c = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const bool writes = threadIdx.x % 32 == 0;
    if (c < chunks) {
        bool split = false;
        const uint64_t kept = uint64_t(c) * KEPT;
        const auto keep = [&](uint32_t t, uint32_t row, Offset entry) {
            if (writes && t < KEPT) kept_rows[kept + t] = row, kept_ptr[kept + t] = entry;
        };
        const uint32_t count = cut_chunk<Offset>(nrows, most, weight, chunks, c, row_ptr, split, keep);
        if (writes) {
            starts[c] = count;
            if (split) *splits = 1;
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ended, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    uint32_t before = 0;
    for (uint64_t base = 0; base < chunks; base += 256) {
        const uint64_t at = base + threadIdx.x;
        uint32_t start, sum;
        Scan(storage).ExclusiveSum(at < chunks ? __ldcg(starts + at) : 0u, start, sum);
        if (at < chunks) starts[at] = before + start;
        before += sum;
        __syncthreads();
    }
    if (threadIdx.x == 0) starts[chunks] = *total = before;
}

// Writes the tiles that were counted, a warp a chunk: tile t begins at tile_rows[t], tile_ptr[t].
template <class Offset>
__device__ __forceinline__ void place_tiles(uint32_t nrows, uint32_t most, uint64_t weight,
                                            uint32_t chunks, const Offset* __restrict__ row_ptr,
                                            const uint32_t* __restrict__ starts,
                                            const uint32_t* __restrict__ kept_rows,
                                            const Offset* __restrict__ kept_ptr,
                                            uint32_t* tile_rows, Offset* tile_ptr) {
    const uint32_t c = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (c >= chunks) return;
    if (c == 0 && lane == 0) tile_rows[0] = 0, tile_ptr[0] = 0;
    const uint32_t start = starts[c], count = starts[c + 1] - start;
    const uint64_t first = uint64_t(start) + 1, kept = uint64_t(c) * KEPT;
    if (count > KEPT) {
        bool split = false;
        cut_chunk<Offset>(nrows, most, weight, chunks, c, row_ptr, split,
                          [&](uint32_t t, uint32_t row, Offset entry) {
                              if (lane == 0) tile_rows[first + t] = row, tile_ptr[first + t] = entry;
                          });
        return;
    }
    for (uint32_t t = lane; t < count; t += 32)
        tile_rows[first + t] = kept_rows[kept + t], tile_ptr[first + t] = kept_ptr[kept + t];
}

// groups[t] = groups of 4 entries that tile t takes, at least 1.
template <class Offset>
__device__ __forceinline__ void tile_groups(uint32_t tiles, const Offset* entries, uint32_t* groups) {
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < tiles) groups[t] = max(uint32_t(entries[t + 1] - entries[t] + GROUP - 1) / GROUP, 1u);
}

// Which of `length` sorted entries is in a slot: lanes of a warp step hold neighbours.
__device__ __forceinline__ uint32_t nth(uint32_t slot, uint32_t length) {
    const uint32_t step = slot / STEP * STEP;
    const uint32_t lanes = min((length - step) / GROUP, 32u);
    return step + slot % GROUP * lanes + (slot - step) / GROUP;
}

// Where among the values of a tile that of a slot is.
template <class T> __device__ __forceinline__ uint32_t value_at(uint32_t slot, uint32_t slots) {
    return pair_at<T>(slot / GROUP, slot % GROUP / 2, slots / GROUP) + slot % 2;
}

template <class T, class Offset, int tile>
__device__ __forceinline__ void sort_tiles(uint32_t bits, const Offset* __restrict__ row_ptr,
                                           const uint32_t* __restrict__ col_idx,
                                           const T* __restrict__ from,
                                           const uint32_t* __restrict__ tile_rows,
                                           const Offset* __restrict__ tile_ptr,
                                           const uint32_t* __restrict__ starts, uint4* tiles,
                                           uint16_t* ends, uint8_t* lasts, uint32_t* packed,
                                           uint32_t* bases, T* values, uint32_t* widest) {
    constexpr int threads = tile / EACH;
    using Sort = cub::BlockRadixSort<uint32_t, threads, EACH, uint16_t>;
    __shared__ union {
        typename Sort::TempStorage sort;
        struct {
            uint32_t columns[tile];
            uint16_t places[tile];
        } sorted;
    } shared;
    // A bit an entry: whether it is the last of its row in this tile. A byte a thread.
    __shared__ uint32_t last_bits[tile / 32];
    const uint32_t t = blockIdx.x, i = threadIdx.x;
    const Offset start = tile_ptr[t];
    const uint32_t n = uint32_t(tile_ptr[t + 1] - start);
    const uint32_t first = tile_rows[t], rows = tile_rows[t + 1] - first;
    const uint32_t group = starts[t], slots = (starts[t + 1] - group) * GROUP;
    const auto end_of = [&](uint32_t row) {
        const Offset end = row_ptr[row] - start;
        return end < n ? uint32_t(end) : n;
    };
    if (i == 0) tiles[t] = make_uint4(group, first, rows | slots / GROUP << 16, end_of(first));
    if (i < tile / 32) last_bits[i] = 0;
    __syncthreads();
    ends += first + 2 * uint64_t(t);
    if (i == 0) ends[0] = 0;
    for (uint32_t r = i; r <= rows; r += threads) {
        const uint32_t end = end_of(first + r);
        ends[r + 1] = uint16_t(end);
        if (end > 0) atomicOr(last_bits + (end - 1) / 32, 1u << (end - 1) % 32);
    }

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
    lasts[t * uint64_t(tile / 8) + i] = uint8_t(last_bits[i / 4] >> i % 4 * 8);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        shared.sorted.columns[i * EACH + k] = column[k];
        shared.sorted.places[i * EACH + k] = place[k];
    }
    __syncthreads();
    // Steps past the last entry have the base of the last: threads without a group repeat it.
    for (uint32_t step = i; step < tile / STEP; step += threads) {
        const uint32_t from = min(step, (max(n, 1u) - 1) / STEP) * STEP;
        const uint32_t low = n == 0 ? 0 : shared.sorted.columns[from];
        bases[t * uint64_t(tile / STEP) + step] = low;
        if (from >= n) continue;
        const uint32_t span = shared.sorted.columns[min(from + STEP, n) - 1] - low + 1;
        if (span > __ldcg(widest)) atomicMax(widest, span);
    }
    // Padding repeats the last entry; without one it is never summed.
    for (uint32_t slot = i; slot < slots; slot += threads) {
        const uint64_t from_group = group * uint64_t(GROUP), to = from_group + slot;
        T* const value = values + from_group + value_at<T>(slot, slots);
        if (n == 0) {
            packed[to] = 0, *value = 0;
            continue;
        }
        const uint32_t at = min(nth(slot, slots), n - 1), where = shared.sorted.places[at];
        const uint32_t away = shared.sorted.columns[at] - shared.sorted.columns[slot / STEP * STEP];
        packed[to] = away << place_bits(tile) | placed<T>(where);
        *value = from[start + where];
    }
}

// Takes over new values, given in the order of the CSR matrix.
template <class T, class Offset>
__device__ __forceinline__ void update_tiles(uint64_t nnz, uint32_t size,
                                             const Offset* __restrict__ tile_ptr,
                                             const T* __restrict__ from,
                                             const uint4* __restrict__ tiles,
                                             const uint32_t* __restrict__ packed, T* values) {
    const uint4 tile = tiles[blockIdx.x];
    const uint64_t start = tile_ptr[blockIdx.x], first = tile.x * uint64_t(GROUP);
    const uint32_t groups = tile.z >> 16;
    for (uint32_t slot = threadIdx.x; slot < groups * GROUP; slot += blockDim.x) {
        const uint64_t at = start + placed<T>(packed[first + slot] & (size - 1));
        values[first + value_at<T>(slot, groups * GROUP)] = at < nnz ? from[at] : T(0);
    }
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        tile_groups_##width(uint32_t tiles, const Offset* entries, uint32_t* groups) {            \
        tile_groups<Offset>(tiles, entries, groups);                                              \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) find_tiles_##width(                         \
        uint32_t nrows, uint32_t most, uint64_t weight, uint32_t chunks, const Offset* row_ptr,   \
        uint32_t* starts, uint32_t* kept_rows, Offset* kept_ptr, uint32_t* ended,                 \
        uint32_t* total, uint32_t* splits) {                                                      \
        find_tiles<Offset>(nrows, most, weight, chunks, row_ptr, starts, kept_rows, kept_ptr,     \
                           ended, total, splits);                                                 \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) place_tiles_##width(                        \
        uint32_t nrows, uint32_t most, uint64_t weight, uint32_t chunks, const Offset* row_ptr,   \
        const uint32_t* starts, const uint32_t* kept_rows, const Offset* kept_ptr,                \
        uint32_t* tile_rows, Offset* tile_ptr) {                                                  \
        place_tiles<Offset>(nrows, most, weight, chunks, row_ptr, starts, kept_rows, kept_ptr,    \
                            tile_rows, tile_ptr);                                                 \
    }                                                                                             \
    PRECISIONS(width, Offset, f64, double)                                                        \
    PRECISIONS(width, Offset, f32, float)
#define PRECISIONS(width, Offset, name, T)                                                        \
    SORT(width, Offset, name, T, 1024)                                                            \
    SORT(width, Offset, name, T, 2048)                                                            \
    SORT(width, Offset, name, T, 4096)                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        update_tiles_##width##_##name(uint64_t nnz, uint32_t size, const Offset* tile_ptr,        \
                                      const T* from, const uint4* tiles,                          \
                                      const uint32_t* packed, T* values) {                        \
        update_tiles<T, Offset>(nnz, size, tile_ptr, from, tiles, packed, values);                \
    }
#define SORT(width, Offset, name, T, tile)                                                        \
    extern "C" __global__ void __launch_bounds__(tile / EACH) sort_tiles##tile##_##width##_##name( \
        uint32_t bits, const Offset* row_ptr, const uint32_t* col_idx, const T* from,             \
        const uint32_t* tile_rows, const Offset* tile_ptr, const uint32_t* starts, uint4* tiles,  \
        uint16_t* ends, uint8_t* lasts, uint32_t* packed, uint32_t* bases, T* values,             \
        uint32_t* widest) {                                                                       \
        sort_tiles<T, Offset, tile>(bits, row_ptr, col_idx, from, tile_rows, tile_ptr, starts,    \
                                    tiles, ends, lasts, packed, bases, values, widest);           \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
