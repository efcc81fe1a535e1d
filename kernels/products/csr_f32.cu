// y = alpha A x + beta y with A in compressed sparse rows, values stored in f32, and vectors and sums in
// f64 (src/format/csr/csr_f32.rs).
//
// Launch and arguments of `csr_f32_*` are those of csr.cu, and of `csr_f32_staged_*` those of
// csr_staged.cu, but for rows of up to CSR_NONE_CUT entries; `values` are f32.
#include "csr_rows.cuh"
#include "csr_staged.cuh"

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

#define STAGED_KERNEL(name, Offset, lanes)                                                        \
    extern "C" __global__ void __launch_bounds__(256, sizeof(Offset) == 4 ? 6 : 5)                \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const float* values, \
             const double* x, double* y, double alpha, double beta) {                             \
        staged_rows<lanes, true>(blockIdx.x, nrows, CSR_NONE_CUT, row_ptr, col_idx, values, x, y, \
                                 alpha, beta);                                                    \
    }
#define BOTH_STAGED(lanes)                                                                        \
    STAGED_KERNEL(csr_f32_staged_t##lanes##_f64, uint32_t, lanes)                                 \
    STAGED_KERNEL(csr_f32_staged_wide_t##lanes##_f64, uint64_t, lanes)
BOTH_STAGED(1)
BOTH_STAGED(2)
BOTH_STAGED(4)
BOTH_STAGED(8)
BOTH_STAGED(16)
