// Sectors of x that sampled hacks of 32 rows read with one lane per row (features.cu, sample.cu).
#pragma once
#include "job.cuh"

// Sectors of x that 32 rows read, with one entry of each row per step: steps from `step` to `stop`,
// `at_once` steps of every `stride`.
template <class Offset, int at_once = deep>
__device__ __forceinline__ void sectors_of(Offset begin, uint32_t length, uint32_t step,
                                           uint32_t stop, uint32_t stride,
                                           const uint32_t* __restrict__ col_idx, uint32_t* mine) {
    const uint32_t lane = threadIdx.x % 32;
    for (; step < stop; step += stride) {
        uint32_t sectors[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const uint32_t k = step + i;
            sectors[i] = k < stop && k < length ? col_idx[begin + k] / 4 : full;
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const uint32_t pair = sectors[i] == full ? full : sectors[i] / 2;
            const uint32_t same_pair = __match_any_sync(full, pair);
            const uint32_t odd = __ballot_sync(full, sectors[i] % 2);
            const uint32_t same = same_pair & (sectors[i] % 2 ? odd : ~odd);
            mine[0] += sectors[i] != full && __ffs(same_pair) - 1 == int(lane);
            mine[1] += sectors[i] != full && __ffs(same) - 1 == int(lane);
        }
    }
}

// Maximum number of steps of a hack per warp; where a hack has more, all its steps are left to
// other blocks, in tasks of `task_steps` steps.
constexpr uint32_t warp_steps = 24, task_steps = 128;

// A hack of 32 rows, one lane per row.
template <class Offset> struct Hack {
    Offset begin;
    uint32_t length, longest, second;  // entries of the row and of the two longest
    __device__ __forceinline__ Hack(const Job<Offset>& job, uint32_t at) {
        const uint64_t h = spread(at, job.warps.looked_at, (uint64_t(job.nrows) + 31) / 32);
        const uint64_t row = h * 32 + threadIdx.x % 32;
        begin = row < job.nrows ? job.row_ptr[row] : 0;
        length = row < job.nrows ? uint32_t(job.row_ptr[row + 1] - begin) : 0;
        longest = __reduce_max_sync(full, length);
        const uint32_t leader = __ffs(__ballot_sync(full, length == longest)) - 1;
        second = __reduce_max_sync(full, threadIdx.x % 32 == leader ? 0 : length);
    }
};

template <class Offset>
__device__ __forceinline__ void sectors(const Job<Offset>& job, uint32_t block) {
    __shared__ Sum sums[3];
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t each_log = job.warps.each_log(), warps = threads / 32 >> each_log;
    const uint32_t warp = threadIdx.x / 32, hack = warp / warps, own = warp % warps;
    const uint64_t at = (uint64_t(block) << each_log) + hack;
    if (at >= job.warps.looked_at) {
        if (threadIdx.x % 32 == 0) decided(job);
    } else {
        const Hack<Offset> rows(job, uint32_t(at));
        uint32_t mine[2] = {0, 0};
        if (rows.second <= warps * warp_steps)
            sectors_of<Offset>(rows.begin, rows.length, own * deep, rows.second, warps * deep,
                               job.col_idx, mine);
        else if (own == 0)
            leave(job, false, block, hack, threads / 32, (rows.second - 1) / task_steps + 1);
        if (threadIdx.x % 32 == 0) decided(job);
        add(sums, mine[0]);
        add(sums + 1, mine[1]);
        // The longest row continues alone past the second longest.
        const uint32_t alone = rows.longest - rows.second;
        if (own == 0 && threadIdx.x % 32 < 2) atomicAdd(sums + threadIdx.x % 32, Sum(alone));
        add_wide(sums + 2, own == 0 ? rows.length : 0);
    }
    flush(sums, 3, 0, job.counts + sectors_at);
}

template <class Offset>
__device__ __forceinline__ void sectors_again(const Job<Offset>& job, uint32_t block,
                                              uint32_t task) {
    constexpr uint32_t warps = threads / 32;
    const Hack<Offset> rows(job, (block << job.warps.each_log()) + task % warps);
    const uint32_t first = task / warps * task_steps;
    const uint32_t stop = first + min(task_steps, rows.second - first);
    uint32_t mine[2] = {0, 0};
    sectors_of<Offset>(rows.begin, rows.length, first + threadIdx.x / 32 * deep, stop, warps * deep,
                       job.col_idx, mine);
    add(job.counts + sectors_at, mine[0]);
    add(job.counts + sectors_at + 1, mine[1]);
}
