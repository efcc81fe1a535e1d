// The counts that features are computed from (src/features/summary.rs), of a CSR matrix that the
// GPU holds: whole numbers, so that their order does not matter.
//
// Launch: blocks of 256 threads unless said otherwise. Row pointers are 32-bit (`*_narrow`) or
// 64-bit (`*_wide`). Column indices rise in each row and are below 2^32 - 256.
#include "counts.cuh"

// Places in the list of counts: as in src/device/cuda/features.rs.
enum : int {
    longest_at = 0,  // sums over slices of 32, 64, 128, 256 rows of their longest rows
    sorted_at = 4,   // those of 32 rows where windows of 512 or 4096 rows are sorted
    profile_at = 6,
    span_sum_at,
    narrow_at,
    bandwidth_at,    // from here on the largest counts,
    span_max_at,     // up to here
    inside_at,       // entries in windows of 4096 and 16384
    diagonals_at = inside_at + 2,  // of all rows, of hacks of 32 and of 256
    long_rows_at = diagonals_at + 3,
    long_columns_at, // lengths of lists
    tasks_at,
    uncounted_at     // whether some diagonals were not counted
};

constexpr uint32_t windows = 4096;  // rows of a block of `rows`; values of one of `columns`
constexpr uint32_t bins = 4096;     // values that are counted by a bin each

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

// The diagonals of hacks of 256 rows, and of their 32s: a block a hack. Offsets are kept in a table,
// each with the 32s that have it. Where they are too many for it, the hack is done again in parts:
// those of the offsets whose hash falls to a part, or where these would be many, ranges of offsets,
// which rows of rising columns have side by side, marked in bits.
constexpr uint32_t hack = 256, slots = 8192, most_slots = 6144, part_entries = 4096;
constexpr uint32_t range_words = 1280, range = 32 * range_words;
constexpr uint32_t space_words = slots + slots / 4;
static_assert(8 * range_words == space_words, "both kinds of part use the same memory");

// Spreads the bits of a number.
__device__ __forceinline__ uint32_t mixed(uint32_t key) {
    key = (key ^ key >> 16) * 0x85ebca6bu;
    key = (key ^ key >> 13) * 0xc2b2ae35u;
    return key ^ key >> 16;
}

// Counts the diagonals of a part: of a range of offsets where `ranged`. Whether all were counted.
template <class Offset>
__device__ __forceinline__ bool count_diagonals(uint64_t h, uint32_t part, uint32_t parts,
                                                bool ranged, uint32_t nrows,
                                                const Offset* __restrict__ row_ptr,
                                                const uint32_t* __restrict__ col_idx,
                                                uint32_t* seen, Sum* counts) {
    constexpr int ahead = 4;
    __shared__ uint32_t keys[space_words];
    __shared__ uint32_t ends[hack];  // of the rows among the entries of the part
    __shared__ Offset from[hack];    // where entry 0 would be if all were this row's
    __shared__ uint64_t before[hack / 32];
    __shared__ uint32_t filled;
    __shared__ Sum sums[2];
    uint32_t* const marks = keys + slots;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < space_words; i += hack)
        keys[i] = ranged || i >= slots ? 0 : full;
    if (threadIdx.x == 0) filled = 0;
    if (threadIdx.x < 2) sums[threadIdx.x] = 0;
    // The key of an entry: its column and how many rows of the hack are below its own.
    const uint64_t row = h * hack + threadIdx.x;
    const uint32_t above = hack - 1 - threadIdx.x;
    const int64_t low = ranged ? int64_t(part) * range : 0;
    Offset begin = row_ptr[min(row, uint64_t(nrows))], end = row_ptr[min(row + 1, uint64_t(nrows))];
    if (ranged) {
        begin = first_from<Offset>(begin, end, low - above, col_idx);
        end = first_from<Offset>(begin, end, low + range - above, col_idx);
    }
    uint64_t sum = end - begin;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint64_t other = __shfl_up_sync(full, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) before[warp] = sum;
    __syncthreads();
    uint64_t n = 0;
    for (uint32_t w = 0; w < hack / 32; w++) {
        if (w < warp) sum += before[w];
        n += before[w];
    }
    const bool countable = n < full;
    ends[threadIdx.x] = uint32_t(sum);
    from[threadIdx.x] = end - Offset(sum);
    if (!countable && threadIdx.x == 0) filled = most_slots + 1;
    __syncthreads();

    uint32_t all = 0, of_32 = 0, of_256 = 0;
    for (uint64_t k0 = 32 * warp; countable && k0 < n; k0 += ahead * hack) {
        uint32_t rows[ahead], columns[ahead];
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const uint64_t k = k0 + lane + i * hack;
            rows[i] = 0;
            if (k >= n) continue;
#pragma unroll
            for (uint32_t step = hack / 2; step > 0; step /= 2)
                if (ends[rows[i] + step - 1] <= k) rows[i] += step;
            columns[i] = __ldg(col_idx + Offset(from[rows[i]] + Offset(k)));
        }
#pragma unroll
        for (int i = 0; i < ahead; i++) {
            const bool mine = k0 + lane + i * hack < n;
            const uint32_t key = mine ? columns[i] + (hack - 1) - rows[i] : 0;
            const uint32_t of = rows[i] / 32;
            bool fresh = false;
            if (mine && ranged) {
                const uint32_t at = key - uint32_t(low), bit = 1u << at % 32;
                uint32_t* const word = keys + of * range_words + at / 32;
                fresh = !(*(volatile uint32_t*)word & bit) && !(atomicOr(word, bit) & bit);
                of_32 += fresh;
            } else if (mine) {
                const uint32_t hash = mixed(key);
                if (parts == 1 || __umulhi(hash, parts) == part) {
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
                    uint32_t* const word = marks + slot / 4;
                    const uint32_t bit = 1u << (slot % 4 * 8 + of);
                    if (!(*(volatile uint32_t*)word & bit)) of_32 += !(atomicOr(word, bit) & bit);
                }
            }
            if (fresh) {
                const uint64_t diagonal = uint64_t(key) + nrows - hack - h * hack;
                const uint32_t bit = 1u << diagonal % 32;
                if (!(__ldcg(seen + diagonal / 32) & bit))
                    all += !(atomicOr(seen + diagonal / 32, bit) & bit);
            }
            const uint32_t more = ranged ? 0 : __popc(__ballot_sync(full, fresh));
            if (lane == 0 && more > 0) atomicAdd(&filled, more);
        }
        // At most 1024 more are put in before all warps see that there are too many.
        if (__any_sync(full, *(volatile uint32_t*)&filled > most_slots)) break;
    }
    add(sums, all);
    add(sums + 1, of_32);
    __syncthreads();
    for (uint32_t i = threadIdx.x; ranged && i < range_words; i += hack) {
        uint32_t word = 0;
        for (uint32_t of = 0; of < hack / 32; of++) word |= keys[of * range_words + i];
        of_256 += __popc(word);
    }
    add(counts + diagonals_at + 2, of_256);
    const bool counted = filled <= most_slots;
    if (threadIdx.x == 0) {
        if (sums[0] > 0) atomicAdd(counts + diagonals_at, sums[0]);
        if (counted) atomicAdd(counts + diagonals_at + 1, sums[1]);
        if (counted && !ranged) atomicAdd(counts + diagonals_at + 2, Sum(filled));
    }
    return counted;
}

// The parts of a hack that is done again: those by hash, or ranges where these are fewer.
template <class Offset>
__device__ __forceinline__ uint32_t parts_of(uint64_t h, uint32_t nrows, uint32_t ncols,
                                             const Offset* row_ptr, bool* ranged) {
    const uint64_t n = row_ptr[min((h + 1) * hack, uint64_t(nrows))] - row_ptr[h * hack];
    const uint64_t ranges = (uint64_t(ncols) + hack) / range + 1, by_hash = n / part_entries + 1;
    *ranged = ranges < by_hash;
    return uint32_t(min(ranges, by_hash));
}

// tasks: pairs of a hack and a part of it that are left to do.
template <class Offset>
__device__ __forceinline__ void diagonals(uint32_t nrows, uint32_t ncols, const Offset* row_ptr,
                                          const uint32_t* col_idx, uint32_t* seen, Sum* counts,
                                          uint2* tasks) {
    __shared__ Sum at;
    const uint32_t h = blockIdx.x;
    if (count_diagonals<Offset>(h, 0, 1, false, nrows, row_ptr, col_idx, seen, counts)) return;
    bool ranged;
    const uint32_t parts = parts_of(h, nrows, ncols, row_ptr, &ranged);
    if (threadIdx.x == 0) at = atomicAdd(counts + tasks_at, Sum(parts));
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < parts; i += blockDim.x) tasks[at + i] = make_uint2(h, i);
}

template <class Offset>
__device__ __forceinline__ void diagonals_again(uint32_t nrows, uint32_t ncols,
                                                const Offset* row_ptr, const uint32_t* col_idx,
                                                uint32_t* seen, Sum* counts, const uint2* tasks) {
    for (uint64_t i = blockIdx.x; i < counts[tasks_at]; i += gridDim.x) {
        const uint2 task = tasks[i];
        bool ranged;
        const uint32_t parts = parts_of(task.x, nrows, ncols, row_ptr, &ranged);
        if (!count_diagonals<Offset>(task.x, task.y, parts, ranged, nrows, row_ptr, col_idx, seen,
                                     counts))
            counts[uncounted_at] = 1;
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
        features_diagonals_##width(uint32_t nrows, uint32_t ncols, const Offset* row_ptr,         \
                                   const uint32_t* col_idx, uint32_t* seen, Sum* counts,          \
                                   uint2* tasks) {                                                \
        diagonals<Offset>(nrows, ncols, row_ptr, col_idx, seen, counts, tasks);                   \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        features_again_##width(uint32_t nrows, uint32_t ncols, const Offset* row_ptr,             \
                               const uint32_t* col_idx, uint32_t* seen, Sum* counts,              \
                               const uint2* tasks) {                                              \
        diagonals_again<Offset>(nrows, ncols, row_ptr, col_idx, seen, counts, tasks);             \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
