// The product of a matrix in hacks of rows with several vectors (products/hll_several.cu,
// products/hll_f32_several.cu): hacks.cuh for one vector.
//
// A lane sums its row's products with `width` vectors, so `parts` lanes share a row. Values are stored
// in type Value and converted to type T of the vectors.
#pragma once
#include "several.cuh"

template <class T, class Value, class Column, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ columns,
                                      const Value* __restrict__ values,
                                      const T* __restrict__ x, T* y, T alpha, T beta, uint32_t hack,
                                      uint64_t x_row, uint64_t x_vector, uint64_t y_row,
                                      uint64_t y_vector) {
    await_previous();
    constexpr int width = vectors / parts;
    constexpr uint32_t rows = 32 / parts;
    constexpr Column padding = Column(~Column(0));
    const uint32_t per_hack = hack / rows;
    const uint32_t part = threadIdx.x % parts, lane = threadIdx.x % 32 / parts;
    const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t h = warp / per_hack, row = warp % per_hack * rows + lane;
    const uint64_t stored = uint64_t(h) * hack + row;
    if (stored >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t slots = uint32_t(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / hack);
    if (base) x += base[h] * x_row;
    x += part * width * x_vector;
    columns += start + row;
    values += start + row;

    T sums[width] = {}, value[batch];
    Column column[batch];
    for (int left = int(slots); left > 0; left -= batch) {
#pragma unroll
        for (int b = 0; b < batch; b++) column[b] = left > b ? stream(columns + b * hack) : padding;
#pragma unroll
        for (int b = 0; b < batch; b++) value[b] = left > b ? T(stream(values + b * hack)) : T(0);
        add_batch<packed, width, batch>(column, value, x, x_row, x_vector, sums,
                                        [&](int b) { return column[b] != padding; });
        columns += batch * hack;
        values += batch * hack;
    }
    y += (order ? order[stored] : stored) * y_row + part * width * y_vector;
    store_row<width>(y, y_vector, alpha, sums, beta);
}
