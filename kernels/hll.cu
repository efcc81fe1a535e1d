// y = alpha A x + beta y with A in HLL: hacks of `hack` rows, each an ELLPACK matrix of its own.
//
// `tpr` lanes share a row: a warp takes 32 / tpr rows, lanes 0 .. 32/tpr - 1 their entries 0, tpr,
// 2 tpr, ..., the next lanes the entries 1, tpr + 1, ... So every load of a warp is `tpr` runs of
// neighbouring slots. Lanes of the first run hold the results.
//
// Launch: blocks of 256 threads over ceil(nrows / hack) * hack * tpr threads; no shared memory.
// Columns are 32-bit, or 16-bit counted from `base` of the hack; the largest column marks padding,
// which is read but not multiplied. `order` is rIdx, or null where rows are in the matrix's order.
#include "common.cuh"

template <class T, class Column, int tpr, int batch>
__device__ __forceinline__ void hacks(uint32_t nrows, uint32_t hack, const uint32_t* narrow,
                                      const uint64_t* wide, const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ columns,
                                      const T* __restrict__ values, const T* __restrict__ x, T* y,
                                      T alpha, T beta) {
    constexpr uint32_t rows = 32 / tpr;
    constexpr Column padding = Column(~Column(0));
    const uint32_t lane = threadIdx.x % 32, run = lane / rows;
    const uint64_t warp = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    const uint32_t per_hack = hack / rows;
    const uint64_t h = warp / per_hack;
    const uint32_t row = uint32_t(warp % per_hack) * rows + lane % rows;
    if (h * hack + row - lane % rows >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint64_t end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t width = uint32_t((end - start) / hack);
    if (base) x += base[h];
    columns += start + uint64_t(run) * hack + row;
    values += start + uint64_t(run) * hack + row;
    const uint64_t step = uint64_t(hack) * tpr;

    T sum = 0, other = 0;
    uint32_t k = run;
    for (; k + (batch - 1) * tpr < width; k += batch * tpr) {
        Column column[batch];
        T value[batch], factor[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            column[b] = stream(columns + b * step);
            value[b] = stream(values + b * step);
        }
#pragma unroll
        for (int b = 0; b < batch; b++)
            factor[b] = column[b] != padding ? gather(x + column[b]) : T(0);
#pragma unroll
        for (int b = 0; b < batch; b += 2) {
            sum += value[b] * factor[b];
            if (b + 1 < batch) other += value[b + 1] * factor[b + 1];
        }
        columns += batch * step;
        values += batch * step;
    }
    for (; k < width; k += tpr) {
        const Column column = stream(columns);
        const T value = stream(values);
        if (column != padding) sum += value * gather(x + column);
        columns += step;
        values += step;
    }
    sum += other;
#pragma unroll
    for (int distance = rows; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const uint64_t stored = h * hack + row;
    if (run == 0 && stored < nrows) store(y + (order ? order[stored] : stored), alpha, sum, beta);
}

#define KERNEL(name, T, Column, tpr, batch)                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, uint32_t hack, const uint32_t* narrow, const uint64_t* wide,         \
             const uint32_t* base, const uint32_t* order, const Column* columns,                  \
             const T* values, const T* x, T* y, T alpha, T beta) {                                \
        hacks<T, Column, tpr, batch>(nrows, hack, narrow, wide, base, order, columns, values, x,  \
                                     y, alpha, beta);                                             \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(hll_c32_t##tpr##_f64, double, uint32_t, tpr, 4)                                        \
    KERNEL(hll_c32_t##tpr##_f32, float, uint32_t, tpr, 4)                                         \
    KERNEL(hll_c16_t##tpr##_f64, double, uint16_t, tpr, 4)                                        \
    KERNEL(hll_c16_t##tpr##_f32, float, uint16_t, tpr, 4)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
