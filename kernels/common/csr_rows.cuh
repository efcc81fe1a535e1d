// Rows of a CSR matrix, each shared by `lanes` neighbouring lanes (products/csr.cu, csr_dot.cu,
// csr_long.cu, csr_scalar.cu and csr_vector.cu).
#pragma once
#include "common.cuh"

// Sum of values[i] * x[col_idx[i]] over i = k, k + lanes, ... below `end`. Values may be narrower than
// x and the sum.
template <int lanes, class T, class Offset, class Value>
__device__ __forceinline__ T lane_sum(Offset k, Offset end, const uint32_t* __restrict__ col_idx,
                                      const Value* __restrict__ values, const T* __restrict__ x) {
    constexpr int batch = CSR_BATCH;
    T sum = 0;
    uint32_t column[batch];
    T factor[batch];
    Value value[batch];
    // Values are loaded after x: if they were loaded earlier, they would delay the columns, for
    // which the loads of x wait, and occupy registers meanwhile.
    for (; k + (batch - 1) * lanes < end; k += batch * lanes) {
#pragma unroll
        for (int b = 0; b < batch; b++) column[b] = stream(col_idx + k + b * lanes);
#pragma unroll
        for (int b = 0; b < batch; b++) factor[b] = gather(x + column[b]);
#pragma unroll
        for (int b = 0; b < batch; b++) value[b] = stream(values + k + b * lanes);
#pragma unroll
        for (int b = 0; b < batch; b++) sum += T(value[b]) * factor[b];
    }
    // At most batch - 1 entries are left.
#pragma unroll
    for (int b = 0; b < batch - 1; b++)
        column[b] = k + b * lanes < end ? stream(col_idx + k + b * lanes) : 0;
#pragma unroll
    for (int b = 0; b < batch - 1; b++)
        factor[b] = k + b * lanes < end ? gather(x + column[b]) : T(0);
#pragma unroll
    for (int b = 0; b < batch - 1; b++)
        value[b] = k + b * lanes < end ? stream(values + k + b * lanes) : Value(0);
#pragma unroll
    for (int b = 0; b < batch - 1; b++) sum += T(value[b]) * factor[b];
    return sum;
}

// Calls put(row, sum) for each row on lane 0 of its group; sum_of(k, end) returns the sum of a lane,
// whose first entry of its row is k and whose row ends before `end`.
template <int lanes, class T, class Offset, class SumOf, class Put>
__device__ __forceinline__ void each_row(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                         const SumOf& sum_of, const Put& put) {
    await_previous();
    const uint64_t thread = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t row = thread / lanes;
    const int lane = threadIdx.x % lanes;
    T sum = 0;
    if (row < nrows) {
        const Offset end = row_ptr[row + 1], start = row_ptr[row];
        sum = sum_of(Offset(start + lane), end);
    }
    sum = group_sum<lanes>(sum);
    if (row < nrows && lane == 0) put(row, sum);
}

// y = alpha A x + beta y; sum_of is that of each_row.
template <int lanes, class T, class Offset, class SumOf>
__device__ __forceinline__ void sum_rows(uint32_t nrows, const Offset* __restrict__ row_ptr, T* y,
                                         T alpha, T beta, const SumOf& sum_of) {
    each_row<lanes, T>(nrows, row_ptr, sum_of,
                       [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });
}
