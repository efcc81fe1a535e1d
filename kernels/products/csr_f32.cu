// y = alpha A x + beta y with A in compressed sparse rows, values stored in f32, and vectors and sums in
// f64 (src/format/csr/csr_f32.rs): `tpr` neighbouring lanes share a row.
//
// Launch and arguments are those of csr.cu; `values` are f32.
#include "csr_rows.cuh"

#define KERNEL(name, Offset, tpr)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const float* values, \
             const double* x, double* y, double alpha, double beta) {                             \
        sum_rows<tpr>(nrows, row_ptr, y, alpha, beta, [&](Offset k, Offset end) {                 \
            return lane_sum<tpr, double, Offset>(k, end, col_idx, values, x);                     \
        });                                                                                       \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(csr_f32_t##tpr##_f64, uint32_t, tpr)                                                   \
    KERNEL(csr_f32_wide_t##tpr##_f64, uint64_t, tpr)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
BOTH(32)
