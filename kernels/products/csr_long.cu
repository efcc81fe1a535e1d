// y = alpha A x + beta y with A in compressed sparse rows, some of them long: rows of more than CSR_UNCUT
// entries are cut into pieces if `cut`, the number of these pieces, is not 0, and a warp sums each piece;
// a block of threads reads the entries of other rows evenly (common/csr_staged.cuh), `lanes` lanes sum a
// row, and a warp a longer one.
//
// Launch: blocks of 256 threads, of which the first ceil(cut / 8) process a piece per warp, and the
// other ceil(nrows * lanes / 256) the rows. Pieces come first because they take longest. Offsets are
// 32-bit (`csr_long_*`) or 64-bit (`csr_long_wide_*`). `longest` and `pieces` are for products with
// several vectors (csr_long_several.cu), which cut more rows.
//
// The pieces of a row are neighbours in the list of pieces, in the order of their entries. The warp
// that ends last adds up their sums in this order, so the result does not depend on which warp that
// is. It also resets the row's counter for the next product.
#include "csr_rows.cuh"
#include "csr_staged.cuh"

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t warps = 8;  // per block

// The list of pieces: for each one its row, and the position in the list of the row's first piece.
// Rows of more than CSR_UNCUT entries come first, in `count` pieces.
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

template <int lanes, class T, class Offset>
__device__ __forceinline__ void rows_and_pieces(uint32_t nrows, const Pieces<T> pieces,
                                                const Offset* __restrict__ row_ptr,
                                                const uint32_t* __restrict__ col_idx,
                                                const T* __restrict__ values,
                                                const T* __restrict__ x, T* y, T alpha, T beta) {
    const uint32_t blocks = (pieces.count + warps - 1) / warps;
    if (blockIdx.x < blocks)
        piece<T, Offset>(pieces, row_ptr, col_idx, values, x, y, alpha, beta);
    else
        staged_rows<lanes, true>(blockIdx.x - blocks, nrows, pieces.count > 0 ? CSR_UNCUT : ~0u,
                                 row_ptr, col_idx, values, x, y, alpha, beta);
}

// Blocks per processor: as many as registers allow without spills.
template <class T, class Offset>
constexpr int BLOCKS = sizeof(Offset) == 8 ? 5 : 6;

#define KERNEL(name, T, Offset, lanes)                                                            \
    extern "C" __global__ void __launch_bounds__(256, (BLOCKS<T, Offset>))                        \
        name(uint32_t nrows, uint32_t longest, uint32_t pieces, uint32_t cut, uint32_t piece_log, \
             const uint2* list, T* sums, uint32_t* ended, const Offset* row_ptr,                  \
             const uint32_t* col_idx, const T* values, const T* x, T* y, T alpha, T beta) {       \
        rows_and_pieces<lanes, T, Offset>(nrows, Pieces<T>{cut, piece_log, list, sums, ended},    \
                                          row_ptr, col_idx, values, x, y, alpha, beta);           \
    }
#define BOTH(lanes)                                                                               \
    KERNEL(csr_long_t##lanes##_f64, double, uint32_t, lanes)                                      \
    KERNEL(csr_long_t##lanes##_f32, float, uint32_t, lanes)                                       \
    KERNEL(csr_long_wide_t##lanes##_f64, double, uint64_t, lanes)                                 \
    KERNEL(csr_long_wide_t##lanes##_f32, float, uint64_t, lanes)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
