// Numbers for the host that a kernel writes to memory of the host.
#pragma once
#include "common.cuh"

// Writes numbers to memory of the host, where host[0] = mark tells that the others are there.
template <int count>
__device__ __forceinline__ void tell(uint32_t* host, uint32_t mark, const uint32_t (&numbers)[count]) {
#pragma unroll
    for (int k = 0; k < count; k++) host[1 + k] = numbers[k];
    __threadfence_system();
    *(volatile uint32_t*)host = mark;
}
