// Exchange of halos between GPUs: each GPU stores elements of its x into the halos of others.
//
// GPUs agree by counters in their memory, which other GPUs write over NVLink or PCIe; the host takes
// no part. In exchange number n,
// 1. a GPU writes n to `ready` of each sender: its halo may be overwritten, since the products
//    before this kernel have ended;
// 2. it waits for `ready` of each receiver, stores its elements there, and writes n to their
//    `arrived`;
// 3. it waits until all senders have written n to its own `arrived`. The product after this kernel
//    then finds the halo filled.
// A wait ends after `limit` nanoseconds: the kernel notes the counter and the next exchanges end at
// once.
//
// Launch: blocks of EXCHANGE_THREADS threads over `count`, at least one; blocks need not be resident
// at once, because they wait for other GPUs only. No dynamic shared memory.
#include "counters.cuh"

// `from` numbers the elements to send, by receiver; those of receiver r end at `ends[r]`, and the
// first one goes to `to[r]`. `ready_there` and `arrived_there` are addresses of other GPUs' counters
// for this one; `ready` and `arrived` are its own.
template <class T>
__device__ __forceinline__ void
exchange(uint64_t count, const uint32_t* from, const T* x, uint32_t receivers, const uint64_t* ends,
         T* const* to, uint32_t senders, uint64_t* const* ready_there,
         uint64_t* const* arrived_there, const uint64_t* ready, const uint64_t* arrived,
         uint64_t* state, uint64_t limit) {
    __shared__ bool failed, last;
    await_previous();
    const uint64_t n = state[exchanges_at] + 1;
    if (threadIdx.x == 0) failed = state[fault_at] != 0;
    __syncthreads();
    if (failed) return;
    // Every block tells it, so that no order of blocks can make GPUs wait for each other.
    for (uint32_t s = threadIdx.x; s < senders; s += blockDim.x) tell(ready_there[s], n);
    for (uint32_t r = threadIdx.x; r < receivers; r += blockDim.x)
        if (!await(ready + r, n, limit)) {
            state[fault_at] = 1 + r;
            failed = true;
        }
    __syncthreads();
    if (!failed) {
        const uint64_t threads = uint64_t(gridDim.x) * blockDim.x;
        uint32_t r = 0;
        uint64_t start = 0;
        for (uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; k < count; k += threads) {
            while (k >= ends[r]) start = ends[r++];
            to[r][k - start] = x[from[k]];
        }
        __threadfence_system();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const auto ended = reinterpret_cast<unsigned long long*>(state + ended_at);
        last = atomicAdd(ended, 1ull) == gridDim.x - 1;
        __threadfence_system();
    }
    __syncthreads();
    if (!last) return;
    // Another block may have waited in vain and stored nothing.
    if (told(state + fault_at) == 0)
        for (uint32_t r = threadIdx.x; r < receivers; r += blockDim.x) tell(arrived_there[r], n);
    for (uint32_t s = threadIdx.x; s < senders; s += blockDim.x)
        if (!await(arrived + s, n, limit)) state[fault_at] = 1 + receivers + s;
    if (threadIdx.x == 0) {
        state[ended_at] = 0;
        state[exchanges_at] = n;
    }
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) exchange_##name(               \
        uint64_t count, const uint32_t* from, const T* x, uint32_t receivers,                     \
        const uint64_t* ends, T* const* to, uint32_t senders, uint64_t* const* ready_there,       \
        uint64_t* const* arrived_there, const uint64_t* ready, const uint64_t* arrived,           \
        uint64_t* state, uint64_t limit) {                                                        \
        exchange<T>(count, from, x, receivers, ends, to, senders, ready_there, arrived_there,     \
                    ready, arrived, state, limit);                                                \
    }
KERNELS(double, f64)
KERNELS(float, f32)
