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

template <class T, class Column, uint32_t hack, int tpr, int batch, bool ordered>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ columns,
                                      const T* __restrict__ values, const T* __restrict__ x, T* y,
                                      T alpha, T beta) {
    await_previous();
    constexpr uint32_t rows = 32 / tpr, per_hack = hack / rows, step = hack * tpr;
    constexpr Column padding = Column(~Column(0));
    const uint32_t lane = threadIdx.x % 32, run = lane / rows;
    const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t h = warp / per_hack, row = warp % per_hack * rows + lane % rows;
    const uint64_t stored = uint64_t(h) * hack + row;
    if (stored - lane % rows >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t width = uint32_t(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / hack);
    if (base) x += base[h];
    columns += start + run * hack + row;
    values += start + run * hack + row;

    T sum = 0;
    for (int left = int(width - run); left > 0; left -= batch * tpr) {
        Column column[batch];
        T value[batch], factor[batch];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const bool inside = left > b * tpr;
            column[b] = inside ? stream(columns + b * step) : padding;
            value[b] = inside ? stream(values + b * step) : T(0);
        }
        if (ordered) all_under_way();
#pragma unroll
        for (int b = 0; b < batch; b++)
            factor[b] = column[b] != padding ? gather(x + column[b]) : T(0);
#pragma unroll
        for (int b = 0; b < batch; b++) sum += value[b] * factor[b];
        columns += batch * step;
        values += batch * step;
    }
#pragma unroll
    for (int distance = rows; distance < 32; distance *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (run == 0 && stored < nrows) store(y + (order ? order[stored] : stored), alpha, sum, beta);
}

#define KERNEL(name, T, Column, hack, tpr, batch, blocks, ordered)                                \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        hacks<T, Column, hack, tpr, batch, ordered>(nrows, narrow, wide, base, order, columns,    \
                                                    values, x, y, alpha, beta);                   \
    }
// For many rows, entries at a time and blocks that a processor holds. `_few`: as many entries at a
// time as registers allow, for products that the GPU holds at once.
#define FORMS(name, T, Column, hack, tpr, batch, blocks, ordered, few, few_blocks)                \
    KERNEL(name, T, Column, hack, tpr, batch, blocks, ordered)                                    \
    KERNEL(name##_few, T, Column, hack, tpr, few, few_blocks, true)
#define ALONE(hack, batch)                                                                        \
    FORMS(hll_##hack##_c32_t1_f64, double, uint32_t, hack, 1, 8, 8, false, 8, 4)                  \
    FORMS(hll_##hack##_c16_t1_f64, double, uint16_t, hack, 1, 8, 8, false, 8, 4)                  \
    FORMS(hll_##hack##_c32_t1_f32, float, uint32_t, hack, 1, batch, 8, true, 12, 5)               \
    FORMS(hll_##hack##_c16_t1_f32, float, uint16_t, hack, 1, batch, 8, true, 12, 5)
#define SHARED(hack, tpr)                                                                         \
    FORMS(hll_##hack##_c32_t##tpr##_f64, double, uint32_t, hack, tpr, 4, 6, true, 8, 4)           \
    FORMS(hll_##hack##_c16_t##tpr##_f64, double, uint16_t, hack, tpr, 4, 6, true, 8, 4)           \
    FORMS(hll_##hack##_c32_t##tpr##_f32, float, uint32_t, hack, tpr, 5, 8, true, 12, 5)           \
    FORMS(hll_##hack##_c16_t##tpr##_f32, float, uint16_t, hack, tpr, 4, 8, true, 12, 5)
#define HACK(hack, batch) ALONE(hack, batch) SHARED(hack, 2) SHARED(hack, 4) SHARED(hack, 8)
HACK(32, 8)
HACK(64, 6)
HACK(128, 6)
HACK(256, 6)
