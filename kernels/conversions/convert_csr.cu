// Pieces of the long rows of a CSR matrix that the GPU holds (src/format/csr/long_rows.rs), for
// products/csr_long.cu.
//
// Launch: blocks of 256 threads; `long_rows` with any number of blocks, `cut_rows` with a thread per
// row. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "tell.cuh"

constexpr uint32_t full = 0xffffffffu;

// Pieces of 2^log entries, the last one shorter, of a row with more than `longest` entries.
__device__ __forceinline__ uint32_t pieces_of(uint32_t length, uint32_t longest, uint32_t log) {
    return length > longest ? (length - 1 >> log) + 1 : 0;
}

// Finds the length of the longest row, and the number of pieces of all long rows. These and the number of
// blocks that have ended are initially 0; the last block tells the host both.
template <class Offset>
__device__ __forceinline__ void long_rows(uint32_t nrows, uint32_t longest, uint32_t log,
                                          const Offset* __restrict__ row_ptr, uint32_t* most,
                                          uint32_t* pieces, uint32_t* ended, uint32_t* host,
                                          uint32_t mark) {
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    uint32_t own_most = 0, own_pieces = 0;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < nrows; i += stride) {
        const uint32_t length = uint32_t(row_ptr[i + 1] - row_ptr[i]);
        own_most = max(own_most, length);
        own_pieces += pieces_of(length, longest, log);
    }
    own_most = __reduce_max_sync(full, own_most);
    own_pieces = __reduce_add_sync(full, own_pieces);
    if (threadIdx.x % 32 == 0) {
        if (own_most > __ldcg(most)) atomicMax(most, own_most);
        if (own_pieces > 0) atomicAdd(pieces, own_pieces);
        // The block counts as ended only after the findings of its warps are written.
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x > 0 || atomicAdd(ended, 1u) < gridDim.x - 1) return;
    __threadfence();
    tell(host, mark, {__ldcg(most), __ldcg(pieces)});
}

// Lists the pieces: the row of each, and the position of the row's first piece. `taken`, initially
// 0, counts listed pieces. The order of rows in the list differs from run to run.
template <class Offset>
__device__ __forceinline__ void list_pieces(uint32_t nrows, uint32_t longest, uint32_t log,
                                            const Offset* __restrict__ row_ptr, uint32_t* taken,
                                            uint2* list) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t length = i < nrows ? uint32_t(row_ptr[i + 1] - row_ptr[i]) : 0;
    const uint32_t own = pieces_of(length, longest, log);
    // The pieces of this lane and of those before it.
    uint32_t upto = own;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(full, upto, distance);
        if (lane >= distance) upto += before;
    }
    const uint32_t all = __shfl_sync(full, upto, 31);
    if (all == 0) return;
    uint32_t start = 0;
    if (lane == 0) start = atomicAdd(taken, all);
    const uint32_t first = __shfl_sync(full, start, 0) + upto - own;
    if (own == 1) list[first] = make_uint2(uint32_t(i), first);
    // A warp lists a row of several pieces together.
    for (uint32_t left = __ballot_sync(full, own > 1); left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        const uint32_t row = __shfl_sync(full, uint32_t(i), from);
        const uint32_t at = __shfl_sync(full, first, from), count = __shfl_sync(full, own, from);
        for (uint32_t k = lane; k < count; k += 32) list[at + k] = make_uint2(row, at);
    }
}

// Lists the pieces, and clears a counter for each of `count` pieces. The number of blocks that have ended
// is initially 0; the last block tells the host that it may read on.
template <class Offset>
__device__ __forceinline__ void cut_rows(uint32_t nrows, uint32_t longest, uint32_t log,
                                         const Offset* __restrict__ row_ptr, uint32_t* taken,
                                         uint32_t* ended, uint2* list, uint32_t* counters,
                                         uint32_t count, uint32_t* host, uint32_t mark) {
    const uint64_t stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
        counters[i] = 0;
    list_pieces<Offset>(nrows, longest, log, row_ptr, taken, list);
    // The block counts as ended only after what its threads wrote can be read by others.
    __threadfence();
    __syncthreads();
    if (threadIdx.x > 0 || atomicAdd(ended, 1u) < gridDim.x - 1) return;
    __threadfence();
    tell(host, mark, {__ldcg(taken)});
}

#define KERNELS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        long_rows_##width(uint32_t nrows, uint32_t longest, uint32_t log, const Offset* row_ptr,  \
                          uint32_t* most, uint32_t* pieces, uint32_t* ended, uint32_t* host,      \
                          uint32_t mark) {                                                        \
        long_rows<Offset>(nrows, longest, log, row_ptr, most, pieces, ended, host, mark);         \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        cut_rows_##width(uint32_t nrows, uint32_t longest, uint32_t log, const Offset* row_ptr,   \
                         uint32_t* taken, uint32_t* ended, uint2* list, uint32_t* counters,       \
                         uint32_t count, uint32_t* host, uint32_t mark) {                         \
        cut_rows<Offset>(nrows, longest, log, row_ptr, taken, ended, list, counters, count, host, \
                         mark);                                                                   \
    }
KERNELS(narrow, uint32_t)
KERNELS(wide, uint64_t)
