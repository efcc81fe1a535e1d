// Kernels of diagonals in hacks of `hack` rows whose values have a type with fewer bits than vectors and
// sums (products/hdia_f32.cu, hdia_f16.cu, hdia_bf16.cu): those of diagonals.cu.
//
// Launch and arguments are those of diagonals.cu; `values` have the type Value.
#pragma once
#include "diagonals.cuh"

#define KERNEL(name, T, Value, batch, least, pairs)                                               \
    extern "C" __global__ void __launch_bounds__(256, least)                                      \
        name(uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                      \
             const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                \
             const Value* values, const T* x, T* y, T alpha, T beta) {                            \
        diagonals<T, Value, batch, pairs>(                                                        \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x,                         \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
#define DIAGONALS(stem, precision, T, Value)                                                      \
    KERNEL(stem##_##precision, T, Value, 4, 6, true)                                              \
    KERNEL(stem##_##precision##_resident, T, Value, 9, 2, true)
