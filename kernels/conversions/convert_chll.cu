// Conversion of a CSR matrix that the GPU holds to CHLL (src/format/sliced/chll/gpu.rs), and the check
// that it consists of blocks [[a, -b], [b, a]]. Row pointers are 32-bit.
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu;

// True for equal numbers, and for two NaN.
template <class T> __device__ __forceinline__ bool same(T a, T b) {
    return a == b || (a != a && b != b);
}

// Finds the first pair of rows that is not made of blocks: *row = min(*row, its first row), and
// *below = max(*below, 2^32 - 1 - it). Either may be null. Without `columns`, the pattern is known to
// be one of blocks.
//
// Launch: blocks of 256 threads, one warp for each pair of rows.
template <class T>
__device__ __forceinline__ void check(uint32_t block_rows, const uint32_t* __restrict__ row_ptr,
                                      const uint32_t* __restrict__ columns,
                                      const T* __restrict__ values, uint32_t* row,
                                      uint32_t* below) {
    const uint64_t i = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (i >= block_rows) return;
    const uint32_t upper = row_ptr[2 * i], lower = row_ptr[2 * i + 1], end = row_ptr[2 * i + 2];
    const uint32_t length = lower - upper;
    bool differs = end - lower != length || length % 2 != 0;
    for (uint32_t k = 2 * (threadIdx.x % 32); k < length && !differs; k += 64) {
        const uint32_t above = upper + k, beneath = lower + k;
        if (columns) {
            const uint32_t first = columns[above];
            differs = first % 2 != 0 || columns[above + 1] != first + 1 ||
                      columns[beneath] != first || columns[beneath + 1] != first + 1;
        }
        differs = differs || !same(values[above], values[beneath + 1]) ||
                  !same(values[beneath], T(0) - values[above + 1]);
    }
    if (!__any_sync(full, differs) || threadIdx.x % 32 != 0) return;
    if (row) atomicMin(row, uint32_t(2 * i));
    if (below) atomicMax(below, full - uint32_t(2 * i));
}

// Fills the slots of a hack of 32 block rows, one lane per block row: columns (where requested), and
// values, with padding after the last block.
//
// Launch: blocks of 128 threads over whole hacks.
template <class T, class Column>
__device__ __forceinline__ void fill_complex(uint32_t block_rows, const uint32_t* narrow,
                                             const uint64_t* wide, const uint32_t* base,
                                             const uint32_t* __restrict__ order,
                                             const uint32_t* __restrict__ row_ptr,
                                             const uint32_t* __restrict__ col_idx,
                                             const T* __restrict__ from, Column* columns,
                                             T* values) {
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, h = at / 32, lane = at % 32;
    if (h * 32 >= block_rows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t low = base ? base[h] : 0;
    uint32_t upper = 0, lower = 0;
    if (at < block_rows) {
        const uint64_t i = order ? order[at] : at;
        upper = row_ptr[2 * i], lower = row_ptr[2 * i + 1];
    }
    const uint32_t blocks = (lower - upper) / 2;
    for (uint64_t slot = start; slot < end; slot++) {
        const uint32_t k = uint32_t(slot - start);
        const bool is = k < blocks;
        const uint64_t place = slot * 32 + lane;
        if (columns)
            columns[place] = is ? Column(col_idx[upper + 2 * k] / 2 - low) : Column(~Column(0));
        values[2 * place] = is ? from[upper + 2 * k] : T(0);
        values[2 * place + 1] = is ? from[lower + 2 * k] : T(0);
    }
}

#define FILL(T, name, Column, bits)                                                               \
    extern "C" __global__ void __launch_bounds__(128) fill_complex_c##bits##_##name(              \
        uint32_t block_rows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
        const uint32_t* order, const uint32_t* row_ptr, const uint32_t* col_idx, const T* from,   \
        Column* columns, T* values) {                                                             \
        fill_complex<T, Column>(block_rows, narrow, wide, base, order, row_ptr, col_idx, from,    \
                                columns, values);                                                 \
    }
#define PRECISION(T, name)                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        check_complex_##name(uint32_t block_rows, const uint32_t* row_ptr, const uint32_t* columns, \
                             const T* values, uint32_t* row, uint32_t* below) {                   \
        check<T>(block_rows, row_ptr, columns, values, row, below);                               \
    }                                                                                             \
    FILL(T, name, uint32_t, 32)                                                                   \
    FILL(T, name, uint16_t, 16)
PRECISION(double, f64)
PRECISION(float, f32)
