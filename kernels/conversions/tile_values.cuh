// Values of the slots of tiles sorted by column (convert_tiles.cu, convert_narrow.cu).
#pragma once
#include "tile_columns.cuh"
#include "tiles.cuh"

// Position among the values of its warp of number `k` of this lane.
template <class T> __device__ __forceinline__ uint32_t value_at(uint32_t k) {
    constexpr uint32_t piece = 16 / sizeof(T);
    return (k / piece * 32 + threadIdx.x % 32) * piece + k % piece;
}

// The entry of number `k` of a thread, from its place; `packed` holds the thread's places.
template <class T>
__device__ __forceinline__ uint64_t entry_of(uint64_t start, const uint4& packed, uint32_t size,
                                             int k) {
    const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
    return start + placed<T>(pairs[k / 2] >> 16 * (k % 2) & (size - 1));
}

// Stores new values of type T as type Value, given in the order of the CSR matrix: a thread stores
// the values of one thread of a product, of which there are `threads` per tile.
template <class T, class Value, class Offset>
__device__ __forceinline__ void update_tiles(uint64_t nnz, uint32_t tiles, uint32_t threads,
                                             const Offset* __restrict__ tile_ptr,
                                             const uint4* __restrict__ low,
                                             const T* __restrict__ from, Value* values) {
    const uint64_t thread = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, t = thread / threads;
    if (t >= tiles) return;
    const uint64_t start = tile_ptr[t];
    const uint4 packed = low[thread];
    values += thread / 32 * (32 * EACH);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const uint64_t at = entry_of<T>(start, packed, threads * EACH, k);
        values[value_at<Value>(k)] = at < nnz ? Value(from[at]) : Value(0);
    }
}
