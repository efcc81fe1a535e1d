// The counts that features are computed from (src/features/summary.rs), of a CSR matrix that the
// GPU holds: whole numbers, so that their order does not matter.
//
// Launch: blocks of 256 threads unless said otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices rise in each row and are below 2^32 - 256.
#include "common.cuh"

using Sum = unsigned long long;

constexpr uint32_t full = 0xffffffffu;

// Places in the list of counts: as in src/device/cuda/features.rs.
enum : int {
    longest_at = 0,   // sums over slices of 32, 64, 128, 256 rows of their longest rows
    sorted_at = 4,    // those of 32 rows where windows of 512 or 4096 rows are sorted
    profile_at = 6,
    span_sum_at,
    narrow_at,
    bandwidth_at,     // from here on the largest counts,
    span_max_at,      // up to here
    inside_at,        // entries in windows of 4096 and 16384
    diagonals_at = inside_at + 2,  // of all rows, of hacks of 32 and of 256
    sectors_at = diagonals_at + 3, // of f32, of f64
    loads_at = sectors_at + 2,     // of f32, of f64, entries
    blocks_at = loads_at + 3,      // entries and blocks for sides 2 to 6
    mirrored_at = blocks_at + 10,
    long_rows_at,     // lengths of lists
    long_columns_at,
    tasks_at,
    unsure_at         // whether some diagonals were not counted
};

constexpr uint32_t windows = 4096;  // rows of a block of `rows`; values of one of `columns`
constexpr uint32_t bins = 4096;     // values that are counted by a bin each

// *to += the sum of `mine` over the warp, *to in shared or global memory.
__device__ __forceinline__ void add(Sum* to, uint64_t mine) {
    const uint64_t sum = group_sum<32>(mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// Stages `from` to `to` of a bitonic sort of `windows` numbers: runs of `to` are sorted afterwards,
// downwards and upwards in turn; all of them downwards at last.
template <uint32_t threads>
__device__ __forceinline__ void sort_stages(uint32_t* s, uint32_t from, uint32_t to) {
    for (uint32_t k = from; k <= to; k *= 2) {
        for (uint32_t j = k / 2; j > 0; j /= 2) {
            // Steps of up to 32 stay within the 64 numbers of a warp.
            if (j > 32 || (j == 32 && k > 64))
                __syncthreads();
            else
                __syncwarp();
            for (uint32_t p = threadIdx.x; p < windows / 2; p += threads) {
                const uint32_t i = 2 * p - (p & (j - 1)), a = s[i], b = s[i + j];
                if ((i & k) == 0 ? a < b : a > b) s[i] = b, s[i + j] = a;
            }
        }
    }
    __syncthreads();
}

// Counts how often each of `windows` sorted numbers occurs, of which all but the first n are zeros
// that do not count: bins[v], or a list of those that are larger.
template <uint32_t threads>
__device__ __forceinline__ void tally(const uint32_t* s, uint32_t n, uint32_t* counts,
                                      Sum* longer_len, uint32_t* longer) {
    for (uint32_t i = threadIdx.x; i < windows; i += threads) {
        const uint32_t v = s[i];
        if (v >= bins) {
            longer[atomicAdd(longer_len, Sum(1))] = v;
            continue;
        }
        // A run adds its end and takes off its start.
        if (i == 0 || s[i - 1] != v) atomicAdd(counts + v, 0u - i);
        if (i + 1 == windows || s[i + 1] != v) atomicAdd(counts + v, v == 0 ? n : i + 1);
    }
}

// Row lengths, and what the first and the last entry of each row tell: a block takes 4096 rows.
// Blocks of 1024 threads.
template <class Offset>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx, Sum* counts,
                                     uint32_t* length_bins, uint32_t* longer) {
    constexpr uint32_t threads = 1024;
    __shared__ uint32_t s[windows];
    __shared__ uint32_t longest[windows / 32];
    __shared__ Sum sums[inside_at];
    if (threadIdx.x < inside_at) sums[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t first = uint64_t(blockIdx.x) * windows;
    uint32_t bandwidth = 0, span_max = 0, narrow = 0;
    uint64_t profile = 0, span_sum = 0;
    for (uint32_t i = threadIdx.x; i < windows; i += threads) {
        const uint64_t row = first + i;
        uint32_t length = 0, low = full, high = 0;
        if (row < nrows) {
            const Offset begin = row_ptr[row], end = row_ptr[row + 1];
            length = uint32_t(end - begin);
            if (length > 0) {
                const uint32_t r = uint32_t(row);
                low = col_idx[begin], high = col_idx[end - 1];
                bandwidth = max(bandwidth, max(r > low ? r - low : low - r,
                                               r > high ? r - high : high - r));
                profile += r > low ? r - low : 0;
            }
        }
        s[i] = length;
        const uint32_t most = __reduce_max_sync(full, length);
        low = __reduce_min_sync(full, low), high = __reduce_max_sync(full, high);
        if (lane == 0) {
            longest[i / 32] = most;
            if (row < nrows) {
                const uint32_t span = low == full ? 0 : high - low + 1;
                span_max = max(span_max, span), span_sum += span, narrow += span <= 0xffff;
            }
        }
    }
    add(sums + profile_at, profile);
    bandwidth = __reduce_max_sync(full, bandwidth);
    if (lane == 0) {
        atomicAdd(sums + span_sum_at, Sum(span_sum));
        atomicAdd(sums + narrow_at, Sum(narrow));
        atomicMax(sums + bandwidth_at, Sum(bandwidth));
        atomicMax(sums + span_max_at, Sum(span_max));
    }
    __syncthreads();
    if (threadIdx.x < windows / 32) {
        uint32_t most = longest[threadIdx.x];
        add(sums + longest_at, most);
        for (uint32_t step = 1; step < 8; step *= 2) {
            most = max(most, __shfl_xor_sync(full, most, step));
            const int at = step == 1 ? 1 : step == 2 ? 2 : 3;
            add(sums + longest_at + at, threadIdx.x % (2 * step) == 0 ? most : 0);
        }
    }
    sort_stages<threads>(s, 2, 512);
    uint64_t sum = 0;
    for (uint32_t i = threadIdx.x; i < windows; i += threads)
        sum += i % 32 == ((i & 512) ? 31 : 0) ? s[i] : 0;
    add(sums + sorted_at, sum);
    __syncthreads();
    sort_stages<threads>(s, 1024, windows);
    sum = 0;
    for (uint32_t i = threadIdx.x; i < windows; i += threads) sum += i % 32 == 0 ? s[i] : 0;
    add(sums + sorted_at + 1, sum);
    const uint32_t n = uint32_t(min(uint64_t(windows), nrows - first));
    tally<threads>(s, n, length_bins, counts + long_rows_at, longer);
    __syncthreads();
    if (threadIdx.x < bandwidth_at)
        atomicAdd(counts + threadIdx.x, sums[threadIdx.x]);
    else if (threadIdx.x < inside_at)
        atomicMax(counts + threadIdx.x, sums[threadIdx.x]);
}

// How often each count of entries of a column occurs: a block takes 4096 columns. Blocks of 1024
// threads.
__device__ __forceinline__ void columns(uint32_t ncols, const uint32_t* __restrict__ column_counts,
                                        Sum* counts, uint32_t* count_bins, uint32_t* longer) {
    constexpr uint32_t threads = 1024;
    __shared__ uint32_t s[windows];
    const uint64_t first = uint64_t(blockIdx.x) * windows;
    for (uint32_t i = threadIdx.x; i < windows; i += threads)
        s[i] = first + i < ncols ? column_counts[first + i] : 0;
    __syncthreads();
    sort_stages<threads>(s, 2, windows);
    const uint32_t n = uint32_t(min(uint64_t(windows), ncols - first));
    tally<threads>(s, n, count_bins, counts + long_columns_at, longer);
}

// The last of the places 0..n whose number `start` gives is at most k; that of place 0 is. The
// whole warp asks alike.
template <class Start>
__device__ __forceinline__ uint64_t last_at_most(uint64_t k, uint64_t n, const Start& start) {
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        const uint64_t stride = (high - low + 31) / 32;
        const uint64_t at = low + (threadIdx.x % 32 + 1) * stride;
        const uint32_t passed = __popc(__ballot_sync(full, at < high && start(at) <= k));
        low += passed * stride;
        high = min(high, low + stride);
    }
    return low;
}

// Entries of each column, and entries near the diagonal: a warp takes 1024 entries.
template <class Offset>
__device__ __forceinline__ void entries(uint32_t nrows, uint64_t nnz,
                                        const Offset* __restrict__ row_ptr,
                                        const uint32_t* __restrict__ col_idx,
                                        uint32_t* column_counts, Sum* counts) {
    constexpr uint64_t part = 4096, parts = 16384, each = 1024;
    constexpr int ahead = 4;
    __shared__ Sum sums[2];
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t begin = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * each;
    const uint64_t end = min(begin + each, nnz);
    const auto start = [&](uint64_t window) {
        return uint64_t(row_ptr[min(window * part, uint64_t(nrows))]);
    };
    uint32_t near = 0, nearer = 0;
    for (uint64_t k = begin; k < end;) {
        const uint64_t window = last_at_most(k, (nrows + part - 1) / part, start);
        const uint64_t stop = min(end, start(window + 1));
        const uint32_t row = uint32_t(window * part), outer = uint32_t(row / parts * parts);
        for (uint64_t at = k + lane; at < stop; at += 32 * ahead) {
            uint32_t columns[ahead];
#pragma unroll
            for (int i = 0; i < ahead; i++)
                columns[i] = at + 32 * i < stop ? col_idx[at + 32 * i] : full;
#pragma unroll
            for (int i = 0; i < ahead; i++) {
                if (columns[i] == full) continue;
                nearer += columns[i] - row < part;
                near += columns[i] - outer < parts;
                atomicAdd(column_counts + columns[i], 1u);
            }
        }
        k = stop;
    }
    add(sums, nearer);
    add(sums + 1, near);
    __syncthreads();
    if (threadIdx.x < 2 && sums[threadIdx.x] > 0) atomicAdd(counts + inside_at + threadIdx.x, sums[threadIdx.x]);
}

// The diagonals of hacks of 256 rows, and of their 32s: a block a hack, a warp 32 rows. Offsets are
// kept in a table, each with the warps that have seen it. Where they may be too many, the hack is
// done again in parts, each with the offsets whose hash falls to it.
constexpr uint32_t hack = 256, slots = 8192, most_slots = 6144, part_entries = 4096;
constexpr uint32_t most_entries = 1u << 31;  // of 32 rows

// Spreads the bits of a number.
__device__ __forceinline__ uint32_t mixed(uint32_t key) {
    key = (key ^ key >> 16) * 0x85ebca6bu;
    key = (key ^ key >> 13) * 0xc2b2ae35u;
    return key ^ key >> 16;
}

// Whether all diagonals of the part were counted.
template <class Offset>
__device__ __forceinline__ bool count_diagonals(uint64_t h, uint32_t part, uint32_t parts,
                                                uint32_t nrows, const Offset* __restrict__ row_ptr,
                                                const uint32_t* __restrict__ col_idx,
                                                uint32_t* seen, Sum* counts) {
    __shared__ uint4 table[slots / 4];
    __shared__ uint4 warps_of[slots / 16];
    __shared__ uint32_t filled;
    __shared__ Sum sums[2];
    uint32_t* const keys = reinterpret_cast<uint32_t*>(table);
    uint32_t* const marks = reinterpret_cast<uint32_t*>(warps_of);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < slots / 4; i += hack) table[i] = make_uint4(full, full, full, full);
    for (uint32_t i = threadIdx.x; i < slots / 16; i += hack) warps_of[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) filled = 0;
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    __syncthreads();

    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t row = h * hack + threadIdx.x;
    const Offset first = __shfl_sync(full, row_ptr[min(row, uint64_t(nrows))], 0);
    const uint64_t end_of_row = row_ptr[min(row + 1, uint64_t(nrows))] - first;
    const bool countable = __shfl_sync(full, end_of_row, 31) <= most_entries;
    if (!countable && lane == 0) atomicAdd(&filled, most_slots + 1);
    const uint32_t end = countable ? uint32_t(end_of_row) : 0;
    const uint32_t last = __shfl_sync(full, end, 31);
    col_idx += first;
    uint32_t all = 0, of_32 = 0;
    uint32_t next = lane < last ? __ldg(col_idx + lane) : 0;
    for (uint32_t k0 = 0; k0 < last; k0 += 32) {
        const uint32_t k = k0 + lane, column = next;
        next = k + 32 < last ? __ldg(col_idx + k + 32) : 0;
        uint32_t r = 0;  // of the 32 rows, those that have ended before entry k
#pragma unroll
        for (uint32_t step = 16; step > 0; step /= 2)
            if (__shfl_sync(full, end, r + step - 1) <= k) r += step;
        const uint32_t key = column + (hack - 1) - (32 * warp + r), hash = mixed(key);
        bool fresh = false;
        if (k < last && (parts == 1 || __umulhi(hash, parts) == part)) {
            uint32_t slot = hash % slots;
            while (true) {
                uint32_t found = *(volatile uint32_t*)(keys + slot);
                if (found == full) {
                    found = atomicCAS(keys + slot, full, key);
                    fresh = found == full;
                }
                if (fresh || found == key) break;
                slot = (slot + 1) % slots;
            }
            const uint32_t bit = 1u << (slot % 4 * 8 + warp);
            if (!(*(volatile uint32_t*)(marks + slot / 4) & bit))
                of_32 += !(atomicOr(marks + slot / 4, bit) & bit);
            if (fresh) {
                const uint64_t diagonal = uint64_t(key) + nrows - hack - h * hack;
                const uint32_t mark = 1u << diagonal % 32;
                if (!(__ldcg(seen + diagonal / 32) & mark))
                    all += !(atomicOr(seen + diagonal / 32, mark) & mark);
            }
        }
        const uint32_t more = __popc(__ballot_sync(full, fresh));
        if (lane == 0 && more > 0) atomicAdd(&filled, more);
        // At most 256 more are put in before all warps see that there are too many.
        if (__any_sync(full, *(volatile uint32_t*)&filled > most_slots)) break;
    }
    add(sums, all);
    add(sums + 1, of_32);
    __syncthreads();
    const bool counted = filled <= most_slots;
    if (threadIdx.x == 0) {
        if (sums[0] > 0) atomicAdd(counts + diagonals_at, sums[0]);
        if (counted) {
            atomicAdd(counts + diagonals_at + 1, sums[1]);
            atomicAdd(counts + diagonals_at + 2, Sum(filled));
        }
    }
    return counted;
}

template <class Offset>
__device__ __forceinline__ uint32_t parts_of(uint64_t h, uint32_t nrows, const Offset* row_ptr) {
    const uint64_t n = row_ptr[min((h + 1) * hack, uint64_t(nrows))] - row_ptr[h * hack];
    return uint32_t(n / part_entries + 1);
}

// tasks: pairs of a hack and a part of it that are left to do.
template <class Offset>
__device__ __forceinline__ void diagonals(uint32_t nrows, const Offset* row_ptr,
                                          const uint32_t* col_idx, uint32_t* seen, Sum* counts,
                                          uint2* tasks) {
    __shared__ Sum at;
    if (count_diagonals<Offset>(blockIdx.x, 0, 1, nrows, row_ptr, col_idx, seen, counts)) return;
    const uint32_t parts = parts_of(blockIdx.x, nrows, row_ptr);
    if (threadIdx.x == 0) at = atomicAdd(counts + tasks_at, Sum(parts));
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < parts; i += blockDim.x)
        tasks[at + i] = make_uint2(blockIdx.x, i);
}

template <class Offset>
__device__ __forceinline__ void diagonals_again(uint32_t nrows, const Offset* row_ptr,
                                                const uint32_t* col_idx, uint32_t* seen,
                                                Sum* counts, const uint2* tasks) {
    for (uint64_t i = blockIdx.x; i < counts[tasks_at]; i += gridDim.x) {
        const uint2 task = tasks[i];
        const uint32_t parts = parts_of(task.x, nrows, row_ptr);
        if (!count_diagonals<Offset>(task.x, task.y, parts, nrows, row_ptr, col_idx, seen, counts))
            counts[unsure_at] = 1;
    }
}

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
    for (uint64_t base = 0; base * divisor < ncols; base += keys) {
        const uint64_t left = (ncols - base * divisor) / divisor + 1;
        const uint32_t words = uint32_t(min(left, keys) / 32 + 1);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < words && i < mark_words; i += blockDim.x) marks[i] = 0;
        __syncthreads();
        for (uint64_t k = uint64_t(begin) + threadIdx.x; k < end; k += blockDim.x) {
            const uint64_t key = col_idx[k] / divisor - base;
            if (key >= keys) continue;
            const uint32_t bit = 1u << key % 32;
            if (!(*(volatile uint32_t*)(marks + key / 32) & bit)) atomicOr(marks + key / 32, bit);
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

// Groups of more work than this are done by all warps of a block.
constexpr uint32_t warp_steps = 256, warp_entries = 1024;

template <class Offset>
__device__ __forceinline__ void sample_sectors(uint32_t block, uint32_t looked_at, uint32_t nrows,
                                               const Offset* __restrict__ row_ptr,
                                               const uint32_t* __restrict__ col_idx, Sum* counts) {
    __shared__ bool heavy[8];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t mine[2] = {0, 0};
    const auto group = [&](uint32_t w, uint32_t step, uint32_t stride, bool whole) {
        const uint64_t at = uint64_t(block) * 8 + w;
        if (at >= looked_at) return false;
        const uint64_t row = spread(at, looked_at, (uint64_t(nrows) + 31) / 32) * 32 + lane;
        Offset begin = 0;
        uint32_t length = 0;
        if (row < nrows) begin = row_ptr[row], length = uint32_t(row_ptr[row + 1] - begin);
        // The longest row goes on alone past the second longest.
        const uint32_t longest = __reduce_max_sync(full, length);
        const uint32_t leader = __ffs(__ballot_sync(full, length == longest)) - 1;
        const uint32_t second = __reduce_max_sync(full, lane == leader ? 0 : length);
        if (!whole && second > warp_steps) return true;
        sectors_of<Offset>(begin, length, step, second, stride, col_idx, mine);
        if (lane == 0 && step == 0) mine[0] += longest - second, mine[1] += longest - second;
        return false;
    };
    const bool left = group(warp, 0, ahead, false);
    if (lane == 0) heavy[warp] = left;
    __syncthreads();
    for (uint32_t w = 0; w < 8; w++)
        if (heavy[w]) group(w, warp * ahead, 8 * ahead, true);
    add(counts + sectors_at, mine[0]);
    add(counts + sectors_at + 1, mine[1]);
}

template <class Offset>
__device__ __forceinline__ void sample_loads(uint32_t at, uint32_t looked_at, uint32_t nrows,
                                             uint32_t ncols, const Offset* __restrict__ row_ptr,
                                             const uint32_t* __restrict__ col_idx, uint32_t* marks,
                                             Sum* counts) {
    const uint64_t i = spread(at, looked_at, (uint64_t(nrows) + 255) / 256);
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
    const Offset stop = end;
    while (begin < end) {
        const Offset middle = begin + (end - begin) / 2;
        if (col_idx[middle] < block * b)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin < stop && col_idx[begin] / b == block;
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

// Samples: blocks look at `loads` blocks of rows, at `mirrors` mirror images, at `warps` hacks and at
// block rows of sides 2 to 6.
template <class Offset>
__device__ __forceinline__ void samples(uint32_t nrows, uint32_t ncols, uint64_t nnz,
                                        uint32_t mirrors, uint32_t loads, uint32_t warps,
                                        const uint32_t* sides, const Offset* __restrict__ row_ptr,
                                        const uint32_t* __restrict__ col_idx, Sum* counts) {
    __shared__ uint32_t marks[mark_words];
    uint32_t block = blockIdx.x;
    if (block < loads)
        return sample_loads<Offset>(block, loads, nrows, ncols, row_ptr, col_idx, marks, counts);
    block -= loads;
    if (block < (mirrors + 255) / 256)
        return sample_mirrors<Offset>(block, mirrors, nrows, nnz, row_ptr, col_idx, counts);
    block -= (mirrors + 255) / 256;
    if (block < (warps + 7) / 8)
        return sample_sectors<Offset>(block, warps, nrows, row_ptr, col_idx, counts);
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
    extern "C" __global__ void __launch_bounds__(1024)                                            \
        features_rows_##width(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx,     \
                              Sum* counts, uint32_t* length_bins, uint32_t* longer) {             \
        rows<Offset>(nrows, row_ptr, col_idx, counts, length_bins, longer);                       \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        features_entries_##width(uint32_t nrows, uint64_t nnz, const Offset* row_ptr,             \
                                 const uint32_t* col_idx, uint32_t* column_counts, Sum* counts) { \
        entries<Offset>(nrows, nnz, row_ptr, col_idx, column_counts, counts);                     \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(1024)                                            \
        features_columns_##width(uint32_t ncols, const uint32_t* column_counts, Sum* counts,      \
                                 uint32_t* count_bins, uint32_t* longer) {                        \
        columns(ncols, column_counts, counts, count_bins, longer);                                \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        features_diagonals_##width(uint32_t nrows, const Offset* row_ptr,                         \
                                   const uint32_t* col_idx, uint32_t* seen, Sum* counts,          \
                                   uint2* tasks) {                                                \
        diagonals<Offset>(nrows, row_ptr, col_idx, seen, counts, tasks);                          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        features_again_##width(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx,    \
                               uint32_t* seen, Sum* counts, const uint2* tasks) {                 \
        diagonals_again<Offset>(nrows, row_ptr, col_idx, seen, counts, tasks);                    \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) features_samples_##width(                   \
        uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t mirrors, uint32_t loads,           \
        uint32_t warps, uint32_t of_2, uint32_t of_3, uint32_t of_4, uint32_t of_5,               \
        uint32_t of_6, const Offset* row_ptr, const uint32_t* col_idx, Sum* counts) {             \
        const uint32_t sides[5] = {of_2, of_3, of_4, of_5, of_6};                                 \
        samples<Offset>(nrows, ncols, nnz, mirrors, loads, warps, sides, row_ptr, col_idx,        \
                        counts);                                                                  \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
