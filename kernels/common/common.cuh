// Shared by all kernels: what orders their loads, streaming loads and stores, and the final
// y = alpha*sum + beta*y.
//
// Values and columns are read once a product: they pass by the L1 cache and leave L2 first
// (ld.global.cs). x is read many times: it keeps the L1. y is written once.
#pragma once
#include "layout.cuh"

// Waits for what is ahead in the stream, whose last blocks may still be at work: kernels of products
// are launched so that their start overlaps with its end (programmatic dependent launch, from
// compute capability 9.0 on). Only what a product never changes, a layout's structure, may be read
// before.
__device__ __forceinline__ void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Between the loads of values and columns and those of x. Without it ptxas mixes them to save
// registers, and a warp waits for its first column before it asks for its last value.
__device__ __forceinline__ void all_under_way() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }

template <class T> __device__ __forceinline__ T stream(const T* p) { return __ldcs(p); }

// Not ld.global.nc: those pass `all_under_way`.
__device__ __forceinline__ float gather(const float* p) {
    float v;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ double gather(const double* p) {
    double v;
    asm volatile("ld.global.f64 %0, [%1];" : "=d"(v) : "l"(p) : "memory");
    return v;
}

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
