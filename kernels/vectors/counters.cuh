// Counters in GPU memory by which GPUs agree: others raise them over NVLink or PCIe.
#pragma once
#include "common.cuh"

// Indices into the state of a GPU: exchanges or sums so far, blocks that have ended, and 1 + the counter
// that was waited for in vain (of an exchange, receivers first).
constexpr int exchanges_at = 0, ended_at = 1, fault_at = 2;

__device__ __forceinline__ void tell(uint64_t* counter, uint64_t n) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(counter), "l"(n) : "memory");
}

__device__ __forceinline__ uint64_t told(const uint64_t* counter) {
    uint64_t n;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(n) : "l"(counter) : "memory");
    return n;
}

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// Waits until the counter is n or more; false after `limit` nanoseconds.
__device__ __forceinline__ bool await(const uint64_t* counter, uint64_t n, uint64_t limit) {
    if (told(counter) >= n) return true;
    const uint64_t start = nanoseconds();
    while (told(counter) < n)
        if (nanoseconds() - start > limit) return false;
    return true;
}
