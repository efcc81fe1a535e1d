// y = alpha A x + beta y with A in dense b x b blocks, in hacks of 32 block rows.
//
// A lane processes a block row: in each slot of its hack one block, whose element e is at (slot * b
// * b + e) * 32 + lane. Fill has the value -0.0, as in diagonals.cu.
//
// Launch: blocks of 128 threads, one warp per hack; no shared memory. Block columns are 32-bit, or
// 16-bit counted from `base` of the hack; the largest column marks padding. `order` is the block
// row of the matrix that each stored block row is, or null.
#include "common.cuh"

template <class T, class Column, int b, int batch, bool masked>
__device__ __forceinline__ void sum_blocks(uint32_t slots, uint32_t ncols, uint32_t base,
                                           const Column* __restrict__ columns,
                                           const T* __restrict__ values, const T* __restrict__ x,
                                           T (&sums)[b]) {
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
        T value[batch][b * b], near[batch][b];
#pragma unroll
        for (int k = 0; k < batch; k++)
            next[k] = s + batch + k < slots ? stream(columns + 32 * k) : padding;
#pragma unroll
        for (int k = 0; k < batch; k++) {
#pragma unroll
            for (int e = 0; e < b * b; e++)
                value[k][e] = s + k < slots ? stream(values + 32 * (k * b * b + e)) : T(0);
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
                        sums[p] += value[k][p * b + q] * near[k][q];
#pragma unroll
        for (int k = 0; k < batch; k++) column[k] = next[k];
    }
}

template <class T, class Column, int b, int batch>
__device__ __forceinline__ void blocks(uint32_t nrows, uint32_t ncols, const uint32_t* narrow,
                                       const uint64_t* wide, const uint32_t* __restrict__ bases,
                                       const uint32_t* __restrict__ order,
                                       const Column* __restrict__ columns,
                                       const T* __restrict__ values, const T* __restrict__ x, T* y,
                                       T alpha, T beta) {
    await_previous();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, h = i / 32, lane = i % 32;
    const uint32_t block_rows = (nrows + b - 1) / b;
    if (h * 32 >= block_rows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t slots = uint32_t(end - start), base = bases ? bases[h] : 0;
    columns += start * 32 + lane;
    values += start * 32 * b * b + lane;
    T sums[b];
    sum_blocks<T, Column, b, batch, false>(slots, ncols, base, columns, values, x, sums);
    bool finite = true;
#pragma unroll
    for (int p = 0; p < b; p++) finite &= sums[p] == sums[p];
    if (!finite) sum_blocks<T, Column, b, 1, true>(slots, ncols, base, columns, values, x, sums);
    if (i >= block_rows) return;
    const uint64_t row = uint64_t(order ? order[i] : i) * b;
#pragma unroll
    for (int p = 0; p < b; p++)
        if (row + p < nrows) store(y + row + p, alpha, sums[p], beta);
}

#define KERNEL(name, T, Column, b, batch, least)                                                  \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const T* values, const T* x, T* y, T alpha, T beta) {                                \
        blocks<T, Column, b, batch>(nrows, ncols, narrow, wide, bases, order, columns, values, x, \
                                    y, alpha, beta);                                              \
    }
// Slots per batch in double and in single precision, and for the latter the minimum number of
// resident blocks per processor.
#define BOTH(b, batch64, batch, least)                                                            \
    KERNEL(bhll_b##b##_c32_f64, double, uint32_t, b, batch64, 1)                                  \
    KERNEL(bhll_b##b##_c16_f64, double, uint16_t, b, batch64, 1)                                  \
    KERNEL(bhll_b##b##_c32_f32, float, uint32_t, b, batch, least)                                 \
    KERNEL(bhll_b##b##_c16_f32, float, uint16_t, b, batch, least)
BOTH(2, 3, 2, 10)
BOTH(3, 1, 3, 8)
BOTH(4, 1, 1, 1)
BOTH(5, 1, 1, 1)
BOTH(6, 1, 1, 1)
