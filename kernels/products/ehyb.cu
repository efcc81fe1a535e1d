// y = alpha A x + beta y with A in EHYB (see src/format/cached/ehyb.rs).
//
// ehyb_part: one block per part. It copies the part's piece of x to shared memory, through
// `gathered` where that is not null, then its warps process the part's slices in turn: one lane per
// row, 16-bit columns counted from the piece. ehyb_rest: one lane per row of the ER part, whose
// sums are added to y afterwards.
//
// Launch: ehyb_part in blocks of 1024 threads, one block per part, with dynamic shared memory for
// the longest piece; ehyb_rest in blocks of 256 threads over the rows of the ER part. `scatter` is
// the row of y for each stored row, or null. The largest column marks padding.
#include "common.cuh"

// Reads x from shared or from global memory.
template <bool shared, class T, class Column, int batch>
__device__ __forceinline__ T sum_slice(uint64_t start, uint64_t end, const Column* columns,
                                       const T* values, const T* x) {
    constexpr Column padding = Column(~Column(0));
    const auto factor = [&](Column column) { return shared ? x[column] : gather(x + column); };
    T sum = 0;
    uint64_t k = start + threadIdx.x % 32;
    for (; k + 32 * (batch - 1) < end; k += 32 * batch) {
        Column column[batch];
        T value[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            column[b] = stream(columns + k + 32 * b);
            value[b] = stream(values + k + 32 * b);
        }
        if (!shared) all_under_way();
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (column[b] != padding) sum += value[b] * factor(column[b]);
    }
    for (; k < end; k += 32) {
        const Column column = stream(columns + k);
        const T value = stream(values + k);
        if (column != padding) sum += value * factor(column);
    }
    return sum;
}

template <class T>
__device__ __forceinline__ void part(const uint32_t* __restrict__ bounds,
                                     const uint32_t* __restrict__ first_slices,
                                     const uint32_t* __restrict__ pieces,
                                     const uint32_t* __restrict__ gathered,
                                     const uint32_t* __restrict__ scatter,
                                     const uint32_t* __restrict__ narrow,
                                     const uint64_t* __restrict__ wide,
                                     const uint16_t* __restrict__ columns,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    extern __shared__ double shared[];
    T* near = reinterpret_cast<T*>(shared);
    await_previous();
    const uint32_t p = blockIdx.x;
    const uint32_t piece = pieces[p], length = pieces[p + 1] - piece;
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x)
        near[i] = gather(x + (gathered ? gathered[piece + i] : piece + i));
    __syncthreads();
    const uint32_t first = bounds[p], end = bounds[p + 1], slice = first_slices[p];
    const uint32_t slices = first_slices[p + 1] - slice;
    for (uint32_t s = threadIdx.x / 32; s < slices; s += blockDim.x / 32) {
        const uint64_t from = narrow ? narrow[slice + s] : wide[slice + s];
        const uint64_t to = narrow ? narrow[slice + s + 1] : wide[slice + s + 1];
        const T sum = sum_slice<true, T, uint16_t, 4>(from, to, columns, values, near);
        const uint32_t row = first + s * 32 + threadIdx.x % 32;
        if (row < end) store(y + (scatter ? scatter[row] : row), alpha, sum, beta);
    }
}

template <class T>
__device__ __forceinline__ void rest(uint32_t rows, const uint32_t* __restrict__ far_rows,
                                     const uint32_t* __restrict__ scatter,
                                     const uint32_t* __restrict__ narrow,
                                     const uint64_t* __restrict__ wide,
                                     const uint32_t* __restrict__ columns,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha) {
    await_previous();
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t s = i / 32;
    if (s * 32 >= rows) return;
    const uint64_t from = narrow ? narrow[s] : wide[s], to = narrow ? narrow[s + 1] : wide[s + 1];
    const T sum = sum_slice<false, T, uint32_t, 4>(from, to, columns, values, x);
    if (i >= rows) return;
    const uint32_t row = far_rows[i];
    y[scatter ? scatter[row] : row] += alpha * sum;
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(1024, 2)                                         \
        ehyb_part_##name(const uint32_t* bounds, const uint32_t* first_slices,                    \
                         const uint32_t* pieces, const uint32_t* gathered,                        \
                         const uint32_t* scatter, const uint32_t* narrow, const uint64_t* wide,   \
                         const uint16_t* columns, const T* values, const T* x, T* y, T alpha,     \
                         T beta) {                                                                \
        part<T>(bounds, first_slices, pieces, gathered, scatter, narrow, wide, columns, values,   \
                x, y, alpha, beta);                                                               \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        ehyb_rest_##name(uint32_t rows, const uint32_t* far_rows, const uint32_t* scatter,        \
                         const uint32_t* narrow, const uint64_t* wide, const uint32_t* columns,   \
                         const T* values, const T* x, T* y, T alpha) {                            \
        rest<T>(rows, far_rows, scatter, narrow, wide, columns, values, x, y, alpha);             \
    }
KERNELS(double, f64)
KERNELS(float, f32)
