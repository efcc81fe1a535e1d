// Columns of a CSR matrix that the GPU holds, stored as distances from the first column of their
// slot in hacks of 32 rows (src/format/sliced/hll_du/mod.rs): slot j of a hack holds entry j of its
// rows; four slots of a row are a run.
//
// Launch: blocks of 256 threads, one warp per hack, one lane per row. Row pointers are 32-bit
// (`*_narrow`) or 64-bit (`*_wide`). The slots of hack h, a multiple of 128, start at `narrow` or
// `wide`. `order` is the row of the matrix that each stored row is, or null; `to` relabels columns,
// or is null.
#include "common.cuh"
#include "quads.cuh"

constexpr uint32_t full = 0xffffffffu;

// A hack, with the row of this lane.
template <class Offset> struct Hack {
    uint64_t first;  // index of its first run
    uint32_t runs, length;
    const uint32_t* row;  // the columns of this lane
    const uint32_t* to;

    __device__ __forceinline__ Hack(uint32_t h, uint32_t nrows, const uint32_t* narrow,
                                    const uint64_t* wide, const uint32_t* order, const uint32_t* to,
                                    const Offset* row_ptr, const uint32_t* col_idx)
        : length(0), row(col_idx), to(to) {
        first = (narrow ? narrow[h] : wide[h]) / 128;
        runs = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) / 128 - first);
        const uint64_t i = uint64_t(h) * 32 + threadIdx.x % 32;
        if (i >= nrows) return;
        const uint64_t of = order ? order[i] : i;
        row += row_ptr[of];
        length = uint32_t(row_ptr[of + 1] - row_ptr[of]);
    }

    // The columns of a run; `full` past the end of the row.
    __device__ __forceinline__ Quad<uint32_t> run(uint32_t r) const {
        Quad<uint32_t> columns;
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) columns.words[k] = 4 * r + k < length ? row[4 * r + k] : full;
        if (to) {
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                if (4 * r + k < length) columns.words[k] = to[columns.words[k]];
        }
        return columns;
    }
};

// True if the type holds this distance; its largest number is reserved for padding.
template <class Column> __device__ __forceinline__ bool holds(uint32_t distance) {
    return distance < Column(~Column(0));
}

// The first column of each slot (0 for slots without entries), and for each hack its runs times its
// bytes per column.
template <class Offset>
__device__ __forceinline__ void firsts_of(uint32_t h, const Hack<Offset>& hack, uint4* firsts,
                                          uint32_t* units) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t farthest = 0;
#pragma unroll 2
    for (uint32_t r = 0; r < hack.runs; r++) {
        const Quad<uint32_t> columns = hack.run(r);
        Quad<uint32_t> first;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const uint32_t column = columns.words[k];
            const uint32_t low = __reduce_min_sync(full, column);
            const uint32_t high = __reduce_max_sync(full, column == full ? 0 : column);
            first.words[k] = low == full ? 0 : low;
            farthest = max(farthest, high - first.words[k]);
        }
        if (lane == 0) firsts[hack.first + r] = first.word();
    }
    const uint32_t bytes = holds<uint8_t>(farthest) ? 1 : holds<uint16_t>(farthest) ? 2 : 4;
    if (lane == 0) units[h] = hack.runs * bytes;
}

// Writes columns as distances, and padding.
template <class Column, class Offset>
__device__ __forceinline__ void distances(const Hack<Offset>& hack,
                                          const uint4* __restrict__ firsts, unsigned char* to) {
    using Word = typename Quad<Column>::Word;
    constexpr uint32_t padding = Column(~Column(0)), per_word = 4 / sizeof(Column);
    Word* words = reinterpret_cast<Word*>(to) + threadIdx.x % 32;
#pragma unroll 2
    for (uint32_t r = 0; r < hack.runs; r++) {
        const Quad<uint32_t> columns = hack.run(r);
        Quad<uint32_t> first;
        first = firsts[hack.first + r];
        Quad<Column> packed = {};
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t column = columns.words[k];
            const uint32_t distance = column == full ? padding : column - first.words[k];
            packed.words[k / per_word] |= distance << 8 * sizeof(Column) * (k % per_word);
        }
        words[32 * r] = packed.word();
    }
}

// The columns of hack h start at 128 times units[h].
template <class Offset>
__device__ __forceinline__ void pack(uint32_t h, const Hack<Offset>& hack, const uint4* firsts,
                                     const uint32_t* units, unsigned char* columns) {
    const uint32_t bytes = units[h + 1] - units[h];  // bytes per column, times runs
    columns += uint64_t(units[h]) * 128;
    if (bytes == hack.runs)
        distances<uint8_t>(hack, firsts, columns);
    else if (bytes == 2 * hack.runs)
        distances<uint16_t>(hack, firsts, columns);
    else
        distances<uint32_t>(hack, firsts, columns);
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256) firsts_##width(                             \
        uint32_t nrows, uint32_t hacks, const uint32_t* narrow, const uint64_t* wide,             \
        const uint32_t* order, const uint32_t* to, const Offset* row_ptr,                         \
        const uint32_t* col_idx, uint4* firsts, uint32_t* units) {                                \
        const uint32_t h = (blockIdx.x * blockDim.x + threadIdx.x) / 32;                          \
        if (h >= hacks) return;                                                                   \
        const Hack<Offset> hack(h, nrows, narrow, wide, order, to, row_ptr, col_idx);             \
        firsts_of(h, hack, firsts, units);                                                        \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) distances_##width(                          \
        uint32_t nrows, uint32_t hacks, const uint32_t* narrow, const uint64_t* wide,             \
        const uint32_t* order, const uint32_t* to, const Offset* row_ptr,                         \
        const uint32_t* col_idx, const uint4* firsts, const uint32_t* units,                      \
        unsigned char* columns) {                                                                 \
        const uint32_t h = (blockIdx.x * blockDim.x + threadIdx.x) / 32;                          \
        if (h >= hacks) return;                                                                   \
        const Hack<Offset> hack(h, nrows, narrow, wide, order, to, row_ptr, col_idx);             \
        pack(h, hack, firsts, units, columns);                                                    \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
