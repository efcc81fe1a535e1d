// y = alpha A x + beta y with A in compressed sparse rows: a thread sums a row (CSR-scalar).
//
// Launch: blocks of 256 threads, ceil(nrows / 256) of them; no shared memory. Neighbouring threads
// load from different lines, so columns and values go through the L1 cache, where the next entries
// of each row may still be when its thread needs them. Offsets are 32-bit (`csr_scalar_*`) or 64-bit
// (`csr_scalar_wide_*`).
#include "csr_rows.cuh"

template <class T, class Offset>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    sum_rows<1>(nrows, row_ptr, y, alpha, beta, [&](Offset k, Offset end) {
        T sum = 0;
        for (; k < end; k++) sum += values[k] * x[col_idx[k]];
        return sum;
    });
}

#define KERNEL(name, T, Offset)                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta) {                                                 \
        rows<T, Offset>(nrows, row_ptr, col_idx, values, x, y, alpha, beta);                      \
    }
KERNEL(csr_scalar_f64, double, uint32_t)
KERNEL(csr_scalar_f32, float, uint32_t)
KERNEL(csr_scalar_wide_f64, double, uint64_t)
KERNEL(csr_scalar_wide_f32, float, uint64_t)
