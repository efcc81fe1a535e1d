// Blocks of rows of a CSR matrix that the GPU holds (src/format/csr/row_blocks.rs), for
// products/csr_adaptive.cu.
//
// Launch: a block of 256 threads per chunk of CSR_ADAPTIVE_CHUNK rows, each of which begins a block
// of rows. `count_blocks` counts those of each chunk, `list_blocks` lists them from the chunk's
// start on, which is 32-bit (`narrow`) or 64-bit (`wide`); the other list is null. Row pointers are
// 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "common.cuh"

#include <cub/block/block_scan.cuh>

constexpr uint32_t CHUNK = CSR_ADAPTIVE_CHUNK, THREADS = 256, EACH = CHUNK / THREADS;
constexpr uint32_t ENTRIES = CSR_ADAPTIVE_ENTRIES, PIECE = CSR_ADAPTIVE_PIECE;

// The rows of a chunk, counted from its first.
template <class Offset> struct Chunk {
    Offset row_ptr[CHUNK + 1];
    // For each row the end of a block that begins with it; then the first row of each block.
    uint16_t rows[CHUNK];
    uint32_t blocks;

    __device__ __forceinline__ uint32_t end_of(uint32_t row, uint32_t rows) const {
        uint32_t low = row + 1, high = min(rows, row + ENTRIES);
        while (low < high) {
            const uint32_t middle = (low + high + 1) / 2;
            if (row_ptr[middle] - row_ptr[row] <= ENTRIES) low = middle;
            else high = middle - 1;
        }
        return low;
    }

    // Positions that the block of rows number `b` takes in the list: one, or one per piece.
    __device__ __forceinline__ uint32_t places(uint32_t b) const {
        const Offset length = row_ptr[rows[b] + 1] - row_ptr[rows[b]];
        return length > PIECE ? uint32_t((length - 1) / PIECE) + 1 : 1;
    }
};

// Finds the blocks of a chunk. Returns the number of their positions in the list, and sets `before`
// to the positions of the blocks before number EACH * threadIdx.x.
template <class Offset>
__device__ __forceinline__ uint32_t find_blocks(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                                Chunk<Offset>& chunk, uint32_t& before) {
    using Scan = cub::BlockScan<uint32_t, THREADS>;
    __shared__ typename Scan::TempStorage scan;
    const uint64_t first = blockIdx.x * uint64_t(CHUNK);
    const uint32_t rows = uint32_t(min(uint64_t(CHUNK), nrows - first));
    for (uint32_t i = threadIdx.x; i <= rows; i += THREADS) chunk.row_ptr[i] = row_ptr[first + i];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < rows; i += THREADS)
        chunk.rows[i] = uint16_t(chunk.end_of(i, rows));
    __syncthreads();
    if (threadIdx.x == 0) {
        // Block number b does not begin before row b, so no end is overwritten that is still needed.
        uint32_t b = 0;
        for (uint32_t row = 0; row < rows; b++) {
            const uint32_t end = chunk.rows[row];
            chunk.rows[b] = uint16_t(row);
            row = end;
        }
        chunk.blocks = b;
    }
    __syncthreads();
    uint32_t own = 0, all;
    for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t b = EACH * threadIdx.x + k;
        if (b < chunk.blocks) own += chunk.places(b);
    }
    Scan(scan).ExclusiveSum(own, before, all);
    return all;
}

template <class Offset>
__device__ __forceinline__ void count_blocks(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                             uint32_t* counts) {
    __shared__ Chunk<Offset> chunk;
    uint32_t before;
    const uint32_t all = find_blocks(nrows, row_ptr, chunk, before);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

template <class Offset>
__device__ __forceinline__ void list_blocks(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                            const uint32_t* narrow, const uint64_t* wide,
                                            uint2* list) {
    __shared__ Chunk<Offset> chunk;
    uint32_t before;
    find_blocks(nrows, row_ptr, chunk, before);
    uint32_t at = before + (narrow ? narrow[blockIdx.x] : uint32_t(wide[blockIdx.x]));
    for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t b = EACH * threadIdx.x + k;
        if (b >= chunk.blocks) return;
        const uint32_t row = blockIdx.x * CHUNK + chunk.rows[b], first = at;
        const uint32_t end = at + chunk.places(b);
        for (; at < end; at++) list[at] = make_uint2(row, first);
    }
}

#define KERNELS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        count_blocks_##width(uint32_t nrows, const Offset* row_ptr, uint32_t* counts) {           \
        count_blocks<Offset>(nrows, row_ptr, counts);                                             \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        list_blocks_##width(uint32_t nrows, const Offset* row_ptr, const uint32_t* narrow,        \
                            const uint64_t* wide, uint2* list) {                                  \
        list_blocks<Offset>(nrows, row_ptr, narrow, wide, list);                                  \
    }
KERNELS(narrow, uint32_t)
KERNELS(wide, uint64_t)
