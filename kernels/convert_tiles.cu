// Conversion of a CSR matrix that the GPU holds to tiles sorted by column (src/format/stcsr.rs says
// in which order). The sort of a tile is CUB's.
//
// Launch: tile_groups in blocks of 256 threads over tiles; sort_tiles in blocks of tile / 8 threads
// and update_tiles in blocks of 256, one block a tile. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`).
#include "tiles.cuh"

#include <cub/block/block_radix_sort.cuh>

constexpr uint32_t GROUP = 4, STEP = 32 * GROUP;
constexpr int EACH = 8;

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

template <class T, class Offset, int tile>
__device__ __forceinline__ void sort_tiles(uint32_t bits, const Offset* __restrict__ row_ptr,
                                           const uint32_t* __restrict__ col_idx,
                                           const T* __restrict__ from,
                                           const uint32_t* __restrict__ tile_rows,
                                           const Offset* __restrict__ tile_ptr,
                                           const uint32_t* __restrict__ starts, uint4* tiles,
                                           uint16_t* ends, uint32_t* packed, uint32_t* bases,
                                           T* values, uint32_t* widest) {
    constexpr int threads = tile / EACH;
    using Sort = cub::BlockRadixSort<uint32_t, threads, EACH, uint16_t>;
    __shared__ union {
        typename Sort::TempStorage sort;
        struct {
            uint32_t columns[tile];
            uint16_t places[tile];
        } sorted;
    } shared;
    const uint32_t t = blockIdx.x, i = threadIdx.x;
    const Offset start = tile_ptr[t];
    const uint32_t n = uint32_t(tile_ptr[t + 1] - start);
    const uint32_t first = tile_rows[t], rows = tile_rows[t + 1] - first;
    const uint32_t group = starts[t], slots = (starts[t + 1] - group) * GROUP;
    const auto end_of = [&](uint32_t row) {
        const Offset end = row_ptr[row] - start;
        return end < n ? uint32_t(end) : n;
    };
    if (i == 0) {
        // The threads of a block of the product.
        constexpr int product = sizeof(T) == 4 ? tile / 8 : tile / 4;
        const uint32_t head = end_of(first), shift = lanes_shift<product>(rows + (head > 0));
        tiles[t] = make_uint4(group, first, rows | slots / GROUP << 16, shift | head << 16);
    }
    ends += first + 2 * uint64_t(t);
    if (i == 0) ends[0] = 0;
    for (uint32_t r = i; r <= rows; r += threads) ends[r + 1] = uint16_t(end_of(first + r));

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
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        shared.sorted.columns[i * EACH + k] = column[k];
        shared.sorted.places[i * EACH + k] = place[k];
    }
    __syncthreads();
    for (uint32_t step = i; step * STEP < n; step += threads) {
        const uint32_t low = shared.sorted.columns[step * STEP];
        bases[t * uint64_t(tile / STEP) + step] = low;
        atomicMax(widest, shared.sorted.columns[min((step + 1) * STEP, n) - 1] - low + 1);
    }
    // Padding repeats the last entry; without one it is never summed.
    for (uint32_t slot = i; slot < slots; slot += threads) {
        const uint64_t to = group * uint64_t(GROUP) + slot;
        if (n == 0) {
            packed[to] = 0, values[to] = 0;
            continue;
        }
        const uint32_t at = min(nth(slot, slots), n - 1), where = shared.sorted.places[at];
        const uint32_t away = shared.sorted.columns[at] - shared.sorted.columns[slot / STEP * STEP];
        packed[to] = away << place_bits(tile) | where;
        values[to] = from[start + where];
    }
}

// Takes over new values, given in the order of the CSR matrix.
template <class T, class Offset>
__device__ __forceinline__ void update_tiles(uint64_t nnz, uint32_t size, const Offset* __restrict__ row_ptr,
                                             const T* __restrict__ from,
                                             const uint4* __restrict__ tiles,
                                             const uint32_t* __restrict__ packed, T* values) {
    const uint4 tile = tiles[blockIdx.x];
    const uint64_t start = row_ptr[tile.y] - (tile.w >> 16), first = tile.x * uint64_t(GROUP);
    const uint32_t groups = tile.z >> 16;
    for (uint32_t slot = threadIdx.x; slot < groups * GROUP; slot += blockDim.x) {
        const uint64_t at = start + (packed[first + slot] & (size - 1));
        values[first + slot] = at < nnz ? from[at] : T(0);
    }
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        tile_groups_##width(uint32_t tiles, const Offset* entries, uint32_t* groups) {            \
        tile_groups<Offset>(tiles, entries, groups);                                              \
    }                                                                                             \
    PRECISIONS(width, Offset, f64, double)                                                        \
    PRECISIONS(width, Offset, f32, float)
#define PRECISIONS(width, Offset, name, T)                                                        \
    SORT(width, Offset, name, T, 1024)                                                            \
    SORT(width, Offset, name, T, 2048)                                                            \
    SORT(width, Offset, name, T, 4096)                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        update_tiles_##width##_##name(uint64_t nnz, uint32_t size, const Offset* row_ptr,         \
                                      const T* from, const uint4* tiles,                          \
                                      const uint32_t* packed, T* values) {                        \
        update_tiles<T, Offset>(nnz, size, row_ptr, from, tiles, packed, values);                            \
    }
#define SORT(width, Offset, name, T, tile)                                                        \
    extern "C" __global__ void __launch_bounds__(tile / EACH) sort_tiles##tile##_##width##_##name( \
        uint32_t bits, const Offset* row_ptr, const uint32_t* col_idx, const T* from,             \
        const uint32_t* tile_rows, const Offset* tile_ptr, const uint32_t* starts, uint4* tiles,  \
        uint16_t* ends, uint32_t* packed, uint32_t* bases, T* values, uint32_t* widest) {         \
        sort_tiles<T, Offset, tile>(bits, row_ptr, col_idx, from, tile_rows, tile_ptr, starts,    \
                                    tiles, ends, packed, bases, values, widest);                  \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
