// y = alpha A x + beta y with A in compressed sparse rows: a block of threads reads the entries of its
// rows evenly (common/csr_staged.cuh). No row is long.
//
// Launch: ceil(nrows * lanes / 256) blocks of 256 threads. Offsets are 32-bit (`csr_staged_*`) or
// 64-bit (`csr_staged_wide_*`).
#include "csr_staged.cuh"

#define KERNEL(name, T, Offset, lanes)                                                            \
    extern "C" __global__ void __launch_bounds__(256, (STAGED_BLOCKS<T, Offset, lanes>))          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta) {                                                 \
        staged_rows<lanes, false>(blockIdx.x, nrows, 0, row_ptr, col_idx, values, x, y, alpha,    \
                                  beta);                                                          \
    }
#define BOTH(lanes)                                                                               \
    KERNEL(csr_staged_t##lanes##_f64, double, uint32_t, lanes)                                    \
    KERNEL(csr_staged_t##lanes##_f32, float, uint32_t, lanes)                                     \
    KERNEL(csr_staged_wide_t##lanes##_f64, double, uint64_t, lanes)                               \
    KERNEL(csr_staged_wide_t##lanes##_f32, float, uint64_t, lanes)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
