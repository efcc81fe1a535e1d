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

// Exclusive sums of `own` over the threads of a block: `sums[t]` is that of the threads before t, for t
// up to STAGED_THREADS. Every thread of the block calls it.
__device__ __forceinline__ void block_sums(uint32_t own, uint32_t* sums) {
    constexpr uint32_t full = 0xffffffffu;
    __shared__ uint32_t of_warps[STAGED_THREADS / 32];
    const uint32_t t = threadIdx.x, lane = t % 32;
    uint32_t upto = own;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t before = __shfl_up_sync(full, upto, distance);
        if (lane >= distance) upto += before;
    }
    if (lane == 31) of_warps[t / 32] = upto;
    __syncthreads();
    for (uint32_t warp = 0; warp < t / 32; warp++) upto += of_warps[warp];
    if (t == 0) sums[0] = 0;
    sums[t + 1] = upto;
    __syncthreads();
}

// Adds the products of the entries of a block, of which there are `total`, to each row's sum. Entry e is
// at position(e) of the arrays; begin..end are the entries of this thread's row.
template <int lanes, bool any_length, class T, class Value, class Position>
__device__ __forceinline__ T sum_staged(T* products, uint32_t total, uint32_t begin, uint32_t end,
                                        const uint32_t* __restrict__ col_idx,
                                        const Value* __restrict__ values, const T* __restrict__ x,
                                        const Position& position) {
    const uint32_t t = threadIdx.x;
    T sum = 0;
    for (uint32_t at = 0; at < total; at += STAGED) {
        const uint32_t n = min(total - at, uint32_t(STAGED));
        // Positions that take a search are kept, and others computed twice, which saves registers.
        decltype(position(0)) kept[EACH];
        uint32_t column[EACH];
        T factor[EACH];
        Value value[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const uint32_t e = t + k * STAGED_THREADS;
            if (e < n) kept[k] = position(at + e);
            column[k] = e < n ? stream(col_idx + kept[k]) : 0;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++)
            factor[k] = t + k * STAGED_THREADS < n ? gather(x + column[k]) : T(0);
        // Values are loaded after x: if they were loaded earlier, they would delay the columns, for
        // which the loads of x wait, and occupy registers meanwhile.
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const uint32_t e = t + k * STAGED_THREADS;
            value[k] = e < n ? stream(values + (any_length ? kept[k] : position(at + e))) : Value(0);
        }
        if (at > 0) __syncthreads();
#pragma unroll
        for (int k = 0; k < EACH; k++)
            products[place(t + k * STAGED_THREADS)] = T(value[k]) * factor[k];
        __syncthreads();
        const uint32_t from = begin > at ? begin - at : 0, to = end > at ? min(end - at, n) : 0;
        sum += staged_sum<lanes, any_length>(products, min(from, to), to);
    }
    return sum;
}

// y = alpha A x + beta y for the rows of block `block`. Values may be narrower than x and the sum. With
// `any_length`, rows of more than `uncut` entries are skipped, and a warp sums other long rows; without
// it, no row is long. Entries of a block that are not skipped number less than 2^32.
template <int lanes, bool any_length, class T, class Value, class Offset>
__device__ __forceinline__ void staged_rows(uint64_t block, uint32_t nrows, uint32_t uncut,
                                            const Offset* __restrict__ row_ptr,
                                            const uint32_t* __restrict__ col_idx,
                                            const Value* __restrict__ values,
                                            const T* __restrict__ x, T* y, T alpha, T beta) {
    constexpr uint32_t own = STAGED_THREADS / lanes;
    __shared__ T products[STAGED + STAGED / 32];
    const uint32_t t = threadIdx.x, lane = t % lanes;
    const uint64_t first = block * own, row = first + t / lanes;
    const uint64_t last = first + own < nrows ? first + own : nrows;
    const Offset start = row_ptr[first], all_end = row_ptr[last];
    const Offset from = row < nrows ? row_ptr[row] : all_end;
    const Offset to = row < nrows ? row_ptr[row + 1] : all_end;
    const bool skipped = any_length && to - from > uncut;
    await_previous();
    T sum;
    if (any_length && __syncthreads_or(skipped)) {
        // Entries are counted without those of skipped rows; a search finds the row of each.
        __shared__ uint32_t begins[STAGED_THREADS + 1];
        __shared__ Offset at[own];
        if (lane == 0) at[t / lanes] = from;
        block_sums(lane == 0 && !skipped ? uint32_t(to - from) : 0, begins);
        const auto position = [&](uint32_t e) {
            uint32_t found = 0;  // the last row that begins at e or before it
#pragma unroll
            for (uint32_t step = own / 2; step > 0; step /= 2)
                if (begins[(found + step) * lanes] <= e) found += step;
            return at[found] + (e - begins[found * lanes]);
        };
        const uint32_t begin = begins[t / lanes * lanes];
        const uint32_t end = begin + (skipped ? 0 : uint32_t(to - from));
        sum = sum_staged<lanes, any_length>(products, begins[STAGED_THREADS], begin, end, col_idx,
                                            values, x, position);
    } else {
        const auto position = [&](uint32_t e) { return start + e; };
        sum = sum_staged<lanes, any_length>(products, uint32_t(all_end - start),
                                            uint32_t(from - start), uint32_t(to - start), col_idx,
                                            values, x, position);
    }
    sum = group_sum<lanes>(sum);
    if (row < nrows && lane == 0 && !skipped) store(y + row, alpha, sum, beta);
}

// Blocks per processor: as many as registers allow without spills.
template <class T, class Offset, int lanes>
constexpr int STAGED_BLOCKS =
    (sizeof(T) == 4 || (lanes == 1 && sizeof(Offset) == 4) ? 2048 : 1536) / STAGED_THREADS;
