// y = alpha A x + beta y with A in compressed sparse rows, in blocks of rows (CSR-Adaptive; see
// src/format/csr/row_blocks.rs).
//
// Launch: one block of 256 threads per block of rows; CSR_ADAPTIVE_ENTRIES products in static shared
// memory. The threads write the products of a block of several rows to shared memory, in the order
// of entries, then sum them row by row (CSR-Stream, tiles.cuh). All threads sum the only row of
// another block (CSR-Vector), or one of the pieces of a longer row (CSR-VectorL).
//
// The pieces of a row are neighbours in the list of blocks, in the order of their entries. The
// thread block that ends last adds up their sums in this order, so the result does not depend on
// which block that is. It also resets the row's counter for the next product.
#include "csr_rows.cuh"
#include "tiles.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr uint32_t ENTRIES = CSR_ADAPTIVE_ENTRIES, PIECE = CSR_ADAPTIVE_PIECE;

template <class T, class Offset> struct Matrix {
    const Offset* row_ptr;
    const uint32_t* col_idx;
    const T* values;
    const T* x;
};

// Sum over all threads, in the first warp. `parts` are in shared memory.
template <class T> __device__ __forceinline__ T block_sum(T sum, T* parts) {
    sum = group_sum<32>(sum);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    return group_sum<WARPS>(parts[threadIdx.x % WARPS]);
}

// Sums `rows` rows, with at most ENTRIES entries together, from row `first` on.
template <class T, class Offset>
__device__ __forceinline__ void several_rows(const Matrix<T, Offset> a, uint32_t first,
                                             uint32_t rows, T* v, T* y, T alpha, T beta) {
    constexpr int each = ENTRIES / THREADS;
    const Offset* __restrict__ row_ptr = a.row_ptr;
    const Offset start = row_ptr[first];
    const uint32_t n = uint32_t(row_ptr[uint64_t(first) + rows] - start), t = threadIdx.x;
    const auto bounds = [=](uint32_t row, uint32_t& from, uint32_t& to) {
        from = uint32_t(row_ptr[uint64_t(first) + row] - start);
        to = uint32_t(row_ptr[uint64_t(first) + row + 1] - start);
    };
    Items<THREADS, decltype(bounds)> items(bounds, 0, rows, lanes_shift<THREADS>(rows));
    uint32_t column[each];
    T factor[each], value[each];
#pragma unroll
    for (int k = 0; k < each; k++)
        column[k] = t + k * THREADS < n ? stream(a.col_idx + start + (t + k * THREADS)) : 0;
#pragma unroll
    for (int k = 0; k < each; k++)
        factor[k] = t + k * THREADS < n ? gather(a.x + column[k]) : T(0);
#pragma unroll
    for (int k = 0; k < each; k++)
        value[k] = t + k * THREADS < n ? stream(a.values + start + (t + k * THREADS)) : T(0);
    items.find();
#pragma unroll
    for (int k = 0; k < each; k++) v[t + k * THREADS] = value[k] * factor[k];
    __syncthreads();
    items.sum(v, [&](uint32_t row, T sum) { store(y + first + row, alpha, sum, beta); });
}

// Sums a row, or a piece of it if it has more than PIECE entries. `first` is the position in the
// list of the row's first piece, `sums` has a place for the sum of each piece, and `ended` counts,
// at the position of a row's first piece, the pieces of the row that have ended.
template <class T, class Offset>
__device__ __forceinline__ void one_row(const Matrix<T, Offset> a, uint32_t row, uint32_t first,
                                        T* sums, uint32_t* ended, T* v, T* y, T alpha, T beta) {
    __shared__ bool is_last;
    const Offset start = a.row_ptr[row], length = a.row_ptr[row + uint64_t(1)] - start;
    const uint32_t pieces = length > PIECE ? uint32_t((length - 1) / PIECE) + 1 : 1;
    const Offset from = pieces > 1 ? Offset(blockIdx.x - first) * PIECE : 0;
    const Offset to = from + min(length - from, Offset(PIECE));
    T sum = lane_sum<THREADS, T, Offset>(start + from + threadIdx.x, start + to, a.col_idx,
                                         a.values, a.x);
    sum = block_sum(sum, v);
    if (pieces > 1) {
        if (threadIdx.x == 0) {
            sums[blockIdx.x] = sum;
            __threadfence();
            is_last = atomicAdd(ended + first, 1) == pieces - 1;
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        sum = 0;
        for (uint32_t k = threadIdx.x; k < pieces; k += THREADS) sum += __ldcg(sums + first + k);
        sum = block_sum(sum, v);
        if (threadIdx.x == 0) ended[first] = 0;
    }
    if (threadIdx.x == 0) store(y + row, alpha, sum, beta);
}

// A block of rows is its first row, and for a piece the position of the row's first piece.
template <class T, class Offset>
__device__ __forceinline__ void row_block(uint32_t nrows, const uint2* __restrict__ blocks, T* sums,
                                          uint32_t* ended, const Matrix<T, Offset> a, T* y, T alpha,
                                          T beta) {
    __shared__ T v[ENTRIES];
    const uint2 block = blocks[blockIdx.x];
    const uint32_t end = blockIdx.x + 1 < gridDim.x ? blocks[blockIdx.x + 1].x : nrows;
    await_previous();
    if (end - block.x > 1) several_rows(a, block.x, end - block.x, v, y, alpha, beta);
    else one_row(a, block.x, block.y, sums, ended, v, y, alpha, beta);
}

#define KERNEL(name, T, Offset)                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const uint2* blocks, T* sums, uint32_t* ended, const Offset* row_ptr, \
             const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta) {       \
        const Matrix<T, Offset> matrix{row_ptr, col_idx, values, x};                              \
        row_block<T, Offset>(nrows, blocks, sums, ended, matrix, y, alpha, beta);                 \
    }
KERNEL(csr_adaptive_f64, double, uint32_t)
KERNEL(csr_adaptive_f32, float, uint32_t)
KERNEL(csr_adaptive_wide_f64, double, uint64_t)
KERNEL(csr_adaptive_wide_f32, float, uint64_t)
