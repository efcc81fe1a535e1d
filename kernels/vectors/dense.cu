// Copies between forms of dense matrices of several vectors.
//
// Launch: blocks of 256 threads over n; no shared memory. Element v of row r is at r * row + v *
// vector of each side, counted in elements.
#include "several.cuh"

// Packs `vectors` vectors of n elements by rows: a product gathers whole rows of them.
template <int vectors, class T>
__device__ __forceinline__ void pack(uint64_t n, const T* x, uint64_t x_row, uint64_t x_vector,
                                     T* packed) {
    await_previous();
    const uint64_t r = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r >= n) return;
    T row[vectors];
    load_row<false, vectors>(x + r * x_row, x_vector, row);
    constexpr int per = sizeof(T) * vectors > 16 ? 16 / sizeof(T) : vectors;
#pragma unroll
    for (int i = 0; i < vectors; i += per) {
        Pack<T, per> pack;
#pragma unroll
        for (int j = 0; j < per; j++) pack.at[j] = row[i + j];
        *reinterpret_cast<Pack<T, per>*>(packed + r * vectors + i) = pack;
    }
}

// Copies n elements that are `from_row` apart to places `to_row` apart.
template <class T>
__device__ __forceinline__ void copy(uint64_t n, const T* from, uint64_t from_row, T* to,
                                     uint64_t to_row) {
    await_previous();
    const uint64_t r = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (r < n) to[r * to_row] = from[r * from_row];
}

#define PACK(T, name, vectors)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        pack_v##vectors##_##name(uint64_t n, const T* x, uint64_t x_row, uint64_t x_vector,       \
                                 T* packed) {                                                     \
        pack<vectors>(n, x, x_row, x_vector, packed);                                             \
    }
#define KERNELS(T, name)                                                                          \
    PACK(T, name, 2)                                                                              \
    PACK(T, name, 4)                                                                              \
    PACK(T, name, 8)                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        copy_##name(uint64_t n, const T* from, uint64_t from_row, T* to, uint64_t to_row) {       \
        copy(n, from, from_row, to, to_row);                                                      \
    }
KERNELS(double, f64)
KERNELS(float, f32)
