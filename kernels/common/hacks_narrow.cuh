// Kernels of HLL in hacks of 32 rows whose values have a type with fewer bits than vectors and sums
// (products/hll_f32.cu, hll_f16.cu, hll_bf16.cu): those of hll.cu.
//
// Launch and arguments are those of hll.cu; `values` have the type Value.
#pragma once
#include "hacks.cuh"

#define KERNEL(name, T, Value, Column, tpr, batch, blocks, order_of_loads)                        \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const Value* values, const T* x, T* y, \
             T alpha, T beta) {                                                                   \
        hacks<T, Value, Column, 32, tpr, batch, Order::order_of_loads>(                           \
            nrows, narrow, wide, base, order, columns, values, x,                                 \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
// As in hll.cu: `_resident` for launches whose blocks are all resident at once.
#define FORMS(name, T, Value, Column, tpr, batch, blocks, order_of_loads)                         \
    KERNEL(name, T, Value, Column, tpr, batch, blocks, order_of_loads)                            \
    KERNEL(name##_resident, T, Value, Column, tpr, 8, 4, fenced)
#define COLUMNS(stem, precision, T, Value, c, Column)                                             \
    FORMS(stem##_32_c##c##_t1_##precision, T, Value, Column, 1, 8, 6, mixed)                      \
    FORMS(stem##_32_c##c##_t2_##precision, T, Value, Column, 2, 3, 6, ahead)                      \
    FORMS(stem##_32_c##c##_t4_##precision, T, Value, Column, 4, 3, 6, ahead)
#define HACKS(stem, precision, T, Value)                                                          \
    COLUMNS(stem, precision, T, Value, 32, uint32_t)                                              \
    COLUMNS(stem, precision, T, Value, 16, uint16_t)
