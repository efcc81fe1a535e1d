// Y = alpha A X + beta Y with A in dense b x b blocks, values stored in f32, and vectors and sums in f64
// (bhll_f32.cu), for several vectors: the kernels of bhll_several.cu.
//
// Launch and arguments are those of bhll_several.cu; `values` are f32.
#include "block_hacks_several.cuh"

#define KERNEL(c, b, name, vectors, parts, packed, batch, least)                                  \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        bhll_f32_b##b##_c##c##_##name##_f64(                                                      \
            uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,         \
            const uint32_t* bases, const uint32_t* order, const uint##c##_t* columns,             \
            const float* values, const double* x, double* y, double alpha, double beta,           \
            uint64_t x_row, uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {               \
        blocks<double, float, uint##c##_t, b, vectors, parts, packed, batch>(                     \
            nrows, ncols, narrow, wide, bases, order, columns, values, x, y, alpha, beta, x_row,  \
            x_vector, y_row, y_vector);                                                           \
    }
BLOCKS_SEVERAL(KERNEL)
