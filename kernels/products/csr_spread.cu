// Y = alpha A X + beta Y with A in compressed sparse rows for several packed vectors: each of
// neighbouring lanes multiplies a row with one of them.
//
// Launch: blocks of 256 threads, ceil(nrows * vectors / 256) of them; no shared memory. Other arguments
// are those of csr_several.cu.
#include "spread.cuh"

template <class T, class Offset, int vectors>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta, uint64_t x_row, uint64_t x_vector,
                                     uint64_t y_row, uint64_t y_vector) {
    const uint64_t row = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / vectors;
    const uint32_t lane = threadIdx.x % vectors;
    if (row >= nrows) return;
    const Offset start = row_ptr[row], end = row_ptr[row + 1];
    await_previous();
    const T sum = spread_sum<vectors, vectors>(
        start, end, col_idx, values, x + lane * x_vector, x_row);
    store(y + row * y_row + lane * y_vector, alpha, sum, beta);
}

#define KERNEL(name, T, Offset, vectors)                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta, uint64_t x_row, uint64_t x_vector,                \
             uint64_t y_row, uint64_t y_vector) {                                                 \
        rows<T, Offset, vectors>(nrows, row_ptr, col_idx, values, x, y, alpha, beta, x_row,       \
                                 x_vector, y_row, y_vector);                                      \
    }
KERNEL(csr_v4_spread_f64, double, uint32_t, 4)
KERNEL(csr_v8_spread_f64, double, uint32_t, 8)
KERNEL(csr_v4_spread_f32, float, uint32_t, 4)
KERNEL(csr_v8_spread_f32, float, uint32_t, 8)
KERNEL(csr_wide_v4_spread_f64, double, uint64_t, 4)
KERNEL(csr_wide_v8_spread_f64, double, uint64_t, 8)
KERNEL(csr_wide_v4_spread_f32, float, uint64_t, 4)
KERNEL(csr_wide_v8_spread_f32, float, uint64_t, 8)
