// y = alpha A x + beta y with A in dense b x b blocks, values stored in f32, and vectors and sums in f64
// (src/format/sliced/bhll_f32.rs): the kernels of bhll.cu.
//
// Launch and arguments are those of bhll.cu; `values` are f32.
#include "block_hacks.cuh"

#define KERNEL(name, Column, b, batch, least)                                                     \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const float* values, const double* x, double* y, double alpha, double beta) {        \
        blocks<double, float, Column, b, batch>(                                                  \
            nrows, ncols, narrow, wide, bases, order, columns, values, x,                         \
            [&](uint64_t row, double sum) { store(y + row, alpha, sum, beta); });                 \
    }
// Slots per batch and the minimum number of resident blocks per processor.
#define BOTH(b, batch, least)                                                                     \
    KERNEL(bhll_f32_b##b##_c32_f64, uint32_t, b, batch, least)                                    \
    KERNEL(bhll_f32_b##b##_c16_f64, uint16_t, b, batch, least)
BOTH(2, 4, 4)
BOTH(3, 3, 6)
BOTH(4, 4, 4)
BOTH(5, 3, 4)
BOTH(6, 3, 4)
