// y += alpha A x with A in coordinates, rows rising; y is scaled by beta first.
//
// A warp takes `per_lane` times 32 neighbouring entries. In each step the lanes of one row add up
// what they have (a segmented scan by shuffles), and the last of them adds it to y.
//
// Launch: coo_scale in blocks of 256 threads over nrows; coo_add in blocks of 256 threads, a warp
// for every 32 * 16 entries. No shared memory. Sums come in any order.
#include "common.cuh"

constexpr int per_lane = 16;

template <class T> __device__ __forceinline__ void scale(uint32_t nrows, T* y, T beta) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < nrows) y[i] = beta == T(0) ? T(0) : beta * y[i];
}

template <class T>
__device__ __forceinline__ void add(uint64_t nnz, const uint32_t* __restrict__ row_idx,
                                    const uint32_t* __restrict__ col_idx,
                                    const T* __restrict__ values, const T* __restrict__ x, T* y,
                                    T alpha) {
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t warp = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const uint64_t first = warp * 32 * per_lane;
    if (first >= nnz) return;
#pragma unroll 4
    for (int step = 0; step < per_lane; step++) {
        const uint64_t k = first + step * 32 + lane;
        const bool inside = k < nnz;
        const uint32_t row = inside ? stream(row_idx + k) : 0xffffffffu;
        T sum = inside ? stream(values + k) * gather(x + stream(col_idx + k)) : T(0);
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
            const T before = __shfl_up_sync(0xffffffffu, sum, distance);
            const uint32_t same = __shfl_up_sync(0xffffffffu, row, distance);
            if (lane >= distance && same == row) sum += before;
        }
        const uint32_t next = __shfl_down_sync(0xffffffffu, row, 1);
        if (inside && (lane == 31 || next != row)) atomicAdd(y + row, alpha * sum);
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
