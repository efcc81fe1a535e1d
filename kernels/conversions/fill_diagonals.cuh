// The kernel that fills the diagonals of hacks from CSR rows (convert_diagonals.cu,
// convert_hdia_f32.cu).
#pragma once
#include "common.cuh"

constexpr uint32_t full = 0xffffffffu;
constexpr int32_t none = 0x7fffffff;  // larger than any offset

// Loads in flight at a time.
constexpr int batch = 8;

// Writes the values of each hack, diagonal by diagonal, and fill (-0.0) where a row has no entry. A
// warp processes 32 rows and `depth` diagonals at a time, on which a row has at most `depth`
// entries. Entries are read along the rows, matched with the diagonals, converted from type T to type
// Value, and transposed in shared memory.
template <int depth, class T, class Value, class Offset>
__device__ __forceinline__ void fill_diagonals(uint32_t nrows, uint32_t hack, uint32_t hacks,
                                               const Offset* __restrict__ row_ptr,
                                               const uint32_t* __restrict__ col_idx,
                                               const T* __restrict__ from, const uint32_t* narrow,
                                               const uint64_t* wide,
                                               const int32_t* __restrict__ offsets,
                                               Value* values) {
    constexpr int rows_a_part = 32 / depth;
    __shared__ Value tiles[4][depth][33];
    __shared__ int32_t lists[4][depth];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t first = (uint64_t(blockIdx.x) * 4 + warp) * 32, row = first + lane;
    const uint32_t h = uint32_t(first / hack);
    if (h >= hacks) return;
    Value (*const tile)[33] = tiles[warp];
    int32_t* const list = lists[warp];
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    Offset at = row < nrows ? row_ptr[row] : 0;
    const Offset end = row < nrows ? row_ptr[row + 1] : 0;
    values += start * hack + first % hack + lane;
    for (uint32_t c = 0; c < count; c += depth) {
        if (lane < depth) list[lane] = c + lane < count ? offsets[start + c + lane] : none;
#pragma unroll
        for (int d = 0; d < depth; d++) tile[d][lane] = Value(-0.0);
        __syncwarp();
        uint32_t taken = 0;
        for (int part = 0; part < 32; part += batch * rows_a_part) {
            int32_t offset[batch];
            T value[batch];
#pragma unroll
            for (int b = 0; b < batch; b++) {
                const uint32_t r = part + b * rows_a_part + lane / depth;
                const Offset k = __shfl_sync(full, at, r) + lane % depth;
                const bool is = k < __shfl_sync(full, end, r);
                offset[b] = is ? int32_t(int64_t(col_idx[k]) - int64_t(first + r)) : -none;
                value[b] = is ? from[k] : T(0);
            }
#pragma unroll
            for (int b = 0; b < batch; b++) {
                const uint32_t low = part + b * rows_a_part, r = low + lane / depth;
                // The last of these diagonals that is not above the entry's.
                uint32_t d = 0;
#pragma unroll
                for (int step = depth / 2; step > 0; step /= 2)
                    if (list[d + step] <= offset[b]) d += step;
                const bool is = list[d] == offset[b];
                if (is) tile[d][r] = Value(value[b] + T(0));
                const uint32_t all = __ballot_sync(full, is);
                if (lane >= low && lane < low + rows_a_part)
                    taken = __popc(all >> ((lane - low) * depth % 32) & (full >> (32 - depth)));
            }
        }
        at += taken;
        __syncwarp();
#pragma unroll 8
        for (int d = 0; d < depth; d++)
            if (c + d < count) values[uint64_t(c + d) * hack] = tile[d][lane];
        __syncwarp();
    }
}
