// y = alpha A x + beta y with A in CSR, read evenly in tiles (see src/format/pcsr.rs).
//
// A block of threads takes a tile: it puts the products of the tile's entries into shared memory,
// reading them in order, then sums them row by row, as many lanes to a row as there are to spare.
// A row that began in an earlier tile is summed into heads[tile], which pcsr_heads adds to y after.
// With kernel=two, pcsr_products forms the middle array v and pcsr_two reads it.
//
// Launch: tile / 8 threads a block, one block a tile; 8 products a thread in static shared memory.
#include "common.cuh"

template <class T> struct Fused {
    const uint32_t* col_idx;
    const T* values;
    const T* x;
    template <int threads> __device__ __forceinline__ void load(uint64_t start, uint32_t n, T* v) const {
        constexpr int each = 8;
        const uint32_t t = threadIdx.x;
        uint32_t column[each];
        T value[each];
#pragma unroll
        for (int k = 0; k < each; k++) {
            const uint32_t at = t + k * threads;
            column[k] = at < n ? stream(col_idx + start + at) : 0;
            value[k] = at < n ? stream(values + start + at) : T(0);
        }
        T factor[each];
#pragma unroll
        for (int k = 0; k < each; k++) factor[k] = t + k * threads < n ? gather(x + column[k]) : T(0);
#pragma unroll
        for (int k = 0; k < each; k++) v[t + k * threads] = value[k] * factor[k];
    }
};

template <class T> struct Middle {
    const T* middle;
    template <int threads> __device__ __forceinline__ void load(uint64_t start, uint32_t n, T* v) const {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint32_t at = threadIdx.x + k * threads;
            if (at < n) v[at] = stream(middle + start + at);
        }
    }
};

template <class T, class Offset, int threads, class Products>
__device__ __forceinline__ void tile(const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ tile_rows,
                                     const Offset* __restrict__ tile_ptr, const Products products,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    __shared__ T v[threads * 8];
    const uint32_t t = blockIdx.x;
    const uint64_t start = tile_ptr[t];
    const uint32_t n = uint32_t(tile_ptr[t + 1] - start);
    const uint32_t first = tile_rows[t], rows = tile_rows[t + 1] - first;
    products.template load<threads>(start, n, v);
    // Item 0 is the rest of the row before, item r + 1 the r-th row that begins here.
    const uint32_t head = uint32_t(min(uint64_t(row_ptr[first]) - start, uint64_t(n)));
    const uint32_t skip = head == 0 ? 1 : 0, items = rows + 1;
    uint32_t lanes = 1;
    while (lanes < 32 && (items - skip) * lanes * 2 <= threads) lanes *= 2;
    const uint32_t lane = threadIdx.x % lanes, step = threads / lanes;
    __syncthreads();
    for (uint32_t base = skip; base < items; base += step) {
        const uint32_t item = base + threadIdx.x / lanes;
        T sum = 0;
        if (item < items) {
            const uint32_t from = item == 0 ? 0 : uint32_t(row_ptr[first + item - 1] - start);
            const uint32_t to = item == 0 ? head : uint32_t(min(uint64_t(row_ptr[first + item]) - start, uint64_t(n)));
            for (uint32_t k = from + lane; k < to; k += lanes) sum += v[k];
        }
        for (uint32_t distance = lanes / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (item < items && lane == 0) {
            if (item == 0) heads[t] = sum;
            else store(y + first + item - 1, alpha, sum, beta);
        }
    }
}

template <class T, class Offset>
__device__ __forceinline__ void add_heads(uint32_t tiles, const Offset* __restrict__ row_ptr,
                                          const uint32_t* __restrict__ tile_rows,
                                          const Offset* __restrict__ tile_ptr,
                                          const T* __restrict__ heads, T* y, T alpha) {
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < tiles && tile_ptr[t] < row_ptr[tile_rows[t]])
        atomicAdd(y + tile_rows[t] - 1, alpha * heads[t]);
}

#define KERNELS(T, name, Offset, width)                                                           \
    TILES(T, name, Offset, width, 128)                                                            \
    TILES(T, name, Offset, width, 256)                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        pcsr_##width##heads_##name(uint32_t tiles, const Offset* row_ptr,                         \
                                   const uint32_t* tile_rows, const Offset* tile_ptr,             \
                                   const T* heads, T* y, T alpha) {                               \
        add_heads<T, Offset>(tiles, row_ptr, tile_rows, tile_ptr, heads, y, alpha);               \
    }
#define TILES(T, name, Offset, width, threads)                                                    \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        pcsr_##width##fused##threads##_##name(                                                    \
            const Offset* row_ptr, const uint32_t* tile_rows, const Offset* tile_ptr,             \
            const uint32_t* col_idx, const T* values, const T* x, T* heads, T* y, T alpha,        \
            T beta) {                                                                             \
        tile<T, Offset, threads>(row_ptr, tile_rows, tile_ptr, Fused<T>{col_idx, values, x},      \
                                 heads, y, alpha, beta);                                          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        pcsr_##width##two##threads##_##name(const Offset* row_ptr, const uint32_t* tile_rows,     \
                                            const Offset* tile_ptr, const T* middle, T* heads,    \
                                            T* y, T alpha, T beta) {                              \
        tile<T, Offset, threads>(row_ptr, tile_rows, tile_ptr, Middle<T>{middle}, heads, y,       \
                                 alpha, beta);                                                    \
    }
#define PRODUCTS(T, name)                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        pcsr_products_##name(uint64_t nnz, const uint32_t* __restrict__ col_idx,                  \
                             const T* __restrict__ values, const T* __restrict__ x, T* middle) {  \
        const uint64_t first = uint64_t(blockIdx.x) * 1024 + threadIdx.x;                         \
        _Pragma("unroll") for (int k = 0; k < 4; k++) {                                           \
            const uint64_t at = first + k * 256;                                                  \
            if (at < nnz) middle[at] = stream(values + at) * gather(x + stream(col_idx + at));    \
        }                                                                                         \
    }
KERNELS(double, f64, uint32_t, )
KERNELS(float, f32, uint32_t, )
KERNELS(double, f64, uint64_t, wide_)
KERNELS(float, f32, uint64_t, wide_)
PRODUCTS(double, f64)
PRODUCTS(float, f32)
