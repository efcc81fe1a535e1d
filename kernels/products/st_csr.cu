// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column (see
// src/format/tiled/st_csr.rs): the tiles of sorted.cuh, with the value of each slot.
#include "sorted_values.cuh"

template <class T>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count && tiles[t].y >> 16 > 0) atomicAdd(y + tiles[t].x - 1, alpha * gather(heads + t));
}

#define TILE(T, name, size, extra)                                                                \
    extern "C" __global__ void __launch_bounds__(size / OWN, RESIDENT<T> / (size / OWN))          \
        st_csr_##size##_##name##_##extra(TILE_ARGS, const T* values, VECTOR_ARGS(T)) {            \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide, Values<T>{values}, x,    \
                             heads, y, alpha, beta);                                              \
    }
#define SIZES(T, name, extra)                                                                     \
    TILE(T, name, 1024, extra)                                                                    \
    TILE(T, name, 2048, extra)                                                                    \
    TILE(T, name, 4096, extra)
#define PRECISION(T, name)                                                                        \
    SIZES(T, name, 4)                                                                             \
    SIZES(T, name, 8)                                                                             \
    SIZES(T, name, 16)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) st_csr_heads_##name(                        \
        uint32_t count, const Header* tiles, const T* heads, T* y, T alpha) {                     \
        add_heads<T>(count, tiles, heads, y, alpha);                                              \
    }
PRECISION(float, f32)
PRECISION(double, f64)
