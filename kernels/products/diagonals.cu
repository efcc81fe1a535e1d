// y = alpha A x + beta y with A stored by diagonals in hacks of `hack` rows: dia and hdia.
//
// Launch: blocks of 256 threads over ceil(nrows / 2) threads; no shared memory. A hack has 2^shift
// rows, a multiple of 2; with a shift of 32 there is one of `pitch` rows.
#include "diagonals.cuh"

#define KERNEL(name, T, batch, least, pairs)                                                      \
    extern "C" __global__ void __launch_bounds__(256, least)                                      \
        name(uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                      \
             const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                \
             const T* values, const T* x, T* y, T alpha, T beta) {                                \
        diagonals<T, T, batch, pairs>(                                                            \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x,                         \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
KERNEL(diagonals_f64, double, 7, 4, false)
KERNEL(diagonals_f64_resident, double, 9, 2, true)
KERNEL(diagonals_f32, float, 4, 8, true)
KERNEL(diagonals_f32_resident, float, 9, 4, true)
