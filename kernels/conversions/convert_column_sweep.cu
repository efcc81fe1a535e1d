// Conversion of a CSR matrix that the GPU holds to row blocks that are swept by column
// (src/format/cached/column_sweep/gpu.rs defines the sequence of steps).
//
// Keys of entries contain, from the low bits upward: the distance of the column from the last
// column, the distance of the block from the last block, and from bit 48 on the sum. A stable
// descending sort by block and column keeps entries of a column in the order of their rows.
//
// Launch: blocks of 256 threads unless stated otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`).
#include "column_sweep.cuh"

#include <cub/block/block_scan.cuh>

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t REACH = COLUMN_SWEEP_REACH, TRIES = COLUMN_SWEEP_TRIES;
constexpr uint32_t SHIFT = COLUMN_SWEEP_SHIFT;
constexpr int THREADS = 256;

// Number of sums of a row, from its length.
struct Sums {
    uint64_t nnz, blocks;
    __device__ __forceinline__ uint32_t of(uint32_t length) const {
        const uint64_t a_step = 2 * uint64_t(length) * STEP * blocks;
        const uint64_t sums = (a_step + nnz - 1) / nnz;
        return uint32_t(min(max(sums, uint64_t(1)), uint64_t(min(STEP, max(length, 1u)))));
    }
};

__device__ __forceinline__ uint32_t length_of(uint32_t row, uint32_t nrows, const uint32_t* lengths) {
    return row < nrows ? lengths[row] : 0;
}

// keys[g] = entries and rows of group g. *heavy counts groups of more than `light`, *longs counts
// rows with several sums.
extern "C" __global__ void __launch_bounds__(THREADS)
    weigh_groups(uint32_t nrows, uint32_t groups, uint64_t nnz, uint32_t blocks, uint64_t light,
                 const uint32_t* lengths, uint64_t* keys, uint32_t* own, uint32_t* heavy,
                 uint32_t* longs) {
    const uint32_t g = blockIdx.x * THREADS + threadIdx.x;
    const Sums sums{nnz, blocks};
    uint64_t weight = GROUP;
    uint32_t long_rows = 0;
    for (uint32_t i = 0; i < GROUP && g < groups; i++) {
        const uint32_t length = length_of(g * GROUP + i, nrows, lengths);
        weight += length;
        long_rows += sums.of(length) > 1;
    }
    if (g < groups) keys[g] = weight, own[g] = g;
    const uint32_t many = __popc(__ballot_sync(full, g < groups && weight > light));
    long_rows = __reduce_add_sync(full, long_rows);
    if (threadIdx.x % 32 > 0) return;
    if (many > 0) atomicAdd(heavy, many);
    if (long_rows > 0) atomicAdd(longs, long_rows);
}

// Assigns the first `heavy` of the sorted groups, each to the block with the least work so far.
// Then fills a table with blocks, each in proportion to its room for further groups and well mixed.
// One block of 1024 threads, with shared memory of 8 bytes per row block.
extern "C" __global__ void __launch_bounds__(1024)
    deal_heavy(uint32_t blocks, uint32_t heavy, uint64_t share, const uint64_t* keys,
               const uint32_t* sorted, uint32_t table_size, uint32_t stride, uint16_t* dealt,
               uint16_t* table) {
    extern __shared__ uint64_t loads[];
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t b = threadIdx.x; b < blocks; b += 1024) loads[b] = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        for (uint32_t r = 0; r < heavy; r++) {
            uint64_t least = ~0ull;
            uint32_t at = 0;
            for (uint32_t b = lane; b < blocks; b += 32)
                if (loads[b] < least) least = loads[b], at = b;
            for (int step = 16; step > 0; step /= 2) {
                const uint64_t other = __shfl_xor_sync(full, least, step);
                const uint32_t other_at = __shfl_xor_sync(full, at, step);
                if (other < least || (other == least && other_at < at)) least = other, at = other_at;
            }
            if (lane == 0) loads[at] += keys[sorted[r]], dealt[r] = uint16_t(at);
            __syncwarp();
        }
        // The room of each block, and the total room of all blocks before it.
        uint64_t before = 0;
        for (uint32_t first = 0; first < blocks; first += 32) {
            const uint32_t b = first + lane;
            const uint64_t room = b < blocks && loads[b] <= share ? share + 1 - loads[b] : 0;
            uint64_t sum = room;
            for (int step = 1; step < 32; step *= 2) {
                const uint64_t other = __shfl_up_sync(full, sum, step);
                if (lane >= step) sum += other;
            }
            if (b < blocks) loads[b] = before + sum;
            before += __shfl_sync(full, sum, 31);
        }
    }
    __syncthreads();
    // Entry i of the table, in the order of blocks: the block whose room contains this fraction of
    // the total room.
    const uint64_t room = loads[blocks - 1];
    for (uint64_t i = threadIdx.x; i < table_size; i += 1024) {
        const uint64_t at = uint64_t((double(i) + 0.5) / table_size * double(room));
        uint32_t low = 0, high = blocks - 1;
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if (loads[middle] > at) high = middle;
            else low = middle + 1;
        }
        table[i * stride % table_size] = uint16_t(low);
    }
}

// Sort keys: a descending sort by them orders groups by block. Also counts[b] = number of groups of
// block b.
extern "C" __global__ void __launch_bounds__(THREADS)
    assign_groups(uint32_t groups, uint32_t blocks, uint32_t heavy, uint32_t bits,
                  const uint32_t* sorted, const uint16_t* dealt, const uint16_t* table,
                  uint32_t table_size, uint64_t* keys, uint32_t* counts) {
    const uint32_t r = blockIdx.x * THREADS + threadIdx.x;
    if (r >= groups) return;
    const uint32_t block = r < heavy ? dealt[r] : table[(r - heavy) % table_size], g = sorted[r];
    keys[g] = uint64_t(blocks - 1 - block) << bits | (groups - 1 - g);
    atomicAdd(counts + block, 1u);
}

// Places of the rows of a block and of their sums: one block of threads per row block. places[row]
// = block << 16 | place of the row, further[row] = its first further sum.
extern "C" __global__ void __launch_bounds__(THREADS)
    place_rows(uint32_t nrows, uint64_t nnz, uint32_t blocks, const uint32_t* starts,
               const uint32_t* groups, const uint32_t* lengths, uint32_t* places, uint16_t* further,
               Block* to, Long* longs, uint32_t* longs_so_far, uint32_t* most) {
    using Scan = cub::BlockScan<uint32_t, THREADS>;
    __shared__ typename Scan::TempStorage storage;
    __shared__ uint32_t first_long;
    const uint32_t b = blockIdx.x, first = starts[b], count = starts[b + 1] - first;
    const Sums sums{nnz, blocks};
    // Sums and long rows before these groups.
    uint32_t sum = count * GROUP, long_rows = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t from = 0; from < count; from += THREADS) {
            const uint32_t k = from + threadIdx.x;
            const uint32_t row = k < count ? groups[first + k] * GROUP : nrows;
            uint32_t own[GROUP], extra = 0, is_long = 0;
            for (uint32_t i = 0; i < GROUP; i++) {
                own[i] = sums.of(length_of(row + i, nrows, lengths)) - 1;
                extra += own[i], is_long += own[i] > 0;
            }
            uint32_t at, all, long_at, all_long;
            Scan(storage).ExclusiveSum(extra, at, all);
            __syncthreads();
            Scan(storage).ExclusiveSum(is_long, long_at, all_long);
            __syncthreads();
            at += sum, long_at += long_rows;
            for (uint32_t i = 0; i < GROUP && pass == 1 && k < count; i++) {
                if (row + i >= nrows) break;
                const uint32_t place = k * GROUP + i;
                places[row + i] = b << 16 | (place & 0xffff);
                further[row + i] = uint16_t(at);
                if (own[i] > 0) longs[first_long + long_at++] = {place, at, own[i]};
                at += own[i];
            }
            sum += all, long_rows += all_long;
        }
        if (pass == 1) break;
        if (threadIdx.x == 0) {
            first_long = long_rows > 0 ? atomicAdd(longs_so_far, long_rows) : 0;
            to[b] = {0, 0, first, count, first_long, long_rows, sum, 0};
            atomicMax(most, sum);
        }
        __syncthreads();
        sum = count * GROUP, long_rows = 0;
    }
}

// Keys of entries: one warp per group of rows.
template <class Offset>
__device__ __forceinline__ void entry_keys(uint32_t nrows, uint32_t ncols, uint64_t nnz,
                                           uint32_t blocks, uint32_t bits,
                                           const Offset* __restrict__ row_ptr,
                                           const uint32_t* __restrict__ col_idx,
                                           const uint32_t* places, const uint16_t* further,
                                           uint64_t* keys, uint32_t* own) {
    const uint64_t g = (uint64_t(blockIdx.x) * THREADS + threadIdx.x) / 32;
    if (g * GROUP >= nrows) return;
    const uint32_t first = uint32_t(g * GROUP);
    const Sums sums{nnz, blocks};
    for (uint32_t row = first; row < min(first + GROUP, nrows); row++) {
        const Offset from = row_ptr[row], to = row_ptr[row + 1];
        const uint32_t place = places[row], after = further[row];
        const uint32_t count = sums.of(uint32_t(to - from));
        const uint64_t block = uint64_t(blocks - 1 - (place >> 16)) << bits;
        for (Offset e = from + threadIdx.x % 32; e < to; e += 32) {
            const uint32_t turn = count > 1 ? uint32_t(e - from) % count : 0;
            const uint64_t sum = turn == 0 ? place & 0xffff : after + turn - 1;
            keys[e] = sum << 48 | block | (ncols - 1 - __ldcs(col_idx + e));
            own[e] = uint32_t(e);
        }
    }
}
extern "C" __global__ void __launch_bounds__(THREADS)
    entry_keys_narrow(uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t blocks, uint32_t bits,
                      const uint32_t* row_ptr, const uint32_t* col_idx, const uint32_t* places,
                      const uint16_t* further, uint64_t* keys, uint32_t* own) {
    entry_keys(nrows, ncols, nnz, blocks, bits, row_ptr, col_idx, places, further, keys, own);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    entry_keys_wide(uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t blocks, uint32_t bits,
                    const uint64_t* row_ptr, const uint32_t* col_idx, const uint32_t* places,
                    const uint16_t* further, uint64_t* keys, uint32_t* own) {
    entry_keys(nrows, ncols, nnz, blocks, bits, row_ptr, col_idx, places, further, keys, own);
}

// firsts[p] = position of the first sorted entry at or after the start of piece p of its block's
// columns.
extern "C" __global__ void __launch_bounds__(THREADS)
    find_pieces(uint64_t nnz, uint32_t ncols, uint32_t blocks, uint32_t pieces, uint32_t bits,
                const uint64_t* keys, const uint32_t* sorted, uint32_t* firsts) {
    const uint32_t p = blockIdx.x * THREADS + threadIdx.x, all = blocks * pieces;
    if (p > all) return;
    if (p == all) {
        firsts[p] = uint32_t(nnz);
        return;
    }
    const uint64_t column = uint64_t(p % pieces) * REACH;
    const uint64_t key = uint64_t(blocks - 1 - p / pieces) << bits | (ncols - 1 - column);
    uint64_t low = 0, high = nnz;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if ((keys[sorted[middle]] & 0xffffffffffffull) > key) low = middle + 1;
        else high = middle;
    }
    firsts[p] = uint32_t(low);
}

// warps[p] = warps of each piece, in whole steps for each block: one block of threads per row
// block.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_warps(uint32_t pieces, const uint32_t* firsts, uint32_t* warps) {
    using Scan = cub::BlockScan<uint32_t, THREADS>;
    __shared__ typename Scan::TempStorage storage;
    const uint32_t first = blockIdx.x * pieces;
    uint32_t all = 0;
    for (uint32_t from = 0; from < pieces; from += THREADS) {
        const uint32_t p = from + threadIdx.x;
        const uint32_t own = p < pieces ? (firsts[first + p + 1] - firsts[first + p] + 31) / 32 : 0;
        uint32_t before, sum;
        Scan(storage).ExclusiveSum(own, before, sum);
        __syncthreads();
        all += sum;
        if (p < pieces) warps[first + p] = own + (p + 1 == pieces ? (32 - all % 32) % 32 : 0);
    }
}

// Steps of each block, from the starts of its warps; slots that receive no entry are set to
// padding.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_steps(uint32_t blocks, uint32_t pieces, const uint32_t* starts, Block* to) {
    const uint32_t b = blockIdx.x * THREADS + threadIdx.x;
    if (b >= blocks) return;
    to[b].first_step = starts[b * pieces] / 32;
    to[b].steps = (starts[(b + 1) * pieces] - starts[b * pieces]) / 32;
}

template <class T>
__device__ __forceinline__ void clear_slots(uint64_t slots, uint32_t* keys, uint32_t* bases,
                                            T* values, uint32_t* sources) {
    const uint64_t i = uint64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= slots) return;
    keys[i] = NO_SUM << 16, values[i] = 0, sources[i] = full;
    if (i % 32 == 0) bases[i / 32] = 0;
}

// Writes sorted entries to their slots.
extern "C" __global__ void __launch_bounds__(THREADS)
    fill_slots(uint64_t nnz, uint32_t ncols, uint32_t blocks, uint32_t pieces, uint32_t bits,
               const uint64_t* keys, const uint32_t* sorted, const uint32_t* firsts,
               const uint32_t* starts, uint32_t* slot_keys, uint32_t* bases, uint32_t* sources) {
    const uint64_t i = uint64_t(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= nnz) return;
    const uint32_t entry = sorted[i];
    const uint64_t key = keys[entry];
    const uint32_t column = ncols - 1 - uint32_t(key & ((1ull << bits) - 1));
    const uint32_t block = blocks - 1 - uint32_t((key & 0xffffffffffffull) >> bits);
    const uint32_t p = block * pieces + column / REACH;
    const uint64_t slot = uint64_t(starts[p]) * 32 + (i - firsts[p]);
    slot_keys[slot] = uint32_t(key >> 48) << 16 | column % REACH;
    sources[slot] = entry;
    if ((i - firsts[p]) % 32 == 0) bases[slot / 32] = column / REACH * REACH;
}

// Resolves conflicts within a step: an entry whose sum an earlier entry of its step also has swaps
// places with an entry of the next step where possible, and is marked as late otherwise. One block
// of 1024 threads per row block, with shared memory of 4 bytes per sum.
extern "C" __global__ void __launch_bounds__(STEP)
    move_late(const Block* blocks, const uint32_t* bases, uint32_t* keys, uint32_t* sources) {
    extern __shared__ uint32_t takers[];
    __shared__ uint32_t next_keys[STEP], next_sources[STEP], next_bases[STEP / 32];
    const Block block = blocks[blockIdx.x];
    const uint32_t t = threadIdx.x;
    for (uint32_t i = t; i < block.sums; i += STEP) takers[i] = full;
    bases += block.first_step * (STEP / 32);
    keys += uint64_t(block.first_step) * STEP + t, sources += uint64_t(block.first_step) * STEP + t;
    const auto load = [&](uint32_t step) {
        const bool there = step < block.steps;
        next_keys[t] = there ? keys[uint64_t(step) * STEP] : NO_SUM << 16;
        next_sources[t] = there ? sources[uint64_t(step) * STEP] : full;
        if (t < STEP / 32) next_bases[t] = there ? bases[step * (STEP / 32) + t] : 0;
    };
    load(0);
    for (uint32_t step = 0; step < block.steps; step++) {
        __syncthreads();
        uint32_t key = next_keys[t], source = next_sources[t];
        const uint32_t base = next_bases[t / 32];
        __syncthreads();
        load(step + 1);
        // A thread that takes a sum in a step has a smaller number than all threads in earlier
        // steps.
        const uint32_t end = (block.steps - step) * (1 + TRIES) * STEP;
        uint32_t own = end - STEP + t;
        if (key >> 16 != NO_SUM) atomicMin(takers + (key >> 16), own);
        __syncthreads();
        bool late = key >> 16 != NO_SUM && takers[key >> 16] != own;
        for (uint32_t turn = 1; turn <= TRIES && __syncthreads_or(late); turn++) {
            const uint32_t at = (t + turn * SHIFT) % STEP, other = next_keys[at], sum = other >> 16;
            const bool suits =
                late && sum != NO_SUM && next_bases[at / 32] == base && takers[sum] >= end;
            own -= STEP;
            __syncthreads();
            if (suits) atomicMin(takers + sum, own);
            __syncthreads();
            if (suits && takers[sum] == own) {
                next_keys[at] = key, key = other;
                const uint32_t other_source = next_sources[at];
                next_sources[at] = source, source = other_source;
                late = false;
            }
        }
        keys[uint64_t(step) * STEP] = late ? key | LATE : key;
        sources[uint64_t(step) * STEP] = source;
    }
}

template <class T>
__device__ __forceinline__ void update_slots(uint64_t slots, const uint32_t* sources,
                                             const T* __restrict__ from, T* values) {
    const uint64_t i = uint64_t(blockIdx.x) * THREADS + threadIdx.x;
    const uint32_t source = i < slots ? __ldcs(sources + i) : full;
    if (source != full) values[i] = from[source];
}

#define PRECISION(T, name)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) clear_slots_##name(                     \
        uint64_t slots, uint32_t* keys, uint32_t* bases, T* values, uint32_t* sources) {          \
        clear_slots<T>(slots, keys, bases, values, sources);                                      \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS) update_slots_##name(                    \
        uint64_t slots, const uint32_t* sources, const T* from, T* values) {                      \
        update_slots<T>(slots, sources, from, values);                                            \
    }
PRECISION(double, f64)
PRECISION(float, f32)
