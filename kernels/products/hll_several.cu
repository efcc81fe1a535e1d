// Y = alpha A X + beta Y with A in HLL (hll.cu) for several vectors: the matrix is read once for all of
// them. A lane sums its row's products with `width` vectors, so `parts` lanes share a row.
//
// Launch: blocks of 256 threads over ceil(nrows / hack) * hack * parts threads; no shared memory. Other
// arguments are those of hll.cu; `hack` is the number of rows of a hack, a multiple of 32.
#include "several.cuh"

template <class T, class Column, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ columns,
                                      const T* __restrict__ values, const T* __restrict__ x, T* y,
                                      T alpha, T beta, uint32_t hack, uint64_t x_row,
                                      uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {
    await_previous();
    constexpr int width = vectors / parts;
    constexpr uint32_t rows = 32 / parts;
    constexpr Column padding = Column(~Column(0));
    const uint32_t per_hack = hack / rows;
    const uint32_t part = threadIdx.x % parts, lane = threadIdx.x % 32 / parts;
    const uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t h = warp / per_hack, row = warp % per_hack * rows + lane;
    const uint64_t stored = uint64_t(h) * hack + row;
    if (stored >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t slots = uint32_t(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / hack);
    if (base) x += base[h] * x_row;
    x += part * width * x_vector;
    columns += start + row;
    values += start + row;

    T sums[width] = {}, value[batch];
    Column column[batch];
    for (int left = int(slots); left > 0; left -= batch) {
#pragma unroll
        for (int b = 0; b < batch; b++) column[b] = left > b ? stream(columns + b * hack) : padding;
#pragma unroll
        for (int b = 0; b < batch; b++) value[b] = left > b ? stream(values + b * hack) : T(0);
        add_batch<packed, width, batch>(column, value, x, x_row, x_vector, sums,
                                        [&](int b) { return column[b] != padding; });
        columns += batch * hack;
        values += batch * hack;
    }
    y += (order ? order[stored] : stored) * y_row + part * width * y_vector;
    store_row<width>(y, y_vector, alpha, sums, beta);
}

#define KERNEL(name, T, Column, vectors, parts, packed, batch, blocks)                            \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta, uint32_t hack, uint64_t x_row, uint64_t x_vector, uint64_t y_row,   \
             uint64_t y_vector) {                                                                 \
        hacks<T, Column, vectors, parts, packed, batch>(nrows, narrow, wide, base, order,         \
                                                        columns, values, x, y, alpha, beta, hack, \
                                                        x_row, x_vector, y_row, y_vector);        \
    }
#define F64(Column, name, ...) KERNEL(name##_f64, double, Column, __VA_ARGS__)
#define F32(Column, name, ...) KERNEL(name##_f32, float, Column, __VA_ARGS__)
#define C16_F64(...) F64(uint16_t, __VA_ARGS__)
#define C16_F32(...) F32(uint16_t, __VA_ARGS__)
#define C32_F64(...) F64(uint32_t, __VA_ARGS__)
#define C32_F32(...) F32(uint32_t, __VA_ARGS__)
SEVERAL(C16_F64, hll_c16, HLL_PARTS_F64)
SEVERAL(C16_F32, hll_c16, HLL_PARTS_F32)
SEVERAL(C32_F64, hll_c32, HLL_PARTS_F64)
SEVERAL(C32_F32, hll_c32, HLL_PARTS_F32)
