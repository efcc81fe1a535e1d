// y = alpha A x + beta y with A in constant pieces of diagonals, as cdia.cu, and dot products of y.
//
// Launch: that of cdia.cu. Arguments are those of cdia.cu, then z, the dot products wanted, and the
// places for partial sums (dots.cuh).
#include "dots.cuh"
#include "pieces.cuh"

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,                        \
             const int32_t* offsets, const T* values, const uint32_t* rows, const T* x, T* y,     \
             T alpha, T beta, const T* z, uint32_t wanted, double* parts) {                       \
        Dots<T> dots(x, y, alpha, beta, z, wanted);                                               \
        pieces<T, InTurn<T>>(nrows, narrow, wide, offsets, values, rows, x,                       \
                             [&](uint64_t row, T sum) { dots.put(row, sum); });                   \
        dots.template finish<threads>(parts);                                                     \
    }
KERNEL(cdia_dot_f64, double)
KERNEL(cdia_dot_f32, float)
