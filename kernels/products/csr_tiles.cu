// Adds the rest of split rows to y: with A in CSR and read in tiles, the kernels of pcsr.cu write to
// heads[t] what tile t summed of a row that began in an earlier tile. Unlike pcsr_heads, the tiles of a
// row are always added up in the same order, so that equal vectors give equal bits.
//
// Launch: a warp per tile, in blocks of 256 threads; no shared memory. The warp of the first of the
// tiles that continue a row adds up all of them.
#include "common.cuh"

template <class T, class Offset>
__device__ __forceinline__ void add_rows(uint32_t tiles, const Offset* __restrict__ row_ptr,
                                         const uint32_t* __restrict__ tile_rows,
                                         const Offset* __restrict__ tile_ptr,
                                         const T* __restrict__ heads, T* y, T alpha) {
    const uint32_t t = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (t >= tiles) return;
    // The row that the tile continues is the one before the first that begins in it.
    const uint32_t next = tile_rows[t];
    const Offset end = row_ptr[next];
    if (tile_ptr[t] >= end) return;
    if (t > 0 && tile_rows[t - 1] == next && tile_ptr[t - 1] < end) return;
    await_previous();
    T sum = 0;
    for (uint32_t k = t + lane; k < tiles && tile_rows[k] == next && tile_ptr[k] < end; k += 32)
        sum += __ldcg(heads + k);
    sum = group_sum<32>(sum);
    if (lane == 0) y[next - 1] += alpha * sum;
}

#define KERNEL(name, T, Offset)                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t tiles, const Offset* row_ptr, const uint32_t* tile_rows,                    \
             const Offset* tile_ptr, const T* heads, T* y, T alpha) {                             \
        add_rows<T, Offset>(tiles, row_ptr, tile_rows, tile_ptr, heads, y, alpha);                \
    }
KERNEL(csr_tiles_heads_f64, double, uint32_t)
KERNEL(csr_tiles_heads_f32, float, uint32_t)
KERNEL(csr_tiles_wide_heads_f64, double, uint64_t)
KERNEL(csr_tiles_wide_heads_f32, float, uint64_t)
