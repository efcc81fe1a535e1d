// What features are counted of, and the tasks that blocks leave to others (features.cu).
#pragma once
#include "counts.cuh"

// Groups of what: hacks of 32 and of 256 rows, blocks of 256 rows, block rows of sides 2 to 6, rows
// drawn for the first half of a sample of columns and for the second.
enum : uint32_t { hacks, hacks_256, loads, sides, first_half = sides + 5, second_half, kinds };

template <class Offset> struct Job {
    uint32_t nrows, ncols;
    uint64_t nnz;
    uint32_t mirrors;
    Cut warps, cuts[kinds];
    const Offset* __restrict__ row_ptr;
    const uint32_t* __restrict__ col_idx;
    Sum* counts;
    Sum* classes;  // of each count: columns that reach it, entries of their second half
    uint32_t* longer;
    uint32_t* column_counts;
    uint32_t* diagonals;  // how often each was met, where there is room for that
    Table table;
    Sum* tasks;  // of two queues, `most_tasks` each: zeros where there are none

    // Blocks of groups of the first kinds.
    __device__ __forceinline__ uint32_t blocks_of(uint32_t first_kinds) const {
        uint32_t blocks = 0;
#pragma unroll
        for (uint32_t k = 0; k < kinds; k++) blocks += k < first_kinds ? cuts[k].blocks() : 0;
        return blocks;
    }
};

// The most tasks in a queue. One is of what waits for nothing, the second, late one of what waits
// for the first half of a sample of columns.
constexpr uint32_t most_tasks = FEATURES_TASKS;

// A piece of the work of a block, which is counted over those of sectors and of groups.
struct Task {
    uint32_t block, piece;
};

// What takes the place of a task where none is left.
constexpr Sum no_task = full;

// What is known of a queue, in one number: how many places were taken, how many were left, and how
// many have decided what they will leave, blocks of groups and warps of sectors.
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

// Leaves pieces start, start + step, ... of a block to others, n of them. By a warp of a block that
// will take tasks until there are none, so that none is forgotten.
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
        // Places that others wanted to take from before there was a task are passed over.
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

// Tells that a block or a warp has left what it will leave.
template <class Offset> __device__ __forceinline__ void decided(const Job<Offset>& job) {
    atomicAdd(job.counts + queues_at, Sum(1) << Queue::decided_at);
}

// What a block that has nothing else to do waits for: until so many have decided, and whether until
// no late task is left.
struct Patience {
    uint32_t deciding;
    bool to_the_end;
};

// Whether the first half of a sample of columns is counted, and tasks of it that were left. Without
// room for all tasks nothing counts.
template <class Offset>
__device__ __forceinline__ bool first_is_done(const Job<Offset>& job, Sum* waits) {
    volatile const Sum* const counts = job.counts;
    const Sum done = counts[done_at];
    __threadfence();
    *waits = counts[waits_at];
    return done == job.cuts[first_half].blocks() + *waits || counts[full_at] > 0;
}

// Takes the next task: a late one only where it has to wait for nothing, so that who takes tasks
// never waits for others to be taken. False where there is none. All threads.
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

// Whether the second half of a sample of columns is counted now, which waits for the first: not
// where a part of the first was left to others. All threads.
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
