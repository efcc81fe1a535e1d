// Comparison of two arrays word by word.
//
// Launch: blocks of 256 threads over the words of 32 bits; no shared memory.
#include "common.cuh"

// *found = 1 if a and b differ in one of `words` words.
extern "C" __global__ void __launch_bounds__(256)
    differ(uint64_t words, const uint32_t* a, const uint32_t* b, uint32_t* found) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < words && a[i] != b[i]) *found = 1;
}
