// Rows of a CSR matrix whose entries a block of threads reads evenly (products/csr_staged.cu,
// csr_long.cu and csr_f32.cu): the block stores the products of its entries in shared memory, and a few
// lanes sum each row from there.
//
// Launch: blocks of 256 threads, each with 256 / `lanes` rows; 1,024 products in static shared memory,
// with a gap after every 32 of them, so that neighbouring rows are in different banks. Lane 0 of a
// row's `lanes` lanes holds the result.
#pragma once
#include "common.cuh"

constexpr int STAGED_THREADS = 256, EACH = CSR_STAGED_EACH, STAGED = STAGED_THREADS * EACH;

// Place of product `k` in shared memory.
__device__ __forceinline__ uint32_t place(uint32_t k) { return k + k / 32; }

// Sum of the products begin..stop of a row, of which `lanes` lanes each sum a part. With `any_length`,
// a warp sums long rows one after the other; lane 0 of the row then holds all of the sum.
template <int lanes, bool any_length, class T>
__device__ __forceinline__ T staged_sum(const T* products, uint32_t begin, uint32_t stop) {
    constexpr uint32_t full = 0xffffffffu;
    const uint32_t lane = threadIdx.x % lanes;
    const bool by_warp = any_length && stop - begin > TILE_LONG * lanes;
    T sum = 0;
    if (!by_warp)
        for (uint32_t k = begin + lane; k < stop; k += lanes) sum += products[place(k)];
    if constexpr (any_length)
        for (uint32_t left = __ballot_sync(full, by_warp && lane == 0); left; left &= left - 1) {
            const int owner = __ffs(left) - 1;
            const uint32_t end = __shfl_sync(full, stop, owner);
            T part = 0;
            for (uint32_t k = __shfl_sync(full, begin, owner) + threadIdx.x % 32; k < end; k += 32)
                part += products[place(k)];
            part = group_sum<32>(part);
            if (threadIdx.x % 32 == owner) sum = part;
        }
    return sum;
}

// y = alpha A x + beta y for the rows of block `block`. Values may be narrower than x and the sum. With
// `any_length`, rows of more than CSR_UNCUT entries are skipped, and a warp sums other long rows.
template <int lanes, bool any_length, class T, class Value, class Offset>
__device__ __forceinline__ void staged_rows(uint64_t block, uint32_t nrows,
                                            const Offset* __restrict__ row_ptr,
                                            const uint32_t* __restrict__ col_idx,
                                            const Value* __restrict__ values,
                                            const T* __restrict__ x, T* y, T alpha, T beta) {
    constexpr uint32_t own = STAGED_THREADS / lanes;
    __shared__ T products[STAGED + STAGED / 32];
    __shared__ uint32_t next;
    __shared__ Offset gap[2];
    const uint32_t t = threadIdx.x, lane = t % lanes;
    const uint64_t first = block * own, row = first + t / lanes;
    const uint64_t last = first + own < nrows ? first + own : nrows;
    const Offset start = row_ptr[first], end = row_ptr[last];
    const Offset from = row < nrows ? row_ptr[row] : end, to = row < nrows ? row_ptr[row + 1] : end;
    const bool skipped = any_length && to - from > CSR_UNCUT;
    await_previous();
    const bool gaps = any_length && __syncthreads_or(skipped);
    T sum = 0;
    // Entries at..upto lie between two skipped rows, or there is none.
    Offset at = start, upto = end, then = end;
    for (uint32_t unseen = 0;; at = then) {
        if (gaps) {
            __syncthreads();
            if (t == 0) next = own;
            __syncthreads();
            if (skipped && t / lanes >= unseen) atomicMin(&next, t / lanes);
            __syncthreads();
            if (skipped && t / lanes == next) gap[0] = from, gap[1] = to;
            __syncthreads();
            upto = next < own ? gap[0] : end;
            then = next < own ? gap[1] : end;
            unseen = next + 1;
        }
        for (; at < upto; at += STAGED) {
            const uint32_t n = uint32_t(upto - at < STAGED ? upto - at : STAGED);
            uint32_t column[EACH];
            T factor[EACH];
            Value value[EACH];
#pragma unroll
            for (int k = 0; k < EACH; k++)
                column[k] =
                    t + k * STAGED_THREADS < n ? stream(col_idx + at + (t + k * STAGED_THREADS)) : 0;
#pragma unroll
            for (int k = 0; k < EACH; k++)
                factor[k] = t + k * STAGED_THREADS < n ? gather(x + column[k]) : T(0);
            // Values are loaded after x: if they were loaded earlier, they would delay the columns,
            // for which the loads of x wait, and occupy registers meanwhile.
#pragma unroll
            for (int k = 0; k < EACH; k++)
                value[k] = t + k * STAGED_THREADS < n ? stream(values + at + (t + k * STAGED_THREADS))
                                                      : Value(0);
            if (at != start) __syncthreads();
#pragma unroll
            for (int k = 0; k < EACH; k++)
                products[place(t + k * STAGED_THREADS)] = T(value[k]) * factor[k];
            __syncthreads();
            uint32_t begin = 0, stop = 0;
            if (from < at + n && to > at) {
                begin = from > at ? uint32_t(from - at) : 0;
                stop = to < at + n ? uint32_t(to - at) : n;
            }
            sum += staged_sum<lanes, any_length>(products, begin, stop);
        }
        if (!gaps || upto == end) break;
    }
    sum = group_sum<lanes>(sum);
    if (row < nrows && lane == 0 && !skipped) store(y + row, alpha, sum, beta);
}

// Blocks per processor: as many as registers allow without spills.
template <class T, class Offset, int lanes>
constexpr int STAGED_BLOCKS =
    (sizeof(T) == 4 || (lanes == 1 && sizeof(Offset) == 4) ? 2048 : 1536) / STAGED_THREADS;
