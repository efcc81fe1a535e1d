// Values of a matrix of f32 that layouts store in f16 or bf16 (src/format/narrow/gpu.rs): the check that
// the type holds them, and their conversion to the slots of layouts, as convert_narrow.cu does for f32.
//
// Launch: blocks of 256 threads, fill in blocks of 128 (fill.cuh). Row pointers are 32-bit
// (`*_narrow_*`) or 64-bit (`*_wide_*`).
#include "halves.cuh"
#include "fill.cuh"
#include "first_lost.cuh"
#include "tile_values.cuh"

// The smallest normal number; numbers above the largest become infinite.
template <class Value> constexpr float least = 0.0f;
template <> constexpr float least<F16> = 6.103515625e-5f;
template <> constexpr float least<BF16> = 1.1754943508222875e-38f;

// True if the type holds a value: exactly, or with `rounded`, with an error of at most 2^-11 (f16) or 2^-8
// (bf16) of it. Numbers below the smallest normal number or above the largest are not held; 0, infinities
// and NaN are.
template <class Value> struct Held {
    bool rounded;
    __device__ __forceinline__ bool operator()(float value) const {
        const float near = float(Value(value)), size = fabsf(value);
        if (!(size > 0.0f) || isinf(size)) return true;
        if (size < least<Value> || isinf(near)) return false;
        return rounded || near == value;
    }
};

#define TYPE(type, Value)                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        narrow_values_##type(uint64_t nnz, const float* __restrict__ from, Value* values) {       \
        const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;                       \
        if (k < nnz) values[k] = Value(__ldcs(from + k));                                         \
    }                                                                                             \
    OFFSETS(narrow, uint32_t, type, Value)                                                        \
    OFFSETS(wide, uint64_t, type, Value)
#define OFFSETS(width, Offset, type, Value)                                                       \
    extern "C" __global__ void __launch_bounds__(256) check_values_##width##_##type(              \
        uint32_t nrows, uint64_t nnz, uint32_t rounded, const Offset* row_ptr, const float* from, \
        uint32_t* row, uint32_t* below) {                                                         \
        first_lost<float, Offset>(nrows, nnz, row_ptr, from, row, below,                          \
                                  Held<Value>{rounded != 0});                                     \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) update_tiles_##width##_##type(              \
        uint64_t nnz, uint32_t tiles, uint32_t threads, const Offset* tile_ptr, const uint4* low, \
        const float* from, Value* values) {                                                       \
        update_tiles<float, Value, Offset>(nnz, tiles, threads, tile_ptr, low, from, values);     \
    }                                                                                             \
    COLUMNS(width, Offset, type, Value, 32, uint32_t)                                             \
    COLUMNS(width, Offset, type, Value, 16, uint16_t)
#define COLUMNS(width, Offset, type, Value, bits, Column)                                         \
    FILL(8, width, Offset, type, Value, bits, Column)                                             \
    FILL(16, width, Offset, type, Value, bits, Column)                                            \
    FILL(32, width, Offset, type, Value, bits, Column)
#define FILL(depth, width, Offset, type, Value, bits, Column)                                     \
    extern "C" __global__ void __launch_bounds__(128) fill##depth##_c##bits##_##width##_##type(   \
        uint32_t cap, uint32_t parts, uint32_t nrows, uint32_t stored, uint32_t columns_each,     \
        uint32_t rows, uint32_t run_log, uint64_t pitch, const uint32_t* narrow,                  \
        const uint64_t* wide, const uint32_t* order, const uint32_t* to, const uint32_t* base,    \
        const Offset* row_ptr, const uint32_t* col_idx, const float* from, Column* columns,       \
        Value* values) {                                                                          \
        const Slots slots{rows, run_log, pitch, narrow, wide};                                    \
        fill_part<depth, float, Value, Column, Offset>(cap, parts, nrows, stored, columns_each,   \
                                                       slots, order, to, base, row_ptr, col_idx,  \
                                                       from, columns, values);                    \
    }
TYPE(f16, F16)
TYPE(bf16, BF16)
