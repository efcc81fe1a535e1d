// Y = alpha A X + beta Y with A in compressed sparse rows for several vectors: the matrix is read once
// for all of them. `lanes` neighbouring lanes share a row's entries, each in `parts` parts.
//
// Launch: blocks of 256 threads, ceil(nrows * lanes * parts / 256) of them; no shared memory. Other
// arguments are those of csr.cu.
#include "several.cuh"

template <class T, class Offset, int lanes, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta, uint64_t x_row, uint64_t x_vector,
                                     uint64_t y_row, uint64_t y_vector) {
    await_previous();
    constexpr int width = vectors / parts, share = lanes * parts;
    const uint64_t row = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / share;
    const int part = threadIdx.x % parts, lane = threadIdx.x % share / parts;
    x += part * width * x_vector;
    T sums[width] = {};
    if (row < nrows)
        add_entries<lanes, packed, width, batch>(row_ptr[row] + lane, row_ptr[row + 1], col_idx,
                                                 values, x, x_row, x_vector, sums);
    group_sums<parts, share, width>(sums);
    if (row < nrows && lane == 0) {
        y += row * y_row + part * width * y_vector;
        store_row<width>(y, y_vector, alpha, sums, beta);
    }
}

#define KERNEL(name, T, Offset, lanes, vectors, parts, packed, batch, blocks)                     \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta, uint64_t x_row, uint64_t x_vector,                \
             uint64_t y_row, uint64_t y_vector) {                                                 \
        rows<T, Offset, lanes, vectors, parts, packed, batch>(nrows, row_ptr, col_idx, values, x, \
                                                              y, alpha, beta, x_row, x_vector,    \
                                                              y_row, y_vector);                   \
    }
#define F64(Offset, lanes, name, ...) KERNEL(name##_f64, double, Offset, lanes, __VA_ARGS__)
#define F32(Offset, lanes, name, ...) KERNEL(name##_f32, float, Offset, lanes, __VA_ARGS__)
#define FEW_F64(...) F64(uint32_t, CSR_FEW_LANES, __VA_ARGS__)
#define FEW_F32(...) F32(uint32_t, CSR_FEW_LANES, __VA_ARGS__)
#define MOST_F64(...) F64(uint32_t, CSR_MOST_LANES, __VA_ARGS__)
#define MOST_F32(...) F32(uint32_t, CSR_MOST_LANES, __VA_ARGS__)
#define WIDE_FEW_F64(...) F64(uint64_t, CSR_FEW_LANES, __VA_ARGS__)
#define WIDE_FEW_F32(...) F32(uint64_t, CSR_FEW_LANES, __VA_ARGS__)
#define WIDE_MOST_F64(...) F64(uint64_t, CSR_MOST_LANES, __VA_ARGS__)
#define WIDE_MOST_F32(...) F32(uint64_t, CSR_MOST_LANES, __VA_ARGS__)
SEVERAL(FEW_F64, csr_few, CSR_PARTS)
SEVERAL(FEW_F32, csr_few, CSR_PARTS)
SEVERAL(MOST_F64, csr_most, CSR_PARTS)
SEVERAL(MOST_F32, csr_most, CSR_PARTS)
SEVERAL(WIDE_FEW_F64, csr_wide_few, CSR_PARTS)
SEVERAL(WIDE_FEW_F32, csr_wide_few, CSR_PARTS)
SEVERAL(WIDE_MOST_F64, csr_wide_most, CSR_PARTS)
SEVERAL(WIDE_MOST_F32, csr_wide_most, CSR_PARTS)
