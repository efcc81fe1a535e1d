// Y = alpha A X + beta Y with A in HLL (hll.cu) for several vectors: the matrix is read once for all of
// them.
//
// Launch: blocks of 256 threads over ceil(nrows / hack) * hack * parts threads; no shared memory. Other
// arguments are those of hll.cu; `hack` is the number of rows of a hack, a multiple of 32.
#include "hacks_several.cuh"

#define KERNEL(name, T, Column, vectors, parts, packed, batch, blocks)                            \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta, uint32_t hack, uint64_t x_row, uint64_t x_vector, uint64_t y_row,   \
             uint64_t y_vector) {                                                                 \
        hacks<T, T, Column, vectors, parts, packed, batch>(                                       \
            nrows, narrow, wide, base, order, columns, values, x, y, alpha, beta, hack, x_row,    \
            x_vector, y_row, y_vector);                                                           \
    }
#define F64(Column, name, ...) KERNEL(name##_f64, double, Column, __VA_ARGS__)
#define F32(Column, name, ...) KERNEL(name##_f32, float, Column, __VA_ARGS__)
#define C16_F64(...) F64(uint16_t, __VA_ARGS__)
#define C16_F32(...) F32(uint16_t, __VA_ARGS__)
#define C32_F64(...) F64(uint32_t, __VA_ARGS__)
#define C32_F32(...) F32(uint32_t, __VA_ARGS__)
SEVERAL(C16_F64, hll_c16, HLL_PARTS_F64)
SEVERAL(C16_F32, hll_c16, HLL_PARTS_F32)
SEVERAL(C32_F64, hll_c32, HLL_PARTS_F64)
SEVERAL(C32_F32, hll_c32, HLL_PARTS_F32)
