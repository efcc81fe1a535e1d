// Y = alpha A X + beta Y with A in compressed sparse rows, some of them long, for several packed vectors:
// each of neighbouring lanes multiplies a row with one of them, and the groups of lanes of a warp share
// a piece of a long row. Rows and pieces are those of csr_long.cu.
//
// Launch: blocks of 256 threads, of which the first ceil(pieces / 8) process a piece per warp; at least
// ceil(nrows * vectors / 256) others process the rows, without the long ones. No shared memory. Other
// arguments are those of csr_long_several.cu.
#include "spread.cuh"

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t warps = 8;  // per block

template <class T, int vectors>
__device__ __forceinline__ void
piece(uint32_t pieces, uint32_t piece_log, const uint2* list, T* sums, uint32_t* ended,
      const uint32_t* __restrict__ row_ptr, const uint32_t* __restrict__ col_idx,
      const T* __restrict__ values, const T* __restrict__ x, T* y, T alpha, T beta, uint64_t x_row,
      uint64_t y_row) {
    const uint32_t p = blockIdx.x * warps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p >= pieces) return;
    const uint32_t row = list[p].x, first = list[p].y;
    const uint32_t row_end = row_ptr[row + 1], row_start = row_ptr[row];
    const uint32_t start = row_start + ((p - first) << piece_log);
    const uint32_t of_row = ((row_end - row_start - 1) >> piece_log) + 1;
    const uint32_t end = start + min(row_end - start, 1u << piece_log);
    await_previous();
    T sum = spread_sum<vectors, 32>(start + lane / vectors * vectors, end,
                                                           col_idx, values, x, x_row);
    group_sums<vectors, 32, 1>(&sum);
    if (of_row > 1) {
        T* const own = sums + lane % vectors;
        if (lane < vectors) {
            own[uint64_t(p) * vectors] = sum;
            __threadfence();
        }
        __syncwarp();
        bool is_last = false;
        if (lane == 0) is_last = atomicAdd(ended + first, 1) == of_row - 1;
        if (!__shfl_sync(full, is_last, 0)) return;
        __threadfence();
        sum = 0;
        for (uint32_t k = lane / vectors; k < of_row; k += 32 / vectors)
            sum += __ldcg(own + uint64_t(first + k) * vectors);
        group_sums<vectors, 32, 1>(&sum);
        if (lane == 0) ended[first] = 0;
    }
    if (lane < vectors) store(y + row * y_row, alpha, sum, beta);
}

template <class T, int vectors>
__device__ __forceinline__ void
rows_and_pieces(uint32_t nrows, uint32_t longest, uint32_t pieces, uint32_t piece_log,
                const uint2* list, T* sums, uint32_t* ended, const uint32_t* __restrict__ row_ptr,
                const uint32_t* __restrict__ col_idx, const T* __restrict__ values,
                const T* __restrict__ x, T* y, T alpha, T beta, uint64_t x_row, uint64_t x_vector,
                uint64_t y_row, uint64_t y_vector) {
    const uint32_t blocks = (pieces + warps - 1) / warps;
    x += threadIdx.x % vectors * x_vector;
    y += threadIdx.x % vectors * y_vector;
    if (blockIdx.x < blocks) {
        piece<T, vectors>(pieces, piece_log, list, sums, ended, row_ptr, col_idx, values, x, y, alpha,
                          beta, x_row, y_row);
        return;
    }
    const uint64_t row = (uint64_t(blockIdx.x - blocks) * blockDim.x + threadIdx.x) / vectors;
    if (row >= nrows) return;
    const uint32_t start = row_ptr[row], end = row_ptr[row + 1];
    if (end - start > longest) return;
    await_previous();
    const T sum = spread_sum<vectors, vectors>(start, end, col_idx, values, x,
                                                                      x_row);
    store(y + row * y_row, alpha, sum, beta);
}

#define KERNEL(name, T, vectors)                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, uint32_t longest, uint32_t pieces, uint32_t piece_log,               \
             const uint2* list, T* sums, uint32_t* ended, const uint32_t* row_ptr,                \
             const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta,         \
             uint64_t x_row, uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {              \
        rows_and_pieces<T, vectors>(nrows, longest, pieces, piece_log, list, sums, ended, row_ptr, \
                                    col_idx, values, x, y, alpha, beta, x_row, x_vector, y_row,   \
                                    y_vector);                                                    \
    }
KERNEL(csr_long_v4_spread_f64, double, 4)
KERNEL(csr_long_v8_spread_f64, double, 8)
KERNEL(csr_long_v4_spread_f32, float, 4)
KERNEL(csr_long_v8_spread_f32, float, 8)
