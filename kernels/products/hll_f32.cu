// y = alpha A x + beta y with A in HLL, values stored in f32, and vectors and sums in f64
// (src/format/sliced/hll_f32.rs): the kernels of hll.cu for hacks of 32 rows.
//
// Launch and arguments are those of hll.cu; `values` are f32.
#include "hacks.cuh"

#define KERNEL(name, Column, tpr, batch, blocks, order_of_loads)                                  \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const float* values, const double* x,  \
             double* y, double alpha, double beta) {                                              \
        hacks<double, float, Column, 32, tpr, batch, Order::order_of_loads>(                      \
            nrows, narrow, wide, base, order, columns, values, x,                                 \
            [&](uint64_t row, double sum) { store(y + row, alpha, sum, beta); });                 \
    }
// As in hll.cu: `_resident` for launches whose blocks are all resident at once.
#define FORMS(name, Column, tpr, batch, blocks, order_of_loads)                                   \
    KERNEL(name, Column, tpr, batch, blocks, order_of_loads)                                      \
    KERNEL(name##_resident, Column, tpr, 8, 4, fenced)
#define COLUMNS(c, Column)                                                                        \
    FORMS(hll_f32_32_c##c##_t1_f64, Column, 1, 8, 6, mixed)                                       \
    FORMS(hll_f32_32_c##c##_t2_f64, Column, 2, 3, 6, ahead)                                       \
    FORMS(hll_f32_32_c##c##_t4_f64, Column, 4, 3, 6, ahead)
COLUMNS(32, uint32_t)
COLUMNS(16, uint16_t)
