// Kernels of compressed sparse rows whose values have a type with fewer bits than vectors and sums
// (products/csr_f32.cu, csr_f16.cu, csr_bf16.cu): `tpr` neighbouring lanes share a row.
//
// Launch and arguments are those of csr.cu; `values` have the type Value.
#pragma once
#include "csr_rows.cuh"

#define KERNEL(name, T, Value, Offset, tpr)                                                       \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const Value* values, \
             const T* x, T* y, T alpha, T beta) {                                                 \
        sum_rows<tpr>(nrows, row_ptr, y, alpha, beta, [&](Offset k, Offset end) {                 \
            return lane_sum<tpr, T, Offset>(k, end, col_idx, values, x);                          \
        });                                                                                       \
    }
#define BOTH(stem, precision, T, Value, tpr)                                                      \
    KERNEL(stem##_t##tpr##_##precision, T, Value, uint32_t, tpr)                                  \
    KERNEL(stem##_wide_t##tpr##_##precision, T, Value, uint64_t, tpr)
#define ROWS(stem, precision, T, Value)                                                           \
    BOTH(stem, precision, T, Value, 2)                                                            \
    BOTH(stem, precision, T, Value, 4)                                                            \
    BOTH(stem, precision, T, Value, 8)                                                            \
    BOTH(stem, precision, T, Value, 16)                                                           \
    BOTH(stem, precision, T, Value, 32)
