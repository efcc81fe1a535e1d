// Input and output of feature counts, and the queues of tasks that blocks leave to others
// (features.cu).
#pragma once
#include "counts.cuh"

// Kinds of groups: hacks of 32 and of 256 rows, blocks of 256 rows, block rows of sides 2 to 6, and
// rows drawn for the first and for the second half of a sample of columns.
enum : uint32_t { hacks, hacks_256, loads, sides, first_half = sides + 5, second_half, kinds };

template <class Offset> struct Job {
    uint32_t nrows, ncols;
    uint64_t nnz;
    uint32_t mirrors;
    Cut warps, cuts[kinds];
    const Offset* __restrict__ row_ptr;
    const uint32_t* __restrict__ col_idx;
    Sum* counts;
    Sum* classes;  // per count: columns that reach it, entries of the second half in them
    uint32_t* longer;
    uint32_t* column_counts;
    uint32_t* diagonals;  // occurrences of each diagonal, where there is room for this
    Table table;
    Sum* tasks;  // two queues of `most_tasks` tasks; zeros for empty places

    // Number of blocks for groups of the first `first_kinds` kinds.
    __device__ __forceinline__ uint32_t blocks_of(uint32_t first_kinds) const {
        uint32_t blocks = 0;
#pragma unroll
        for (uint32_t k = 0; k < kinds; k++) blocks += k < first_kinds ? cuts[k].blocks() : 0;
        return blocks;
    }
};

// The maximum number of tasks in a queue. Tasks of the first queue wait for nothing; tasks of the
// second, late queue wait for the first half of a sample of columns.
constexpr uint32_t most_tasks = FEATURES_TASKS;

// A piece of the work of a block; blocks are numbered over those of sectors and of groups.
struct Task {
    uint32_t block, piece;
};

// Replaces a task where none is left.
constexpr Sum no_task = full;

// State of a queue in one number: how many places were taken, how many tasks were left, and how
// many blocks of groups and warps of sectors have decided which tasks they leave.
struct Queue {
    static constexpr int left_at = FEATURES_LEFT_AT, decided_at = FEATURES_DECIDED_AT;
    Sum all;

    __device__ __forceinline__ uint32_t taken() const {
        return uint32_t(all) & ((1 << left_at) - 1);
    }
    __device__ __forceinline__ uint32_t left() const {
        return uint32_t(all >> left_at) & ((1 << left_at) - 1);
    }
    __device__ __forceinline__ uint32_t decided() const { return uint32_t(all >> decided_at); }
    __device__ __forceinline__ bool has_task() const { return taken() < min(left(), most_tasks); }
};

// Leaves n pieces start, start + step, ... of a block to others. Called by a warp of a block that
// afterwards takes tasks until there are none, so that no task is forgotten.
template <class Offset>
__device__ __forceinline__ void leave(const Job<Offset>& job, bool late, uint32_t block,
                                      uint32_t start, uint32_t step, uint64_t pieces) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t n = uint32_t(min(pieces, uint64_t(most_tasks))), places = n;
    while (n > 0) {
        Queue queue = {0};
        if (lane == 0)
            queue.all = atomicAdd(job.counts + queues_at + late, Sum(places) << Queue::left_at);
        queue.all = __shfl_sync(full, queue.all, 0);
        // Skip places that other blocks tried to take before there was a task.
        const uint32_t left = queue.left(), taken = queue.taken();
        const uint32_t passed = taken > left ? taken - left : 0;
        for (uint32_t i = passed + lane; i < places; i += 32) {
            if (left + i >= most_tasks) {
                job.counts[full_at] = 1;
                break;
            }
            const uint32_t piece = i - passed;
            const Sum task = Sum(block + 1) << 32 | uint32_t(start + piece * step);
            *(volatile Sum*)(job.tasks + late * most_tasks + left + i) = piece < n ? task : no_task;
        }
        const uint32_t placed = min(n, places > passed ? places - passed : 0);
        start += placed * step, n -= placed;
        places = n + (passed > places ? passed - places : 0);
    }
    __syncwarp();
}

// Records that a block or a warp has left all the tasks that it will leave.
template <class Offset> __device__ __forceinline__ void decided(const Job<Offset>& job) {
    atomicAdd(job.counts + queues_at, Sum(1) << Queue::decided_at);
}

// Conditions under which a block without other work stops waiting: `deciding` blocks and warps have
// decided, and, if to_the_end, no late task is left.
struct Patience {
    uint32_t deciding;
    bool to_the_end;
};

// True if the first half of a sample of columns is counted; sets *waits to the number of its tasks
// that were left. If there was no room for all tasks, the result does not matter.
template <class Offset>
__device__ __forceinline__ bool first_is_done(const Job<Offset>& job, Sum* waits) {
    volatile const Sum* const counts = job.counts;
    const Sum done = counts[done_at];
    __threadfence();
    *waits = counts[waits_at];
    return done == job.cuts[first_half].blocks() + *waits || counts[full_at] > 0;
}

// Takes the next task; a late one only if it need not wait, so that a block that takes tasks never
// waits for other tasks to be taken. Returns false if there is none. Called by all threads.
template <class Offset>
__device__ __forceinline__ bool take(const Job<Offset>& job, const Patience& patience, Task* task) {
    __shared__ Sum taken;
    if (threadIdx.x == 0) {
        Sum found = 0;
        bool last;
        do {
            volatile const Sum* const queues = job.counts + queues_at;
            const Queue now[2] = {{queues[0]}, {queues[1]}};
            const bool some_late = now[1].has_task(), late = !now[0].has_task();
            last = (now[0].decided() >= patience.deciding && !(some_late && patience.to_the_end)) ||
                   *(volatile Sum*)(job.counts + full_at) > 0;
            Sum waits;
            if (late && !(some_late && first_is_done(job, &waits))) continue;
            const Queue queue = {atomicAdd(job.counts + queues_at + late, Sum(1))};
            if (!queue.has_task()) continue;
            volatile Sum* const place = job.tasks + late * most_tasks + queue.taken();
            while (found == 0) found = *place;
            *place = 0;
            if (found == no_task) found = 0, last = false;
        } while (!last && found == 0);
        taken = found;
    }
    __syncthreads();
    const Sum found = taken;
    __syncthreads();
    *task = {uint32_t(found >> 32) - 1, uint32_t(found)};
    return found > 0;
}

// True if the second half of a sample of columns can be counted now; waits for the first half,
// except where a part of it was left to other blocks. Called by all threads.
template <class Offset>
__device__ __forceinline__ bool now_or_late(const Job<Offset>& job) {
    bool now = true;
    if (threadIdx.x == 0) {
        Sum waits;
        do {
            now = first_is_done(job, &waits);
        } while (!now && waits == 0);
        __threadfence();
    }
    return __syncthreads_and(now);
}
