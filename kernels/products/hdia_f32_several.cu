// Y = alpha A X + beta Y with A stored by diagonals in hacks, values stored in f32, and vectors and sums
// in f64 (hdia_f32.cu), for several vectors: the kernels of diagonals_several.cu.
//
// Launch and arguments are those of diagonals_several.cu; `values` are f32.
#include "diagonals_several.cuh"

#define KERNEL(name, vectors, parts, packed, batch, blocks)                                       \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        hdia_f32_##name##_f64(                                                                    \
            uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                       \
            const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                 \
            const float* values, const double* x, double* y, double alpha, double beta,           \
            uint64_t x_row, uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {               \
        diagonals<double, float, vectors, parts, packed, batch>(                                  \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x, y, alpha, beta, x_row,  \
            x_vector, y_row, y_vector);                                                           \
    }
DIAGONALS_SEVERAL(KERNEL, DIAGONAL_PARTS_F64)
