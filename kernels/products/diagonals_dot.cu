// y = alpha A x + beta y with A stored by diagonals, as diagonals.cu, dot products of y, and
// w = w + gamma y.
//
// Launch: that of diagonals.cu. Arguments are those of diagonals.cu, then z, what is wanted, the places
// for partial sums, w and gamma (dots.cuh).
#include "diagonals.cuh"
#include "dots.cuh"

#define KERNEL(name, T, batch, least, pairs)                                                      \
    extern "C" __global__ void __launch_bounds__(256, least)                                      \
        name(uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                      \
             const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                \
             const T* values, const T* x, T* y, T alpha, T beta, const T* z, uint32_t wanted,     \
             double* parts, T* w, T gamma) {                                                      \
        Dots<T> dots(x, y, alpha, beta, z, wanted, w, gamma);                                     \
        diagonals<T, T, batch, pairs>(                                                            \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x,                         \
            [&](uint64_t row, T sum) { dots.put(row, sum); });                                    \
        dots.template finish<256>(parts);                                                         \
    }
KERNEL(diagonals_dot_f64, double, 7, 4, false)
KERNEL(diagonals_dot_f32, float, 4, 6, true)
