// y = alpha A x + beta y with A as a bitmap: `words` words of bits per row, and the values of each
// row one after the other. Also the conversion, which sets the bits.
//
// Launch: blocks of 256 threads, ceil(nrows * lanes / 256) of them for a product, where `lanes` (1 or
// 32) neighbouring lanes share a row, and ceil(nrows / 256) of them for the conversion; no shared
// memory. Offsets are 32-bit (`narrow`) or 64-bit (`wide`).
#include "common.cuh"

template <class T, class Offset, int lanes>
__device__ __forceinline__ void rows(uint32_t nrows, uint32_t words,
                                     const uint32_t* __restrict__ bits,
                                     const Offset* __restrict__ row_ptr,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    await_previous();
    const uint64_t row = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
    const uint32_t lane = threadIdx.x % lanes;
    if (row >= nrows) return;
    T sum = 0;
    Offset k = row_ptr[row];
    for (uint32_t w = 0; w < words; w++) {
        const uint32_t word = stream(bits + row * words + w);
        for (uint32_t bit = lane; bit < 32; bit += lanes) {
            if (word >> bit & 1) {
                const uint32_t before = __popc(word & ((1u << bit) - 1));
                sum += stream(values + k + before) * gather(x + 32 * uint64_t(w) + bit);
            }
        }
        k += __popc(word);
    }
    sum = group_sum<lanes>(sum);
    if (lane == 0) store(y + row, alpha, sum, beta);
}

// A thread sets the bits of a row; `bits` is zero before.
template <class Offset>
__device__ __forceinline__ void fill(uint32_t nrows, uint32_t words,
                                     const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx, uint32_t* bits) {
    const uint64_t row = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= nrows) return;
    for (Offset k = row_ptr[row]; k < row_ptr[row + 1]; k++)
        bits[row * words + col_idx[k] / 32] |= 1u << col_idx[k] % 32;
}

#define PRODUCT(name, T, Offset, lanes)                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, uint32_t words, const uint32_t* bits, const Offset* row_ptr,         \
             const T* values, const T* x, T* y, T alpha, T beta) {                                \
        rows<T, Offset, lanes>(nrows, words, bits, row_ptr, values, x, y, alpha, beta);           \
    }
#define KERNELS(width, Offset)                                                                    \
    PRODUCT(bitmap_t32_##width##_f64, double, Offset, 32)                                         \
    PRODUCT(bitmap_t32_##width##_f32, float, Offset, 32)                                          \
    PRODUCT(bitmap_t1_##width##_f64, double, Offset, 1)                                           \
    PRODUCT(bitmap_t1_##width##_f32, float, Offset, 1)                                            \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        bitmap_fill_##width(uint32_t nrows, uint32_t words, const Offset* row_ptr,                \
                            const uint32_t* col_idx, uint32_t* bits) {                            \
        fill(nrows, words, row_ptr, col_idx, bits);                                               \
    }
KERNELS(narrow, uint32_t)
KERNELS(wide, uint64_t)
