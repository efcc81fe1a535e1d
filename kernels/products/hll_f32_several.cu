// Y = alpha A X + beta Y with A in HLL, values stored in f32, and vectors and sums in f64
// (hll_f32.cu), for several vectors: the kernels of hll_several.cu.
//
// Launch and arguments are those of hll_several.cu; `values` are f32.
#include "hacks_several.cuh"

#define KERNEL(name, Column, vectors, parts, packed, batch, blocks)                               \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name##_f64(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,                  \
                   const uint32_t* base, const uint32_t* order, const Column* columns,            \
                   const float* values, const double* x, double* y, double alpha, double beta,    \
                   uint32_t hack, uint64_t x_row, uint64_t x_vector, uint64_t y_row,              \
                   uint64_t y_vector) {                                                           \
        hacks<double, float, Column, vectors, parts, packed, batch>(                              \
            nrows, narrow, wide, base, order, columns, values, x, y, alpha, beta, hack, x_row,    \
            x_vector, y_row, y_vector);                                                           \
    }
#define C16(name, ...) KERNEL(name, uint16_t, __VA_ARGS__)
#define C32(name, ...) KERNEL(name, uint32_t, __VA_ARGS__)
SEVERAL(C16, hll_f32_c16, HLL_PARTS_F64)
SEVERAL(C32, hll_f32_c32, HLL_PARTS_F64)
