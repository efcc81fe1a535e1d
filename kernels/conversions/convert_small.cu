// Steps of conversions of small matrices that the GPU holds (src/format/gpu/small.rs), whose time is
// that of launches and of waits. Each kernel does the work of several of convert.cu and
// convert_tiles.cu, and writes the numbers that the host needs to memory of the host.
//
// The blocks of a launch are numbered, and each one adds up what the blocks before it have counted:
// it waits for these, which run or have ended, because blocks start in the order of their numbers.
// Row pointers are 32-bit. Column indices ascend in each row.
#include "cut_tiles.cuh"
#include "tell.cuh"
#include "tile_columns.cuh"

#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>

// Adds `own` up over all threads of a block; all get the sum.
template <int threads> __device__ __forceinline__ uint32_t block_sum(uint32_t own) {
    __shared__ uint32_t parts[threads / 32];
    own = __reduce_add_sync(full, own);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    uint32_t sum = 0;
#pragma unroll
    for (int w = 0; w < threads / 32; w++) sum += parts[w];
    return sum;
}

// The number that block `b` has published in `found`, without its last bit, which is set; waits.
__device__ __forceinline__ uint32_t await_block(const uint32_t* found, uint32_t b) {
    uint32_t other;
    do other = *(const volatile uint32_t*)(found + b);
    while (other == 0);
    return other >> 1;
}
__device__ __forceinline__ void publish(uint32_t* found, uint32_t number) {
    *(volatile uint32_t*)(found + blockIdx.x) = number << 1 | 1;
}

// ---- Tiles ----

// Threads of a block that finds the tiles of a chunk; positions that each examines at a time; rows
// of a chunk whose bounds are copied to shared memory.
constexpr uint32_t FINDERS = 32 * TILE_CHUNKS, PROBES = 4, COPIED = 10000;

// The number of rows before which entries and rows reach each of two numbers. Called by a block.
__device__ __forceinline__ void find_rows(uint32_t nrows, const uint32_t* __restrict__ row_ptr,
                                          const uint32_t (&wanted)[2], uint32_t (&row)[2]) {
    uint32_t past[2] = {nrows, nrows};
    row[0] = row[1] = 0;
    while (row[0] < past[0] || row[1] < past[1]) {
        uint32_t stride[2], before = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            stride[i] = (past[i] - row[i] + FINDERS * PROBES - 1) / (FINDERS * PROBES);
            uint32_t value[PROBES];
#pragma unroll
            for (uint32_t k = 0; k < PROBES; k++) {
                const uint32_t at = row[i] + (threadIdx.x * PROBES + k + 1) * stride[i] - 1;
                value[k] = stride[i] > 0 && at < past[i] ? row_ptr[at] + at : full;
            }
#pragma unroll
            for (uint32_t k = 0; k < PROBES; k++) before += uint32_t(value[k] < wanted[i]) << 16 * i;
        }
        const uint32_t all = block_sum<FINDERS>(before);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            row[i] += (all >> 16 * i & 0xffff) * stride[i];
            past[i] = stride[i] > 0 ? min(past[i], row[i] + stride[i] - 1) : row[i];
        }
    }
}

// Cuts `rows` rows, none of which is longer than `most`, into tiles as cut_chunk does; `bounds` are
// their ends in shared memory. Called by a warp, of which the first lane calls put(t, row, entry).
template <class Put>
__device__ __forceinline__ uint32_t cut_short_rows(uint32_t rows, uint32_t most,
                                                   const uint32_t* bounds, const Put& put) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t row = 0, entry = bounds[0], t = 0;
    for (; row < rows; t++) {
        const uint32_t reach = entry + most;
        uint32_t high = min(row + most, rows);
        while (row < high) {
            const uint32_t stride = (high - row + 31) / 32, at = row + (lane + 1) * stride;
            const uint32_t right = __ballot_sync(full, at <= high && bounds[min(at, high)] <= reach);
            row += __popc(right) * stride;
            high = min(high, row + stride - 1);
        }
        entry = bounds[row];
        if (lane == 0) put(t, row, entry);
    }
    return t;
}

// As find_tiles, a block per chunk. When all tiles are written, the host is told their number, and 1
// where a tile ends within a row. `found`, `ended`, `total` and `splits` are initially 0.
extern "C" __global__ void __launch_bounds__(FINDERS)
    find_tiles_small(uint32_t nrows, uint32_t most, uint32_t weight,
                     const uint32_t* __restrict__ row_ptr, uint32_t* tile_rows, uint32_t* tile_ptr,
                     uint32_t* found, uint32_t* ended, uint32_t* total, uint32_t* splits,
                     uint32_t* host, uint32_t mark) {
    __shared__ uint32_t bounds[COPIED + 1], kept_rows[KEPT], kept_ptr[KEPT], own;
    const uint32_t c = blockIdx.x, last = gridDim.x - 1;
    uint32_t row[2];
    const uint32_t wanted[2] = {c * weight, c < last ? (c + 1) * weight : full};
    find_rows(nrows, row_ptr, wanted, row);
    const uint32_t begin = row[0], rows = row[1] - begin;
    const bool copied = rows <= COPIED;
    if (copied) {
#pragma unroll 8
        for (uint32_t r = threadIdx.x; r <= rows; r += FINDERS) bounds[r] = row_ptr[begin + r];
    }
    __syncthreads();
    bool is_long = !copied;
    for (uint32_t r = threadIdx.x; copied && r < rows; r += FINDERS)
        is_long |= bounds[r + 1] - bounds[r] > most;
    const bool any_long = __syncthreads_or(is_long);
    // Copied rows are counted from the first one of the chunk, which may be the only one.
    bool split = false;
    const auto cut = [&](const auto& put) {
        if (!any_long) return cut_short_rows(rows, most, bounds, put);
        if (copied) return cut_chunk<uint32_t>(rows, most, 0, 1, 0, bounds, split, put);
        const auto from_first = [&](uint32_t t, uint32_t row, uint32_t entry) {
            put(t, row - begin, entry);
        };
        return cut_chunk<uint32_t>(nrows, most, weight, gridDim.x, c, row_ptr, split, from_first);
    };
    // Tiles of the blocks before this one, and how many of these split a row.
    constexpr uint32_t splits_at = 24, tiles_mask = (1u << splits_at) - 1;
    uint32_t others = 0;
    if (threadIdx.x < 32) {
        const uint32_t count = cut([&](uint32_t t, uint32_t row, uint32_t entry) {
            if (t < KEPT) kept_rows[t] = row, kept_ptr[t] = entry;
        });
        if (threadIdx.x == 0) {
            own = count | uint32_t(split) << splits_at;
            publish(found, own);
        }
    } else {
        for (uint32_t i = threadIdx.x - 32; i < c; i += FINDERS - 32) others += await_block(found, i);
    }
    others = block_sum<FINDERS>(others);
    const uint32_t before = others & tiles_mask, count = own & tiles_mask;
    const auto place = [&](uint32_t t, uint32_t row, uint32_t entry) {
        tile_rows[before + 1 + t] = begin + row, tile_ptr[before + 1 + t] = entry;
    };
    if (count <= KEPT) {
        for (uint32_t t = threadIdx.x; t < count; t += FINDERS) place(t, kept_rows[t], kept_ptr[t]);
    } else if (threadIdx.x < 32) {
        cut(place);
    }
    if (c == 0 && threadIdx.x == 0) tile_rows[0] = 0, tile_ptr[0] = 0;
    if (c == last && threadIdx.x == 0) {
        *total = before + count;
        *splits = uint32_t((others | own) >> splits_at != 0);
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    // All writes of a block come before its count, and those of all blocks before the host's mark.
    __threadfence();
    if (last > 0 && atomicAdd(ended, 1u) < last) return;
    __threadfence();
    tell(host, mark, {__ldcg(total), __ldcg(splits)});
}

// Counts the wide warps of all tiles, of which starts[t] come before tile t; tells the host the
// number of further column bits, which it chooses, and the number of wide warps. There is one block.
extern "C" __global__ void __launch_bounds__(1024)
    tile_starts(uint32_t tiles, uint32_t warps, const uint32_t* __restrict__ spans,
                const Overs* __restrict__ overs, uint32_t* starts, uint32_t* host, uint32_t mark) {
    using Scan = cub::BlockScan<uint32_t, 1024>;
    __shared__ typename Scan::TempStorage storage;
    const uint32_t bits = extra_bits(*overs, uint64_t(tiles) * warps);
    const uint32_t each = (tiles + 1023) / 1024;
    const uint32_t first = min(tiles, threadIdx.x * each), end = min(tiles, first + each);
    const auto wide_of = [&](uint32_t t) {
        uint32_t wide = 0;
        for (uint32_t w = 0; w < warps; w++) wide += spans[t * warps + w] >> bits != 0;
        return wide;
    };
    uint32_t own = 0, start, total;
    for (uint32_t t = first; t < end; t++) own += wide_of(t);
    Scan(storage).ExclusiveSum(own, start, total);
    for (uint32_t t = first; t < end; t++) {
        starts[t] = start;
        start += wide_of(t);
    }
    if (threadIdx.x == 0) tell(host, mark, {bits, total});
}

// ---- Hacks ----

// Maximum number of hacks of a block.
constexpr uint32_t HACKS = 128;

// Rows of a CSR matrix, or rows whose lengths, first and last columns are listed.
struct Rows {
    const uint32_t *row_ptr, *col_idx, *lengths, *firsts, *lasts;
    __device__ __forceinline__ uint32_t length(uint32_t i) const {
        return lengths ? lengths[i] : row_ptr[i + 1] - row_ptr[i];
    }
    // Widens a range of columns by those of row i, which has entries.
    __device__ __forceinline__ void widen(uint32_t i, uint32_t& low, uint32_t& high) const {
        low = min(low, lengths ? firsts[i] : col_idx[row_ptr[i]]);
        high = max(high, lengths ? lasts[i] : col_idx[row_ptr[i + 1] - 1]);
    }
};

// Slots of hacks: `multiple` divides the width of a hack, which has `each` times as many slots.
struct Places {
    uint32_t hacks, multiple, each;
    uint32_t* base;  // first column of each hack; null where it is not requested
    uint32_t* starts;
};

// Numbers that blocks share, all initially 0, and the memory of the host.
struct Shared {
    uint32_t *found, *longest, *widest, *host;
    uint32_t mark;
};

// The hacks of a block: `longest` is the longest row of each; `most` and `span` are the block's
// longest row and widest hack.
struct Block {
    uint32_t longest[HACKS], before[HACKS], most, span;
};

// Notes hack `h` of a warp, number `k` of the block: its longest row, and its columns.
__device__ __forceinline__ void note_hack(Block& block, const Places& places, uint32_t h, uint32_t k,
                                          uint32_t longest, uint32_t low, uint32_t high) {
    longest = __reduce_max_sync(full, longest);
    if (places.base) low = __reduce_min_sync(full, low), high = __reduce_max_sync(full, high);
    if (threadIdx.x % 32 > 0) return;
    block.longest[k] = longest;
    atomicMax(&block.most, longest);
    if (!places.base) return;
    places.base[h] = low == full ? 0 : low;
    if (low != full) atomicMax(&block.span, high - low + 1);
}

// Writes the starts of the `count` hacks of a block, from `first` on. The last block tells the host
// the slots of all hacks, the longest row and the widest hack.
template <int threads>
__device__ __forceinline__ void place_hacks(Block& block, const Places& places, const Shared& shared,
                                            uint32_t first, uint32_t count) {
    __syncthreads();
    if (threadIdx.x < 32) {
        constexpr uint32_t own = HACKS / 32;
        uint32_t slots[own], before = 0;
#pragma unroll
        for (uint32_t i = 0; i < own; i++) {
            const uint32_t k = threadIdx.x * own + i, longest = k < count ? block.longest[k] : 0;
            slots[i] = (longest + places.multiple - 1) / places.multiple * places.multiple *
                       places.each;
            before += slots[i];
        }
        uint32_t upto = before;
#pragma unroll
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            const uint32_t other = __shfl_up_sync(full, upto, distance);
            if (threadIdx.x >= distance) upto += other;
        }
        before = upto - before;
#pragma unroll
        for (uint32_t i = 0; i < own; i++) {
            block.before[threadIdx.x * own + i] = before;
            before += slots[i];
        }
        if (threadIdx.x == 31) {
            atomicMax(shared.longest, block.most);
            if (places.base) atomicMax(shared.widest, block.span);
            // The last block reads both.
            __threadfence();
            publish(shared.found, upto);
        }
    }
    uint32_t others = 0;
    for (uint32_t i = threadIdx.x; i < blockIdx.x; i += threads)
        others += await_block(shared.found, i);
    others = block_sum<threads>(others);
    for (uint32_t k = threadIdx.x; k < count; k += threads)
        places.starts[first + k] = others + block.before[k];
    if (blockIdx.x < gridDim.x - 1 || threadIdx.x > 0) return;
    __threadfence();
    const uint32_t all = others + await_block(shared.found, blockIdx.x);
    places.starts[places.hacks] = all;
    tell(shared.host, shared.mark, {all, __ldcg(shared.longest), __ldcg(shared.widest)});
}

// Starts of hacks of `hack` rows that keep their order: a warp per `turns` hacks.
extern "C" __global__ void __launch_bounds__(256)
    hack_starts(uint32_t nrows, uint32_t hack, uint32_t turns, uint32_t hacks, uint32_t multiple,
                uint32_t each, const uint32_t* __restrict__ row_ptr,
                const uint32_t* __restrict__ col_idx, const uint32_t* __restrict__ lengths,
                const uint32_t* __restrict__ firsts, const uint32_t* __restrict__ lasts,
                uint32_t* base, uint32_t* starts, uint32_t* found, uint32_t* longest,
                uint32_t* widest, uint32_t* host, uint32_t mark) {
    __shared__ Block block;
    const Rows rows{row_ptr, col_idx, lengths, firsts, lasts};
    const Places places{hacks, multiple, each, base, starts};
    if (threadIdx.x == 0) block.most = block.span = 0;
    __syncthreads();
    const uint32_t first = blockIdx.x * 8 * turns, count = min(8 * turns, hacks - first);
    for (uint32_t k = threadIdx.x / 32; k < count; k += 8) {
        uint32_t most = 0, low = full, high = 0;
        for (uint32_t r = threadIdx.x % 32; r < hack; r += 32) {
            const uint32_t i = (first + k) * hack + r, length = i < nrows ? rows.length(i) : 0;
            most = max(most, length);
            if (base && length > 0) rows.widen(i, low, high);
        }
        note_hack(block, places, first + k, k, most, low, high);
    }
    place_hacks<256>(block, places, {found, longest, widest, host, mark}, first, count);
}

// Orders rows by descending length within windows, stably, and finds the starts of hacks of 32 rows
// in this order: a block per window, a multiple of 32 rows unless it is the only one.
template <int threads, int own>
__device__ __forceinline__ void sort_hacks(uint32_t nrows, uint32_t window, const Rows& rows,
                                           const Places& places, const Shared& shared,
                                           uint32_t* order) {
    using Sort = cub::BlockRadixSort<uint32_t, threads, own, uint16_t>;
    __shared__ typename Sort::TempStorage storage;
    __shared__ Block block;
    __shared__ uint32_t any_bits;
    const uint32_t first = blockIdx.x * window, count = min(window, nrows - first);
    if (threadIdx.x == 0) block.most = block.span = any_bits = 0;
    __syncthreads();
    uint32_t length[own], any = 0;
    uint16_t place[own];
#pragma unroll
    for (int k = 0; k < own; k++) {
        // Places past the last row count as rows without entries, which stay last.
        const uint32_t at = threadIdx.x * own + k;
        length[k] = at < count ? rows.length(first + at) : 0;
        place[k] = uint16_t(at);
        any |= length[k];
    }
    any = __reduce_or_sync(full, any);
    if (threadIdx.x % 32 == 0) atomicOr(&any_bits, any);
    __syncthreads();
    Sort(storage).SortDescendingBlockedToStriped(length, place, 0, max(32 - __clz(any_bits), 1));
    uint32_t low[own], high[own];
#pragma unroll
    for (int k = 0; k < own; k++) {
        const uint32_t at = k * threads + threadIdx.x;
        low[k] = full, high[k] = 0;
        if (at < count) order[first + at] = first + place[k];
        if (places.base && length[k] > 0) rows.widen(first + place[k], low[k], high[k]);
    }
#pragma unroll
    for (int k = 0; k < own; k++) {
        const uint32_t hack = (k * threads + threadIdx.x) / 32;
        if (hack * 32 < count) note_hack(block, places, first / 32 + hack, hack, length[k], low[k], high[k]);
    }
    place_hacks<threads>(block, places, shared, first / 32, (count + 31) / 32);
}

#define SORT(rows_each, threads, own)                                                             \
    extern "C" __global__ void __launch_bounds__(threads) sort_hacks_##rows_each(                 \
        uint32_t nrows, uint32_t window, uint32_t hacks, uint32_t multiple, uint32_t each,        \
        const uint32_t* __restrict__ row_ptr,                                                     \
        const uint32_t* __restrict__ col_idx, const uint32_t* __restrict__ lengths,               \
        const uint32_t* __restrict__ firsts, const uint32_t* __restrict__ lasts, uint32_t* base,  \
        uint32_t* starts, uint32_t* order, uint32_t* found, uint32_t* longest, uint32_t* widest,  \
        uint32_t* host, uint32_t mark) {                                                          \
        sort_hacks<threads, own>(nrows, window, {row_ptr, col_idx, lengths, firsts, lasts},       \
                                 {hacks, multiple, each, base, starts},                    \
                                 {found, longest, widest, host, mark}, order);                    \
    }
SORT(512, 128, 4)
SORT(4096, 512, 8)
