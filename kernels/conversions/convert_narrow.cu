// Values of a matrix of f64 that layouts store in f32 (src/format/narrow/gpu.rs): the check that f32
// holds them, and their conversion to the slots of layouts.
//
// Launch: blocks of 256 threads, fill in blocks of 128 (fill.cuh). Row pointers are 32-bit
// (`*_narrow`) or 64-bit (`*_wide`).
#include "fill.cuh"
#include "tile_values.cuh"

// Entries of a thread at a time, which are `blockDim.x` apart.
constexpr int EACH_CHECKED = 8;

// True if f32 holds a value: exactly, or with `rounded`, with an error of at most 2^-24 of it. Numbers
// below the smallest normal f32 or above the largest are not held; 0, infinities and NaN are.
__device__ __forceinline__ bool held(double value, bool rounded) {
    const float near = float(value);
    const double size = fabs(value);
    if (!(size > 0.0) || isinf(size)) return true;
    if (size < 1.1754943508222875e-38 || isinf(near)) return false;
    return rounded || double(near) == value;
}

// Finds the first row with a value that f32 does not hold: *row = min(*row, it), and *below =
// max(*below, 2^32 - 1 - it). Either may be null.
template <class Offset>
__device__ __forceinline__ void check(uint32_t nrows, uint64_t nnz, uint32_t rounded,
                                      const Offset* __restrict__ row_ptr,
                                      const double* __restrict__ from, uint32_t* row,
                                      uint32_t* below) {
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * EACH_CHECKED;
    uint64_t bad = nnz;
    uint64_t k = uint64_t(blockIdx.x) * blockDim.x * EACH_CHECKED + threadIdx.x;
    for (; k < nnz && bad == nnz; k += stride) {
        double value[EACH_CHECKED];
#pragma unroll
        for (int i = 0; i < EACH_CHECKED; i++) {
            const uint64_t at = k + i * uint64_t(blockDim.x);
            value[i] = at < nnz ? from[at] : 0.0;
        }
#pragma unroll
        for (int i = EACH_CHECKED - 1; i >= 0; i--)
            if (!held(value[i], rounded)) bad = k + i * uint64_t(blockDim.x);
    }
    if (bad == nnz) return;
    // The row of the entry: the last one that begins at or before it.
    uint32_t low = 0, high = nrows;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (row_ptr[middle] <= bad) low = middle;
        else high = middle;
    }
    if (row) atomicMin(row, low);
    if (below) atomicMax(below, full - low);
}

// values[k] = from[k] in f32.
extern "C" __global__ void __launch_bounds__(256)
    narrow_values(uint64_t nnz, const double* __restrict__ from, float* values) {
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k < nnz) values[k] = float(__ldcs(from + k));
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256) check_values_##width(                       \
        uint32_t nrows, uint64_t nnz, uint32_t rounded, const Offset* row_ptr,                    \
        const double* from, uint32_t* row, uint32_t* below) {                                     \
        check<Offset>(nrows, nnz, rounded, row_ptr, from, row, below);                            \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) update_tiles_##width##_narrowed(            \
        uint64_t nnz, uint32_t tiles, uint32_t threads, const Offset* tile_ptr, const uint4* low, \
        const double* from, float* values) {                                                      \
        update_tiles<double, float, Offset>(nnz, tiles, threads, tile_ptr, low, from, values);    \
    }                                                                                             \
    COLUMNS(width, Offset, 32, uint32_t)                                                          \
    COLUMNS(width, Offset, 16, uint16_t)
#define COLUMNS(width, Offset, bits, Column)                                                      \
    FILL(8, width, Offset, bits, Column)                                                          \
    FILL(16, width, Offset, bits, Column)                                                         \
    FILL(32, width, Offset, bits, Column)
#define FILL(depth, width, Offset, bits, Column)                                                  \
    extern "C" __global__ void __launch_bounds__(128) fill##depth##_c##bits##_##width##_narrowed( \
        uint32_t cap, uint32_t parts, uint32_t nrows, uint32_t stored, uint32_t columns_each,     \
        uint32_t rows, uint32_t run_log, uint64_t pitch, const uint32_t* narrow,                  \
        const uint64_t* wide, const uint32_t* order, const uint32_t* to, const uint32_t* base,    \
        const Offset* row_ptr, const uint32_t* col_idx, const double* from, Column* columns,      \
        float* values) {                                                                          \
        const Slots slots{rows, run_log, pitch, narrow, wide};                                    \
        fill_part<depth, double, float, Column, Offset>(cap, parts, nrows, stored, columns_each,  \
                                                        slots, order, to, base, row_ptr, col_idx, \
                                                        from, columns, values);                   \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
