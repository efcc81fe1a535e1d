// y = alpha A x + beta y with A stored by diagonals in hacks of `hack` rows, values stored in f32, and
// vectors and sums in f64 (src/format/dia/hdia_f32.rs): the kernels of diagonals.cu.
//
// Launch and arguments are those of diagonals.cu; `values` are f32.
#include "diagonals.cuh"

#define KERNEL(name, batch, least, pairs)                                                         \
    extern "C" __global__ void __launch_bounds__(256, least)                                      \
        name(uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                      \
             const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                \
             const float* values, const double* x, double* y, double alpha, double beta) {        \
        diagonals<double, float, batch, pairs>(                                                   \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x,                         \
            [&](uint64_t row, double sum) { store(y + row, alpha, sum, beta); });                 \
    }
KERNEL(hdia_f32_f64, 4, 6, true)
KERNEL(hdia_f32_f64_resident, 9, 2, true)
