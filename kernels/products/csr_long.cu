// y = alpha A x + beta y with A in compressed sparse rows, some of them long: a long row is cut into
// pieces, and a warp sums each piece. `tpr` neighbouring lanes share a row that is not long, as in
// csr.cu.
//
// Launch: blocks of 256 threads, of which the first ceil(pieces / 8) process a piece per warp, and
// the other ceil(nrows * tpr / 256) the rows, without the long ones. Pieces come first because they
// take longest. No shared memory. Offsets are 32-bit (`csr_long_*`) or 64-bit (`csr_long_wide_*`).
//
// The pieces of a row are neighbours in the list of pieces, in the order of their entries. The warp
// that ends last adds up their sums in this order, so the result does not depend on which warp that
// is. It also resets the row's counter for the next product.
#include "csr_rows.cuh"

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t warps = 8;  // per block

// The list of pieces: for each one its row, and the position in the list of the row's first piece.
// `sums` has a place for the sum of each piece; `ended` counts, at the position of a row's first
// piece, the pieces of the row that have ended.
template <class T> struct Pieces {
    uint32_t count, log;  // their number, and log2 of the entries of a piece
    const uint2* list;
    T* sums;
    uint32_t* ended;
};

template <class T, class Offset>
__device__ __forceinline__ void piece(const Pieces<T> pieces, const Offset* __restrict__ row_ptr,
                                      const uint32_t* __restrict__ col_idx,
                                      const T* __restrict__ values, const T* __restrict__ x, T* y,
                                      T alpha, T beta) {
    const uint32_t p = blockIdx.x * warps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (p >= pieces.count) return;
    const uint32_t row = pieces.list[p].x, first = pieces.list[p].y;
    const Offset row_end = row_ptr[row + uint64_t(1)], row_start = row_ptr[row];
    const Offset start = row_start + (Offset(p - first) << pieces.log);
    const uint32_t of_row = uint32_t((row_end - row_start - 1) >> pieces.log) + 1;
    const Offset end = start + min(row_end - start, Offset(1) << pieces.log);
    await_previous();
    T sum = group_sum<32>(lane_sum<32, T, Offset>(start + lane, end, col_idx, values, x));
    if (of_row > 1) {
        bool is_last = false;
        if (lane == 0) {
            pieces.sums[p] = sum;
            __threadfence();
            is_last = atomicAdd(pieces.ended + first, 1) == of_row - 1;
        }
        if (!__shfl_sync(full, is_last, 0)) return;
        __threadfence();
        sum = 0;
        for (uint32_t k = lane; k < of_row; k += 32) sum += __ldcg(pieces.sums + first + k);
        sum = group_sum<32>(sum);
        if (lane == 0) pieces.ended[first] = 0;
    }
    if (lane == 0) store(y + row, alpha, sum, beta);
}

template <int tpr, class T, class Offset>
__device__ __forceinline__ void rows_and_pieces(uint32_t nrows, uint32_t longest,
                                                const Pieces<T> pieces,
                                                const Offset* __restrict__ row_ptr,
                                                const uint32_t* __restrict__ col_idx,
                                                const T* __restrict__ values,
                                                const T* __restrict__ x, T* y, T alpha, T beta) {
    const uint32_t blocks = (pieces.count + warps - 1) / warps;
    if (blockIdx.x < blocks) {
        piece<T, Offset>(pieces, row_ptr, col_idx, values, x, y, alpha, beta);
        return;
    }
    const uint64_t thread = uint64_t(blockIdx.x - blocks) * blockDim.x + threadIdx.x;
    const uint64_t row = thread / tpr;
    const int lane = threadIdx.x % tpr;
    const Offset start = row < nrows ? row_ptr[row] : 0, end = row < nrows ? row_ptr[row + 1] : 0;
    const bool is_own = row < nrows && end - start <= longest;
    await_previous();
    T sum = 0;
    if (is_own) sum = lane_sum<tpr, T, Offset>(start + lane, end, col_idx, values, x);
    sum = group_sum<tpr>(sum);
    if (is_own && lane == 0) store(y + row, alpha, sum, beta);
}

#define KERNEL(name, T, Offset, tpr)                                                              \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, uint32_t longest, uint32_t pieces, uint32_t piece_log,               \
             const uint2* list, T* sums, uint32_t* ended, const Offset* row_ptr,                  \
             const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta) {       \
        rows_and_pieces<tpr, T, Offset>(nrows, longest,                                           \
                                        Pieces<T>{pieces, piece_log, list, sums, ended}, row_ptr, \
                                        col_idx, values, x, y, alpha, beta);                      \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(csr_long_t##tpr##_f64, double, uint32_t, tpr)                                          \
    KERNEL(csr_long_t##tpr##_f32, float, uint32_t, tpr)                                           \
    KERNEL(csr_long_wide_t##tpr##_f64, double, uint64_t, tpr)                                     \
    KERNEL(csr_long_wide_t##tpr##_f32, float, uint64_t, tpr)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
BOTH(32)
