// What the counts of features are made with: samples, sums, searches, shares of groups, the entries
// of some rows as one list, and a table of what was met (features.cu).
#pragma once
#include "common.cuh"

using Sum = unsigned long long;

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t threads = FEATURES_THREADS;  // of each block

// The numbers 0, 1, 2, ... made random: `mix` of src/check.rs.
__device__ __forceinline__ uint64_t mix(uint64_t seed) {
    uint64_t z = seed + 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// The `at`-th of `looked_at` samples of 0..n: `spread` of src/structure/sample.rs.
__device__ __forceinline__ uint64_t spread(uint64_t at, uint64_t looked_at, uint64_t n) {
    const uint64_t first = at * n / looked_at, end = (at + 1) * n / looked_at;
    const uint32_t share = (uint32_t(at) + 1) * 0x9e3779b9u;
    return first + __umul64hi(end - first, uint64_t(share) << 32);
}

// *to += the sum of `mine` over the warp, which has 32 bits, *to in shared or global memory.
__device__ __forceinline__ void add(Sum* to, uint32_t mine) {
    const uint32_t sum = __reduce_add_sync(full, mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// The same of 64 bits.
__device__ __forceinline__ void add_wide(Sum* to, uint64_t mine) {
    const uint64_t sum = group_sum<32>(mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// Adds the n sums of a block to those of all; the last `largest` are maxima.
__device__ __forceinline__ void flush(const Sum* sums, uint32_t n, uint32_t largest, Sum* to) {
    __syncthreads();
    if (threadIdx.x >= n || sums[threadIdx.x] == 0) return;
    if (threadIdx.x + largest < n)
        atomicAdd(to + threadIdx.x, sums[threadIdx.x]);
    else
        atomicMax(to + threadIdx.x, sums[threadIdx.x]);
}

constexpr uint32_t searchers = 8;  // lanes that search together

// The last of the places 0..n whose number `start` gives is at most k, 0 where none is. All
// searchers of a group ask alike.
template <class Start>
__device__ __forceinline__ uint64_t last_at_most(uint64_t k, uint64_t n, const Start& start) {
    const uint32_t lane = threadIdx.x % searchers;
    const uint32_t group = (full >> (32 - searchers)) << (threadIdx.x % 32 - lane);
    uint64_t low = 0, high = n;
#pragma unroll 1
    while (high - low > 1) {
        const uint64_t stride = (high - low + searchers - 1) / searchers;
        const uint64_t at = low + (lane + 1) * stride;
        const uint32_t passed = __popc(__ballot_sync(group, at < high && start(at) <= k) & group);
        low += passed * stride;
        high = min(high, low + stride);
    }
    return low;
}

// How groups are shared among blocks: 2^share for each, or where negative, 2^-share blocks a group.
struct Cut {
    uint32_t looked_at;
    int32_t share;

    __device__ __forceinline__ uint32_t each_log() const { return max(share, 0); }
    __device__ __forceinline__ uint32_t parts_log() const { return max(-share, 0); }
    __device__ __forceinline__ uint32_t blocks() const {
        return (looked_at + (1u << each_log()) - 1) >> each_log() << parts_log();
    }
};

constexpr int deep = 2;  // entries that a thread takes at a time

// Some of the entries of a block's rows: a thread's own.
template <class Offset> struct Some {
    uint32_t row[deep], column[deep];  // number of the row in the block; `full` where there is none
    Offset at[deep];

    // Moves on to the next.
    __device__ __forceinline__ void next() {
#pragma unroll
        for (int i = 0; i + 1 < deep; i++)
            row[i] = row[i + 1], column[i] = column[i + 1], at[i] = at[i + 1];
    }
};

// The most entries of a block's rows that it takes at once, and how many are a piece where there are
// more.
constexpr uint32_t whole_entries = 1280, piece_entries = 512;

// At most 256 rows, a thread each, a piece of whose entries a block takes. In shared memory.
template <class Offset> struct Rows {
    uint32_t ends[threads];  // of the rows in the piece
    Offset from[threads];    // where its first entry would be if all were this row's
    uint64_t of_warps[threads / 32];

    // The number of entries before this thread's row, which has begin..end, and that of all.
    __device__ __forceinline__ uint64_t lay(Offset begin, Offset end, uint64_t* all) {
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        uint64_t sum = end - begin;
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const uint64_t other = __shfl_up_sync(full, sum, step);
            if (lane >= step) sum += other;
        }
        if (lane == 31) of_warps[warp] = sum;
        __syncthreads();
        sum -= end - begin;
        *all = 0;
#pragma unroll
        for (uint32_t w = 0; w < threads / 32; w++) {
            if (w < warp) sum += of_warps[w];
            *all += of_warps[w];
        }
        return sum;
    }

    // Makes entries `low` to `high` the piece, where there are `before` before this thread's row.
    __device__ __forceinline__ void take(uint64_t low, uint64_t high, uint64_t before, Offset begin,
                                         Offset end) {
        const uint64_t sum = before + (end - begin);
        ends[threadIdx.x] = uint32_t(max(low, min(high, sum)) - low);
        from[threadIdx.x] = begin - Offset(before - low);
        __syncthreads();
    }

    // Hands the n entries of the piece to `use`. All threads.
    template <class Use>
    __device__ __forceinline__ void walk(uint32_t n, const uint32_t* __restrict__ col_idx,
                                         const Use& use) const {
#pragma unroll 1
        for (uint32_t first = 0; first < n; first += deep * threads) {
            Some<Offset> some;
#pragma unroll
            for (int i = 0; i < deep; i++) {
                const uint32_t k = first + i * threads + threadIdx.x;
                uint32_t row = 0;
                some.row[i] = some.column[i] = full;
                if (k >= n) continue;
#pragma unroll
                for (uint32_t step = threads / 2; step > 0; step /= 2)
                    if (ends[row + step - 1] <= k) row += step;
                some.row[i] = row;
                some.at[i] = from[row] + k;
                some.column[i] = col_idx[some.at[i]];
            }
            use(some);
        }
    }
};

// Words of a table: the first of some groups, and those of each.
struct Words {
    uint64_t first, each;
};

// Bits of pairs of which either is set.
__device__ __forceinline__ uint32_t either(uint32_t bits) { return (bits | bits >> 1) & 0x55555555; }

// How often keys were met. A slot holds a word of 8 neighbouring keys: its number from bit 24 on,
// below it a bit for each key that was met once, twice and three times. Where n is 0 there is room
// for all: a word is a byte in the place of its number.
struct Table {
    static constexpr int most_runs = 12;  // of lanes side by side, whose bits are set together
    Sum* slots;
    uint32_t n;

    // A key: the number of its word, its bit there, its slot and what that holds.
    struct Place {
        uint64_t word, found;
        uint32_t slot, bit;
    };

    // The place of a bit of a word.
    __device__ __forceinline__ Place look(uint64_t word, uint32_t bit) const {
        const uint32_t slot = uint32_t(__umul64hi(mix(word), n));
        return {word, __ldcg(slots + slot), slot, bit};
    }

    // Sets a bit of a word, none where it is 0, and tells the word before, and in *now the bits that
    // this lane has set, also for others that set bits of the same 4 neighbouring words, or none
    // where another has set its bit. There is room for all. The whole warp.
    __device__ __forceinline__ uint32_t set(uint64_t word, uint32_t bit, uint32_t* now) const {
        bit <<= word % 4 * 8;
        const uint32_t lane = threadIdx.x % 32, four = bit > 0 ? uint32_t(word / 4) : full;
        const uint32_t ahead = __shfl_up_sync(full, four, 1);
        *now = bit;
        // Where few neighbours share words, putting bits together takes longer than setting each.
        if (__popc(__ballot_sync(full, lane == 0 || four != ahead)) <= most_runs) {
            const uint32_t same = __match_any_sync(full, four);
            bit = __reduce_or_sync(same, bit);
            *now = lane == __ffs(same) - 1 ? bit : 0;
        }
        return *now > 0 ? atomicOr(reinterpret_cast<uint32_t*>(slots) + four, bit) : 0;
    }

    // Marks key `key` so often again, up to three times, and tells how often it was met before.
    __device__ __forceinline__ uint32_t mark_key(uint64_t key, uint32_t times, Sum* full_up) const {
        const Place at = look(key / 8, 1u << key % 8);
        return met(mark<3>(at, times, full_up), at.bit);
    }

    // Marks that a key was met so often again, of which `most` times matter, and tells the bits of
    // its word before. Where there is no room for it, all bits are set, and *full_up.
    template <uint32_t most>
    __device__ __forceinline__ uint32_t mark(Place at, uint32_t times, Sum* full_up) const {
        constexpr int probes = 256;
#pragma unroll 1
        for (int i = 0; i < probes;) {
            if (at.found == 0 || at.found >> 24 == at.word) {
                const uint32_t bits = uint32_t(at.found) & 0xffffff, before = met(bits, at.bit);
                if (before >= most) return bits;
                // A word that has a slot keeps it: one more bit needs no look at the others.
                if (most == 1 && at.found != 0)
                    return uint32_t(atomicOr(slots + at.slot, Sum(at.bit))) & 0xffffff;
                uint32_t now = bits;
                for (uint32_t t = before; t < min(before + times, most); t++) now |= at.bit << 8 * t;
                const Sum other =
                    atomicCAS(slots + at.slot, Sum(at.found), Sum(at.word << 24 | now));
                if (other == at.found) return bits;
                at.found = other;
            } else {
                i++;
                at.slot = at.slot + 1 == n ? 0 : at.slot + 1;
                at.found = __ldcg(slots + at.slot);
            }
        }
        *full_up = 1;
        return 0xffffff;
    }

    // How often a key of this bit was met, of the bits of its word.
    static __device__ __forceinline__ uint32_t met(uint32_t bits, uint32_t bit) {
        return __popc(bits & bit * 0x010101u);
    }
};

// How often keys are met by a block, of those that are the first in their place in shared memory.
struct Often {
    static constexpr uint32_t room = 512;
    Sum keys[room];  // one more than the key, 0 of none
    uint32_t times[room];

    __device__ __forceinline__ void clear() {
        for (uint32_t i = threadIdx.x; i < room; i += threads) keys[i] = times[i] = 0;
    }

    // Whether a key was counted; three times suffice.
    __device__ __forceinline__ bool count(uint64_t key) {
        const uint32_t slot = uint32_t(key) * 0x9e3779b9u >> 23;
        Sum found = *(volatile Sum*)(keys + slot);
        if (found == 0) found = atomicCAS(keys + slot, Sum(0), Sum(key + 1));
        if (found != 0 && found != key + 1) return false;
        if (*(volatile uint32_t*)(times + slot) < 3) atomicAdd(times + slot, 1u);
        return true;
    }
};
