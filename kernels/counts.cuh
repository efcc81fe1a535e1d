// What the counts of features share (features.cu, features_samples.cu).
#pragma once
#include "common.cuh"

using Sum = unsigned long long;

constexpr uint32_t full = 0xffffffffu;

// *to += the sum of `mine` over the warp, *to in shared or global memory.
__device__ __forceinline__ void add(Sum* to, uint64_t mine) {
    const uint64_t sum = group_sum<32>(mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// The first of begin..end whose column, which rise, is not below the wanted one; end where all are.
template <class Offset, class Column>
__device__ __forceinline__ Offset first_from(Offset begin, Offset end, Column wanted,
                                             const uint32_t* __restrict__ col_idx) {
    while (begin < end) {
        const Offset middle = begin + (end - begin) / 2;
        if (Column(col_idx[middle]) < wanted)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}
