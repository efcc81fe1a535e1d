// Dot products of the result y of a product, and w = w + gamma y, in the pass that computes y
// (products/*_dot.cu): number 0 is (y, x), number 1 is (y, y), number 2 is (y, z).
//
// Products of elements are added in double precision, in an order that depends on the launch alone.
// Each block writes its sums to places of its own, and dots_sum of vectors/dots.cu adds those up: equal
// vectors give equal bits.
#pragma once
#include "common.cuh"

// Writes elements of y and sums up their products. Bit k of `wanted` tells whether dot product k is
// computed, and DOTS_ADD whether w = w + gamma y; z is read only for number 2, w only for DOTS_ADD.
template <class T> struct Dots {
    const T* x;
    const T* z;
    T* y;
    T* w;
    T alpha, beta, gamma;
    uint32_t wanted;
    double sums[DOTS_MOST] = {};

    __device__ __forceinline__ Dots(const T* x, T* y, T alpha, T beta, const T* z, uint32_t wanted,
                                    T* w, T gamma)
        : x(x), z(z), y(y), w(w), alpha(alpha), beta(beta), gamma(gamma), wanted(wanted) {}

    // Writes y[row] = alpha * sum + beta * y[row], and w[row]; with beta = 0, y is never read.
    __device__ __forceinline__ void put(uint64_t row, T sum) {
        const T result = beta == T(0) ? alpha * sum : alpha * sum + beta * y[row];
        __stcs(y + row, result);
        add(row, result);
        if (wanted & DOTS_ADD) w[row] += gamma * result;
    }

    // Adds the products of y[row], which is `result`.
    __device__ __forceinline__ void add(uint64_t row, T result) {
        if (wanted & 1) sums[0] += double(result) * double(x[row]);
        if (wanted & 2) sums[1] += double(result) * double(result);
        if (wanted & 4) sums[2] += double(result) * double(z[row]);
    }

    // Writes the sums of a block of `threads` threads; block b of B writes sum k to parts[k * B + b].
    // All threads of the block call it.
    template <int threads> __device__ __forceinline__ void finish(double* parts) {
        constexpr int warps = threads / 32;
        __shared__ double of_warps[DOTS_MOST][warps];
#pragma unroll
        for (uint32_t k = 0; k < DOTS_MOST; k++) {
            if (!(wanted >> k & 1)) continue;
            const double sum = group_sum<32>(sums[k]);
            if (threadIdx.x % 32 == 0) of_warps[k][threadIdx.x / 32] = sum;
        }
        __syncthreads();
        const uint32_t k = threadIdx.x;
        if (k >= DOTS_MOST || !(wanted >> k & 1)) return;
        double sum = 0;
#pragma unroll
        for (int w = 0; w < warps; w++) sum += of_warps[k][w];
        parts[uint64_t(k) * gridDim.x + blockIdx.x] = sum;
    }
};
