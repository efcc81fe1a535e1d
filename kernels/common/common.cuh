// Shared by all kernels: ordering of loads, streaming loads and stores, and the final y = alpha*sum
// + beta*y.
//
// Each product reads values and columns once: their loads bypass the L1 cache and are the first to
// be evicted from L2 (ld.global.cs). x is read many times and stays in L1. y is written once.
#pragma once
#include "layout.cuh"

// Waits for earlier work in the stream, whose last blocks may still be running: kernels of products
// are launched so that their start overlaps with its end (programmatic dependent launch, from
// compute capability 9.0 on). Before this call a kernel may read only data that no product changes,
// that is a layout's structure.
__device__ __forceinline__ void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Separates the loads of values and columns from the loads of x. Without it ptxas interleaves them
// to save registers, and a warp waits for its first column before it requests its last value.
__device__ __forceinline__ void all_under_way() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }

template <class T> __device__ __forceinline__ T stream(const T* p) { return __ldcs(p); }

// Not ld.global.nc, because such loads could move across `all_under_way`.
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

// Writes alpha*sum + beta*y. With beta = 0, y is written and never read.
template <class T>
__device__ __forceinline__ void store(T* y, T alpha, T sum, T beta) {
    __stcs(y, beta == T(0) ? alpha * sum : alpha * sum + beta * *y);
}

// Sum over the `lanes` lanes of a group (a power of two, at most 32); every lane gets the sum.
template <int lanes, class T> __device__ __forceinline__ T group_sum(T sum) {
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return sum;
}

// True for fill, the mark of a place without an entry: -0.0 (see src/format/fill_marker.rs).
__device__ __forceinline__ bool is_fill(double v) {
    return __double_as_longlong(v) == (long long)0x8000000000000000ull;
}
__device__ __forceinline__ bool is_fill(float v) { return __float_as_uint(v) == 0x80000000u; }
