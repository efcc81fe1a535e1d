// The product of HLL (products/hll.cu, products/hll_f32.cu, products/hll_dot.cu): hacks of `hack` rows, each a
// separate ELLPACK matrix. Vectors and sums have the type T, values of the matrix the type Value, which T holds exactly.
#pragma once
#include "common.cuh"

// Order of the loads of a batch of entries: as ptxas interleaves them; columns and values before x;
// or x, then values, then the columns of the next batch.
enum class Order { mixed, fenced, ahead };

// Calls put(row, sum) on the lane that holds the sum of a row.
template <class T, class Value, class Column, uint32_t hack, int tpr, int batch, Order order_of_loads,
          class Put>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ columns,
                                      const Value* __restrict__ values, const T* __restrict__ x,
                                      const Put& put) {
    await_previous();
    constexpr uint32_t rows = 32 / tpr, per_hack = hack / rows, step = hack * tpr;
    constexpr Column padding = Column(~Column(0));
    const uint32_t lane = threadIdx.x % 32, run = lane / rows;
    const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t h = warp / per_hack, row = warp % per_hack * rows + lane % rows;
    const uint64_t stored = uint64_t(h) * hack + row;
    if (stored - lane % rows >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t width = uint32_t(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / hack);
    if (base) x += base[h];
    columns += start + run * hack + row;
    values += start + run * hack + row;

    T sum = 0, factor[batch];
    Value value[batch];
    Column column[batch];
    int left = int(width - run);
    const auto load_columns = [&] {
#pragma unroll
        for (int b = 0; b < batch; b++)
            column[b] = left > b * tpr ? stream(columns + b * step) : padding;
    };
    const auto load_values = [&] {
#pragma unroll
        for (int b = 0; b < batch; b++)
            value[b] = left > b * tpr ? stream(values + b * step) : Value(0);
    };
    const auto load_x = [&] {
#pragma unroll
        for (int b = 0; b < batch; b++)
            factor[b] = column[b] != padding ? gather(x + column[b]) : T(0);
    };
    const auto advance = [&] {
        left -= batch * tpr;
        columns += batch * step;
        values += batch * step;
    };
    const auto multiply = [&] {
#pragma unroll
        for (int b = 0; b < batch; b++) sum += T(value[b]) * factor[b];
    };
    if (order_of_loads == Order::ahead) {
        load_columns();
        while (left > 0) {
            load_x();
            load_values();
            advance();
            load_columns();
            multiply();
        }
    } else {
        while (left > 0) {
            load_columns();
            load_values();
            if (order_of_loads == Order::fenced) all_under_way();
            load_x();
            multiply();
            advance();
        }
    }
#pragma unroll
    for (int distance = rows; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (run == 0 && stored < nrows) put(order ? order[stored] : stored, sum);
}
