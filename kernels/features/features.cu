// The counts from which features are computed (src/features/summary.rs), for a CSR matrix that the
// GPU holds, with the same samples as on the host. Counts are whole numbers, so their order of
// summation does not matter.
//
// Launch: blocks of 256 threads, each of which processes rows or samples, and any number of further
// blocks, which help with long rows. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
// Column indices ascend in each row and are below 2^32 - 256. All memory that is written to
// initially holds zeros.
#include "job.cuh"
#include "lengths.cuh"

// Row lengths: a block processes 4096 rows.
template <class Offset>
__device__ __forceinline__ void lengths(const Job<Offset>& job, uint32_t block) {
    constexpr uint32_t own = windows / threads;
    __shared__ uint4 times[windows / 4];
    uint32_t* const s = reinterpret_cast<uint32_t*>(times);
    __shared__ uint32_t longest[windows / 32];
    __shared__ Sum sums[long_rows_at];
    __shared__ LongRows long_rows;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t first = block * windows, n = min(windows, job.nrows - first);
    const uint32_t mine = warp * (32 * own) + lane;
    uint32_t* const length_bins = reinterpret_cast<uint32_t*>(job.counts + bins_at);
    if (threadIdx.x < long_rows_at) sums[threadIdx.x] = 0;
    long_rows.clear();
    Offset start[own + 1];
#pragma unroll
    for (uint32_t i = 0; i <= own; i++) start[i] = job.row_ptr[first + min(n, mine + 32 * i)];
    uint32_t length[own], most = 0;
#pragma unroll
    for (uint32_t i = 0; i < own; i++) {
        const Offset next = __shfl_sync(full, lane == 0 ? start[i + 1] : start[i], lane + 1);
        length[i] = uint32_t(next - start[i]);
        const uint32_t of_32 = __reduce_max_sync(full, length[i]);
        if (lane == 0) longest[mine / 32 + i] = of_32;
        most = max(most, of_32);
        s[mine + 32 * i] = 0;
    }
    const bool some_long = __syncthreads_or(most >= short_rows);
    if (threadIdx.x < windows / 32) {
        most = longest[threadIdx.x];
        add_wide(sums + longest_at, most);
#pragma unroll 1
        for (uint32_t step = 1; step < 8; step *= 2) {
            most = max(most, __shfl_xor_sync(full, most, step));
            const int at = step == 1 ? 1 : step == 2 ? 2 : 3;
            add_wide(sums + longest_at + at, threadIdx.x % (2 * step) == 0 ? most : 0);
        }
    }
    if (some_long) {
#pragma unroll
        for (uint32_t i = 0; i < own; i++)
            if (length[i] >= short_rows) long_rows.take(length[i], mine + 32 * i);
        __syncthreads();
    }
    if (long_rows.n > LongRows::room) {
#pragma unroll
        for (uint32_t i = 0; i < own; i++) s[mine + 32 * i] = length[i];
        __syncthreads();
        sort_lengths(s, n, sums + sorted_at, job.counts + long_rows_at, length_bins, job.longer);
    } else {
#pragma unroll
        for (uint32_t i = 0; i < own; i++) {
            const uint32_t same = __match_any_sync(full, length[i]);
            const bool leads = lane == __ffs(same) - 1;
            if (leads && length[i] > 0 && length[i] < short_rows)
                atomicAdd(s + 4 * length[i] + warp / 2, uint32_t(__popc(same)) << warp % 2 * 16);
        }
        if (some_long)
            count_long(long_rows, sums + sorted_at, job.counts + long_rows_at, length_bins,
                       job.longer);
        __syncthreads();
        count_lengths(times, long_rows, n, sums + sorted_at, length_bins);
    }
    flush(sums, long_rows_at, 0, job.counts);
}

// Mirror images that a block searches for, each with `searchers` lanes.
constexpr uint32_t images = threads / searchers;

template <class Offset>
__device__ __forceinline__ void mirrors(const Job<Offset>& job, uint32_t block) {
    const uint64_t at = uint64_t(block) * images + threadIdx.x / searchers;
    bool found = false;
    if (at < job.mirrors) {
        const uint64_t k = spread(at, job.mirrors, job.nnz);
        const auto start = [&](uint64_t row) { return uint64_t(job.row_ptr[row]); };
        const uint32_t row = uint32_t(last_at_most(k, job.nrows, start));
        const uint32_t column = job.col_idx[k];
        const Offset begin = job.row_ptr[column];
        const uint64_t n = job.row_ptr[column + 1] - begin;
        const auto of_mirror = [&](uint64_t i) { return job.col_idx[begin + Offset(i)]; };
        found = n > 0 && of_mirror(last_at_most(row, n, of_mirror)) == row;
    }
    const int n = __syncthreads_count(found && threadIdx.x % searchers == 0);
    if (threadIdx.x == 0 && n > 0) atomicAdd(job.counts + mirrored_at, Sum(n));
}

// Sectors of x that 32 rows read, with one entry of each row per step: steps from `step` to `stop`,
// `deep` steps of every `stride`.
template <class Offset>
__device__ __forceinline__ void sectors_of(Offset begin, uint32_t length, uint32_t step,
                                           uint32_t stop, uint32_t stride,
                                           const uint32_t* __restrict__ col_idx, uint32_t* mine) {
    const uint32_t lane = threadIdx.x % 32;
    for (; step < stop; step += stride) {
        uint32_t sectors[deep];
#pragma unroll
        for (int i = 0; i < deep; i++) {
            const uint32_t k = step + i;
            sectors[i] = k < stop && k < length ? col_idx[begin + k] / 4 : full;
        }
#pragma unroll
        for (int i = 0; i < deep; i++) {
            const uint32_t pair = sectors[i] == full ? full : sectors[i] / 2;
            const uint32_t same_pair = __match_any_sync(full, pair);
            const uint32_t odd = __ballot_sync(full, sectors[i] % 2);
            const uint32_t same = same_pair & (sectors[i] % 2 ? odd : ~odd);
            mine[0] += sectors[i] != full && __ffs(same_pair) - 1 == int(lane);
            mine[1] += sectors[i] != full && __ffs(same) - 1 == int(lane);
        }
    }
}

// Maximum number of steps of a hack per warp; where a hack has more, all its steps are left to
// other blocks, in tasks of `task_steps` steps.
constexpr uint32_t warp_steps = 24, task_steps = 128;

// A hack of 32 rows, one lane per row.
template <class Offset> struct Hack {
    Offset begin;
    uint32_t length, longest, second;  // entries of the row and of the two longest
    __device__ __forceinline__ Hack(const Job<Offset>& job, uint32_t at) {
        const uint64_t h = spread(at, job.warps.looked_at, (uint64_t(job.nrows) + 31) / 32);
        const uint64_t row = h * 32 + threadIdx.x % 32;
        begin = row < job.nrows ? job.row_ptr[row] : 0;
        length = row < job.nrows ? uint32_t(job.row_ptr[row + 1] - begin) : 0;
        longest = __reduce_max_sync(full, length);
        const uint32_t leader = __ffs(__ballot_sync(full, length == longest)) - 1;
        second = __reduce_max_sync(full, threadIdx.x % 32 == leader ? 0 : length);
    }
};

template <class Offset>
__device__ __forceinline__ void sectors(const Job<Offset>& job, uint32_t block) {
    __shared__ Sum sums[3];
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t each_log = job.warps.each_log(), warps = threads / 32 >> each_log;
    const uint32_t warp = threadIdx.x / 32, hack = warp / warps, own = warp % warps;
    const uint64_t at = (uint64_t(block) << each_log) + hack;
    if (at >= job.warps.looked_at) {
        if (threadIdx.x % 32 == 0) decided(job);
    } else {
        const Hack<Offset> rows(job, uint32_t(at));
        uint32_t mine[2] = {0, 0};
        if (rows.second <= warps * warp_steps)
            sectors_of<Offset>(rows.begin, rows.length, own * deep, rows.second, warps * deep,
                               job.col_idx, mine);
        else if (own == 0)
            leave(job, false, block, hack, threads / 32, (rows.second - 1) / task_steps + 1);
        if (threadIdx.x % 32 == 0) decided(job);
        add(sums, mine[0]);
        add(sums + 1, mine[1]);
        // The longest row continues alone past the second longest.
        const uint32_t alone = rows.longest - rows.second;
        if (own == 0 && threadIdx.x % 32 < 2) atomicAdd(sums + threadIdx.x % 32, Sum(alone));
        add_wide(sums + 2, own == 0 ? rows.length : 0);
    }
    flush(sums, 3, 0, job.counts + sectors_at);
}

template <class Offset>
__device__ __forceinline__ void sectors_again(const Job<Offset>& job, uint32_t block,
                                              uint32_t task) {
    constexpr uint32_t warps = threads / 32;
    const Hack<Offset> rows(job, (block << job.warps.each_log()) + task % warps);
    const uint32_t first = task / warps * task_steps;
    const uint32_t stop = first + min(task_steps, rows.second - first);
    uint32_t mine[2] = {0, 0};
    sectors_of<Offset>(rows.begin, rows.length, first + threadIdx.x / 32 * deep, stop, warps * deep,
                       job.col_idx, mine);
    add(job.counts + sectors_at, mine[0]);
    add(job.counts + sectors_at + 1, mine[1]);
}

// Data of a block about the rows that it processes, in shared memory.
template <class Offset> struct Taken {
    Rows<Offset> rows;
    uint32_t number[threads];  // number of each row in the matrix
    uint32_t group[threads];   // number of its group among the sampled groups
    uint32_t bins[threads];    // for small counts of columns
    Often often;               // diagonals
    Sum groups[2];             // from here on sums, as in the list of counts
    Sum hacks[full_at - pairs_at];

    __device__ __forceinline__ Sum* sum(int at) { return hacks + (at - pairs_at); }
};

// Counts from the first and last entries of hacks: one warp per hack, one lane per row.
template <class Offset>
__device__ __forceinline__ void ends_of_hack(Taken<Offset>& taken, uint32_t row, Offset begin,
                                             Offset end, const uint32_t* __restrict__ col_idx) {
    uint32_t low = full, high = 0, far = 0;
    uint64_t profile = 0;
    if (begin < end) {
        low = col_idx[begin], high = col_idx[end - 1];
        far = max(row > low ? row - low : low - row, row > high ? row - high : high - row);
        profile = row > low ? row - low : 0;
    }
    add_wide(taken.sum(profile_at), profile);
    far = __reduce_max_sync(full, far);
    low = __reduce_min_sync(full, low), high = __reduce_max_sync(full, high);
    const uint32_t span = low == full ? 0 : high - low + 1;
    if (threadIdx.x % 32 > 0) return;
    atomicAdd(taken.sum(span_sum_at), Sum(span));
    atomicAdd(taken.sum(narrow_at), Sum(span <= 0xffff));
    atomicMax(taken.sum(bandwidth_at), Sum(far));
    atomicMax(taken.sum(span_max_at), Sum(span));
}

// Words of the table for the groups of a kind. They follow the words of the diagonals if the table
// also holds these.
template <class Offset>
__device__ __forceinline__ Words words_of(const Job<Offset>& job, uint32_t kind) {
    const uint64_t columns = job.ncols, of_32 = (columns + 32) / 8 + 1;
    const uint64_t of_256 = (columns + 256) / 8 + 1, of_loads = columns / 4 / 8 + 1;
    Words words = {job.diagonals ? 0 : (job.nrows + columns) / 8 + 1, of_32};
    if (kind > hacks) words.first += job.cuts[hacks].looked_at * of_32, words.each = of_256;
    if (kind > hacks_256)
        words.first += job.cuts[hacks_256].looked_at * of_256, words.each = of_loads;
    return words;
}

// Counts distinct keys among the n entries of a piece of hacks or of blocks: diagonals of hacks, or
// sectors of x of blocks, for f64 and, as pairs, for f32. For hacks of 32 rows, also counts the
// matrix's diagonals and the entries near its main diagonal.
template <class Offset>
__device__ __forceinline__ void tell_apart(const Job<Offset>& job, Taken<Offset>& taken,
                                           uint32_t kind, uint32_t b, uint32_t n, bool left) {
    constexpr uint32_t part = 4096, parts = 16384;
    const Words words = words_of(job, kind);
    Sum* const full_up = job.counts + full_at;
    const bool room = job.table.n == 0, counts = job.diagonals;
    uint32_t near = 0, nearer = 0, distinct = 0, pairs = 0;
    uint32_t met = 0;  // small numbers: 10 bits each
    const auto meet = [&](uint32_t times, uint32_t more) {
#pragma unroll
        for (uint32_t i = 0; i < 3; i++) met += uint32_t(i >= times && i < times + more) << 10 * i;
    };
    const auto diagonal = [&](const Some<Offset>& some, int i) {
        return uint64_t(job.nrows - 1 - taken.number[some.row[i]]) + some.column[i];
    };
    taken.rows.walk(n, job.col_idx, [&](Some<Offset>& some) {
        uint64_t word[deep];
        uint32_t bit[deep];
#pragma unroll
        for (int i = 0; i < deep; i++) {
            word[i] = bit[i] = 0;
            if (some.row[i] == full) continue;
            const uint32_t row = taken.number[some.row[i]], column = some.column[i];
            const uint64_t key = kind == loads ? column / 4 : uint64_t(column) + (~row & (b - 1));
            word[i] = words.first + taken.group[some.row[i]] * words.each + key / 8;
            bit[i] = 1u << key % 8;
            nearer += column - row / part * part < part;
            near += column - row / parts * parts < parts;
        }
        uint32_t times[deep];
#pragma unroll
        for (int i = 0; i < deep; i++) times[i] = 3;
        if (kind == hacks && counts) {
#pragma unroll
            for (int i = 0; i < deep; i++) {
                if (bit[i] == 0) continue;
                const uint64_t key = diagonal(some, i);
                if (left || !taken.often.count(key)) times[i] = atomicAdd(job.diagonals + key, 1u);
            }
        }
        if (room) {
            uint32_t before[deep], now[deep];
#pragma unroll
            for (int i = 0; i < deep; i++) before[i] = job.table.set(word[i], bit[i], &now[i]);
#pragma unroll
            for (int i = 0; i < deep; i++) {
                distinct += __popc(now[i] & ~before[i]);
                pairs += __popc(either(now[i]) & ~either(before[i]));
            }
        }
#pragma unroll
        for (int i = 0; i < deep; i++) meet(times[i], 1);
        if (room) return;
        Table::Place at[deep];
#pragma unroll
        for (int i = 0; i < deep; i++)
            if (bit[i] > 0) at[i] = job.table.look(word[i], bit[i]);
#pragma unroll 1
        for (int i = 0; i < deep && some.row[0] != full; i++) {
            const uint32_t bits = job.table.mark<1>(at[0], 1, full_up);
            distinct += !(bits & at[0].bit);
            pairs += !(either(bits) & either(at[0].bit));
            const uint64_t key = diagonal(some, 0);
            if (kind == hacks && !counts && (left || !taken.often.count(key)))
                meet(job.table.mark_key(key, 1, full_up), 1);
            some.next();
#pragma unroll
            for (int j = 0; j + 1 < deep; j++) at[j] = at[j + 1];
        }
    });
    __syncthreads();
    if (kind == hacks && !left)
#pragma unroll
        for (uint32_t i = threadIdx.x; i < Often::room; i += threads) {
            const uint32_t times = min(3u, taken.often.times[i]);
            if (times == 0) continue;
            const uint64_t key = taken.often.keys[i] - 1;
            meet(counts ? atomicAdd(job.diagonals + key, times)
                        : job.table.mark_key(key, times, full_up),
                 times);
        }
    add(taken.groups + 1, distinct);
    if (kind == loads) add(taken.sum(pairs_at), pairs);
    if (kind != hacks) return;
    add(taken.sum(near_at), near);
    add(taken.sum(near_at + 1), nearer);
    for (int i = 0; i < 3; i++) add(taken.sum(met_at + i), met >> 10 * i & 0x3ff);
}

// True if one of the n rows before row `row` of the block's rows, at most `most`, has an entry in
// this block of b columns. The searches run side by side, so that a step waits for memory once.
template <uint32_t most, class Offset>
__device__ __forceinline__ bool one_holds(const Job<Offset>& job, const Taken<Offset>& taken,
                                          uint32_t row, uint32_t n, uint32_t block, uint32_t b) {
    Offset begin[most];
    uint32_t left[most], longest = 0;
#pragma unroll
    for (uint32_t i = 0; i < most; i++) {
        const uint32_t number = taken.number[i < n ? row - 1 - i : row];
        begin[i] = job.row_ptr[number];
        left[i] = i < n ? uint32_t(job.row_ptr[number + 1] - begin[i]) : 0;
        longest = max(longest, left[i]);
    }
    bool found = false;
#pragma unroll 1
    while (longest > 0 && !found) {
        uint32_t column[most];
#pragma unroll
        for (uint32_t i = 0; i < most; i++)
            column[i] = left[i] > 0 ? job.col_idx[begin[i] + left[i] / 2] : full;
        longest = 0;
#pragma unroll
        for (uint32_t i = 0; i < most; i++) {
            found |= column[i] - block * b < b;
            const uint32_t half = left[i] / 2;
            const bool below = column[i] < block * b;
            if (below) begin[i] += half + 1;
            left[i] = below ? left[i] - half - 1 : half;
            longest = max(longest, left[i]);
        }
    }
    return found;
}

// Dense blocks of b rows and columns: each is counted at the first entry of its first row.
template <class Offset>
__device__ __forceinline__ void of_blocks(const Job<Offset>& job, Taken<Offset>& taken, uint32_t b,
                                          uint32_t n_entries) {
    uint32_t blocks = 0;
    taken.rows.walk(n_entries, job.col_idx, [&](Some<Offset>& some) {
#pragma unroll 1
        for (int i = 0; i < deep && some.row[0] != full; i++) {
            const uint32_t row = some.row[0], own = some.column[0] / b;
            const Offset at = some.at[0];
            bool found = at > job.row_ptr[taken.number[row]] && job.col_idx[at - 1] / b == own;
            // The row before contains most blocks.
            const uint32_t n = row % b;
            found = found || (n > 0 && one_holds<1>(job, taken, row, 1, own, b));
            found = found || (n > 1 && one_holds<4>(job, taken, row - 1, n - 1, own, b));
            blocks += !found;
            some.next();
        }
    });
    add(taken.groups + 1, blocks);
}

// Counts the columns of a piece: the number of columns that reach each count.
template <class Offset>
__device__ __forceinline__ void count_columns(const Job<Offset>& job, Taken<Offset>& taken,
                                              uint32_t n) {
    const uint32_t before = (1u << threadIdx.x % 32) - 1;
    taken.rows.walk(n, job.col_idx, [&](Some<Offset>& some) {
        uint32_t same[deep], count[deep];
#pragma unroll
        for (int i = 0; i < deep; i++) {
            same[i] = __match_any_sync(full, some.column[i]);
            count[i] = 0;
            if (some.column[i] != full && !(same[i] & before))
                count[i] = atomicAdd(job.column_counts + some.column[i], __popc(same[i]));
        }
#pragma unroll
        for (int i = 0; i < deep; i++) {
            count[i] = __shfl_sync(full, count[i], __ffs(same[i]) - 1) +
                       __popc(same[i] & before) + 1;
            if (some.column[i] == full) continue;
            if (count[i] < threads)
                atomicAdd(taken.bins + count[i], 1u);
            else
                atomicAdd(job.classes + 2 * uint64_t(count[i]), Sum(1));
        }
    });
}

// Counts the entries of a piece by the count of their column in the first half.
template <class Offset>
__device__ __forceinline__ void count_entries(const Job<Offset>& job, Taken<Offset>& taken,
                                              uint32_t n) {
    taken.rows.walk(n, job.col_idx, [&](Some<Offset>& some) {
        uint32_t count[deep];
#pragma unroll
        for (int i = 0; i < deep; i++)
            count[i] = some.column[i] == full ? 0 : __ldcg(job.column_counts + some.column[i]);
#pragma unroll
        for (int i = 0; i < deep; i++) {
            if (some.column[i] == full) continue;
            if (count[i] < threads)
                atomicAdd(taken.bins + count[i], 1u);
            else
                atomicAdd(job.classes + 2 * uint64_t(count[i]) + 1, Sum(1));
        }
    });
}

// Row number `at` drawn for a half of a sample of columns, or of all rows.
template <class Offset>
__device__ __forceinline__ uint64_t drawn(const Job<Offset>& job, uint32_t kind, uint32_t at) {
    const uint32_t half = job.cuts[second_half].looked_at;
    const uint64_t i = kind == second_half ? uint64_t(half) + at : at;
    return half == 0 ? at : __umul64hi(mix(i), job.nrows);
}

// Processes a piece of the groups of a block; blocks are numbered over all kinds. The block itself
// processes the first piece, blocks that take `left` tasks the others.
template <class Offset>
__device__ __forceinline__ void groups(const Job<Offset>& job, uint32_t block, uint32_t piece,
                                       bool left, Patience& patience) {
    __shared__ Taken<Offset> taken;
    const uint32_t task_block = job.warps.blocks() + block;
    uint32_t kind = 0;
    Cut cut = job.cuts[0];
#pragma unroll
    for (uint32_t next = 1; next < kinds; next++) {
        if (kind + 1 != next || block < cut.blocks()) continue;
        block -= cut.blocks();
        kind = next;
        cut = job.cuts[next];
    }
    const uint32_t b = kind < sides ? (kind == hacks ? 32 : 256)
                                    : (kind < first_half ? kind - sides + 2 : 1);
    const uint32_t set = block >> cut.parts_log(), each_log = cut.each_log();
    const uint32_t part = block - (set << cut.parts_log());
    const uint64_t at = (uint64_t(set) << each_log) + threadIdx.x / b;
    uint64_t row = job.nrows;
    if (threadIdx.x < b << each_log && at < cut.looked_at)
        row = b == 1 ? drawn(job, kind, uint32_t(at))
                     : spread(at, cut.looked_at, (uint64_t(job.nrows) + b - 1) / b) * b +
                           threadIdx.x % b;
    const bool here = row < job.nrows;
    const Offset begin = here ? job.row_ptr[row] : 0, end = here ? job.row_ptr[row + 1] : 0;
    __syncthreads();
    taken.number[threadIdx.x] = uint32_t(row);
    taken.group[threadIdx.x] = uint32_t(at);
    taken.bins[threadIdx.x] = 0;
    if (!left) taken.often.clear();
    if (threadIdx.x < 2) taken.groups[threadIdx.x] = 0;
    if (threadIdx.x < full_at - pairs_at) taken.hacks[threadIdx.x] = 0;
    uint64_t all;
    const uint64_t before = taken.rows.lay(begin, end, &all);
    const uint64_t of_part = (all >> cut.parts_log()) + 1;
    const uint64_t stop = min(all, (part + 1) * of_part);
    const uint64_t start = min(stop, part * of_part);
    // Few entries form one piece, many are cut: table accesses of a piece follow each other.
    const uint32_t of_piece = stop - start > whole_entries ? piece_entries : whole_entries;
    const uint64_t low = min(stop, start + uint64_t(piece) * of_piece);
    const uint64_t high = min(stop, low + of_piece);
    taken.rows.take(low, high, before, begin, end);
    const uint32_t n = uint32_t(high - low);
    // The second half waits for the first.
    const bool late = kind == second_half, now = !late || left || now_or_late(job);
    if (!left && threadIdx.x < 32) {
        const uint64_t more = (stop - high + of_piece - 1) / of_piece + !now;
        if (kind == first_half && threadIdx.x == 0) atomicAdd(job.counts + waits_at, Sum(more));
        leave(job, late, task_block, now, 1, more);
        if (threadIdx.x == 0 && !late) decided(job);
        if (threadIdx.x == 0) patience.to_the_end = late;
    }
    if (!now) return;
    if (kind >= first_half) {
        if (kind == first_half)
            count_columns(job, taken, n);
        else
            count_entries(job, taken, n);
        __syncthreads();
        const uint32_t found = taken.bins[threadIdx.x];
        const uint64_t place = 2 * threadIdx.x + (kind == second_half);
        if (found > 0) atomicAdd(job.classes + place, Sum(found));
        if (kind == first_half && threadIdx.x == 0) {
            __threadfence();
            atomicAdd(job.counts + done_at, Sum(1));
        }
        return;
    }
    if (threadIdx.x == 0) taken.groups[0] = n;
    if (!left && kind == hacks && part == 0 && __any_sync(full, here))
        ends_of_hack<Offset>(taken, uint32_t(row), begin, end, job.col_idx);
    if (kind < sides)
        tell_apart(job, taken, kind, b, n, left);
    else
        of_blocks(job, taken, b, n);
    flush(taken.groups, 2, 0, job.counts + groups_at + 2 * kind);
    if (kind == hacks)
        flush(taken.hacks, full_at - pairs_at, 2, job.counts + pairs_at);
    else if (kind == loads)
        flush(taken.hacks, 1, 0, job.counts + pairs_at);
}

// Blocks count groups, mirror images and sectors, then row lengths; blocks of sectors and groups,
// and further blocks, process the tasks that others left. A block waits only for work of earlier
// blocks or of blocks that are already running.
template <class Offset> __device__ __forceinline__ void count(const Job<Offset>& job) {
    const uint32_t n_mirrors = (job.mirrors + images - 1) / images;
    const uint32_t n_lengths = uint32_t((uint64_t(job.nrows) + windows - 1) / windows);
    const uint32_t n_warps = job.warps.blocks(), n_first = job.cuts[first_half].blocks();
    const uint32_t first = n_warps + job.blocks_of(first_half);
    const uint32_t n_tasks = n_warps + job.blocks_of(kinds);
    uint32_t block = blockIdx.x;
    Task task = {first + block, 0};
    bool left = false;
    if (block >= n_first) {
        block -= n_first;
        if (block < n_mirrors) return mirrors(job, block);
        block -= n_mirrors;
        task.block = block < first ? block : block + n_first;
        left = task.block >= n_tasks;
        block = task.block - n_tasks;
        if (left && block < n_lengths) return lengths(job, block);
    }
    // A block without work of its own waits until all have decided.
    __shared__ Patience patience;
    const uint32_t deciding = n_warps * (threads / 32) + job.blocks_of(second_half);
    if (threadIdx.x == 0) patience = {left ? deciding : 0, left};
#pragma unroll 1
    for (; !left || take(job, patience, &task); left = true) {
        if (task.block >= n_warps)
            groups(job, task.block - n_warps, task.piece, left, patience);
        else if (left)
            sectors_again(job, task.block, task.piece);
        else
            sectors(job, task.block);
        __syncthreads();
    }
}

#define KERNEL(width, blocks, Offset)                                                             \
    extern "C" __global__ void __launch_bounds__(threads, blocks) features_count_##width(         \
        uint32_t nrows, uint32_t ncols, uint64_t nnz, uint32_t mirrors, Cut warps, Cut hacks,     \
        Cut hacks_256, Cut loads, Cut of_2, Cut of_3, Cut of_4, Cut of_5, Cut of_6,               \
        Cut first_half, Cut second_half, const Offset* row_ptr, const uint32_t* col_idx,          \
        Sum* counts, Sum* classes, uint32_t* longer, uint32_t* column_counts,                     \
        uint32_t* diagonals, Sum* slots, uint32_t n_slots, Sum* tasks) {                          \
        const Job<Offset> job = {                                                                 \
            nrows, ncols, nnz, mirrors, warps,                                                    \
            {hacks, hacks_256, loads, of_2, of_3, of_4, of_5, of_6, first_half, second_half},     \
            row_ptr, col_idx, counts, classes, longer, column_counts, diagonals,                  \
            {slots, n_slots}, tasks};                                                             \
        count(job);                                                                               \
    }
KERNEL(narrow, 5, uint32_t)
KERNEL(wide, 4, uint64_t)
