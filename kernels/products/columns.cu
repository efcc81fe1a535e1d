// y = alpha A x + beta y for the layouts stored column by column over all rows: ell, ellr, ellg,
// pellr, jad and pjds. `tpr` lanes share a row (ellg), as in hll.cu.
//
// Entry k of stored row i is at starts[k] + i, where starts[k] is k * pitch or an element of a
// list. A row ends at its length (`lengths`, one for `rows_each` rows), at the first column with no
// more rows than its index (jad), or at the column 2^32 - 1. `order` is perm, or null.
//
// Launch: blocks of 256 threads over nrows * tpr threads, rounded up to 32 rows; no shared memory.
#include "common.cuh"

template <class T, int tpr>
__device__ __forceinline__ void columns(uint32_t nrows, uint32_t width, uint64_t pitch,
                                        const uint32_t* __restrict__ narrow,
                                        const uint64_t* __restrict__ wide,
                                        const uint32_t* __restrict__ lengths, uint32_t rows_each,
                                        const uint32_t* __restrict__ order,
                                        const uint32_t* __restrict__ col_idx,
                                        const T* __restrict__ values, const T* __restrict__ x,
                                        T* y, T alpha, T beta) {
    await_previous();
    constexpr uint32_t rows = 32 / tpr, padding = 0xffffffffu;
    const uint32_t lane = threadIdx.x % 32, run = lane / rows;
    const uint64_t warp = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const uint64_t i = warp * rows + lane % rows;
    T sum = 0;
    if (i < nrows) {
        const uint32_t length = lengths ? min(lengths[i / rows_each], width) : width;
        constexpr int batch = 4;
        bool ended = false;
        for (uint32_t k = run; !ended && k < length; k += batch * tpr) {
            uint64_t at[batch];
            bool inside[batch];
            const auto find = [&](auto start) {
#pragma unroll
                for (int b = 0; b < batch; b++) {
                    const uint32_t entry = k + b * tpr;
                    at[b] = start(min(entry, width)) + i;
                    inside[b] = entry < length && at[b] < start(min(entry + 1, width));
                }
            };
            if (narrow) find([&](uint32_t entry) -> uint64_t { return narrow[entry]; });
            else if (wide) find([&](uint32_t entry) -> uint64_t { return wide[entry]; });
            else find([&](uint32_t entry) -> uint64_t { return entry * pitch; });
            uint32_t column[batch];
            T value[batch];
#pragma unroll
            for (int b = 0; b < batch; b++) {
                column[b] = inside[b] ? stream(col_idx + at[b]) : padding;
                value[b] = inside[b] ? stream(values + at[b]) : T(0);
            }
            all_under_way();
#pragma unroll
            for (int b = 0; b < batch; b++) {
                if (column[b] != padding) sum += value[b] * gather(x + column[b]);
                else ended = true;
            }
        }
    }
#pragma unroll
    for (int distance = rows; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (run == 0 && i < nrows) store(y + (order ? order[i] : i), alpha, sum, beta);
}

#define KERNEL(name, T, tpr)                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, uint32_t width, uint64_t pitch, const uint32_t* narrow,              \
             const uint64_t* wide, const uint32_t* lengths, uint32_t rows_each,                   \
             const uint32_t* order, const uint32_t* col_idx, const T* values, const T* x, T* y,   \
             T alpha, T beta) {                                                                   \
        columns<T, tpr>(nrows, width, pitch, narrow, wide, lengths, rows_each, order, col_idx,    \
                        values, x, y, alpha, beta);                                               \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(columns_t##tpr##_f64, double, tpr)                                                     \
    KERNEL(columns_t##tpr##_f32, float, tpr)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
