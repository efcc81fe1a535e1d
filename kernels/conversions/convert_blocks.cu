// Conversion of a CSR matrix that the GPU holds to dense b x b blocks (src/format/sliced/bhll/gpu.rs).
//
// Launch: blocks of one warp, except for block_spans in blocks of 256 threads. Row pointers are
// 32-bit.
#include "block_rows.cuh"

// *most = max(*most, n); fast where *most is large enough in most calls.
__device__ __forceinline__ void raise(uint32_t* most, uint32_t n) {
    if (n > __ldcg(most)) atomicMax(most, n);
}

// Number of blocks, and first and last block column, of each block row; *longest, initially 0,
// becomes the largest number of blocks.
template <int b>
__device__ __forceinline__ void block_lengths(uint32_t nrows, const uint32_t* __restrict__ row_ptr,
                                              const uint32_t* __restrict__ col_idx,
                                              uint32_t* lengths, uint32_t* firsts, uint32_t* lasts,
                                              uint32_t* longest) {
    __shared__ Ahead<b, uint32_t> columns;
    const uint64_t i = uint64_t(blockIdx.x) * 32 + threadIdx.x;
    Merge<b> merge(nrows, i, row_ptr, columns);
    uint32_t length = 0, first = none, last = 0;
    do {
        merge.fetch([&](int p, uint32_t l, uint32_t k, uint32_t at, bool is) {
            columns[p][l][k] = is ? __ldg(col_idx + at) : none;
        });
        for (uint32_t slot = 0; slot < slots_ahead<b>; slot++) {
            const uint32_t column = merge.next();
            if (column == none) break;
            if (length == 0) first = column;
            last = column;
            length++;
            merge.pass(column, [](int, int, uint32_t) {});
        }
    } while (__any_sync(full, merge.left()));
    if (i * b < nrows) lengths[i] = length, firsts[i] = first, lasts[i] = last;
    const uint32_t most = __reduce_max_sync(full, length);
    if (threadIdx.x == 0) raise(longest, most);
}

// First block column of each hack of 32 block rows, and the widest span of all hacks (initially 0):
// one warp per hack.
extern "C" __global__ void __launch_bounds__(256)
    block_spans(uint32_t block_rows, uint32_t hacks, const uint32_t* order, const uint32_t* firsts,
                const uint32_t* lasts, uint32_t* base, uint32_t* widest) {
    const uint32_t h = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (h >= hacks) return;
    const uint32_t i = h * 32 + lane;
    const uint32_t row = i < block_rows ? (order ? order[i] : i) : none;
    const uint32_t low = __reduce_min_sync(none, row != none ? firsts[row] : none);
    const uint32_t high =
        __reduce_max_sync(none, row != none && firsts[row] != none ? lasts[row] : 0);
    if (lane > 0) return;
    base[h] = low == none ? 0 : low;
    if (low != none) raise(widest, high - low + 1);
}

#define FILL(b, T, name, Column, bits)                                                            \
    extern "C" __global__ void __launch_bounds__(32) fill_blocks_b##b##_c##bits##_##name(         \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,       \
        const uint32_t* order, const uint32_t* row_ptr, const uint32_t* col_idx, const T* from,   \
        Column* columns, T* values) {                                                             \
        fill_blocks<T, T, Column, b>(nrows, narrow, wide, base, order, row_ptr, col_idx, from,    \
                                     columns, values);                                            \
    }
#define BLOCKS(b)                                                                                 \
    extern "C" __global__ void __launch_bounds__(32)                                              \
        block_lengths_b##b(uint32_t nrows, const uint32_t* row_ptr, const uint32_t* col_idx,      \
                           uint32_t* lengths, uint32_t* firsts, uint32_t* lasts,                  \
                           uint32_t* longest) {                                                   \
        block_lengths<b>(nrows, row_ptr, col_idx, lengths, firsts, lasts, longest);               \
    }                                                                                             \
    FILL(b, double, f64, uint32_t, 32)                                                            \
    FILL(b, double, f64, uint16_t, 16)                                                            \
    FILL(b, float, f32, uint32_t, 32)                                                             \
    FILL(b, float, f32, uint16_t, 16)
BLOCKS(2)
BLOCKS(3)
BLOCKS(4)
BLOCKS(5)
BLOCKS(6)
