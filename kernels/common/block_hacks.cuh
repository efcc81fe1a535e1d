// The product of a matrix in dense b x b blocks, in hacks of 32 block rows (products/bhll.cu,
// products/bhll_dot.cu, products/bhll_f32.cu).
//
// A lane processes a block row: in each slot of its hack one block, whose element e is at (slot * b
// * b + e) * 32 + lane. Fill has the value -0.0, as in diagonals.cuh. Values are stored in type Value
// and converted to type T of the vectors.
#pragma once
#include "common.cuh"

template <class T, class Value, class Column, int b, int batch, bool masked>
__device__ __forceinline__ void sum_blocks(uint32_t slots, uint32_t ncols, uint32_t base,
                                           const Column* __restrict__ columns,
                                           const Value* __restrict__ values,
                                           const T* __restrict__ x, T (&sums)[b]) {
    constexpr Column padding = Column(~Column(0));
#pragma unroll
    for (int p = 0; p < b; p++) sums[p] = T(0);
    // Columns are loaded a batch ahead, so that the loads of values and of x need not wait.
    Column column[batch];
#pragma unroll
    for (int k = 0; k < batch; k++) column[k] = k < slots ? stream(columns + 32 * k) : padding;
    for (uint32_t s = 0; s < slots; s += batch, values += 32 * b * b * batch) {
        columns += 32 * batch;
        Column next[batch];
        Value value[batch][b * b];
        T near[batch][b];
#pragma unroll
        for (int k = 0; k < batch; k++)
            next[k] = s + batch + k < slots ? stream(columns + 32 * k) : padding;
#pragma unroll
        for (int k = 0; k < batch; k++) {
#pragma unroll
            for (int e = 0; e < b * b; e++)
                value[k][e] = s + k < slots ? stream(values + 32 * (k * b * b + e)) : Value(0);
        }
#pragma unroll
        for (int k = 0; k < batch; k++) {
            const uint64_t first = (uint64_t(base) + column[k]) * b;
#pragma unroll
            for (int q = 0; q < b; q++)
                near[k][q] = column[k] != padding && first + q < ncols ? gather(x + first + q) : T(0);
        }
#pragma unroll
        for (int k = 0; k < batch; k++)
#pragma unroll
            for (int p = 0; p < b; p++)
#pragma unroll
                for (int q = 0; q < b; q++)
                    if (!masked || !is_fill(value[k][p * b + q]))
                        sums[p] += T(value[k][p * b + q]) * near[k][q];
#pragma unroll
        for (int k = 0; k < batch; k++) column[k] = next[k];
    }
}

// Calls put(row, sum) for the rows of a lane.
template <class T, class Value, class Column, int b, int batch, class Put>
__device__ __forceinline__ void blocks(uint32_t nrows, uint32_t ncols, const uint32_t* narrow,
                                       const uint64_t* wide, const uint32_t* __restrict__ bases,
                                       const uint32_t* __restrict__ order,
                                       const Column* __restrict__ columns,
                                       const Value* __restrict__ values,
                                       const T* __restrict__ x, const Put& put) {
    await_previous();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, h = i / 32, lane = i % 32;
    const uint32_t block_rows = (nrows + b - 1) / b;
    if (h * 32 >= block_rows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t slots = uint32_t(end - start), base = bases ? bases[h] : 0;
    columns += start * 32 + lane;
    values += start * 32 * b * b + lane;
    T sums[b];
    sum_blocks<T, Value, Column, b, batch, false>(slots, ncols, base, columns, values, x, sums);
    bool finite = true;
#pragma unroll
    for (int p = 0; p < b; p++) finite &= sums[p] == sums[p];
    if (!finite)
        sum_blocks<T, Value, Column, b, 1, true>(slots, ncols, base, columns, values, x, sums);
    if (i >= block_rows) return;
    const uint64_t row = uint64_t(order ? order[i] : i) * b;
#pragma unroll
    for (int p = 0; p < b; p++)
        if (row + p < nrows) put(row + p, sums[p]);
}
