// Operations on vectors for solvers: y = alpha x + beta y, bounds, and dot products.
//
// A factor is a number, or a number times a quotient of two numbers in GPU memory, so that a solver
// computes its step lengths without the host. Sums of a dot product are added in double precision,
// in an order that depends on the length alone, so equal vectors give equal bits.
//
// Launch: axpby and clamp in blocks of 256 threads over n; dot_parts in at most VECTORS_PARTS blocks of
// VECTORS_THREADS threads, each of which writes one partial sum; dot_sum in one block of
// VECTORS_THREADS threads, which adds the partial sums. No dynamic shared memory.
#include "numbers.cuh"

template <class T>
__device__ __forceinline__ void axpby(uint64_t n, T alpha, const T* alpha_over,
                                      const T* alpha_under, const T* x, T beta, const T* beta_over,
                                      const T* beta_under, T* y) {
    await_previous();
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const T a = factor(alpha, alpha_over, alpha_under), b = factor(beta, beta_over, beta_under);
    y[i] = b == T(0) ? a * x[i] : a * x[i] + b * y[i];
}

// Moves y into [lower, upper]; NaN stays.
template <class T>
__device__ __forceinline__ void clamp(uint64_t n, T lower, T upper, T* y) {
    await_previous();
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const T old = y[i];
    y[i] = old < lower ? lower : old > upper ? upper : old;
}

template <class T>
__device__ __forceinline__ void dot_parts(uint64_t n, const T* x, const T* y, double* parts) {
    await_previous();
    const uint64_t threads = uint64_t(gridDim.x) * VECTORS_THREADS;
    double sum = 0;
    for (uint64_t i = uint64_t(blockIdx.x) * VECTORS_THREADS + threadIdx.x; i < n; i += threads)
        sum += double(x[i]) * double(y[i]);
    sum = block_sum<VECTORS_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class T>
__device__ __forceinline__ void dot_sum(uint32_t count, const double* parts, T* result) {
    await_previous();
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < count; i += VECTORS_THREADS) sum += parts[i];
    sum = block_sum<VECTORS_THREADS>(sum);
    if (threadIdx.x == 0) *result = T(sum);
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        axpby_##name(uint64_t n, T alpha, const T* alpha_over, const T* alpha_under, const T* x,  \
                     T beta, const T* beta_over, const T* beta_under, T* y) {                     \
        axpby<T>(n, alpha, alpha_over, alpha_under, x, beta, beta_over, beta_under, y);           \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        clamp_##name(uint64_t n, T lower, T upper, T* y) {                                        \
        clamp<T>(n, lower, upper, y);                                                             \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        dot_parts_##name(uint64_t n, const T* x, const T* y, double* parts) {                     \
        dot_parts<T>(n, x, y, parts);                                                             \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        dot_sum_##name(uint32_t count, const double* parts, T* result) {                          \
        dot_sum<T>(count, parts, result);                                                         \
    }
KERNELS(double, f64)
KERNELS(float, f32)
