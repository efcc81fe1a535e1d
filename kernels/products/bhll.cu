// y = alpha A x + beta y with A in dense b x b blocks, in hacks of 32 block rows.
//
// Launch: blocks of 128 threads, one warp per hack; no shared memory. Block columns are 32-bit, or
// 16-bit counted from `base` of the hack; the largest column marks padding. `order` is the block
// row of the matrix that each stored block row is, or null.
#include "block_hacks.cuh"

#define KERNEL(name, T, Column, b, batch, least)                                                  \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const T* values, const T* x, T* y, T alpha, T beta) {                                \
        blocks<T, T, Column, b, batch>(                                                           \
            nrows, ncols, narrow, wide, bases, order, columns, values, x,                         \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
// Slots per batch in double and in single precision, and for the latter the minimum number of
// resident blocks per processor.
#define BOTH(b, batch64, batch, least)                                                            \
    KERNEL(bhll_b##b##_c32_f64, double, uint32_t, b, batch64, 1)                                  \
    KERNEL(bhll_b##b##_c16_f64, double, uint16_t, b, batch64, 1)                                  \
    KERNEL(bhll_b##b##_c32_f32, float, uint32_t, b, batch, least)                                 \
    KERNEL(bhll_b##b##_c16_f32, float, uint16_t, b, batch, least)
BOTH(2, 3, 2, 10)
BOTH(3, 1, 3, 8)
BOTH(4, 1, 1, 1)
BOTH(5, 1, 1, 1)
BOTH(6, 1, 1, 1)
