// y = alpha A x + beta y with A in HLL, as hll.cu, for hacks of 32 rows and one thread a row, dot
// products of y, and w = w + gamma y. In f64, only for at most 8 entries per row on average.
//
// Launch: that of hll.cu. Arguments are those of hll.cu, then z, what is wanted, the places for
// partial sums, w and gamma (dots.cuh).
#include "dots.cuh"
#include "hacks.cuh"

#define KERNEL(name, T, Column, tpr, batch, blocks, order_of_loads)                               \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta, const T* z, uint32_t wanted, double* parts, T* w, T gamma) {        \
        Dots<T> dots(x, y, alpha, beta, z, wanted, w, gamma);                                     \
        hacks<T, T, Column, 32, tpr, batch, Order::order_of_loads>(                               \
            nrows, narrow, wide, base, order, columns, values, x,                                 \
            [&](uint64_t row, T sum) { dots.put(row, sum); });                                    \
        dots.template finish<256>(parts);                                                         \
    }
// As in hll.cu: `_deep` for hacks with more than 8 entries per row on average.
#define COLUMNS(c, Column)                                                                        \
    KERNEL(hll_dot_c##c##_t1_f64, double, Column, 1, 8, 6, mixed)                                 \
    KERNEL(hll_dot_c##c##_t1_f32, float, Column, 1, 8, 6, fenced)                                 \
    KERNEL(hll_dot_c##c##_t1_deep_f32, float, Column, 1, 6, 6, ahead)
COLUMNS(32, uint32_t)
COLUMNS(16, uint16_t)
