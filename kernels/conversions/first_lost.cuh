// The search for the first row with a value that a layout cannot store (convert_narrow.cu,
// convert_half.cu).
#pragma once
#include "fill.cuh"

// Entries of a thread at a time, which are `blockDim.x` apart.
constexpr int EACH_CHECKED = 8;

// Finds the first row with a value for which held(value) is false: *row = min(*row, it), and *below =
// max(*below, 2^32 - 1 - it). Either may be null.
template <class T, class Offset, class Held>
__device__ __forceinline__ void first_lost(uint32_t nrows, uint64_t nnz,
                                           const Offset* __restrict__ row_ptr,
                                           const T* __restrict__ from, uint32_t* row,
                                           uint32_t* below, const Held& held) {
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x * EACH_CHECKED;
    uint64_t bad = nnz;
    uint64_t k = uint64_t(blockIdx.x) * blockDim.x * EACH_CHECKED + threadIdx.x;
    for (; k < nnz && bad == nnz; k += stride) {
        T value[EACH_CHECKED];
#pragma unroll
        for (int i = 0; i < EACH_CHECKED; i++) {
            const uint64_t at = k + i * uint64_t(blockDim.x);
            value[i] = at < nnz ? from[at] : T(0);
        }
#pragma unroll
        for (int i = EACH_CHECKED - 1; i >= 0; i--)
            if (!held(value[i])) bad = k + i * uint64_t(blockDim.x);
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
