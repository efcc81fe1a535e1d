// Conversion of a CSR matrix with values in f32 to diagonals with values in f16 or bf16
// (src/format/dia/hdia_narrow.rs), where the check of convert_half.cu has found that the type holds them.
//
// Launch: as fill_diagonals in convert_diagonals.cu.
#include "halves.cuh"
#include "fill_diagonals.cuh"

#define FILL(depth, width, Offset, type, Value)                                                   \
    extern "C" __global__ void __launch_bounds__(128) fill_diagonals##depth##_##width##_##type(   \
        uint32_t nrows, uint32_t hack, uint32_t hacks, const Offset* row_ptr,                     \
        const uint32_t* col_idx, const float* from, const uint32_t* narrow,                       \
        const uint64_t* wide, const int32_t* offsets, Value* values) {                            \
        fill_diagonals<depth, float, Value, Offset>(nrows, hack, hacks, row_ptr, col_idx, from,   \
                                                    narrow, wide, offsets, values);               \
    }
#define DEPTHS(width, Offset, type, Value)                                                        \
    FILL(8, width, Offset, type, Value)                                                           \
    FILL(16, width, Offset, type, Value)                                                          \
    FILL(32, width, Offset, type, Value)
#define TYPE(type, Value)                                                                         \
    DEPTHS(narrow, uint32_t, type, Value)                                                         \
    DEPTHS(wide, uint64_t, type, Value)
TYPE(f16, F16)
TYPE(bf16, BF16)
