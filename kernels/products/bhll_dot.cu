// y = alpha A x + beta y with A in dense blocks, as bhll.cu, dot products of y, and w = w + gamma y.
//
// Launch: that of bhll.cu. Arguments are those of bhll.cu, then z, what is wanted, the places for
// partial sums, w and gamma (dots.cuh).
#include "block_hacks.cuh"
#include "dots.cuh"

#define KERNEL(name, T, Column, b, batch, least)                                                  \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const T* values, const T* x, T* y, T alpha, T beta, const T* z, uint32_t wanted,     \
             double* parts, T* w, T gamma) {                                                      \
        Dots<T> dots(x, y, alpha, beta, z, wanted, w, gamma);                                     \
        blocks<T, T, Column, b, batch>(                                                           \
            nrows, ncols, narrow, wide, bases, order, columns, values, x,                         \
            [&](uint64_t row, T sum) { dots.put(row, sum); });                                    \
        dots.template finish<128>(parts);                                                         \
    }
// Slots per batch and blocks per processor, as in bhll.cu.
#define BOTH(b, batch64, batch, least)                                                            \
    KERNEL(bhll_dot_b##b##_c32_f64, double, uint32_t, b, batch64, 1)                              \
    KERNEL(bhll_dot_b##b##_c16_f64, double, uint16_t, b, batch64, 1)                              \
    KERNEL(bhll_dot_b##b##_c32_f32, float, uint32_t, b, batch, least)                             \
    KERNEL(bhll_dot_b##b##_c16_f32, float, uint16_t, b, batch, least)
BOTH(2, 3, 2, 10)
BOTH(3, 1, 3, 8)
BOTH(4, 1, 1, 1)
BOTH(5, 1, 1, 1)
BOTH(6, 1, 1, 1)
