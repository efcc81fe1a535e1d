// Y = alpha A X + beta Y with A in compressed sparse rows, some of them long, for several vectors: the
// matrix is read once for all of them. Rows and pieces of long rows are those of csr_long.cu; `lanes`
// neighbouring lanes share the entries of a row that is not long, and those of a warp share a piece,
// each in `parts` parts.
//
// Launch: blocks of 256 threads, of which the first ceil(pieces / 8) process a piece per warp; at least
// ceil(nrows * lanes * parts / 256) others process the rows, without the long ones. No shared memory.
// `sums` has a place for 8 sums of each piece. Other arguments are those of csr_long.cu.
#include "several.cuh"

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t warps = 8;  // per block

// The list of pieces, as in csr_long.cu.
template <class T> struct Pieces {
    uint32_t count, log;
    const uint2* list;
    T* sums;
    uint32_t* ended;
};

// Several vectors X and Y.
template <class T> struct Vectors {
    const T* __restrict__ x;
    T* y;
    uint64_t x_row, x_vector, y_row, y_vector;
};

template <int vectors, int parts, bool packed, int batch, class T>
__device__ __forceinline__ void piece(const Pieces<T> pieces, const uint32_t* __restrict__ row_ptr,
                                      const uint32_t* __restrict__ col_idx,
                                      const T* __restrict__ values, const Vectors<T> of, T alpha,
                                      T beta) {
    constexpr int width = vectors / parts, lanes = 32 / parts;
    const uint32_t p = blockIdx.x * warps + threadIdx.x / 32;
    const int part = threadIdx.x % parts, lane = threadIdx.x % 32 / parts;
    if (p >= pieces.count) return;
    const uint32_t row = pieces.list[p].x, first = pieces.list[p].y;
    const uint32_t row_end = row_ptr[row + 1], row_start = row_ptr[row];
    const uint32_t start = row_start + ((p - first) << pieces.log);
    const uint32_t of_row = ((row_end - row_start - 1) >> pieces.log) + 1;
    const uint32_t end = start + min(row_end - start, 1u << pieces.log);
    await_previous();
    T sums[width] = {};
    add_entries<lanes, packed, width, batch>(start + lane, end, col_idx, values,
                                             of.x + part * width * of.x_vector, of.x_row,
                                             of.x_vector, sums);
    group_sums<parts, 32, width>(sums);
    if (of_row > 1) {
        T* const own = pieces.sums + part * width;
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < width; i++) own[uint64_t(p) * vectors + i] = sums[i];
            __threadfence();
        }
        __syncwarp();
        bool is_last = false;
        if (threadIdx.x % 32 == 0)
            is_last = atomicAdd(pieces.ended + first, 1) == of_row - 1;
        if (!__shfl_sync(full, is_last, 0)) return;
        __threadfence();
#pragma unroll
        for (int i = 0; i < width; i++) sums[i] = 0;
        for (uint32_t k = lane; k < of_row; k += lanes)
#pragma unroll
            for (int i = 0; i < width; i++)
                sums[i] += __ldcg(own + uint64_t(first + k) * vectors + i);
        group_sums<parts, 32, width>(sums);
        if (threadIdx.x % 32 == 0) pieces.ended[first] = 0;
    }
    if (lane == 0)
        store_row<width>(of.y + row * of.y_row + part * width * of.y_vector, of.y_vector, alpha,
                         sums, beta);
}

template <class T, int lanes, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void rows_and_pieces(uint32_t nrows, uint32_t longest,
                                                const Pieces<T> pieces,
                                                const uint32_t* __restrict__ row_ptr,
                                                const uint32_t* __restrict__ col_idx,
                                                const T* __restrict__ values,
                                                const Vectors<T> of, T alpha, T beta) {
    const uint32_t blocks = (pieces.count + warps - 1) / warps;
    if (blockIdx.x < blocks) {
        piece<vectors, parts, packed, batch>(pieces, row_ptr, col_idx, values, of, alpha, beta);
        return;
    }
    constexpr int width = vectors / parts, share = lanes * parts;
    const uint64_t thread = uint64_t(blockIdx.x - blocks) * blockDim.x + threadIdx.x;
    const uint64_t row = thread / share;
    const int part = threadIdx.x % parts, lane = threadIdx.x % share / parts;
    const uint32_t start = row < nrows ? row_ptr[row] : 0, end = row < nrows ? row_ptr[row + 1] : 0;
    const bool is_own = row < nrows && end - start <= longest;
    await_previous();
    T sums[width] = {};
    if (is_own)
        add_entries<lanes, packed, width, batch>(start + lane, end, col_idx, values,
                                                 of.x + part * width * of.x_vector, of.x_row,
                                                 of.x_vector, sums);
    group_sums<parts, share, width>(sums);
    if (is_own && lane == 0)
        store_row<width>(of.y + row * of.y_row + part * width * of.y_vector, of.y_vector, alpha,
                         sums, beta);
}

#define KERNEL(name, T, lanes, vectors, parts, packed, batch, blocks)                             \
    extern "C" __global__ void __launch_bounds__(256, blocks)                                     \
        name(uint32_t nrows, uint32_t longest, uint32_t pieces, uint32_t piece_log,               \
             const uint2* list, T* sums, uint32_t* ended, const uint32_t* row_ptr,                \
             const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta,         \
             uint64_t x_row, uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {              \
        rows_and_pieces<T, lanes, vectors, parts, packed, batch>(                                 \
            nrows, longest, Pieces<T>{pieces, piece_log, list, sums, ended}, row_ptr, col_idx,    \
            values, Vectors<T>{x, y, x_row, x_vector, y_row, y_vector}, alpha, beta);             \
    }
#define FEW_F64(name, ...) KERNEL(name##_f64, double, CSR_FEW_LANES, __VA_ARGS__)
#define FEW_F32(name, ...) KERNEL(name##_f32, float, CSR_FEW_LANES, __VA_ARGS__)
#define MOST_F64(name, ...) KERNEL(name##_f64, double, CSR_MOST_LANES, __VA_ARGS__)
#define MOST_F32(name, ...) KERNEL(name##_f32, float, CSR_MOST_LANES, __VA_ARGS__)
SEVERAL(FEW_F64, csr_long_few, CSR_PARTS)
SEVERAL(FEW_F32, csr_long_few, CSR_PARTS)
SEVERAL(MOST_F64, csr_long_most, CSR_PARTS)
SEVERAL(MOST_F32, csr_long_most, CSR_PARTS)
