// Numbers of operations on vectors: factors in GPU memory, and sums of a block.
#pragma once
#include "common.cuh"

// The factor `scale * *over / *under`; null pointers stand for 1. A quotient with the denominator 0
// is 0: a solver that has found the exact solution then stays there.
template <class T> __device__ __forceinline__ T factor(T scale, const T* over, const T* under) {
    if (over == nullptr || under == nullptr) return scale;
    return *under == T(0) ? T(0) : scale * (*over / *under);
}

// Sum over a block of `threads` threads, at most 1024; thread 0 gets the sum.
template <int threads> __device__ __forceinline__ double block_sum(double sum) {
    constexpr int warps = threads / 32;
    __shared__ double sums[warps];
    sum = group_sum<32>(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = threadIdx.x < warps ? sums[threadIdx.x] : 0.0;
    return threadIdx.x < 32 ? group_sum<32>(sum) : sum;
}
