// Exchange of halos between GPUs: each GPU stores elements of its x into the halos of others.
//
// GPUs agree by counters in their memory, which other GPUs write over NVLink or PCIe; the host takes
// no part. In exchange number n,
// 1. a GPU writes n to `ready` of each sender: its halo may be overwritten, since the products
//    before this kernel have ended;
// 2. each block serves one receiver. It waits for that receiver's `ready`, stores its elements there,
//    and writes n to a counter that the receiver has for this block;
// 3. the last block that ends waits until all blocks of all senders have written n. The product after
//    this kernel then finds the halo filled.
// A wait ends after `limit` nanoseconds: the kernel notes the counter and the next exchanges end at
// once.
//
// Launch: blocks of EXCHANGE_THREADS threads, up to EXCHANGE_BLOCKS for each receiver, at least one.
// Blocks need not be resident at once, because only the last one waits for what other GPUs send. No
// dynamic shared memory.
#include "counters.cuh"

// `from` numbers the elements to send, by receiver; those of receiver r end at `ends[r]`, its blocks at
// `block_ends[r]`, and the first element goes to `to[r]`. `ready_there` and `arrived_there` are addresses
// of other GPUs' counters for this one; `ready` and `arrived` are its own. Sender s has EXCHANGE_BLOCKS
// counters in `arrived`, of which it uses `arrivals[s]`.
template <class T>
__device__ __forceinline__ void
exchange(const uint32_t* from, const T* __restrict__ x, uint32_t receivers, const uint64_t* ends,
         const uint32_t* block_ends, T* const* to, uint32_t senders, uint64_t* const* ready_there,
         uint64_t* const* arrived_there, const uint64_t* ready, const uint64_t* arrived,
         const uint32_t* arrivals, uint64_t* state, uint64_t limit) {
    __shared__ bool failed, last;
    await_previous();
    const uint64_t n = state[exchanges_at] + 1;
    if (threadIdx.x == 0) failed = state[fault_at] != 0;
    __syncthreads();
    if (failed) return;
    // Every block tells it, so that no order of blocks can make GPUs wait for each other.
    for (uint32_t s = threadIdx.x; s < senders; s += blockDim.x) tell(ready_there[s], n);
    uint32_t r = 0;
    while (r < receivers && blockIdx.x >= block_ends[r]) r++;
    if (r < receivers) {
        if (threadIdx.x == 0 && !await(ready + r, n, limit)) {
            state[fault_at] = 1 + r;
            failed = true;
        }
        __syncthreads();
        if (failed) return;
        const uint32_t block = blockIdx.x - (r ? block_ends[r - 1] : 0);
        const uint64_t threads = uint64_t(block_ends[r] - (blockIdx.x - block)) * blockDim.x;
        const uint64_t start = r ? ends[r - 1] : 0;
        T* __restrict__ const target = to[r];
        for (uint64_t k = start + uint64_t(block) * blockDim.x + threadIdx.x; k < ends[r]; k += threads)
            target[k - start] = x[from[k]];
        // The counter is raised after the stores of all threads of the block.
        __syncthreads();
        if (threadIdx.x == 0) tell(arrived_there[r] + block, n);
    }
    if (threadIdx.x == 0) {
        const auto ended = reinterpret_cast<unsigned long long*>(state + ended_at);
        last = atomicAdd(ended, 1ull) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    for (uint32_t c = threadIdx.x; c < senders * EXCHANGE_BLOCKS; c += blockDim.x) {
        const uint32_t s = c / EXCHANGE_BLOCKS;
        const bool is_used = c % EXCHANGE_BLOCKS < arrivals[s];
        if (is_used && !await(arrived + c, n, limit)) state[fault_at] = 1 + receivers + s;
    }
    if (threadIdx.x == 0) {
        state[ended_at] = 0;
        state[exchanges_at] = n;
    }
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(EXCHANGE_THREADS) exchange_##name(               \
        const uint32_t* from, const T* x, uint32_t receivers, const uint64_t* ends,               \
        const uint32_t* block_ends, T* const* to, uint32_t senders, uint64_t* const* ready_there, \
        uint64_t* const* arrived_there, const uint64_t* ready, const uint64_t* arrived,           \
        const uint32_t* arrivals, uint64_t* state, uint64_t limit) {                              \
        exchange<T>(from, x, receivers, ends, block_ends, to, senders, ready_there,               \
                    arrived_there, ready, arrived, arrivals, state, limit);                       \
    }
KERNELS(double, f64)
KERNELS(float, f32)
