// y = alpha A x + beta y with A in compressed sparse rows: a warp or a part of one sums a row
// (CSR-vector), `lanes` neighbouring threads.
//
// Launch: blocks of 256 threads, ceil(nrows * lanes / 256) of them; no shared memory. Lane 0 of a
// group holds the result. Offsets are 32-bit (`csr_vector_*`) or 64-bit (`csr_vector_wide_*`).
#include "csr_rows.cuh"

template <class T, class Offset, int lanes>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    sum_rows<lanes>(nrows, row_ptr, y, alpha, beta, [&](Offset k, Offset end) {
        T sum = 0;
        for (; k < end; k += lanes) sum += stream(values + k) * x[stream(col_idx + k)];
        return sum;
    });
}

#define KERNEL(name, T, Offset, lanes)                                                            \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta) {                                                 \
        rows<T, Offset, lanes>(nrows, row_ptr, col_idx, values, x, y, alpha, beta);               \
    }
#define BOTH(lanes)                                                                               \
    KERNEL(csr_vector_t##lanes##_f64, double, uint32_t, lanes)                                    \
    KERNEL(csr_vector_t##lanes##_f32, float, uint32_t, lanes)                                     \
    KERNEL(csr_vector_wide_t##lanes##_f64, double, uint64_t, lanes)                               \
    KERNEL(csr_vector_wide_t##lanes##_f32, float, uint64_t, lanes)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
BOTH(32)
