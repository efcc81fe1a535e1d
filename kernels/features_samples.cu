// The counts of sampled features (src/structure/sample.rs), of a CSR matrix that the GPU holds, at
// the same places as on the host.
//
// Launch: blocks of 256 threads unless said otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices rise in each row.
#include "counts.cuh"

// Places in the list of counts: as in src/device/cuda/features.rs.
enum : int {
    sectors_at = 0,  // of f32, of f64
    loads_at = 2,    // of f32, of f64, entries
    blocks_at = 5,   // entries and blocks for sides 2 to 6
    mirrored_at = 15,
    tasks_at = 16
};

// The `at`-th of `looked_at` samples of 0..n: `spread` of src/structure/sample.rs.
__device__ __forceinline__ uint64_t spread(uint64_t at, uint64_t looked_at, uint64_t n) {
    const uint64_t first = at * n / looked_at, end = (at + 1) * n / looked_at;
    const uint32_t share = uint32_t(at) * 0x9e3779b9u;
    return first + __umul64hi(end - first, uint64_t(share) << 32);
}

constexpr uint32_t mark_words = 10240;

// Distinct column / divisor of entries begin..end, all threads together: mine[1] is this thread's
// part of their number, mine[0] of the number of their pairs.
template <class Offset>
__device__ __forceinline__ void distinct(Offset begin, Offset end, uint32_t divisor, uint32_t ncols,
                                         const uint32_t* __restrict__ col_idx, uint32_t* marks,
                                         uint64_t* mine) {
    constexpr uint64_t keys = mark_words * 32;
    constexpr int deep = 8;
    for (uint64_t base = 0; base * divisor < ncols; base += keys) {
        const uint64_t left = (ncols - base * divisor) / divisor + 1;
        const uint32_t words = uint32_t(min(left, keys) / 32 + 1);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < words && i < mark_words; i += blockDim.x) marks[i] = 0;
        __syncthreads();
        for (uint64_t k = uint64_t(begin) + threadIdx.x; k < end; k += deep * blockDim.x) {
            uint32_t found[deep];
#pragma unroll
            for (int i = 0; i < deep; i++) {
                const uint64_t at = k + i * blockDim.x;
                found[i] = at < end ? col_idx[at] / divisor - uint32_t(base) : full;
            }
#pragma unroll
            for (int i = 0; i < deep; i++) {
                if (found[i] >= keys) continue;
                uint32_t* const word = marks + found[i] / 32;
                const uint32_t bit = 1u << found[i] % 32;
                if (!(*(volatile uint32_t*)word & bit)) atomicOr(word, bit);
            }
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < words && i < mark_words; i += blockDim.x) {
            mine[0] += __popc((marks[i] | marks[i] >> 1) & 0x55555555u);
            mine[1] += __popc(marks[i]);
        }
    }
    __syncthreads();
}

// Sectors of x that 32 rows ask for, one entry of each row a step: steps from `step` to `stop`,
// `ahead` of every `stride`.
constexpr int ahead = 4;

template <class Offset>
__device__ __forceinline__ void sectors_of(Offset begin, uint32_t length, uint32_t step,
                                           uint32_t stop, uint32_t stride,
                                           const uint32_t* __restrict__ col_idx, uint64_t* mine) {
    const uint32_t lane = threadIdx.x % 32;
    for (; step < stop; step += stride) {
        uint32_t sectors[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const uint32_t k = step + i;
            sectors[i] = k < stop && k < length ? col_idx[begin + k] / 4 : full;
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const uint32_t same = __match_any_sync(full, sectors[i]);
            const uint32_t pair = sectors[i] == full ? full : sectors[i] / 2;
            const uint32_t same_pair = __match_any_sync(full, pair);
            mine[0] += sectors[i] != full && __ffs(same_pair) - 1 == int(lane);
            mine[1] += sectors[i] != full && __ffs(same) - 1 == int(lane);
        }
    }
}

// Hacks of more steps than this are left to `sectors_again`, this many for a block; block rows of
// more entries than this are done by all warps of a block.
constexpr uint32_t warp_steps = 128, task_steps = 512, warp_entries = 1024;

// A hack of 32 rows, a lane a row.
template <class Offset> struct Hack {
    Offset begin;
    uint32_t length, longest, second;  // entries: of the row, of the two longest
    __device__ __forceinline__ Hack(uint64_t h, uint32_t nrows, const Offset* row_ptr) {
        const uint64_t row = h * 32 + threadIdx.x % 32;
        begin = row < nrows ? row_ptr[row] : 0;
        length = row < nrows ? uint32_t(row_ptr[row + 1] - begin) : 0;
        longest = __reduce_max_sync(full, length);
        const uint32_t leader = __ffs(__ballot_sync(full, length == longest)) - 1;
        second = __reduce_max_sync(full, threadIdx.x % 32 == leader ? 0 : length);
    }
};

// tasks: pairs of a hack and the first of its steps.
template <class Offset>
__device__ __forceinline__ void sample_sectors(uint32_t block, uint32_t looked_at, uint32_t nrows,
                                               const Offset* __restrict__ row_ptr,
                                               const uint32_t* __restrict__ col_idx, Sum* counts,
                                               uint2* tasks) {
    const uint64_t at = uint64_t(block) * 8 + threadIdx.x / 32;
    if (at >= looked_at) return;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t h = spread(at, looked_at, (uint64_t(nrows) + 31) / 32);
    const Hack<Offset> rows(h, nrows, row_ptr);
    // The longest row goes on alone past the second longest.
    const uint32_t alone = lane == 0 ? rows.longest - rows.second : 0;
    uint64_t mine[2] = {alone, alone};
    if (rows.second <= warp_steps) {
        sectors_of<Offset>(rows.begin, rows.length, 0, rows.second, ahead, col_idx, mine);
    } else {
        const uint32_t n = (rows.second - 1) / task_steps + 1;
        Sum first = 0;
        if (lane == 0) first = atomicAdd(counts + tasks_at, Sum(n));
        first = __shfl_sync(full, first, 0);
        for (uint32_t i = lane; i < n; i += 32)
            tasks[first + i] = make_uint2(uint32_t(h), i * task_steps);
    }
    add(counts + sectors_at, mine[0]);
    add(counts + sectors_at + 1, mine[1]);
}

template <class Offset>
__device__ __forceinline__ void sectors_again(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                              const uint32_t* __restrict__ col_idx, Sum* counts,
                                              const uint2* tasks) {
    uint64_t mine[2] = {0, 0};
    for (uint64_t i = blockIdx.x; i < counts[tasks_at]; i += gridDim.x) {
        const uint2 task = tasks[i];
        const Hack<Offset> rows(task.x, nrows, row_ptr);
        const uint32_t stop = uint32_t(min(uint64_t(task.y) + task_steps, uint64_t(rows.second)));
        sectors_of<Offset>(rows.begin, rows.length, task.y + threadIdx.x / 32 * ahead, stop,
                           8 * ahead, col_idx, mine);
    }
    add(counts + sectors_at, mine[0]);
    add(counts + sectors_at + 1, mine[1]);
}

// Sectors that blocks of 256 rows ask for: a block each, of 1024 threads.
template <class Offset>
__device__ __forceinline__ void sample_loads(uint32_t nrows, uint32_t ncols,
                                             const Offset* __restrict__ row_ptr,
                                             const uint32_t* __restrict__ col_idx, Sum* counts) {
    __shared__ uint32_t marks[mark_words];
    const uint64_t i = spread(blockIdx.x, gridDim.x, (uint64_t(nrows) + 255) / 256);
    const Offset begin = row_ptr[i * 256], end = row_ptr[min((i + 1) * 256, uint64_t(nrows))];
    uint64_t mine[2] = {0, 0};
    distinct<Offset>(begin, end, 4, ncols, col_idx, marks, mine);
    add(counts + loads_at, mine[0]);
    add(counts + loads_at + 1, mine[1]);
    if (threadIdx.x == 0) atomicAdd(counts + loads_at + 2, Sum(end - begin));
}

// Whether some of the columns begin..end, which rise, lie in this block of b columns.
template <class Offset>
__device__ __forceinline__ bool holds(Offset begin, Offset end, uint32_t block, uint32_t b,
                                      const uint32_t* __restrict__ col_idx) {
    begin = first_from(begin, end, block * b, col_idx);
    return begin < end && col_idx[begin] / b == block;
}

template <class Offset>
__device__ __forceinline__ void sample_blocks(uint32_t block, uint32_t b, uint32_t looked_at,
                                              uint32_t nrows, uint32_t ncols,
                                              const Offset* __restrict__ row_ptr,
                                              const uint32_t* __restrict__ col_idx,
                                              uint32_t* marks, Sum* counts) {
    __shared__ bool heavy[8];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const auto first_row = [&](uint32_t w) {
        const uint64_t at = uint64_t(block) * 8 + w;
        return at < looked_at ? spread(at, looked_at, (uint64_t(nrows) + b - 1) / b) * b : nrows;
    };
    const auto bound = [&](uint64_t row) { return row_ptr[min(row, uint64_t(nrows))]; };
    uint64_t entries = 0, blocks = 0;
    const uint64_t first = first_row(warp);
    const Offset begin = bound(first), end = bound(first + b);
    const bool left = end - begin > warp_entries;
    if (lane == 0) heavy[warp] = left, entries = end - begin;
    for (uint32_t r = 0; r < b && !left; r++) {
        const Offset row_begin = bound(first + r), row_end = bound(first + r + 1);
        for (uint64_t k = uint64_t(row_begin) + lane; k < row_end; k += 32) {
            const uint32_t own = col_idx[k] / b;
            // The first entry of a block is that of its first row, and of its first column there.
            bool found = k > row_begin && col_idx[k - 1] / b == own;
            for (uint32_t q = 0; q < r && !found; q++)
                found = holds<Offset>(bound(first + q), bound(first + q + 1), own, b, col_idx);
            blocks += !found;
        }
    }
    __syncthreads();
    uint64_t mine[2] = {0, 0};
    for (uint32_t w = 0; w < 8; w++) {
        if (!heavy[w]) continue;
        const uint64_t row = first_row(w);
        distinct<Offset>(bound(row), bound(row + b), b, ncols, col_idx, marks, mine);
    }
    add(counts + blocks_at + 2 * (b - 2), entries);
    add(counts + blocks_at + 2 * (b - 2) + 1, blocks + mine[1]);
}

template <class Offset>
__device__ __forceinline__ void sample_mirrors(uint32_t block, uint32_t looked_at, uint32_t nrows,
                                               uint64_t nnz, const Offset* __restrict__ row_ptr,
                                               const uint32_t* __restrict__ col_idx, Sum* counts) {
    const uint64_t at = uint64_t(block) * blockDim.x + threadIdx.x;
    bool found = false;
    if (at < looked_at) {
        const uint64_t k = spread(at, looked_at, nnz);
        uint32_t low = 0, high = nrows;  // the last row that starts at k or before
        while (high - low > 1) {
            const uint32_t middle = low + (high - low) / 2;
            if (row_ptr[middle] <= k)
                low = middle;
            else
                high = middle;
        }
        const uint32_t column = col_idx[k];
        found = holds<Offset>(row_ptr[column], row_ptr[column + 1], low, 1, col_idx);
    }
    add(counts + mirrored_at, found);
}

// Samples: blocks look at `mirrors` mirror images, at `warps` hacks and at block rows of sides 2 to 6.
template <class Offset>
__device__ __forceinline__ void samples(uint32_t nrows, uint32_t ncols, uint64_t nnz,
                                        uint32_t mirrors, uint32_t warps, const uint32_t* sides,
                                        const Offset* __restrict__ row_ptr,
                                        const uint32_t* __restrict__ col_idx, Sum* counts,
                                        uint2* tasks) {
    __shared__ uint32_t marks[mark_words];
    uint32_t block = blockIdx.x;
    if (block < (mirrors + 255) / 256)
        return sample_mirrors<Offset>(block, mirrors, nrows, nnz, row_ptr, col_idx, counts);
    block -= (mirrors + 255) / 256;
    if (block < (warps + 7) / 8)
        return sample_sectors<Offset>(block, warps, nrows, row_ptr, col_idx, counts, tasks);
    block -= (warps + 7) / 8;
    for (uint32_t b = 2; b <= 6; b++) {
        const uint32_t looked_at = sides[b - 2];
        if (block < (looked_at + 7) / 8)
            return sample_blocks<Offset>(block, b, looked_at, nrows, ncols, row_ptr, col_idx, marks,
                                         counts);
        block -= (looked_at + 7) / 8;
    }
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256) features_samples_##width(                   \
        uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t mirrors, uint32_t warps,           \
        uint32_t of_2, uint32_t of_3, uint32_t of_4, uint32_t of_5, uint32_t of_6,                \
        const Offset* row_ptr, const uint32_t* col_idx, Sum* counts, uint2* tasks) {              \
        const uint32_t sides[5] = {of_2, of_3, of_4, of_5, of_6};                                 \
        samples<Offset>(nrows, ncols, nnz, mirrors, warps, sides, row_ptr, col_idx, counts,       \
                        tasks);                                                                   \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        features_sectors_##width(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx,  \
                                 Sum* counts, const uint2* tasks) {                               \
        sectors_again<Offset>(nrows, row_ptr, col_idx, counts, tasks);                            \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(1024)                                            \
        features_loads_##width(uint32_t nrows, uint32_t ncols, const Offset* row_ptr,             \
                               const uint32_t* col_idx, Sum* counts) {                            \
        sample_loads<Offset>(nrows, ncols, row_ptr, col_idx, counts);                             \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
