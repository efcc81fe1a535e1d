// Y = alpha A X + beta Y with A in dense b x b blocks (bhll.cu) for several vectors: the matrix is read
// once for all of them.
//
// Launch: blocks of 128 threads over the block rows, in whole hacks of 32, times `parts`; no shared
// memory. Other arguments are those of bhll.cu.
#include "block_hacks_several.cuh"

#define KERNEL(name, T, Column, b, vectors, parts, packed, batch, least)                           \
    extern "C" __global__ void __launch_bounds__(128, least)                                      \
        name(uint32_t nrows, uint32_t ncols, const uint32_t* narrow, const uint64_t* wide,        \
             const uint32_t* bases, const uint32_t* order, const Column* columns,                 \
             const T* values, const T* x, T* y, T alpha, T beta, uint64_t x_row,                  \
             uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {                              \
        blocks<T, T, Column, b, vectors, parts, packed, batch>(                                   \
            nrows, ncols, narrow, wide, bases, order, columns, values, x, y, alpha, beta, x_row,  \
            x_vector, y_row, y_vector);                                                           \
    }
#define F64(c, b, name, ...)                                                                      \
    KERNEL(bhll_b##b##_c##c##_##name##_f64, double, uint##c##_t, b, __VA_ARGS__)
#define F32(c, b, name, ...)                                                                      \
    KERNEL(bhll_b##b##_c##c##_##name##_f32, float, uint##c##_t, b, __VA_ARGS__)
BLOCKS_SEVERAL(F64)
BLOCKS_SEVERAL(F32)
