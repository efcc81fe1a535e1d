// y = alpha A x + beta y with A in hacks of 32 rows, columns stored as distances from the first
// column of their slot in 1, 2 or 4 bytes (see src/format/sliced/hll_du/mod.rs).
//
// A warp processes a hack, one lane per row, four slots at a time: their columns are one load of 4,
// 8 or 16 bytes, their values loads of 16 bytes, and the four first columns one load of 16 bytes
// that all lanes share. Columns and first columns are loaded a batch ahead.
//
// Launch: blocks of 256 threads over the rows of all hacks; no shared memory. The slots of hack h
// start at `narrow` or `wide`, its columns at 128 times `units`; the difference to the next hack's
// start gives the bytes per column. The largest number of that width marks padding, which is read
// but not multiplied. `order` is rIdx, or null where rows are in the matrix's order.
#include "common.cuh"
#include "quads.cuh"

// The values in a load of 16 bytes.
template <class T> struct Values;
template <> struct Values<float> { using Load = float4; };
template <> struct Values<double> { using Load = double2; };
__device__ __forceinline__ void take(float* to, const float4& from) {
    to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}
__device__ __forceinline__ void take(double* to, const double2& from) {
    to[0] = from.x, to[1] = from.y;
}

// A lane's sum over `left` runs of four slots, `batch` runs at a time.
template <class Column, int batch, class T>
__device__ __forceinline__ T sum_of_row(int left, const uint4* __restrict__ firsts,
                                        const typename Quad<Column>::Word* __restrict__ columns,
                                        const typename Values<T>::Load* __restrict__ values,
                                        const T* __restrict__ x) {
    constexpr uint32_t padding = Column(~Column(0));
    constexpr int each = 16 / sizeof(T), loads = 4 / each, per_word = 4 / sizeof(Column);
    T sum = 0, value[batch][4], factor[batch][4];
    Quad<Column> column[batch];
    Quad<uint32_t> first[batch];
    const auto load_columns = [&] {
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (left <= b) continue;
            column[b] = stream(columns + 32 * b);
            first[b] = __ldg(firsts + b);
        }
    };
    load_columns();
    while (left > 0) {
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t word = column[b].words[k / per_word];
                const uint32_t at = word >> 8 * sizeof(Column) * (k % per_word) & padding;
                factor[b][k] = left > b && at != padding ? gather(x + (first[b].words[k] + at)) : T(0);
            }
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int i = 0; i < loads; i++) {
                typename Values<T>::Load some = {};
                if (left > b) some = stream(values + 32 * (loads * b + i));
                take(value[b] + each * i, some);
            }
        }
        left -= batch;
        firsts += batch;
        columns += 32 * batch;
        values += 32 * loads * batch;
        load_columns();
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int k = 0; k < 4; k++) sum += value[b][k] * factor[b][k];
        }
    }
    return sum;
}

template <int batch, int batch_of_4, class T>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint4* firsts, const uint32_t* __restrict__ order,
                                      const unsigned char* columns,
                                      const uint32_t* __restrict__ units, const T* all_values,
                                      const T* x, T* y, T alpha, T beta) {
    await_previous();
    const uint32_t stored = blockIdx.x * blockDim.x + threadIdx.x, h = stored / 32, lane = stored % 32;
    if (stored - lane >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t runs = uint32_t(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / 128);
    const uint32_t unit = units[h], bytes = units[h + 1] - unit;  // bytes per column, times runs
    firsts += start / 128;
    columns += uint64_t(unit) * 128;
    const auto* values = reinterpret_cast<const typename Values<T>::Load*>(all_values + start) + lane;
    T sum;
    if (bytes == runs)
        sum = sum_of_row<uint8_t, batch>(
            int(runs), firsts, reinterpret_cast<const uint32_t*>(columns) + lane, values, x);
    else if (bytes == 2 * runs)
        sum = sum_of_row<uint16_t, batch>(
            int(runs), firsts, reinterpret_cast<const uint2*>(columns) + lane, values, x);
    else
        sum = sum_of_row<uint32_t, batch_of_4>(
            int(runs), firsts, reinterpret_cast<const uint4*>(columns) + lane, values, x);
    if (stored < nrows) store(y + (order ? order[stored] : stored), alpha, sum, beta);
}

// `batch` runs at a time, `batch_of_4` for columns of 4 bytes; `blocks` blocks per processor.
#define KERNEL(T, name, batch, batch_of_4, blocks)                                                \
    extern "C" __global__ void __launch_bounds__(256, blocks) hll_du_##name(                      \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint4* firsts,        \
        const uint32_t* order, const unsigned char* columns, const uint32_t* units,               \
        const T* values, const T* x, T* y, T alpha, T beta) {                                     \
        hacks<batch, batch_of_4, T>(nrows, narrow, wide, firsts, order, columns, units, values,   \
                                    x, y, alpha, beta);                                           \
    }
KERNEL(double, f64, 2, 1, 5)
KERNEL(float, f32, 2, 1, 6)
