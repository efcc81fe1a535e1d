// y += alpha A x with A in coordinates sorted by row; y is scaled by beta first.
//
// A warp processes 32 * `per_lane` consecutive entries. In each step the lanes of a row add up
// their products (a segmented scan by shuffles), and the last of these lanes adds the sum to y.
//
// Launch: coo_scale in blocks of 256 threads over nrows; coo_add in blocks of 256 threads, one warp
// per 32 * 16 entries. No shared memory. The order of additions to y is not fixed.
#include "common.cuh"

constexpr int per_lane = COO_EACH;

template <class T> __device__ __forceinline__ void scale(uint32_t nrows, T* y, T beta) {
    await_previous();
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < nrows) y[i] = beta == T(0) ? T(0) : beta * y[i];
}

template <class T>
__device__ __forceinline__ void add(uint64_t nnz, const uint32_t* __restrict__ row_idx,
                                    const uint32_t* __restrict__ col_idx,
                                    const T* __restrict__ values, const T* __restrict__ x, T* y,
                                    T alpha) {
    await_previous();
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warp = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const uint64_t first = warp * 32 * per_lane;
    if (first >= nnz) return;
    constexpr int batch = 4;
    for (uint64_t from = first + lane; from - lane < first + 32 * per_lane; from += 32 * batch) {
        uint32_t row[batch], column[batch];
        T sum[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const bool inside = from + 32 * b < nnz;
            row[b] = inside ? stream(row_idx + from + 32 * b) : 0xffffffffu;
            column[b] = inside ? stream(col_idx + from + 32 * b) : 0;
            sum[b] = inside ? stream(values + from + 32 * b) : T(0);
        }
        all_under_way();
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (from + 32 * b < nnz) sum[b] *= gather(x + column[b]);
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int distance = 1; distance < 32; distance *= 2) {
                const T before = __shfl_up_sync(0xffffffffu, sum[b], distance);
                const uint32_t same = __shfl_up_sync(0xffffffffu, row[b], distance);
                if (lane >= distance && same == row[b]) sum[b] += before;
            }
            const uint32_t next = __shfl_down_sync(0xffffffffu, row[b], 1);
            if (from + 32 * b < nnz && (lane == 31 || next != row[b]))
                atomicAdd(y + row[b], alpha * sum[b]);
        }
    }
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        coo_scale_##name(uint32_t nrows, T* y, T beta) {                                          \
        scale<T>(nrows, y, beta);                                                                 \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        coo_add_##name(uint64_t nnz, const uint32_t* row_idx, const uint32_t* col_idx,            \
                       const T* values, const T* x, T* y, T alpha) {                              \
        add<T>(nnz, row_idx, col_idx, values, x, y, alpha);                                       \
    }
KERNELS(double, f64)
KERNELS(float, f32)
