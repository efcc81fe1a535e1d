// Kernels of dense b x b blocks whose values have a type with fewer bits than vectors and sums
// (products/bhll_f32.cu, bhll_f16.cu, bhll_bf16.cu): those of bhll.cu.
//
// Launch and arguments are those of bhll.cu; `values` have the type Value.
#pragma once
#include "block_hacks.cuh"

#define KERNEL(name, T, Value, Column, b, batch, least)                                           \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const Value* values, const T* x, T* y, T alpha, T beta) {                            \
        blocks<T, Value, Column, b, batch>(                                                       \
            nrows, ncols, narrow, wide, bases, order, columns, values, x,                         \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
// Slots per batch and the minimum number of resident blocks per processor.
#define BOTH(stem, precision, T, Value, b, batch, least)                                          \
    KERNEL(stem##_b##b##_c32_##precision, T, Value, uint32_t, b, batch, least)                    \
    KERNEL(stem##_b##b##_c16_##precision, T, Value, uint16_t, b, batch, least)
#define BLOCKS(stem, precision, T, Value)                                                         \
    BOTH(stem, precision, T, Value, 2, 4, 4)                                                      \
    BOTH(stem, precision, T, Value, 3, 3, 6)                                                      \
    BOTH(stem, precision, T, Value, 4, 4, 4)                                                      \
    BOTH(stem, precision, T, Value, 5, 3, 4)                                                      \
    BOTH(stem, precision, T, Value, 6, 3, 4)
