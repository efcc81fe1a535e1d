// Building blocks of feature counts: samples, sums, searches, distribution of groups over blocks,
// entries of several rows as one list, and a table of keys (features.cu).
#pragma once
#include "common.cuh"

using Sum = unsigned long long;

constexpr uint32_t full = 0xffffffffu;
constexpr uint32_t threads = FEATURES_THREADS;  // of each block

// Pseudo-random number for a counter 0, 1, 2, ...: `mix` of src/check.rs.
__device__ __forceinline__ uint64_t mix(uint64_t seed) {
    uint64_t z = seed + 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

// Sample number `at` of `looked_at` samples of 0..n: `spread` of src/analysis/sample.rs.
__device__ __forceinline__ uint64_t spread(uint64_t at, uint64_t looked_at, uint64_t n) {
    const uint64_t first = at * n / looked_at, end = (at + 1) * n / looked_at;
    const uint32_t share = (uint32_t(at) + 1) * 0x9e3779b9u;
    return first + __umul64hi(end - first, uint64_t(share) << 32);
}

// *to += the sum of `mine` over the warp, which fits 32 bits; *to is in shared or global memory.
__device__ __forceinline__ void add(Sum* to, uint32_t mine) {
    const uint32_t sum = __reduce_add_sync(full, mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// As `add`, for sums of 64 bits.
__device__ __forceinline__ void add_wide(Sum* to, uint64_t mine) {
    const uint64_t sum = group_sum<32>(mine);
    if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(to, Sum(sum));
}

// Adds the n sums of a block to the global ones; the last `largest` of them are maxima.
__device__ __forceinline__ void flush(const Sum* sums, uint32_t n, uint32_t largest, Sum* to) {
    __syncthreads();
    if (threadIdx.x >= n || sums[threadIdx.x] == 0) return;
    if (threadIdx.x + largest < n)
        atomicAdd(to + threadIdx.x, sums[threadIdx.x]);
    else
        atomicMax(to + threadIdx.x, sums[threadIdx.x]);
}

constexpr uint32_t searchers = 8;  // lanes that search together

// The last of the places 0..n whose number `start` is at most k; 0 if there is none. All searchers
// of a group call it with the same arguments.
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

// Distribution of groups over blocks: 2^share groups per block, or, where negative, 2^-share blocks
// per group.
struct Cut {
    uint32_t looked_at;
    int32_t share;

    __device__ __forceinline__ uint32_t each_log() const { return max(share, 0); }
    __device__ __forceinline__ uint32_t parts_log() const { return max(-share, 0); }
    __device__ __forceinline__ uint32_t blocks() const {
        return (looked_at + (1u << each_log()) - 1) >> each_log() << parts_log();
    }
};

constexpr int deep = 2;  // entries that a thread processes at a time

// The entries of a block's rows that one thread processes.
template <class Offset> struct Some {
    uint32_t row[deep], column[deep];  // number of the row in the block; `full` for no entry
    Offset at[deep];

    // Removes the first entry.
    __device__ __forceinline__ void next() {
#pragma unroll
        for (int i = 0; i + 1 < deep; i++)
            row[i] = row[i + 1], column[i] = column[i + 1], at[i] = at[i + 1];
    }
};

// The maximum number of entries that a block processes in one piece, and the size of pieces where
// there are more.
constexpr uint32_t whole_entries = 1280, piece_entries = 512;

// Up to 256 rows, one per thread, of whose entries a block processes a piece. In shared memory.
template <class Offset> struct Rows {
    uint32_t ends[threads];  // end of each row in the piece
    Offset from[threads];    // index of entry 0 of the piece if all entries belonged to this row
    uint64_t of_warps[threads / 32];

    // Returns the number of entries before this thread's row, which is begin..end, and sets *all to
    // the total.
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

    // Makes entries `low` to `high` the piece, where `before` entries precede this thread's row.
    __device__ __forceinline__ void take(uint64_t low, uint64_t high, uint64_t before, Offset begin,
                                         Offset end) {
        const uint64_t sum = before + (end - begin);
        ends[threadIdx.x] = uint32_t(max(low, min(high, sum)) - low);
        from[threadIdx.x] = begin - Offset(before - low);
        __syncthreads();
    }

    // Passes the n entries of the piece to `use`. Called by all threads.
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

// Ranges of words in a table: the first word of some groups, and the number of words of each group.
struct Words {
    uint64_t first, each;
};

// For each pair of bits, the lower bit is set if either is set.
__device__ __forceinline__ uint32_t either(uint32_t bits) { return (bits | bits >> 1) & 0x55555555; }

// Counts how often keys occur. A slot holds a word of 8 neighbouring keys: the word's number from
// bit 24 on, and below it, for each key, one bit each for one, two and three occurrences. Where n
// is 0, there is room for all keys: a word is then a byte, indexed by its number.
struct Table {
    static constexpr int most_runs = 12;  // runs of neighbouring lanes with combined bits
    Sum* slots;
    uint32_t n;

    // A key: the number of its word, its bit there, its slot and the slot's content.
    struct Place {
        uint64_t word, found;
        uint32_t slot, bit;
    };

    // The slot of a word with its content.
    __device__ __forceinline__ Place look(uint64_t word, uint32_t bit) const {
        const uint32_t slot = uint32_t(__umul64hi(mix(word), n));
        return {word, __ldcg(slots + slot), slot, bit};
    }

    // Sets a bit of a word (none where the bit is 0) and returns the word before. *now holds the
    // bits that this lane set, which include those of other lanes with the same 4 neighbouring
    // words, or 0 where another lane set its bit. Requires room for all keys. Called by the whole
    // warp.
    __device__ __forceinline__ uint32_t set(uint64_t word, uint32_t bit, uint32_t* now) const {
        bit <<= word % 4 * 8;
        const uint32_t lane = threadIdx.x % 32, four = bit > 0 ? uint32_t(word / 4) : full;
        const uint32_t ahead = __shfl_up_sync(full, four, 1);
        *now = bit;
        // If few neighbouring lanes share words, combining bits takes longer than setting each.
        if (__popc(__ballot_sync(full, lane == 0 || four != ahead)) <= most_runs) {
            const uint32_t same = __match_any_sync(full, four);
            bit = __reduce_or_sync(same, bit);
            *now = lane == __ffs(same) - 1 ? bit : 0;
        }
        return *now > 0 ? atomicOr(reinterpret_cast<uint32_t*>(slots) + four, bit) : 0;
    }

    // Adds `times` occurrences of `key`, up to three in total, and returns its number of
    // occurrences before.
    __device__ __forceinline__ uint32_t mark_key(uint64_t key, uint32_t times, Sum* full_up) const {
        const Place at = look(key / 8, 1u << key % 8);
        return met(mark<3>(at, times, full_up), at.bit);
    }

    // Adds `times` occurrences of a key, of which at most `most` count, and returns the bits of its
    // word before. Where the table has no room for the key, all bits are returned as set, and
    // *full_up is set.
    template <uint32_t most>
    __device__ __forceinline__ uint32_t mark(Place at, uint32_t times, Sum* full_up) const {
        constexpr int probes = 256;
#pragma unroll 1
        for (int i = 0; i < probes;) {
            if (at.found == 0 || at.found >> 24 == at.word) {
                const uint32_t bits = uint32_t(at.found) & 0xffffff, before = met(bits, at.bit);
                if (before >= most) return bits;
                // The slot of a word never changes, so one more bit needs no comparison with other
                // words.
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

    // Number of occurrences of the key with this bit, from the bits of its word.
    static __device__ __forceinline__ uint32_t met(uint32_t bits, uint32_t bit) {
        return __popc(bits & bit * 0x010101u);
    }
};

// Occurrences of keys within a block, for keys that are the first to hash to their place in shared
// memory.
struct Often {
    static constexpr uint32_t room = 512;
    Sum keys[room];  // the key plus one; 0 for none
    uint32_t times[room];

    __device__ __forceinline__ void clear() {
        for (uint32_t i = threadIdx.x; i < room; i += threads) keys[i] = times[i] = 0;
    }

    // Returns true if the key was counted; counting stops at three.
    __device__ __forceinline__ bool count(uint64_t key) {
        const uint32_t slot = uint32_t(key) * 0x9e3779b9u >> 23;
        Sum found = *(volatile Sum*)(keys + slot);
        if (found == 0) found = atomicCAS(keys + slot, Sum(0), Sum(key + 1));
        if (found != 0 && found != key + 1) return false;
        if (*(volatile uint32_t*)(times + slot) < 3) atomicAdd(times + slot, 1u);
        return true;
    }
};
