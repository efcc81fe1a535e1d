// y = alpha A x + beta y with A in compressed sparse rows: `tpr` neighbouring lanes share a row.
//
// Launch: blocks of 256 threads, ceil(nrows * tpr / 256) of them; no shared memory. Lane 0 of a
// group holds the result. Offsets are 32-bit (`csr_*`) or 64-bit (`csr_wide_*`).
#include "csr_rows.cuh"

template <class T, class Offset, int tpr>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    sum_rows<tpr>(nrows, row_ptr, y, alpha, beta, [&](Offset k, Offset end) {
        return lane_sum<tpr, T, Offset>(k, end, col_idx, values, x);
    });
}

#define KERNEL(name, T, Offset, tpr)                                                              \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta) {                                                 \
        rows<T, Offset, tpr>(nrows, row_ptr, col_idx, values, x, y, alpha, beta);                 \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(csr_t##tpr##_f64, double, uint32_t, tpr)                                               \
    KERNEL(csr_t##tpr##_f32, float, uint32_t, tpr)                                                \
    KERNEL(csr_wide_t##tpr##_f64, double, uint64_t, tpr)                                          \
    KERNEL(csr_wide_t##tpr##_f32, float, uint64_t, tpr)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
BOTH(32)
