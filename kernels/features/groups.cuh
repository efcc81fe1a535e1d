// Counts of groups of rows: ends and diagonals of hacks, sectors of x and dense blocks of block
// rows, and entries per column of sampled rows (features.cu).
#pragma once
#include "job.cuh"

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

// Adds the occurrences of diagonals that the block counted in shared memory to those of the matrix:
// to the counters of diagonals if `counts`, otherwise to the table. Calls meet(before, times) with
// the occurrences of a diagonal before and in the block.
template <class Offset, class Meet>
__device__ __forceinline__ void meet_often(const Job<Offset>& job, const Taken<Offset>& taken,
                                           bool counts, const Meet& meet) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < Often::room; i += threads) {
        const uint32_t times = min(3u, taken.often.times[i]);
        if (times == 0) continue;
        const uint64_t key = taken.often.keys[i] - 1;
        meet(counts ? atomicAdd(job.diagonals + key, times)
                    : job.table.mark_key(key, times, job.counts + full_at),
             times);
    }
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
    if (kind == hacks && !left) meet_often(job, taken, counts, meet);
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

// Counts the n entries of a piece of the rows of one half of a sample of columns.
template <class Offset>
__device__ __forceinline__ void of_half(const Job<Offset>& job, Taken<Offset>& taken, uint32_t kind,
                                        uint32_t n) {
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
}
