// Y = alpha A X + beta Y with A stored by diagonals (diagonals.cu: dia and hdia) for several vectors: the
// matrix is read once for all of them.
//
// Launch: blocks of 256 threads over nrows * parts threads, up to an even number of rows; no shared
// memory. Other arguments are those of diagonals.cu.
#include "diagonals_several.cuh"

#define KERNEL(name, T, vectors, parts, packed, batch, blocks)                                     \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, uint32_t ncols, uint32_t shift, uint32_t pitch,                      \
             const uint32_t* narrow, const uint64_t* wide, const int32_t* offsets,                \
             const T* values, const T* x, T* y, T alpha, T beta, uint64_t x_row,                  \
             uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {                              \
        diagonals<T, T, vectors, parts, packed, batch>(                                           \
            nrows, ncols, shift, pitch, narrow, wide, offsets, values, x, y, alpha, beta, x_row,  \
            x_vector, y_row, y_vector);                                                           \
    }
#define F64(name, ...) KERNEL(diagonals_##name##_f64, double, __VA_ARGS__)
#define F32(name, ...) KERNEL(diagonals_##name##_f32, float, __VA_ARGS__)
DIAGONALS_SEVERAL(F64, DIAGONAL_PARTS_F64)
DIAGONALS_SEVERAL(F32, DIAGONAL_PARTS_F32)
