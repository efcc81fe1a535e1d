// The product of a matrix stored by diagonals in hacks of `hack` rows (products/diagonals.cu,
// products/diagonals_dot.cu, products/hdia_f32.cu).
//
// A thread processes two neighbouring rows of one hack, and `batch` diagonals at a time. Fill has
// the value -0.0: it adds nothing to a sum, except that it yields NaN where x is not finite; such
// sums are computed again with fill masked. Where `pairs`, one load fetches x for both rows if its
// address is aligned to two elements: this halves the cache requests for diagonals at even offsets.
#pragma once
#include "common.cuh"

// Rows per thread.
constexpr int rows = 2;

template <class T> struct alignas(sizeof(T) * rows) Pack {
    T at[rows];
};

__device__ __forceinline__ Pack<double> load(const double* p) {
    const double2 v = __ldcs(reinterpret_cast<const double2*>(p));
    return {{v.x, v.y}};
}
__device__ __forceinline__ Pack<float> load(const float* p) {
    const float2 v = __ldcs(reinterpret_cast<const float2*>(p));
    return {{v.x, v.y}};
}

__device__ __forceinline__ void gather_pair(const float* p, float (&pair)[2]) {
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];"
                 : "=f"(pair[0]), "=f"(pair[1])
                 : "l"(p)
                 : "memory");
}
__device__ __forceinline__ void gather_pair(const double* p, double (&pair)[2]) {
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];"
                 : "=d"(pair[0]), "=d"(pair[1])
                 : "l"(p)
                 : "memory");
}

// x of consecutive columns; 0 outside the matrix. Columns are counted modulo 2^32, so a column to
// the left of the matrix is past its end.
template <bool pairs, class T>
__device__ __forceinline__ void neighbours(const T* x, uint32_t column, uint32_t ncols,
                                           T (&near)[rows]) {
    if constexpr (pairs) {
        const uint32_t place = column ^ uint32_t(reinterpret_cast<uintptr_t>(x) / sizeof(T));
        if (place % 2 == 0 && column < ncols - 1) {
            gather_pair(x + column, near);
            return;
        }
    }
#pragma unroll
    for (int r = 0; r < rows; r++) near[r] = column + r < ncols ? gather(x + (column + r)) : T(0);
}

template <class T, class Value, int batch, bool masked, bool pairs>
__device__ __forceinline__ void sum_rows(uint32_t first, uint32_t ncols, uint32_t pitch, uint32_t count,
                                         const int32_t* __restrict__ offsets, const Value*& values,
                                         const T* __restrict__ x, T (&sums)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; r++) sums[r] = T(0);
// Not unrolled: otherwise the rarely executed loop would take registers from the other one.
#pragma unroll 1
    for (uint32_t d = 0; d < count; d += batch, values += uint64_t(batch) * pitch) {
        // All loads of a batch are issued before the first result is used.
        Pack<Value> value[batch];
        uint32_t column[batch];
        T near[batch][rows];
#pragma unroll
        for (int b = 0; b < batch; b++)
            value[b] = d + b < count ? load(values + uint64_t(b) * pitch) : Pack<Value>{};
#pragma unroll
        for (int b = 0; b < batch; b++)
            column[b] = d + b < count ? first + uint32_t(__ldg(offsets + d + b)) : 0u - rows;
#pragma unroll
        for (int b = 0; b < batch; b++) neighbours<pairs>(x, column[b], ncols, near[b]);
#pragma unroll
        for (int b = 0; b < batch; b++)
#pragma unroll
            for (int r = 0; r < rows; r++)
                if (!masked || !is_fill(value[b].at[r])) sums[r] += T(value[b].at[r]) * near[b][r];
    }
}

// Calls put(row, sum) for the rows of a thread.
template <class T, class Value, int batch, bool pairs, class Put>
__device__ __forceinline__ void diagonals(uint32_t nrows, uint32_t ncols, uint32_t shift,
                                          uint32_t pitch, const uint32_t* __restrict__ narrow,
                                          const uint64_t* __restrict__ wide,
                                          const int32_t* __restrict__ offsets,
                                          const Value* values, const T* __restrict__ x,
                                          const Put& put) {
    await_previous();
    const uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * rows;
    if (first >= nrows) return;
    const uint32_t h = shift < 32 ? first >> shift : 0, r = first - h * pitch;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    values += start * pitch + r;
    offsets += start;
    T sums[rows];
    sum_rows<T, Value, batch, false, pairs>(first, ncols, pitch, count, offsets, values, x, sums);
    bool finite = true;
#pragma unroll
    for (int q = 0; q < rows; q++) finite &= sums[q] == sums[q];
    if (!finite) {
        values -= uint64_t((count + batch - 1) / batch * batch) * pitch;
        sum_rows<T, Value, 1, true, false>(first, ncols, pitch, count, offsets, values, x, sums);
    }
#pragma unroll
    for (int q = 0; q < rows; q++)
        if (first + q < nrows) put(uint64_t(first) + q, sums[q]);
}
