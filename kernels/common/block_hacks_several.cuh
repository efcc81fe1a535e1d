// The product of a matrix in dense b x b blocks, in hacks of 32 block rows, with several vectors
// (products/bhll_several.cu, products/bhll_f32_several.cu): block_hacks.cuh for one vector.
//
// A lane sums the products of a block row with `width` of the vectors, so `parts` neighbouring lanes
// share a block row. Fill has the value -0.0, as there.
#pragma once
#include "several.cuh"

template <class T, class Value, class Column, int b, int width, bool packed, int batch, bool masked>
__device__ __forceinline__ void sum_blocks(uint32_t slots, uint32_t ncols, uint32_t base,
                                           const Column* __restrict__ columns,
                                           const Value* __restrict__ values,
                                           const T* __restrict__ x, uint64_t x_row,
                                           uint64_t x_vector, T (&sums)[b][width]) {
    constexpr Column padding = Column(~Column(0));
#pragma unroll
    for (int p = 0; p < b; p++)
#pragma unroll
        for (int i = 0; i < width; i++) sums[p][i] = T(0);
    // Columns are loaded a batch ahead, so that the loads of values and of x need not wait.
    Column column[batch];
#pragma unroll
    for (int k = 0; k < batch; k++) column[k] = k < slots ? stream(columns + 32 * k) : padding;
    for (uint32_t s = 0; s < slots; s += batch) {
        columns += 32 * batch;
        Column next[batch];
#pragma unroll
        for (int k = 0; k < batch; k++)
            next[k] = s + batch + k < slots ? stream(columns + 32 * k) : padding;
#pragma unroll
        for (int k = 0; k < batch; k++, values += 32 * b * b) {
            const bool is_block = s + k < slots && column[k] != padding;
            const uint64_t first = (uint64_t(base) + column[k]) * b;
#pragma unroll
            for (int q = 0; q < b; q++) {
                Value value[b];
                T row[width] = {};
#pragma unroll
                for (int p = 0; p < b; p++)
                    value[p] = is_block ? stream(values + 32 * (p * b + q)) : Value(0);
                if (is_block && first + q < ncols)
                    load_row<packed, width>(x + (first + q) * x_row, x_vector, row);
#pragma unroll
                for (int p = 0; p < b; p++)
#pragma unroll
                    for (int i = 0; i < width; i++)
                        if (!masked || !is_fill(value[p])) sums[p][i] += T(value[p]) * row[i];
            }
        }
#pragma unroll
        for (int k = 0; k < batch; k++) column[k] = next[k];
    }
}

template <class T, class Value, class Column, int b, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void blocks(uint32_t nrows, uint32_t ncols, const uint32_t* narrow,
                                       const uint64_t* wide, const uint32_t* __restrict__ bases,
                                       const uint32_t* __restrict__ order,
                                       const Column* __restrict__ columns,
                                       const Value* __restrict__ values,
                                       const T* __restrict__ x, T* y, T alpha, T beta,
                                       uint64_t x_row, uint64_t x_vector, uint64_t y_row,
                                       uint64_t y_vector) {
    await_previous();
    constexpr int width = vectors / parts;
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t i = thread / parts, part = thread % parts, h = i / 32, lane = i % 32;
    if (i >= (nrows + b - 1) / b) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t slots = uint32_t(end - start), base = bases ? bases[h] : 0;
    columns += start * 32 + lane;
    values += start * 32 * b * b + lane;
    x += part * width * x_vector;
    T sums[b][width];
    sum_blocks<T, Value, Column, b, width, packed, batch, false>(slots, ncols, base, columns, values,
                                                                 x, x_row, x_vector, sums);
    if (has_nan<b * width>(&sums[0][0]))
        sum_blocks<T, Value, Column, b, width, packed, 1, true>(slots, ncols, base, columns, values,
                                                                x, x_row, x_vector, sums);
    const uint64_t row = uint64_t(order ? order[i] : i) * b;
    y += row * y_row + part * width * y_vector;
#pragma unroll
    for (int p = 0; p < b; p++)
        if (row + p < nrows) store_row<width>(y + p * y_row, y_vector, alpha, sums[p], beta);
}

// The kernels for several vectors. KERNEL(bits of columns, b, name, vectors, parts, packed, batch,
// blocks) defines one: `batch` blocks of a block row are read at a time, and `blocks` thread blocks share
// a processor. Batches are the fastest of those tried on an H200, as far as registers allow.
#define BLOCKS_SEVERAL_OF(KERNEL, c, b)                                                           \
    KERNEL(c, b, v1_strided, 1, 1, false, 2, 4)                                                   \
    KERNEL(c, b, v2_strided, 2, 1, false, (b < 5 ? 2 : 1), 4)                                     \
    KERNEL(c, b, v4_strided, 4, 1, false, (b < 4 ? 2 : 1), (b < 4 ? 4 : 2))                       \
    KERNEL(c, b, v8_strided, 8, 1, false, 1, 2)                                                   \
    KERNEL(c, b, v2_packed, 2, 1, true, (b < 5 ? 2 : 1), 4)                                       \
    KERNEL(c, b, v4_packed, 4, 1, true, (b < 4 ? 2 : 1), (b < 4 ? 4 : 2))                         \
    KERNEL(c, b, v8_packed, 8, BHLL_PARTS, true, (b < 4 ? 2 : 1), (b < 6 ? 3 : 2))
#define BLOCKS_SEVERAL_BY(KERNEL, b)                                                              \
    BLOCKS_SEVERAL_OF(KERNEL, 16, b)                                                              \
    BLOCKS_SEVERAL_OF(KERNEL, 32, b)
#define BLOCKS_SEVERAL(KERNEL)                                                                    \
    BLOCKS_SEVERAL_BY(KERNEL, 2)                                                                  \
    BLOCKS_SEVERAL_BY(KERNEL, 3)                                                                  \
    BLOCKS_SEVERAL_BY(KERNEL, 4)                                                                  \
    BLOCKS_SEVERAL_BY(KERNEL, 5)                                                                  \
    BLOCKS_SEVERAL_BY(KERNEL, 6)
