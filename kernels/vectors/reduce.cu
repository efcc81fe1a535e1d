// Sums over GPUs: each GPU stores its numbers in the memory of all GPUs, and adds those of all parts in
// their order, so that all GPUs get equal bits. The host takes no part.
//
// Sum number n uses half n % 2 of the slots. A GPU that begins sum n + 2 has ended sum n + 1, so each
// other GPU has told it n + 1 and has therefore read its slots of sum n: no GPU overwrites what another
// still reads.
//
// Launch: one block of REDUCE_THREADS threads. No dynamic shared memory.
#include "counters.cuh"

// Adds `addends` lists of `count` numbers of this GPU at `own`, each DOTS_MOST apart, and those sums over
// the `parts` GPUs, of which this one is number `part`; sum k goes to results[k]. `slots_there` and
// `arrived_there` are the addresses of each GPU's slots, and of its counter for this GPU.
template <class T>
__device__ __forceinline__ void
reduce(uint32_t count, uint32_t addends, const T* own, uint32_t part, uint32_t parts,
       double* const* slots_there, uint64_t* const* arrived_there, const uint64_t* arrived,
       uint64_t* state, uint64_t limit, T* result0, T* result1, T* result2) {
    static_assert(DOTS_MOST == 3, "an address for each result");
    __shared__ bool failed;
    await_previous();
    const uint64_t n = state[exchanges_at] + 1;
    const uint64_t half = n % 2 * parts;
    if (threadIdx.x == 0) failed = state[fault_at] != 0;
    __syncthreads();
    if (failed) return;
    double sums[DOTS_MOST] = {};
    for (uint32_t a = 0; a < addends; a++)
#pragma unroll
        for (uint32_t k = 0; k < DOTS_MOST; k++)
            if (k < count) sums[k] += double(own[a * DOTS_MOST + k]);
    for (uint32_t other = threadIdx.x; other < parts; other += REDUCE_THREADS) {
        double* slots = slots_there[other] + (half + part) * DOTS_MOST;
#pragma unroll
        for (uint32_t k = 0; k < DOTS_MOST; k++)
            if (k < count) slots[k] = sums[k];
        // The counter is raised after the stores of this thread.
        tell(arrived_there[other], n);
    }
    for (uint32_t other = threadIdx.x; other < parts; other += REDUCE_THREADS)
        if (!await(arrived + other, n, limit)) {
            state[fault_at] = 1 + other;
            failed = true;
        }
    __syncthreads();
    if (threadIdx.x < count && !failed) {
        const volatile double* slots = slots_there[part] + half * DOTS_MOST + threadIdx.x;
        double sum = 0;
        for (uint32_t other = 0; other < parts; other++) sum += slots[other * DOTS_MOST];
        T* const results[DOTS_MOST] = {result0, result1, result2};
        *results[threadIdx.x] = T(sum);
    }
    if (threadIdx.x == 0) state[exchanges_at] = n;
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(REDUCE_THREADS) reduce_##name(                   \
        uint32_t count, uint32_t addends, const T* own, uint32_t part, uint32_t parts,            \
        double* const* slots_there, uint64_t* const* arrived_there, const uint64_t* arrived,      \
        uint64_t* state, uint64_t limit, T* result0, T* result1, T* result2) {                    \
        reduce<T>(count, addends, own, part, parts, slots_there, arrived_there, arrived, state,   \
                  limit, result0, result1, result2);                                              \
    }
KERNELS(double, f64)
KERNELS(float, f32)
