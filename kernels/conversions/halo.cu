// The columns that a part of a divided matrix needs from other parts, and the part's own CSR matrix.
//
// The part has whole rows of the matrix, and owns the columns from own_begin up to own_end. One bit for each
// column tells that the part needs it and does not own it; one bit for each row tells that the row has such a
// column. A local column is the place of a column among the foreign ones before the own columns, the own ones,
// and the foreign ones behind them (src/sharded/halo.rs).
//
// Launch: blocks of 256 threads over entries, rows or words of 32 bits; no dynamic shared memory. Row
// pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`). Bits and counts initially hold zeros.
#include "common.cuh"

constexpr int threads = 256;

__device__ __forceinline__ void set_bit(uint32_t* bits, uint64_t i) {
    const uint32_t bit = 1u << (i % 32);
    if (!(__ldcg(bits + i / 32) & bit)) atomicOr(bits + i / 32, bit);
}

__device__ __forceinline__ bool has_bit(const uint32_t* bits, uint64_t i) {
    return bits[i / 32] >> (i % 32) & 1;
}

// Adds the numbers of a block's threads to *sum.
__device__ __forceinline__ void add_up(uint64_t mine, unsigned long long* sum) {
    __shared__ unsigned long long of_block;
    if (threadIdx.x == 0) of_block = 0;
    __syncthreads();
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) mine += __shfl_xor_sync(~0u, mine, lanes);
    if (threadIdx.x % 32 == 0 && mine > 0) atomicAdd(&of_block, mine);
    __syncthreads();
    if (threadIdx.x == 0 && of_block > 0) atomicAdd(sum, of_block);
}

// Sets the bits of foreign columns and of the rows that have them, and adds the number of entries in own
// columns to *own. The row of a foreign entry is the last one that begins at or before it.
template <class Offset>
__device__ __forceinline__ void mark(uint64_t nrows, uint64_t nnz, const Offset* row_ptr,
                                     const uint32_t* col_idx, uint32_t own_begin, uint32_t own_end,
                                     uint32_t* columns, uint32_t* rows, unsigned long long* own) {
    const uint64_t k = uint64_t(blockIdx.x) * threads + threadIdx.x;
    bool is_own = false;
    if (k < nnz) {
        const uint32_t column = col_idx[k];
        is_own = column >= own_begin && column < own_end;
        if (!is_own) {
            set_bit(columns, column);
            uint64_t row = 0, end = nrows;
            while (row + 1 < end) {
                const uint64_t middle = (row + end) / 2;
                if (uint64_t(row_ptr[middle]) <= k) row = middle;
                else end = middle;
            }
            set_bit(rows, row);
        }
    }
    add_up(is_own, own);
}

// Adds the number of entries of rows without a bit to *inner.
template <class Offset>
__device__ __forceinline__ void inner(uint64_t nrows, const Offset* row_ptr, const uint32_t* rows,
                                      unsigned long long* sum) {
    const uint64_t row = uint64_t(blockIdx.x) * threads + threadIdx.x;
    uint64_t length = 0;
    if (row < nrows && !has_bit(rows, row)) length = uint64_t(row_ptr[row + 1] - row_ptr[row]);
    add_up(length, sum);
}

// Counts the bits of each word.
extern "C" __global__ void __launch_bounds__(threads)
    count_bits(uint64_t words, const uint32_t* bits, uint32_t* counts) {
    const uint64_t i = uint64_t(blockIdx.x) * threads + threadIdx.x;
    if (i < words) counts[i] = __popc(bits[i]);
}

// Lists the numbers of the bits that are set; those of word i are at starts[i] and behind it.
extern "C" __global__ void __launch_bounds__(threads)
    list_bits(uint64_t words, const uint32_t* bits, const uint64_t* starts, uint32_t* list) {
    const uint64_t i = uint64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= words) return;
    uint32_t* to = list + starts[i];
    for (uint32_t word = bits[i]; word != 0; word &= word - 1)
        *to++ = uint32_t(i) * 32 + (__ffs(word) - 1);
}

// Replaces columns by local columns; `before` foreign ones are before the own ones.
extern "C" __global__ void __launch_bounds__(threads)
    local_columns(uint64_t nnz, const uint32_t* col_idx, const uint32_t* columns, const uint64_t* starts,
                  uint32_t own_begin, uint32_t own_end, uint32_t before, uint32_t* local) {
    const uint64_t k = uint64_t(blockIdx.x) * threads + threadIdx.x;
    if (k >= nnz) return;
    const uint32_t column = col_idx[k];
    uint32_t at = before + (column - own_begin);
    if (column < own_begin || column >= own_end) {
        const uint32_t lower = columns[column / 32] & ((1u << (column % 32)) - 1);
        at = uint32_t(starts[column / 32]) + __popc(lower);
        if (column >= own_end) at += own_end - own_begin;
    }
    local[k] = at;
}

// Copies n row pointers and counts them from `first` on.
template <class Offset>
__device__ __forceinline__ void from_first(uint64_t n, const Offset* row_ptr, uint64_t first, Offset* to) {
    const uint64_t i = uint64_t(blockIdx.x) * threads + threadIdx.x;
    if (i < n) to[i] = Offset(uint64_t(row_ptr[i]) - first);
}

#define KERNELS(Offset, name)                                                                     \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        mark_##name(uint64_t nrows, uint64_t nnz, const Offset* row_ptr, const uint32_t* col_idx, \
                    uint32_t own_begin, uint32_t own_end, uint32_t* columns, uint32_t* rows,      \
                    unsigned long long* own) {                                                    \
        mark<Offset>(nrows, nnz, row_ptr, col_idx, own_begin, own_end, columns, rows, own);       \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        inner_##name(uint64_t nrows, const Offset* row_ptr, const uint32_t* rows,                 \
                     unsigned long long* sum) {                                                   \
        inner<Offset>(nrows, row_ptr, rows, sum);                                                 \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        from_first_##name(uint64_t n, const Offset* row_ptr, uint64_t first, Offset* to) {        \
        from_first<Offset>(n, row_ptr, first, to);                                                \
    }
KERNELS(uint32_t, narrow)
KERNELS(uint64_t, wide)
