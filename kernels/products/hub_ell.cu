// y = alpha A x + beta y with x of the hubs, the columns with the most entries, in shared memory
// (see src/format/cached/hub_ell/mod.rs).
//
// hub_ell_gather: gathers the x of all hubs, and scales y of the rows that have several pieces or
// none. hub_ell: every block copies the gathered x to its shared memory; its warps process slices
// of 32 pieces of rows in turn, one lane per piece.
//
// Launch: hub_ell_gather in blocks of 256 threads over hubs and scaled rows; hub_ell in one block
// of 1024 threads per processor, with dynamic shared memory for all hubs.
#include "common.cuh"

constexpr uint32_t split = HUB_ELL_SPLIT;

template <class T>
__device__ __forceinline__ void gather_hubs(uint32_t hubs, const uint32_t* columns, const T* x,
                                            T* cached, uint32_t splits, const uint32_t* rows, T* y,
                                            T beta) {
    await_previous();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < hubs) cached[i] = gather(x + columns[i]);
    if (i < splits) y[rows[i]] = beta == T(0) ? T(0) : beta * y[rows[i]];
}

// The sum of a lane's entries, which are 32 slots apart: `far` entries with x in global memory,
// `near` entries with x in shared memory. Loads of both are in flight together.
template <int batch, class T>
__device__ __forceinline__ T sum_lane(uint32_t far, const uint32_t* far_columns, const T* far_values,
                                      const T* __restrict__ x, uint32_t near,
                                      const uint16_t* near_columns, const T* near_values,
                                      const T* cached) {
    T sum = 0;
    for (uint32_t k = 0; k < far || k < near; k += batch) {
        uint32_t far_column[batch];
        uint16_t near_column[batch];
        T far_value[batch], near_value[batch], factor[batch];
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < far) far_column[b] = stream(far_columns + 32 * b);
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < near) near_column[b] = stream(near_columns + 32 * b);
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < far) far_value[b] = stream(far_values + 32 * b);
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < near) near_value[b] = stream(near_values + 32 * b);
        all_under_way();
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < far) factor[b] = gather(x + far_column[b]);
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < near) sum += near_value[b] * cached[near_column[b]];
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (k + b < far) sum += far_value[b] * factor[b];
        far_columns += 32 * batch;
        far_values += 32 * batch;
        near_columns += 32 * batch;
        near_values += 32 * batch;
    }
    return sum;
}

template <class T>
__device__ __forceinline__ void rows(uint32_t hubs, uint32_t pieces, const T* __restrict__ cached,
                                     const uint32_t* near_narrow, const uint64_t* near_wide,
                                     const uint32_t* far_narrow, const uint64_t* far_wide,
                                     const uint16_t* __restrict__ near_lengths,
                                     const uint16_t* __restrict__ far_lengths,
                                     const uint32_t* __restrict__ piece_rows,
                                     const uint16_t* near_columns, const T* near_values,
                                     const uint32_t* far_columns, const T* far_values,
                                     const T* __restrict__ x, T* y, T alpha, T beta) {
    extern __shared__ uint4 shared[];
    __shared__ uint32_t turns;
    await_previous();
    if (threadIdx.x == 0) turns = 0;
    const uint32_t words = (hubs * sizeof(T) + 15) / 16;
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x)
        shared[i] = __ldcg(reinterpret_cast<const uint4*>(cached) + i);
    __syncthreads();
    const T* near = reinterpret_cast<const T*>(shared);
    const uint32_t lane = threadIdx.x % 32, slices = (pieces + 31) / 32;
    // The block processes every gridDim.x-th slice; a warp that is done takes the next of these.
    while (true) {
        uint32_t turn = 0;
        if (lane == 0) turn = atomicAdd(&turns, 1u);
        const uint32_t s = blockIdx.x + gridDim.x * __shfl_sync(0xffffffffu, turn, 0);
        if (s >= slices) break;
        const uint32_t i = s * 32 + lane;
        if (i >= pieces) continue;
        const uint64_t far_at = (far_narrow ? far_narrow[s] : far_wide[s]) + lane;
        const uint64_t near_at = (near_narrow ? near_narrow[s] : near_wide[s]) + lane;
        const uint32_t row = stream(piece_rows + i);
        const T sum = sum_lane<4>(stream(far_lengths + i), far_columns + far_at, far_values + far_at,
                                  x, stream(near_lengths + i), near_columns + near_at,
                                  near_values + near_at, near);
        if (row & split) atomicAdd(y + (row & ~split), alpha * sum);
        else store(y + row, alpha, sum, beta);
    }
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        hub_ell_gather_##name(uint32_t hubs, const uint32_t* columns, const T* x, T* cached,      \
                              uint32_t splits, const uint32_t* rows, T* y, T beta) {              \
        gather_hubs<T>(hubs, columns, x, cached, splits, rows, y, beta);                          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(1024)                                            \
        hub_ell_##name(uint32_t hubs, uint32_t pieces, const T* cached,                           \
                       const uint32_t* near_narrow, const uint64_t* near_wide,                    \
                       const uint32_t* far_narrow, const uint64_t* far_wide,                      \
                       const uint16_t* near_lengths, const uint16_t* far_lengths,                 \
                       const uint32_t* piece_rows, const uint16_t* near_columns,                  \
                       const T* near_values, const uint32_t* far_columns, const T* far_values,    \
                       const T* x, T* y, T alpha, T beta) {                                       \
        rows<T>(hubs, pieces, cached, near_narrow, near_wide, far_narrow, far_wide, near_lengths, \
                far_lengths, piece_rows, near_columns, near_values, far_columns, far_values, x,   \
                y, alpha, beta);                                                                  \
    }
KERNELS(double, f64)
KERNELS(float, f32)
