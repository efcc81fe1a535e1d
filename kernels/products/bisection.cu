// y = alpha A x + beta y with A in BiELL or BiJAD: a warp processes 32 stored rows, in six groups
// of 32, 16, 8, 4, 2 and 1 rows with 1 to 32 lanes each (see src/format/sliced/bisection.rs).
//
// It processes the groups from the last to the first; after each, lanes that shared a row add up
// their sums. Launch: blocks of 256 threads over the rows, rounded up to 32; no shared memory.
// `order` is perm. The column 2^32 - 1 marks padding.
#include "common.cuh"

template <class T>
__device__ __forceinline__ void groups(uint32_t nrows, const uint32_t* __restrict__ narrow,
                                       const uint64_t* __restrict__ wide,
                                       const uint32_t* __restrict__ order,
                                       const uint32_t* __restrict__ col_idx,
                                       const T* __restrict__ values, const T* __restrict__ x, T* y,
                                       T alpha, T beta) {
    await_previous();
    constexpr uint32_t padding = 0xffffffffu;
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t warp = i / 32;
    const uint32_t lane = i % 32;
    if (warp * 32 >= nrows) return;
    T sum = 0;
    for (int g = 5; g >= 0; g--) {
        const uint64_t at = warp * 6 + g;
        const uint64_t end = narrow ? narrow[at + 1] : wide[at + 1];
#pragma unroll 4
        for (uint64_t k = (narrow ? narrow[at] : wide[at]) + lane; k < end; k += 32) {
            const uint32_t column = stream(col_idx + k);
            const T value = stream(values + k);
            if (column != padding) sum += value * gather(x + column);
        }
        const uint32_t bit = 32 >> g;
        if (bit < 32) {
            const T other = __shfl_xor_sync(0xffffffffu, sum, bit);
            sum = lane & bit ? T(0) : sum + other;
        }
    }
    if (i < nrows) store(y + (order ? order[i] : i), alpha, sum, beta);
}

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t*,       \
             const uint32_t* order, const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta) {       \
        groups<T>(nrows, narrow, wide, order, col_idx, values, x, y, alpha, beta);                \
    }
KERNEL(bisection_f64, double)
KERNEL(bisection_f32, float)
