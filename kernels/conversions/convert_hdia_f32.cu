// Conversion of a CSR matrix with values in f64 to diagonals with values in f32
// (src/format/dia/hdia_narrow.rs), where the check of convert_narrow.cu has found that f32 holds them.
//
// Launch: as fill_diagonals in convert_diagonals.cu.
#include "fill_diagonals.cuh"

#define FILL(depth, width, Offset)                                                                \
    extern "C" __global__ void __launch_bounds__(128) fill_diagonals##depth##_##width##_narrowed( \
        uint32_t nrows, uint32_t hack, uint32_t hacks, const Offset* row_ptr,                     \
        const uint32_t* col_idx, const double* from, const uint32_t* narrow,                      \
        const uint64_t* wide, const int32_t* offsets, float* values) {                            \
        fill_diagonals<depth, double, float, Offset>(nrows, hack, hacks, row_ptr, col_idx, from,  \
                                                     narrow, wide, offsets, values);              \
    }
#define DEPTHS(width, Offset)                                                                     \
    FILL(8, width, Offset)                                                                        \
    FILL(16, width, Offset)                                                                       \
    FILL(32, width, Offset)
DEPTHS(narrow, uint32_t)
DEPTHS(wide, uint64_t)
