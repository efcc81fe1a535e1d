// Conversion of a CSR matrix that the GPU holds to the diagonals of hacks of rows
// (src/format/dia/diagonals.rs defines the sequence of steps).
//
// Launch: hack_offsets in one block per hack, with one thread per row but at most 512 threads;
// small_hack_offsets instead where a hack has at most 128 rows; fill_diagonals in blocks of 128
// threads, one thread per row of the hacks. The number of rows of a hack is a multiple of 32, at
// most 1,024. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "fill_diagonals.cuh"

// Maximum number of rows of a hack, and of offsets that are marked at a time with one bit each.
template <bool small> constexpr uint32_t ROWS = small ? SMALL_HACK : 1024;
template <bool small> constexpr uint32_t MARKS = small ? 1 << 16 : 1 << 17;

// Maximum length of a small hack's longest row for which other rows are compared with it; at most
// `keep`.
constexpr uint32_t LISTED = 64;

// Calls put(offset, place) for the entries of rows of a hack, `depth` per row at a time, a warp per
// 32 rows, until stop() is true. `begins` holds the starts of the rows; `place` counts within the
// row; offset is -none where there is no entry.
template <int depth, class Offset, class Put, class Stop>
__device__ __forceinline__ void walk_rows(uint64_t first, uint32_t rows, const Offset* begins,
                                          const uint32_t* __restrict__ col_idx, const Put& put,
                                          const Stop& stop) {
    constexpr int rows_a_part = 32 / depth;
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t r0 = threadIdx.x / 32 * 32; r0 < rows; r0 += blockDim.x) {
        const uint32_t r = r0 + lane;
        const uint32_t length = r < rows ? uint32_t(begins[r + 1] - begins[r]) : 0;
        const uint32_t longest = __reduce_max_sync(full, length);
        for (uint32_t k0 = 0; k0 < longest; k0 += depth) {
            for (int part = 0; part < 32; part += batch * rows_a_part) {
                int32_t offset[batch];
#pragma unroll
                for (int b = 0; b < batch; b++) {
                    const uint32_t row = r0 + part + b * rows_a_part + lane / depth;
                    const Offset at = row < rows ? begins[row] + k0 + lane % depth : 0;
                    const bool is = row < rows && at < begins[row + 1];
                    offset[b] = is ? int32_t(int64_t(col_idx[at]) - int64_t(first + row)) : -none;
                }
#pragma unroll
                for (int b = 0; b < batch; b++) put(offset[b], k0 + lane % depth);
                if (stop()) return;
            }
        }
    }
}

// Writes the offsets of marked diagonals, where bit 0 is offset `low`, behind the `found` earlier
// ones: to `offsets`, or, if that is null, the first `keep` of all to `kept`. Returns the number
// found so far. Called by all threads of a block; sums[w] is scratch memory of warp w.
__device__ __forceinline__ uint32_t write_marked(const uint32_t* marks, uint32_t words, int32_t low,
                                                 uint32_t found, uint32_t keep, uint32_t* sums,
                                                 int32_t* kept, int32_t* offsets,
                                                 uint32_t lane, uint32_t warp) {
    // A thread counts consecutive words, an odd number of them to avoid bank conflicts.
    const uint32_t each = ((words + blockDim.x - 1) / blockDim.x) | 1;
    const uint32_t begin = threadIdx.x * each, end = min(begin + each, words);
    uint32_t own = 0;
    for (uint32_t w = begin; w < end; w++) own += __popc(marks[w]);
    uint32_t upto = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint32_t before = __shfl_up_sync(full, upto, step);
        if (lane >= step) upto += before;
    }
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    uint32_t at = found + upto - own;
    for (uint32_t w = 0; w < blockDim.x / 32; w++) {
        if (w < warp) at += sums[w];
        found += sums[w];
    }
    for (uint32_t w = begin; w < end; w++) {
        for (uint32_t left = marks[w]; left != 0; left &= left - 1, at++) {
            const int32_t offset = low + int32_t(w * 32) + __ffs(left) - 1;
            if (offsets) {
                offsets[at] = offset;
            } else if (at < keep) {
                kept[at] = offset;
            }
        }
    }
    return found;
}

// Finds the lowest and highest offsets among the rows of a hack that a thread reads, and the
// longest of these rows, as its length (at most LISTED + 1) times 1024 plus its number.
template <class Offset>
__device__ __forceinline__ void find_ends(uint64_t first, uint32_t rows, const Offset* begins,
                                          const uint32_t* __restrict__ col_idx, int32_t& low,
                                          int32_t& high, uint32_t& wide_row) {
    const auto offset_of = [&](uint32_t r, Offset k) {
        return int32_t(int64_t(col_idx[k]) - int64_t(first + r));
    };
    low = none, high = -none;
    wide_row = 0;
    for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x) {
        if (begins[r] == begins[r + 1]) continue;
        const uint64_t length = begins[r + 1] - begins[r];
        wide_row = max(wide_row, uint32_t(min(length, uint64_t(LISTED + 1))) * 1024 + r);
        low = min(low, offset_of(r, begins[r])), high = max(high, offset_of(r, begins[r + 1] - 1));
    }
}

// Combines what the threads of a warp have found, in shared memory; the longest row only for small
// hacks.
template <bool small>
__device__ __forceinline__ void share_ends(uint32_t lane, int32_t low, int32_t high,
                                           uint32_t wide_row, int32_t* lowest, int32_t* highest,
                                           uint32_t* widest) {
    low = __reduce_min_sync(full, low), high = __reduce_max_sync(full, high);
    if (lane == 0) atomicMin(lowest, low), atomicMax(highest, high);
    if (small) {
        wide_row = __reduce_max_sync(full, wide_row);
        if (lane == 0) atomicMax(widest, wide_row);
    }
}

// Sets a bit, which is usually set already.
__device__ __forceinline__ void set_bit(uint32_t* marks, int64_t at) {
    uint32_t* const word = marks + at / 32;
    const uint32_t bit = 1u << (at % 32);
    if (!(*(volatile uint32_t*)word & bit)) atomicOr(word, bit);
}

// Copies n offsets. Called by all threads of a block.
__device__ __forceinline__ void copy_offsets(const int32_t* from, int32_t* to, const uint32_t& n) {
    for (uint32_t d = threadIdx.x; d < n; d += blockDim.x) to[d] = from[d];
}

// The diagonals of each hack, in ascending order. Usually the longest row of a small hack has an
// entry on each of them. Otherwise they are found by marking their offsets, one bit each, in passes
// over as many offsets as there are marks, each pass from the smallest remaining offset.
//
// With `offsets` null it counts: counts[h] = diagonals of hack h, exact where there are at most
// `most`, and keeps the first `keep` of them. Otherwise it writes all diagonals, and finds those
// again that were not kept.
template <int depth, bool small, class Offset>
__device__ __forceinline__ void hack_offsets(uint32_t nrows, uint32_t hack, uint32_t most,
                                             uint32_t keep, const Offset* __restrict__ row_ptr,
                                             const uint32_t* __restrict__ col_idx, uint32_t* counts,
                                             int32_t* kept, const uint32_t* narrow,
                                             const uint64_t* wide, int32_t* offsets) {
    __shared__ uint32_t marks[MARKS<small> / 32];
    __shared__ Offset begins[ROWS<small> + 1];
    __shared__ uint32_t sums[small ? 4 : 16], widest;
    __shared__ int32_t list[LISTED], lowest, highest, next;
    const uint32_t h = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t first = uint64_t(h) * hack;
    const uint32_t rows = uint32_t(min(uint64_t(hack), nrows - first));
    kept += uint64_t(h) * keep;
    if (offsets) {
        offsets += narrow ? narrow[h] : wide[h];
        if (counts[h] <= keep) return copy_offsets(kept, offsets, counts[h]);
    }
    for (uint32_t r = threadIdx.x; r <= rows; r += blockDim.x) begins[r] = row_ptr[first + r];
    if (threadIdx.x == 0) lowest = none, highest = -none, widest = 0;
    __syncthreads();
    int32_t low, high;
    uint32_t wide_row;
    find_ends(first, rows, begins, col_idx, low, high, wide_row);
    share_ends<small>(lane, low, high, wide_row, &lowest, &highest, &widest);
    __syncthreads();
    low = lowest, high = highest, wide_row = widest % 1024;
    uint32_t found = widest / 1024;
    if (small && !offsets && found <= LISTED) {
        for (uint32_t d = threadIdx.x; d < found; d += blockDim.x)
            list[d] = int32_t(int64_t(col_idx[begins[wide_row] + d]) - int64_t(first + wide_row));
        __syncthreads();
        bool other = false;
        walk_rows<depth>(
            first, rows, begins, col_idx,
            [&](int32_t offset, uint32_t place) {
                // A row that lacks some diagonals has the others further on in the list.
                if (offset == -none || list[place] == offset) return;
                uint32_t d = place;
                while (d < found && list[d] < offset) d++;
                other |= d == found || list[d] != offset;
            },
            [&] { return __any_sync(full, other); });
        if (!__syncthreads_or(other)) {
            for (uint32_t d = threadIdx.x; d < found; d += blockDim.x) kept[d] = list[d];
            if (threadIdx.x == 0) counts[h] = found;
            return;
        }
    }
    found = 0;
    while (low <= high && found <= most) {
        const uint32_t span = uint32_t(min(int64_t(high) - low + 1, int64_t(MARKS<small>)));
        const uint32_t words = (span + 31) / 32;
        for (uint32_t w = threadIdx.x; w < words; w += blockDim.x) marks[w] = 0;
        if (threadIdx.x == 0) next = none;
        __syncthreads();
        int32_t beyond = none;
        walk_rows<depth>(
            first, rows, begins, col_idx,
            [&](int32_t offset, uint32_t) {
                const int64_t away = int64_t(offset) - low;
                if (away < 0) return;
                if (away >= span) {
                    beyond = min(beyond, offset);
                    return;
                }
                set_bit(marks, away);
            },
            [] { return false; });
        beyond = __reduce_min_sync(full, beyond);
        if (lane == 0 && beyond != none) atomicMin(&next, beyond);
        __syncthreads();
        found =
            write_marked(marks, words, low, found, keep, sums, kept, offsets, lane, warp);
        low = next;
        __syncthreads();
        if (low == none) break;
    }
    if (!offsets && threadIdx.x == 0) counts[h] = found;
}

#define DEPTHS(width, Offset)                                                                     \
    KERNELS(8, width, Offset)                                                                     \
    KERNELS(16, width, Offset)                                                                    \
    KERNELS(32, width, Offset)
#define KERNELS(depth, width, Offset)                                                             \
    OFFSETS(hack_offsets, false, depth, width, Offset)                                            \
    OFFSETS(small_hack_offsets, true, depth, width, Offset)                                       \
    FILL(depth, width, Offset, f64, double)                                                       \
    FILL(depth, width, Offset, f32, float)
#define OFFSETS(name, small, depth, width, Offset)                                                \
    extern "C" __global__ void __launch_bounds__(small ? 128 : 512, small ? 12 : 4)               \
    name##depth##_##width(                                                                        \
        uint32_t nrows, uint32_t hack, uint32_t most, uint32_t keep, const Offset* row_ptr,       \
        const uint32_t* col_idx, uint32_t* counts, int32_t* kept, const uint32_t* narrow,         \
        const uint64_t* wide, int32_t* offsets) {                                                 \
        hack_offsets<depth, small, Offset>(nrows, hack, most, keep, row_ptr, col_idx, counts,     \
                                           kept, narrow, wide, offsets);                          \
    }
#define FILL(depth, width, Offset, name, T)                                                       \
    extern "C" __global__ void __launch_bounds__(128) fill_diagonals##depth##_##width##_##name(   \
        uint32_t nrows, uint32_t hack, uint32_t hacks, const Offset* row_ptr,                     \
        const uint32_t* col_idx, const T* from, const uint32_t* narrow, const uint64_t* wide,     \
        const int32_t* offsets, T* values) {                                                      \
        fill_diagonals<depth, T, T, Offset>(nrows, hack, hacks, row_ptr, col_idx, from, narrow,   \
                                            wide, offsets, values);                               \
    }
DEPTHS(narrow, uint32_t)
DEPTHS(wide, uint64_t)
