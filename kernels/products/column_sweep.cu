// y = alpha A x + beta y with A in row blocks that are swept by column (see
// src/format/cached/column_sweep/mod.rs).
//
// A block of threads keeps the sums of its rows in shared memory and processes its entries in
// steps, one entry per thread, with a barrier between two steps. No two entries of a step have the
// same sum, except for late entries, which are added atomically after the other entries of a batch
// of steps. The last step of a matrix may extend past the slots that are read.
//
// Launch: one block of 1024 threads per row block, with dynamic shared memory for the maximum
// number of sums.
#include "common.cuh"
#include "column_sweep.cuh"

// The entries of a thread in one batch of steps.
template <class T, int BATCH> struct Entries {
    uint32_t keys[BATCH];
    T values[BATCH], factors[BATCH];

    // Steps past the last of the `left` remaining steps load no entries.
    __device__ __forceinline__ void load(uint32_t left, const uint32_t* bases, const uint32_t* slots,
                                         const T* slot_values, const T* __restrict__ x) {
        uint32_t base[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            keys[k] = k < left ? stream(slots + k * STEP) : NO_SUM << 16;
            base[k] = k < left ? __ldg(bases + k * (STEP / 32)) : 0;
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) values[k] = k < left ? stream(slot_values + k * STEP) : T(0);
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            factors[k] = k < left ? gather(x + base[k] + (keys[k] & (LATE - 1))) : T(0);
    }

    // The late entries of the previous batch must have been added before.
    __device__ __forceinline__ void add(T* sums) const {
        uint32_t late = 0;
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const uint32_t sum = keys[k] >> 16;
            late |= keys[k];
            __syncthreads();
            if (sum != NO_SUM && !(keys[k] & LATE)) sums[sum] += values[k] * factors[k];
        }
        if (!__syncthreads_or(late & LATE)) return;
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (keys[k] & LATE) atomicAdd(sums + (keys[k] >> 16), values[k] * factors[k]);
    }
};

// Number of steps in flight, and whether the next batch is loaded before the current one is added:
// as registers allow.
template <class T> constexpr bool AHEAD = sizeof(T) == 4;
template <class T> constexpr int BATCH = 6;

// Rows with more further sums than this are added up by a warp, other rows by one thread each.
constexpr uint32_t FEW = 16;

// Adds the further sums of 1024 rows; neighbouring rows go to different warps.
template <class T>
__device__ __forceinline__ void add_further(const Long* __restrict__ longs, uint32_t first,
                                            uint32_t count, T* sums) {
    const uint32_t lane = threadIdx.x % 32, k = first + lane * 32 + threadIdx.x / 32;
    const Long own = k < count ? longs[k] : Long{0, 0, 0};
    if (own.further > 0 && own.further <= FEW) {
        T sum = sums[own.row];
        for (uint32_t i = 0; i < own.further; i++) sum += sums[own.first + i];
        sums[own.row] = sum;
    }
    for (uint32_t many = __ballot_sync(~0u, own.further > FEW); many != 0; many &= many - 1) {
        const int from = __ffs(many) - 1;
        const uint32_t row = __shfl_sync(~0u, own.row, from);
        const uint32_t start = __shfl_sync(~0u, own.first, from);
        const uint32_t end = start + __shfl_sync(~0u, own.further, from);
        T sum = 0;
        for (uint32_t i = start + lane; i < end; i += 32) sum += sums[i];
        sum = group_sum<32>(sum);
        if (lane == 0) sums[row] += sum;
    }
}

template <class T>
__device__ __forceinline__ void column_sweep(uint32_t nrows, const Block* __restrict__ blocks,
                                             const uint32_t* __restrict__ groups,
                                             const Long* __restrict__ longs, const uint32_t* bases,
                                             const uint32_t* keys, const T* values,
                                             const T* __restrict__ x, T* y, T alpha, T beta) {
    extern __shared__ double shared[];
    T* sums = reinterpret_cast<T*>(shared);
    const Block block = blocks[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < block.sums; i += STEP) sums[i] = 0;
    await_previous();
    bases += block.first_step * (STEP / 32) + threadIdx.x / 32;
    keys += uint64_t(block.first_step) * STEP + threadIdx.x;
    values += uint64_t(block.first_step) * STEP + threadIdx.x;
    constexpr uint32_t batch = BATCH<T>;
    const auto load = [&](Entries<T, BATCH<T>>& entries, uint32_t step) {
        entries.load(block.steps - step, bases, keys, values, x);
        bases += batch * (STEP / 32), keys += batch * STEP, values += batch * STEP;
    };
    Entries<T, BATCH<T>> entries;
    if (AHEAD<T>) {
        if (block.steps > 0) load(entries, 0);
        for (uint32_t step = 0; step < block.steps; step += batch) {
            const Entries<T, BATCH<T>> now = entries;
            if (step + batch < block.steps) load(entries, step + batch);
            now.add(sums);
        }
    } else {
        for (uint32_t step = 0; step < block.steps; step += batch) {
            load(entries, step);
            entries.add(sums);
        }
    }
    __syncthreads();
    for (uint32_t first = 0; first < block.longs; first += STEP)
        add_further(longs + block.first_long, first, block.longs, sums);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < block.groups * GROUP; i += STEP) {
        const uint32_t row = groups[block.first_group + i / GROUP] * GROUP + i % GROUP;
        if (row < nrows) store(y + row, alpha, sums[i], beta);
    }
}

#define KERNEL(T, name)                                                                           \
    extern "C" __global__ void __launch_bounds__(STEP) column_sweep_##name(                       \
        uint32_t nrows, const Block* blocks, const uint32_t* groups, const Long* longs,           \
        const uint32_t* bases, const uint32_t* keys, const T* values, const T* x, T* y, T alpha,  \
        T beta) {                                                                                 \
        column_sweep<T>(nrows, blocks, groups, longs, bases, keys, values, x, y, alpha, beta);    \
    }
KERNEL(double, f64)
KERNEL(float, f32)
