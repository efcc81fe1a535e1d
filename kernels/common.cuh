// Shared by all kernels: streaming loads and stores, the final y = alpha*sum + beta*y, and the
// macro that names a kernel for both precisions.
//
// Values and columns are read once a product: they pass by the L1 cache and leave L2 first
// (ld.global.cs). x is read many times: it keeps the L1 (ld.global.nc). y is written once.
#pragma once
#include <cstdint>

template <class T> __device__ __forceinline__ T stream(const T* p) { return __ldcs(p); }
template <class T> __device__ __forceinline__ T gather(const T* p) { return __ldg(p); }

// With beta = 0, y is written and never read.
template <class T>
__device__ __forceinline__ void store(T* y, T alpha, T sum, T beta) {
    __stcs(y, beta == T(0) ? alpha * sum : alpha * sum + beta * *y);
}

// Sum over the `lanes` lanes of a group (a power of two, at most 32); every lane gets it.
template <int lanes, class T> __device__ __forceinline__ T group_sum(T sum) {
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

// The mark of a place without an entry, -0.0 (see src/format/fill.rs).
__device__ __forceinline__ bool is_fill(double v) {
    return __double_as_longlong(v) == (long long)0x8000000000000000ull;
}
__device__ __forceinline__ bool is_fill(float v) { return __float_as_uint(v) == 0x80000000u; }
