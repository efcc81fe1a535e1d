// Statistics of the row lengths, and the sectors of x that a few entries need, for a CSR matrix that
// the GPU holds: what a choice reads first (src/features/sampled.rs).
//
// Launch: blocks of 256 threads; the first SAMPLE_SECTOR_BLOCKS sample entries, the others read rows.
// `counts` holds zeros before and after. The last block to end writes the counts to `out`, which is
// page-locked memory of the host: a copy would wait some microseconds for a copy engine.
// Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "sectors.cuh"

constexpr uint32_t sample_warps = SAMPLE_SECTOR_BLOCKS * threads / 32;

// Sectors of x that 32 rows read in a few steps, with one lane per row: `sample_few_sectors` of
// src/analysis/x_sectors.rs.
template <class Offset>
__device__ __forceinline__ void sample_sectors(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                               const uint32_t* __restrict__ col_idx, Sum* counts) {
    const uint32_t at = (blockIdx.x * threads + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const uint64_t warps = (uint64_t(nrows) + 31) / 32;
    const uint32_t sampled = uint32_t(min(warps, uint64_t(sample_warps)));
    if (at >= sampled) return;
    const uint64_t warp = spread(at, sampled, warps), row = warp * 32 + lane;
    const Offset begin = row < nrows ? row_ptr[row] : 0;
    const uint32_t length = row < nrows ? uint32_t(row_ptr[row + 1] - begin) : 0;
    const uint32_t longest = __reduce_max_sync(full, length);
    // Neighbouring steps share cache lines; each warp samples a different position.
    const uint32_t first = longest > 0 ? uint32_t(warp * SAMPLE_STEPS % longest) : 0;
    const uint32_t stop = min(longest, first + SAMPLE_STEPS);
    uint32_t mine[3] = {0, 0, min(length, stop) - min(length, first)};
    sectors_of<Offset, SAMPLE_STEPS>(begin, length, first, stop, SAMPLE_STEPS, col_idx, mine);
#pragma unroll
    for (int i = 0; i < 3; i++) add(counts + sample_sectors_at + i, mine[i]);
}

template <class Offset>
__device__ __forceinline__ void sample_rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                            Sum* counts) {
    __shared__ Sum most[2], empty;
    __shared__ double squares;
    if (threadIdx.x == 0) most[0] = most[1] = empty = 0, squares = 0;
    __syncthreads();
    const uint64_t blocks = gridDim.x - SAMPLE_SECTOR_BLOCKS;
    uint32_t longest = 0, below = 0, none = 0;
    double sum = 0;
    for (uint64_t row = (blockIdx.x - SAMPLE_SECTOR_BLOCKS) * uint64_t(threads) + threadIdx.x;
         row < nrows; row += blocks * threads) {
        const uint32_t length = uint32_t(row_ptr[row + 1] - row_ptr[row]);
        longest = max(longest, length);
        below = max(below, full - length);
        none += length == 0;
        // Sums of whole numbers below 2^53 do not depend on their order.
        sum += double(length) * length;
    }
    longest = __reduce_max_sync(full, longest);
    below = __reduce_max_sync(full, below);
    sum = group_sum<32>(sum);
    add(&empty, none);
    if (threadIdx.x % 32 == 0) {
        atomicMax(most, Sum(longest));
        atomicMax(most + 1, Sum(below));
        atomicAdd(&squares, sum);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    atomicMax(counts + sample_longest_at, most[0]);
    atomicMax(counts + sample_below_at, most[1]);
    if (empty > 0) atomicAdd(counts + sample_empty_at, empty);
    atomicAdd(reinterpret_cast<double*>(counts + sample_squares_at), squares);
}

template <class Offset>
__device__ __forceinline__ void sample(uint32_t nrows, const Offset* row_ptr,
                                       const uint32_t* col_idx, Sum* counts, Sum* out) {
    if (blockIdx.x < SAMPLE_SECTOR_BLOCKS)
        sample_sectors(nrows, row_ptr, col_idx, counts);
    else
        sample_rows(nrows, row_ptr, counts);
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(counts + sample_done_at, Sum(1)) == Sum(gridDim.x - 1);
    __syncthreads();
    if (!last || threadIdx.x >= SAMPLE_COUNTS) return;
    __threadfence();
    out[threadIdx.x] = __ldcg(counts + threadIdx.x);
    counts[threadIdx.x] = 0;
}

#define KERNEL(name, Offset)                                                                      \
    extern "C" __global__ void __launch_bounds__(FEATURES_THREADS, 4)                             \
        sample_##name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx,             \
                      Sum* counts, Sum* out) {                                                    \
        sample(nrows, row_ptr, col_idx, counts, out);                                             \
    }
KERNEL(narrow, uint32_t)
KERNEL(wide, uint64_t)
