// Conversion of a CSR matrix with values in f32 to dense b x b blocks with values in f16 or bf16
// (src/format/sliced/bhll_narrow.rs), where the check of convert_half.cu has found that the type holds
// them.
//
// Launch: as fill_blocks in convert_blocks.cu.
#include "halves.cuh"
#include "block_rows.cuh"

#define FILL(b, Column, bits, type, Value)                                                        \
    extern "C" __global__ void __launch_bounds__(32) fill_blocks_b##b##_c##bits##_##type(         \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,       \
        const uint32_t* order, const uint32_t* row_ptr, const uint32_t* col_idx,                  \
        const float* from, Column* columns, Value* values) {                                      \
        fill_blocks<float, Value, Column, b>(nrows, narrow, wide, base, order, row_ptr, col_idx,  \
                                             from, columns, values);                              \
    }
#define BLOCKS(b, type, Value)                                                                    \
    FILL(b, uint32_t, 32, type, Value)                                                            \
    FILL(b, uint16_t, 16, type, Value)
#define TYPE(type, Value)                                                                         \
    BLOCKS(2, type, Value)                                                                        \
    BLOCKS(3, type, Value)                                                                        \
    BLOCKS(4, type, Value)                                                                        \
    BLOCKS(5, type, Value)                                                                        \
    BLOCKS(6, type, Value)
TYPE(f16, F16)
TYPE(bf16, BF16)
