// y = alpha A x + beta y with A in CSR, read evenly in tiles (see src/format/csr/pcsr.rs).
//
// A block of threads processes a tile: it writes the products of the tile's entries to shared
// memory, in the order of entries, then sums them row by row (tiles.cuh). The part of a row that
// began in an earlier tile is summed into heads[tile], which pcsr_heads adds to y afterwards. With
// kernel=two, pcsr_products computes the middle array v and pcsr_two reads it.
//
// Launch: one block per tile, tile / 8 threads per block; 8 products per thread in static shared
// memory.
#include "tiles.cuh"

// Entries of a tile that a thread processes.
constexpr int EACH = PCSR_EACH;

template <class T> struct Fused {
    const uint32_t* col_idx;
    const T* values;
    const T* x;
    template <int threads, class Meanwhile>
    __device__ __forceinline__ void read(uint64_t start, uint32_t n, T (&v)[EACH],
                                         const Meanwhile& meanwhile) const {
        const uint32_t t = threadIdx.x;
        uint32_t column[EACH];
        T factor[EACH], value[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++)
            column[k] = t + k * threads < n ? stream(col_idx + start + (t + k * threads)) : 0;
#pragma unroll
        for (int k = 0; k < EACH; k++) factor[k] = t + k * threads < n ? gather(x + column[k]) : T(0);
        // Values are loaded after x: if they were loaded earlier, they would delay the columns, for
        // which the loads of x wait, and occupy registers meanwhile.
#pragma unroll
        for (int k = 0; k < EACH; k++)
            value[k] = t + k * threads < n ? stream(values + start + (t + k * threads)) : T(0);
        meanwhile();
#pragma unroll
        for (int k = 0; k < EACH; k++) v[k] = value[k] * factor[k];
    }
};

template <class T> struct Middle {
    const T* middle;
    template <int threads, class Meanwhile>
    __device__ __forceinline__ void read(uint64_t start, uint32_t n, T (&v)[EACH],
                                         const Meanwhile& meanwhile) const {
        meanwhile();
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const uint32_t at = threadIdx.x + k * threads;
            v[k] = at < n ? stream(middle + start + at) : T(0);
        }
    }
};

template <class T, class Offset, int threads, class Products>
__device__ __forceinline__ void tile(const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ tile_rows,
                                     const Offset* __restrict__ tile_ptr, const Products products,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    __shared__ T v[threads * EACH];
    await_previous();
    const uint32_t t = blockIdx.x;
    const Offset start = tile_ptr[t];
    const uint32_t n = uint32_t(tile_ptr[t + 1] - start);
    const uint32_t first = tile_rows[t], rows = tile_rows[t + 1] - first;
    const auto bounds = [=](uint32_t item, uint32_t& from, uint32_t& to) {
        const Offset begin = row_ptr[first + item - 1] - start, end = row_ptr[first + item] - start;
        from = item == 0 ? 0 : uint32_t(begin);
        to = end < n ? uint32_t(end) : n;
    };
    // Few tiles begin within a row: for these the items are determined again.
    const bool begun = row_ptr[first] != start;
    Items<threads, decltype(bounds)> items(bounds, 1, rows + 1, lanes_shift<threads>(rows));
    T product[EACH];
    products.template read<threads>(start, n, product, [&] { items.find(); });
#pragma unroll
    for (int k = 0; k < EACH; k++) v[threadIdx.x + k * threads] = product[k];
    __syncthreads();
    const auto put = [&](uint32_t item, T sum) {
        if (item == 0) heads[t] = sum;
        else store(y + first + item - 1, alpha, sum, beta);
    };
    if (begun) {
        Items<threads, decltype(bounds)> all(bounds, 0, rows + 1, lanes_shift<threads>(rows + 1));
        all.find();
        all.sum(v, put);
    } else {
        items.sum(v, put);
    }
}

template <class T, class Offset>
__device__ __forceinline__ void add_heads(uint32_t tiles, const Offset* __restrict__ row_ptr,
                                          const uint32_t* __restrict__ tile_rows,
                                          const Offset* __restrict__ tile_ptr,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < tiles && tile_ptr[t] < row_ptr[tile_rows[t]])
        atomicAdd(y + tile_rows[t] - 1, alpha * gather(heads + t));
}

template <class T>
__device__ __forceinline__ void form_products(uint64_t nnz, const uint32_t* __restrict__ col_idx,
                                              const T* __restrict__ values,
                                              const T* __restrict__ x, T* middle) {
    constexpr int each = 4, threads = 256;
    await_previous();
    const uint64_t first = uint64_t(blockIdx.x) * (each * threads) + threadIdx.x;
    uint32_t column[each];
    T factor[each], value[each];
#pragma unroll
    for (int k = 0; k < each; k++)
        column[k] = first + k * threads < nnz ? stream(col_idx + first + k * threads) : 0;
#pragma unroll
    for (int k = 0; k < each; k++)
        if (first + k * threads < nnz) factor[k] = gather(x + column[k]);
#pragma unroll
    for (int k = 0; k < each; k++)
        if (first + k * threads < nnz) value[k] = stream(values + first + k * threads);
#pragma unroll
    for (int k = 0; k < each; k++)
        if (first + k * threads < nnz) middle[first + k * threads] = value[k] * factor[k];
}

// Threads per processor: as many as registers allow without spills.
template <class T, class Offset>
constexpr int RESIDENT = sizeof(T) + sizeof(Offset) == 8 ? 2048 : 1536;

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
    extern "C" __global__ void __launch_bounds__(threads, RESIDENT<T, Offset> / threads)          \
        pcsr_##width##fused##threads##_##name(                                                    \
            const Offset* row_ptr, const uint32_t* tile_rows, const Offset* tile_ptr,             \
            const uint32_t* col_idx, const T* values, const T* x, T* heads, T* y, T alpha,        \
            T beta) {                                                                             \
        tile<T, Offset, threads>(row_ptr, tile_rows, tile_ptr, Fused<T>{col_idx, values, x},      \
                                 heads, y, alpha, beta);                                          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(threads, RESIDENT<T, Offset> / threads)          \
        pcsr_##width##two##threads##_##name(const Offset* row_ptr, const uint32_t* tile_rows,     \
                                            const Offset* tile_ptr, const T* middle, T* heads,    \
                                            T* y, T alpha, T beta) {                              \
        tile<T, Offset, threads>(row_ptr, tile_rows, tile_ptr, Middle<T>{middle}, heads, y,       \
                                 alpha, beta);                                                    \
    }
#define PRODUCTS(T, name)                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 8)                                          \
        pcsr_products_##name(uint64_t nnz, const uint32_t* __restrict__ col_idx,                  \
                             const T* __restrict__ values, const T* __restrict__ x, T* middle) {  \
        form_products<T>(nnz, col_idx, values, x, middle);                                        \
    }
KERNELS(double, f64, uint32_t, )
KERNELS(float, f32, uint32_t, )
KERNELS(double, f64, uint64_t, wide_)
KERNELS(float, f32, uint64_t, wide_)
PRODUCTS(double, f64)
PRODUCTS(float, f32)
