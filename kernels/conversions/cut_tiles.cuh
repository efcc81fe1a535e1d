// The cut of CSR entries into tiles (convert_tiles.cu): `Tiles::of` of src/format/csr/csr_tiles.rs.
#pragma once
#include "common.cuh"

#include <cub/block/block_reduce.cuh>

constexpr uint32_t full = 0xffffffffu;

// The last of low..high (both are rows or one past) for which `right` holds; it holds for `low` and
// for all before the last.
template <class Test>
__device__ __forceinline__ uint64_t last_right(uint64_t low, uint64_t high, const Test& right) {
    high++;
    while (high - low > 1) {
        const uint64_t stride = (high - low + 31) / 32;
        const uint64_t at = low + (threadIdx.x % 32 + 1) * stride;
        const uint32_t rights = __popc(__ballot_sync(full, at < high && right(at)));
        low += rights * stride;
        high = min(high, low + stride);
    }
    return low;
}

// For each of two tests, the last of 0..high for which it holds, both at once; each holds for 0 and
// for all before the last.
template <class First, class Second>
__device__ __forceinline__ void last_right_of_both(uint64_t high, const First& first,
                                                   const Second& second, uint64_t& low_first,
                                                   uint64_t& low_second) {
    uint64_t low[2] = {0, 0}, past[2] = {high + 1, high + 1};
    while (past[0] - low[0] > 1 || past[1] - low[1] > 1) {
        uint64_t stride[2], at[2];
        bool right[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            stride[i] = (past[i] - low[i] + 31) / 32;
            at[i] = low[i] + (threadIdx.x % 32 + 1) * stride[i];
        }
        right[0] = at[0] < past[0] && first(at[0]);
        right[1] = at[1] < past[1] && second(at[1]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            low[i] += __popc(__ballot_sync(full, right[i])) * stride[i];
            past[i] = min(past[i], low[i] + stride[i]);
        }
    }
    low_first = low[0], low_second = low[1];
}

// Rows of a chunk whose bounds are prefetched: those of full tiles with 2 entries per row.
constexpr uint64_t NEAR = 8192;

// Rows whose bounds a warp examines together.
constexpr uint32_t WINDOW = 128;

// Cuts chunk `c` into tiles of at most `most` entries and rows; only rows longer than `most` are
// split (pcsr). Called by a warp. A chunk starts at the row where entries and rows reach a multiple
// of `weight`. Lanes call put(t, row, entry) with the end of tile t; all lanes return the number of
// tiles. `split` is set where a tile ends within a row.
template <class Offset, class Put>
__device__ __forceinline__ uint32_t cut_chunk(uint32_t nrows, uint32_t most, uint64_t weight,
                                              uint32_t chunks, uint32_t c,
                                              const Offset* __restrict__ row_ptr, bool& split,
                                              const Put& put) {
    const auto before = [&](uint64_t wanted) {
        return [=](uint64_t i) { return i == 0 || row_ptr[i - 1] + i - 1 < wanted; };
    };
    uint64_t row, end;
    last_right_of_both(nrows, before(c * weight), before((c + 1) * weight), row, end);
    if (c + 1 == chunks) end = nrows;
    // Prefetch the bounds that the warp will read one after the other.
    Offset near = 0;
    constexpr uint64_t line = 128 / sizeof(Offset);
    for (uint64_t i = row + threadIdx.x % 32 * line; i < min(end, row + NEAR); i += 32 * line)
        near |= row_ptr[i];
    asm volatile("" ::"r"(uint32_t(near)));
    // Start of row `row`, and the number of entries that the tiles so far contain.
    uint64_t begin = row_ptr[row], entry = begin;
    const uint64_t end_entry = row_ptr[end];
    uint32_t t = 0;
    uint64_t rows_before = 0;
    while (row < end || entry < end_entry) {
        if (begin > entry + most) {
            // A long row fills some tiles completely and part of another.
            const uint32_t filled = uint32_t((begin - entry - 1) / most);
            for (uint32_t k = threadIdx.x % 32; k < filled; k += 32)
                put(t + k, uint32_t(row), Offset(entry + (k + 1) * uint64_t(most)));
            t += filled;
            entry += filled * uint64_t(most);
            split = true;
        } else {
            const uint64_t reach = min(entry + most, end_entry);
            const uint64_t last = min(row + most, end), begun = row;
            // Load row starts around the row where the tile would end if it had as many rows as the
            // last.
            const uint64_t base = rows_before > WINDOW ? row + rows_before - WINDOW / 2 : row;
            Offset begins[WINDOW / 32];
            uint32_t rights = 0;
#pragma unroll
            for (uint32_t i = 0; i < WINDOW / 32; i++)
                begins[i] = row_ptr[min(base + 32 * i + threadIdx.x % 32, end)];
#pragma unroll
            for (uint32_t i = 0; i < WINDOW / 32; i++) {
                const bool is = base + 32 * i + threadIdx.x % 32 <= last && begins[i] <= reach;
                rights += __popc(__ballot_sync(full, is));
            }
            const auto begin_of = [&](uint32_t at) {
                Offset found = 0;
#pragma unroll
                for (uint32_t i = 0; i < WINDOW / 32; i++) {
                    const Offset other = __shfl_sync(full, begins[i], at % 32);
                    found = at / 32 == i ? other : found;
                }
                return uint64_t(found);
            };
            uint64_t next;
            if (rights > 0 && rights < WINDOW) {
                row = base + rights - 1;
                begin = begin_of(rights - 1), next = begin_of(rights);
            } else {
                const uint64_t low = rights > 0 ? base + WINDOW - 1 : row;
                row = last_right(low, rights > 0 ? last : min(base - 1, last),
                                 [&](uint64_t i) { return row_ptr[i] <= reach; });
                begin = row_ptr[row], next = row_ptr[min(row + 1, end)];
            }
            rows_before = row - begun;
            entry = begin;
            if (row < last && next - entry > most && entry < reach) {
                row++;
                begin = next;
                entry = reach;
            }
            split |= entry < begin;
            if (threadIdx.x % 32 == 0) put(t, uint32_t(row), Offset(entry));
            t++;
        }
    }
    return t;
}

// Maximum number of a chunk's tiles that are kept between counting and placing. Where a chunk has
// more, which only long rows cause, its tiles are found again.
constexpr uint32_t KEPT = 64;

// Writes the tiles of all chunks: tile t begins at tile_rows[t], tile_ptr[t]; *total = number of
// tiles, *splits = 1 where a tile ends within a row. A block processes the next 8 chunks, counted
// in *taken, and waits for the blocks before it, which run or have ended: found[b] = tiles of block
// b's chunks plus one. All of these are initially 0.
template <class Offset>
__device__ __forceinline__ void find_tiles(uint32_t nrows, uint32_t most, uint64_t weight,
                                           uint32_t chunks, const Offset* __restrict__ row_ptr,
                                           uint32_t* tile_rows, Offset* tile_ptr, uint32_t* found,
                                           uint32_t* taken, uint32_t* total, uint32_t* splits) {
    constexpr uint32_t warps = TILE_CHUNKS;
    using Sum = cub::BlockReduce<uint32_t, 32 * warps>;
    __shared__ typename Sum::TempStorage storage;
    __shared__ uint32_t kept_rows[warps][KEPT], counts[warps], block, before;
    __shared__ Offset kept_ptr[warps][KEPT];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) block = atomicAdd(taken, 1u);
    __syncthreads();
    const uint32_t b = block, c = b * warps + warp;
    uint32_t count = 0;
    if (c < chunks) {
        bool split = false;
        count = cut_chunk<Offset>(nrows, most, weight, chunks, c, row_ptr, split,
                                  [&](uint32_t t, uint32_t row, Offset entry) {
                                      if (t >= KEPT) return;
                                      kept_rows[warp][t] = row, kept_ptr[warp][t] = entry;
                                  });
        if (lane == 0 && split) *splits = 1;
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    uint32_t own = 0, start = 0;
#pragma unroll
    for (uint32_t w = 0; w < warps; w++) {
        start += w < warp ? counts[w] : 0;
        own += counts[w];
    }
    if (threadIdx.x == 0) *(volatile uint32_t*)(found + b) = own + 1;
    uint32_t others = 0;
    for (uint32_t i = threadIdx.x; i < b; i += blockDim.x) {
        uint32_t other;
        do other = *(const volatile uint32_t*)(found + i);
        while (other == 0);
        others += other - 1;
    }
    others = Sum(storage).Sum(others);
    if (threadIdx.x == 0) {
        before = others;
        if (b == 0) tile_rows[0] = 0, tile_ptr[0] = 0;
        if (b == gridDim.x - 1) *total = others + own;
    }
    __syncthreads();
    const uint64_t first = uint64_t(before) + start + 1;
    if (count > KEPT) {
        bool split = false;
        cut_chunk<Offset>(nrows, most, weight, chunks, c, row_ptr, split,
                          [&](uint32_t t, uint32_t row, Offset entry) {
                              tile_rows[first + t] = row, tile_ptr[first + t] = entry;
                          });
        return;
    }
    for (uint32_t t = lane; t < count; t += 32)
        tile_rows[first + t] = kept_rows[warp][t], tile_ptr[first + t] = kept_ptr[warp][t];
}
