// What features are counted of, and the tasks that blocks leave to others (features.cu).
#pragma once
#include "counts.cuh"

// Places in the list of counts: as in src/device/cuda/features.rs.
enum : int {
    longest_at = 0,  // sums over slices of 32, 64, 128, 256 rows of their longest rows
    sorted_at = 4,   // those of 32 rows where windows of 512 or 4096 rows are sorted
    long_rows_at = 6,
    mirrored_at,
    sectors_at,                  // of f32, of f64, entries
    groups_at = sectors_at + 3,  // of groups of each kind: entries, and what is distinct in them
    pairs_at = groups_at + 16,   // pairs of sectors of loads
    near_at,                     // entries of hacks in windows of 16384 and of 4096,
    met_at = near_at + 2,        // diagonals that they met once, twice and three times,
    profile_at = met_at + 3,
    span_sum_at,
    narrow_at,
    bandwidth_at,                // and the largest
    span_max_at,
    full_at,                     // whether some place was too small
    queues_at,                   // of each queue of tasks, in 32 bits each: left, and taken
    waits_at = queues_at + 2,    // tasks of the first half of a sample that were left,
    done_at,                     // blocks and tasks of it that are done
    bins_at                      // from here on rows of each length, in 32 bits
};

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
constexpr uint32_t most_tasks = 1 << 16;

// A piece of the work of a block, which is counted over those of sectors and of groups.
struct Task {
    uint32_t block, piece;
};

// Leaves pieces start, start + step, ... of a block to others, n of them. By a warp of a block that
// will take tasks until there are none, so that none is forgotten.
template <class Offset>
__device__ __forceinline__ void leave(const Job<Offset>& job, bool late, uint32_t block,
                                      uint32_t start, uint32_t step, uint64_t n) {
    const uint32_t lane = threadIdx.x % 32;
    while (n > 0) {
        Sum queue = 0;
        if (lane == 0) queue = atomicAdd(job.counts + queues_at + late, Sum(n) << 32);
        queue = __shfl_sync(full, queue, 0);
        // Places that others wanted to take from before there was a task are passed over.
        const uint64_t left = queue >> 32, taken = uint32_t(queue);
        const uint64_t passed = taken > left ? min(n, taken - left) : 0;
        for (uint64_t i = passed + lane; i < n; i += 32) {
            if (left + i >= most_tasks) {
                job.counts[full_at] = 1;
                break;
            }
            const Sum task = Sum(block + 1) << 32 | uint32_t(start + (i - passed) * step);
            *(volatile Sum*)(job.tasks + late * most_tasks + left + i) = task;
        }
        start += uint32_t(n - passed) * step;
        n = passed;
    }
    __syncwarp();
}

// How often a block that has nothing else to do looks for a task: some microseconds.
constexpr int patience = 12;

// Takes the next task of a queue; false where there is none after so many looks. All threads.
template <class Offset>
__device__ __forceinline__ bool take(const Job<Offset>& job, bool late, int looks, Task* task) {
    __shared__ Sum taken;
    if (threadIdx.x == 0) {
        Sum* const at = job.counts + queues_at + late;
        const auto is_task = [](Sum queue) {
            return uint32_t(queue) < min(queue >> 32, Sum(most_tasks));
        };
        Sum queue = 0;
        for (int i = 0; i < looks && !is_task(queue); i++) queue = *(volatile Sum*)at;
        if (is_task(queue)) queue = atomicAdd(at, Sum(1));
        taken = 0;
        if (is_task(queue)) {
            volatile Sum* const place = job.tasks + late * most_tasks + uint32_t(queue);
            while (taken == 0) taken = *place;
            *place = 0;
        }
    }
    __syncthreads();
    const Sum found = taken;
    __syncthreads();
    *task = {uint32_t(found >> 32) - 1, uint32_t(found)};
    return found > 0;
}

// Whether the first half of a sample of columns is counted, which the second waits for: false as
// soon as a part of it was left to others, unless the block waits for those, too. All threads.
template <class Offset>
__device__ __forceinline__ bool first_is_done(const Job<Offset>& job, bool for_tasks) {
    bool done = true;
    if (threadIdx.x == 0) {
        volatile const Sum* const counts = job.counts;
        Sum waits;
        do {
            const Sum found = counts[done_at];
            __threadfence();
            waits = counts[waits_at];
            // Without room for all tasks nothing counts.
            done = found == job.cuts[first_half].blocks() + waits || counts[full_at] > 0;
        } while (!done && (for_tasks || waits == 0));
        __threadfence();
    }
    return __syncthreads_and(done);
}
