// y = alpha A x + beta y with A in constant pieces of diagonals, as cdia.cu, dot products of y, and
// w = w + gamma y.
//
// Launch: that of cdia.cu. Arguments are those of cdia.cu, then z, what is wanted, the places for
// partial sums, w and gamma (dots.cuh).
#include "dots.cuh"
#include "pieces.cuh"

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,                        \
             const int32_t* offsets, const T* values, const uint32_t* rows, const T* x, T* y,     \
             T alpha, T beta, const T* z, uint32_t wanted, double* parts, T* w, T gamma) {        \
        Dots<T> dots(x, y, alpha, beta, z, wanted, w, gamma);                                     \
        pieces<T, InTurn<T>>(nrows, narrow, wide, offsets, values, rows, x,                       \
                             [&](uint64_t row, T sum) { dots.put(row, sum); });                   \
        dots.template finish<threads>(parts);                                                     \
    }
KERNEL(cdia_dot_f64, double)
KERNEL(cdia_dot_f32, float)
