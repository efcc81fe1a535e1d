// Values of a matrix of f64 that layouts store in f32 (src/format/narrow/gpu.rs): the check that f32
// holds them, and their conversion to the slots of layouts.
//
// Launch: blocks of 256 threads, fill in blocks of 128 (fill.cuh). Row pointers are 32-bit
// (`*_narrow`) or 64-bit (`*_wide`).
#include "fill.cuh"
#include "first_lost.cuh"
#include "tile_values.cuh"

// True if f32 holds a value: exactly, or with `rounded`, with an error of at most 2^-24 of it. Numbers
// below the smallest normal f32 or above the largest are not held; 0, infinities and NaN are.
__device__ __forceinline__ bool held(double value, bool rounded) {
    const float near = float(value);
    const double size = fabs(value);
    if (!(size > 0.0) || isinf(size)) return true;
    if (size < 1.1754943508222875e-38 || isinf(near)) return false;
    return rounded || double(near) == value;
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
        first_lost<double, Offset>(nrows, nnz, row_ptr, from, row, below,                         \
                                   [=](double value) { return held(value, rounded); });           \
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
