// The counts from which features are computed (src/features/summary.rs), for a CSR matrix that the
// GPU holds, with the same samples as on the host. Counts are whole numbers, so their order of
// summation does not matter.
//
// Launch: blocks of 256 threads, each of which processes rows or samples, and any number of further
// blocks, which help with long rows. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
// Column indices ascend in each row and are below 2^32 - 256. All memory that is written to
// initially holds zeros.
#include "groups.cuh"
#include "lengths.cuh"
#include "sectors.cuh"

// Mirror images that a block searches for, each with `searchers` lanes.
constexpr uint32_t images = threads / searchers;

template <class Offset>
__device__ __forceinline__ void mirrors(const Job<Offset>& job, uint32_t block) {
    const uint64_t at = uint64_t(block) * images + threadIdx.x / searchers;
    bool found = false;
    if (at < job.mirrors) {
        const uint64_t k = spread(at, job.mirrors, job.nnz);
        const auto start = [&](uint64_t row) { return uint64_t(job.row_ptr[row]); };
        const uint32_t row = uint32_t(last_at_most(k, job.nrows, start));
        const uint32_t column = job.col_idx[k];
        const Offset begin = job.row_ptr[column];
        const uint64_t n = job.row_ptr[column + 1] - begin;
        const auto of_mirror = [&](uint64_t i) { return job.col_idx[begin + Offset(i)]; };
        found = n > 0 && of_mirror(last_at_most(row, n, of_mirror)) == row;
    }
    const int n = __syncthreads_count(found && threadIdx.x % searchers == 0);
    if (threadIdx.x == 0 && n > 0) atomicAdd(job.counts + mirrored_at, Sum(n));
}

// Processes a piece of the groups of a block; blocks are numbered over all kinds. The block itself
// processes the first piece, blocks that take `left` tasks the others.
template <class Offset>
__device__ __forceinline__ void groups(const Job<Offset>& job, uint32_t block, uint32_t piece,
                                       bool left, Patience& patience) {
    __shared__ Taken<Offset> taken;
    const uint32_t task_block = job.warps.blocks() + block;
    uint32_t kind = 0;
    Cut cut = job.cuts[0];
#pragma unroll
    for (uint32_t next = 1; next < kinds; next++) {
        if (kind + 1 != next || block < cut.blocks()) continue;
        block -= cut.blocks();
        kind = next;
        cut = job.cuts[next];
    }
    const uint32_t b = kind < sides ? (kind == hacks ? 32 : 256)
                                    : (kind < first_half ? kind - sides + 2 : 1);
    const uint32_t set = block >> cut.parts_log(), each_log = cut.each_log();
    const uint32_t part = block - (set << cut.parts_log());
    const uint64_t at = (uint64_t(set) << each_log) + threadIdx.x / b;
    uint64_t row = job.nrows;
    if (threadIdx.x < b << each_log && at < cut.looked_at)
        row = b == 1 ? drawn(job, kind, uint32_t(at))
                     : spread(at, cut.looked_at, (uint64_t(job.nrows) + b - 1) / b) * b +
                           threadIdx.x % b;
    const bool here = row < job.nrows;
    const Offset begin = here ? job.row_ptr[row] : 0, end = here ? job.row_ptr[row + 1] : 0;
    __syncthreads();
    taken.number[threadIdx.x] = uint32_t(row);
    taken.group[threadIdx.x] = uint32_t(at);
    taken.bins[threadIdx.x] = 0;
    if (!left) taken.often.clear();
    if (threadIdx.x < 2) taken.groups[threadIdx.x] = 0;
    if (threadIdx.x < full_at - pairs_at) taken.hacks[threadIdx.x] = 0;
    uint64_t all;
    const uint64_t before = taken.rows.lay(begin, end, &all);
    const uint64_t of_part = (all >> cut.parts_log()) + 1;
    const uint64_t stop = min(all, (part + 1) * of_part);
    const uint64_t start = min(stop, part * of_part);
    // Few entries form one piece, many are cut: table accesses of a piece follow each other.
    const uint32_t of_piece = stop - start > whole_entries ? piece_entries : whole_entries;
    const uint64_t low = min(stop, start + uint64_t(piece) * of_piece);
    const uint64_t high = min(stop, low + of_piece);
    taken.rows.take(low, high, before, begin, end);
    const uint32_t n = uint32_t(high - low);
    // The second half waits for the first.
    const bool late = kind == second_half, now = !late || left || now_or_late(job);
    if (!left && threadIdx.x < 32) {
        const uint64_t more = (stop - high + of_piece - 1) / of_piece + !now;
        if (kind == first_half && threadIdx.x == 0) atomicAdd(job.counts + waits_at, Sum(more));
        leave(job, late, task_block, now, 1, more);
        if (threadIdx.x == 0 && !late) decided(job);
        if (threadIdx.x == 0) patience.to_the_end = late;
    }
    if (!now) return;
    if (kind >= first_half) return of_half(job, taken, kind, n);
    if (threadIdx.x == 0) taken.groups[0] = n;
    if (!left && kind == hacks && part == 0 && __any_sync(full, here))
        ends_of_hack<Offset>(taken, uint32_t(row), begin, end, job.col_idx);
    if (kind < sides)
        tell_apart(job, taken, kind, b, n, left);
    else
        of_blocks(job, taken, b, n);
    flush(taken.groups, 2, 0, job.counts + groups_at + 2 * kind);
    if (kind == hacks)
        flush(taken.hacks, full_at - pairs_at, 2, job.counts + pairs_at);
    else if (kind == loads)
        flush(taken.hacks, 1, 0, job.counts + pairs_at);
}

// Blocks count groups, mirror images and sectors, then row lengths; blocks of sectors and groups,
// and further blocks, process the tasks that others left. A block waits only for work of earlier
// blocks or of blocks that are already running.
template <class Offset> __device__ __forceinline__ void count(const Job<Offset>& job) {
    const uint32_t n_mirrors = (job.mirrors + images - 1) / images;
    const uint32_t n_lengths = uint32_t((uint64_t(job.nrows) + windows - 1) / windows);
    const uint32_t n_warps = job.warps.blocks(), n_first = job.cuts[first_half].blocks();
    const uint32_t first = n_warps + job.blocks_of(first_half);
    const uint32_t n_tasks = n_warps + job.blocks_of(kinds);
    uint32_t block = blockIdx.x;
    Task task = {first + block, 0};
    bool left = false;
    if (block >= n_first) {
        block -= n_first;
        if (block < n_mirrors) return mirrors(job, block);
        block -= n_mirrors;
        task.block = block < first ? block : block + n_first;
        left = task.block >= n_tasks;
        block = task.block - n_tasks;
        if (left && block < n_lengths) return lengths(job, block);
    }
    // A block without work of its own waits until all have decided.
    __shared__ Patience patience;
    const uint32_t deciding = n_warps * (threads / 32) + job.blocks_of(second_half);
    if (threadIdx.x == 0) patience = {left ? deciding : 0, left};
#pragma unroll 1
    for (; !left || take(job, patience, &task); left = true) {
        if (task.block >= n_warps)
            groups(job, task.block - n_warps, task.piece, left, patience);
        else if (left)
            sectors_again(job, task.block, task.piece);
        else
            sectors(job, task.block);
        __syncthreads();
    }
}

#define KERNEL(width, blocks, Offset)                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) features_count_##width(         \
        uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t mirrors, Cut warps, Cut hacks,     \
        Cut hacks_256, Cut loads, Cut of_2, Cut of_3, Cut of_4, Cut of_5, Cut of_6,               \
        Cut first_half, Cut second_half, const Offset* row_ptr, const uint32_t* col_idx,          \
        Sum* counts, Sum* classes, uint32_t* longer, uint32_t* column_counts,                     \
        uint32_t* diagonals, Sum* slots, uint32_t n_slots, Sum* tasks) {                          \
        const Job<Offset> job = {                                                                 \
            nrows, ncols, nnz, mirrors, warps,                                                    \
            {hacks, hacks_256, loads, of_2, of_3, of_4, of_5, of_6, first_half, second_half},     \
            row_ptr, col_idx, counts, classes, longer, column_counts, diagonals,                  \
            {slots, n_slots}, tasks};                                                             \
        count(job);                                                                               \
    }
KERNEL(narrow, 5, uint32_t)
KERNEL(wide, 4, uint64_t)
