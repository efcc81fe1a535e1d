// y = alpha A x + beta y with A in HLL: hacks of `hack` rows, each a separate ELLPACK matrix.
//
// `tpr` lanes share a row. A warp processes 32 / tpr rows: lanes 0 .. 32/tpr - 1 process their
// entries 0, tpr, 2 tpr, ..., the next 32/tpr lanes the entries 1, tpr + 1, ... So every load of a
// warp covers `tpr` runs of consecutive slots. Lanes of the first run hold the results.
//
// Launch: blocks of 256 threads over ceil(nrows / hack) * hack * tpr threads; no shared memory.
// Columns are 32-bit, or 16-bit counted from `base` of the hack; the largest column marks padding,
// which is read but not multiplied. `order` is rIdx, or null where rows are in the matrix's order.
#include "hacks.cuh"

#define KERNEL(name, T, Column, hack, tpr, batch, blocks, order_of_loads)                         \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        hacks<T, T, Column, hack, tpr, batch, Order::order_of_loads>(                             \
            nrows, narrow, wide, base, order, columns, values, x,                                 \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
// Kernels for many rows: `batch` entries at a time, `blocks` blocks per processor. `_resident`: as
// many entries at a time as registers allow, for launches whose blocks are all resident on the GPU
// at once. `_deep`: for hacks with more than 8 entries per row on average.
#define FORMS(name, T, Column, hack, tpr, batch, blocks, order_of_loads, most, most_blocks)       \
    KERNEL(name, T, Column, hack, tpr, batch, blocks, order_of_loads)                             \
    KERNEL(name##_resident, T, Column, hack, tpr, most, most_blocks, fenced)
#define ALONE(hack, c, Column, batch)                                                             \
    FORMS(hll_##hack##_c##c##_t1_f64, double, Column, hack, 1, 8, 8, mixed, 8, 4)                 \
    FORMS(hll_##hack##_c##c##_t1_f32, float, Column, hack, 1, batch, 8, fenced, 12, 5)            \
    FORMS(hll_##hack##_c##c##_t1_deep_f64, double, Column, hack, 1, 6, 5, ahead, 8, 4)            \
    FORMS(hll_##hack##_c##c##_t1_deep_f32, float, Column, hack, 1, 6, 6, ahead, 12, 5)
#define SHARED(hack, c, Column, tpr)                                                              \
    FORMS(hll_##hack##_c##c##_t##tpr##_f64, double, Column, hack, tpr, 3, 6, ahead, 8, 4)         \
    FORMS(hll_##hack##_c##c##_t##tpr##_f32, float, Column, hack, tpr, 3, 8, ahead, 12, 5)
#define COLUMNS(hack, c, Column, batch)                                                           \
    ALONE(hack, c, Column, batch)                                                                 \
    SHARED(hack, c, Column, 2)                                                                    \
    SHARED(hack, c, Column, 4)                                                                    \
    SHARED(hack, c, Column, 8)
#define HACK(hack, batch)                                                                         \
    COLUMNS(hack, 32, uint32_t, batch)                                                            \
    COLUMNS(hack, 16, uint16_t, batch)
HACK(32, 8)
HACK(64, 6)
HACK(128, 6)
HACK(256, 6)
