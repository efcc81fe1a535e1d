// Products with several packed vectors in which each lane has a vector (products/csr_spread.cu,
// products/csr_long_spread.cu): as many neighbouring lanes as there are vectors share a row. They load
// its entries one for each lane, and then go through them together, so that an element of each vector
// is read by one access for a row of X.
#pragma once
#include "several.cuh"

// Returns the sum of the products of compressed sparse entries with the own vector `x`. The group of
// `vectors` lanes takes as many entries as lanes at a time from `first` on, `stride` entries apart, up to
// `end`.
template <int vectors, int stride, class T, class Offset>
__device__ __forceinline__ T spread_sum(Offset first, Offset end, const uint32_t* __restrict__ col_idx,
                                        const T* __restrict__ values, const T* __restrict__ x,
                                        uint64_t x_row) {
    constexpr int batch = 8 / vectors;
    const uint32_t lane = threadIdx.x % vectors;
    const uint32_t group = ((1u << vectors) - 1) << (threadIdx.x % 32 - lane);
    T sum = 0;
    for (; first < end; first += stride * batch) {
        uint32_t column[batch];
        T value[batch], row[batch][vectors];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const Offset own = first + b * stride + lane;
            column[b] = own < end ? stream(col_idx + own) : 0;
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const Offset own = first + b * stride + lane;
            value[b] = own < end ? stream(values + own) : T(0);
        }
#pragma unroll
        for (int b = 0; b < batch; b++)
#pragma unroll
            for (int i = 0; i < vectors; i++) {
                const uint32_t c = __shfl_sync(group, column[b], i, vectors);
                row[b][i] = first + b * stride + i < end ? x[c * x_row] : T(0);
            }
#pragma unroll
        for (int b = 0; b < batch; b++)
#pragma unroll
            for (int i = 0; i < vectors; i++)
                sum += __shfl_sync(group, value[b], i, vectors) * row[b][i];
    }
    return sum;
}
