// Conversion of a CSR matrix with values in f64 to dense b x b blocks with values in f32
// (src/format/sliced/bhll_narrow.rs), where the check of convert_narrow.cu has found that f32 holds them.
//
// Launch: as fill_blocks in convert_blocks.cu.
#include "block_rows.cuh"

#define FILL(b, Column, bits)                                                                     \
    extern "C" __global__ void __launch_bounds__(32) fill_blocks_b##b##_c##bits##_narrowed(       \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,       \
        const uint32_t* order, const uint32_t* row_ptr, const uint32_t* col_idx,                  \
        const double* from, Column* columns, float* values) {                                     \
        fill_blocks<double, float, Column, b>(nrows, narrow, wide, base, order, row_ptr, col_idx, \
                                              from, columns, values);                             \
    }
#define BLOCKS(b)                                                                                 \
    FILL(b, uint32_t, 32)                                                                         \
    FILL(b, uint16_t, 16)
BLOCKS(2)
BLOCKS(3)
BLOCKS(4)
BLOCKS(5)
BLOCKS(6)
