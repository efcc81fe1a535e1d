// Counts from the row lengths of a window of rows (features.cu).
#pragma once
#include "job.cuh"

constexpr uint32_t windows = FEATURES_WINDOW;  // rows of a block that counts lengths
constexpr uint32_t bins = FEATURES_BINS;       // lengths with a bin each; longer rows are listed
constexpr uint32_t short_rows = 1024;

// Stages `from` to `to` of a bitonic sort of `windows` numbers: afterwards runs of `to` numbers are
// sorted, alternately in descending and ascending order; the last stage sorts all in descending
// order.
__device__ __forceinline__ void sort_stages(uint32_t* s, uint32_t from, uint32_t to) {
#pragma unroll 1
    for (uint32_t k = from; k <= to; k *= 2) {
#pragma unroll 1
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

// Sums every 32nd of the lengths s, sorted within windows of 512 and sorted all together, and
// counts how often each length occurs. Only the first n lengths count; the others are zeros.
__device__ __forceinline__ void sort_lengths(uint32_t* s, uint32_t n, Sum* sums, Sum* longer_len,
                                             uint32_t* length_bins, uint32_t* longer) {
    sort_stages(s, 2, 512);
    uint64_t sum = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < windows; i += threads)
        sum += i % 32 == ((i & 512) ? 31 : 0) ? s[i] : 0;
    add_wide(sums, sum);
    __syncthreads();
    sort_stages(s, 1024, windows);
    sum = 0;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < windows; i += threads) {
        const uint32_t v = s[i];
        sum += i % 32 == 0 ? v : 0;
        if (v >= bins) {
            longer[atomicAdd(longer_len, Sum(1))] = v;
            continue;
        }
        // A run adds its end and subtracts its start.
        if (i == 0 || s[i - 1] != v) atomicAdd(length_bins + v, 0u - i);
        if (i + 1 == windows || s[i + 1] != v) atomicAdd(length_bins + v, v == 0 ? n : i + 1);
    }
    add_wide(sums + 1, sum);
}

// The sum of the 16-bit numbers in these words.
__device__ __forceinline__ uint32_t halves(uint4 v) {
    const uint32_t low = 0xffff;
    return (v.x & low) + (v.x >> 16) + (v.y & low) + (v.y >> 16) + (v.z & low) + (v.z >> 16) +
           (v.w & low) + (v.w >> 16);
}

__device__ __forceinline__ uint4 operator+(uint4 a, uint4 b) {
    return make_uint4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Rows of `short_rows` or more entries, where a window has few.
struct LongRows {
    static constexpr uint32_t room = threads;
    uint32_t n, of_512[8];
    uint32_t length[room], place[room];  // of each row: entries, position in the window

    __device__ __forceinline__ void clear() {
        if (threadIdx.x == 0) n = 0;
        if (threadIdx.x < 8) of_512[threadIdx.x] = 0;
    }

    // Adds a row; the list is valid only if n <= room in the end.
    __device__ __forceinline__ void take(uint32_t of, uint32_t at) {
        const uint32_t i = atomicAdd(&n, 1u);
        if (i >= room) return;
        length[i] = of, place[i] = at;
        atomicAdd(of_512 + at / 512, 1u);
    }
};

// Adds the contribution of entries past `short_rows - 1` to the sums of every 32nd length, sorted,
// and counts the lengths of these rows. One thread per row.
__device__ __forceinline__ void count_long(const LongRows& rows, Sum* sums, Sum* longer_len,
                                           uint32_t* length_bins, uint32_t* longer) {
    const uint32_t i = threadIdx.x;
    uint32_t within = 0, all = 0;
    if (i < rows.n) {
        const uint32_t v = rows.length[i], window = rows.place[i] / 512;
        uint32_t before = 0, before_within = 0;
        for (uint32_t other = 0; other < rows.n; other++) {
            const uint32_t of = rows.length[other];
            const bool first = of > v || (of == v && other < i);
            before += first;
            before_within += first && rows.place[other] / 512 == window;
        }
        const uint32_t more = v - (short_rows - 1);
        within = before_within % 32 == 0 ? more : 0;
        all = before % 32 == 0 ? more : 0;
        if (v < bins)
            atomicAdd(length_bins + v, 1u);
        else
            longer[atomicAdd(longer_len, Sum(1))] = v;
    }
    add_wide(sums, within);
    add_wide(sums + 1, all);
}

// As `count_long`, for short rows and for the first `short_rows - 1` entries of long ones, without
// a sort: if m rows have v or more entries, m / 32 of them, rounded up, are at the positions that
// are summed, and each adds one for this v.
//
// times[v]: number of rows of v > 0 entries in each of the eight windows of 512, in 16 bits.
__device__ __forceinline__ void count_lengths(const uint4* times, const LongRows& long_rows,
                                              uint32_t n, Sum* sums, uint32_t* length_bins) {
    constexpr uint32_t own = short_rows / threads;
    __shared__ uint4 of_warps[threads / 32];
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4 of[own], mine = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t i = 0; i < own; i++) {
        of[i] = times[threadIdx.x * own + i];
        mine = mine + of[i];
    }
    // Number of rows that are longer than this thread's lengths.
    uint4 above = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const uint4 other = {__shfl_down_sync(full, above.x, step),
                             __shfl_down_sync(full, above.y, step),
                             __shfl_down_sync(full, above.z, step),
                             __shfl_down_sync(full, above.w, step)};
        if (lane + step < 32) above = above + other;
    }
    if (lane == 0) of_warps[warp] = above;
    above = {above.x - mine.x, above.y - mine.y, above.z - mine.z, above.w - mine.w};
    const uint32_t* const of_long = long_rows.of_512;
    above = above + make_uint4(of_long[0] | of_long[1] << 16, of_long[2] | of_long[3] << 16,
                               of_long[4] | of_long[5] << 16, of_long[6] | of_long[7] << 16);
    __syncthreads();
    for (uint32_t w = warp + 1; w < threads / 32; w++) above = above + of_warps[w];
    uint32_t within = 0, all = 0;
#pragma unroll
    for (int i = own - 1; i >= 0; i--) {
        const uint32_t v = threadIdx.x * own + i;
        above = above + of[i];
        const uint32_t rows = v == 0 ? n - halves(above) : halves(of[i]);
        if (rows > 0) atomicAdd(length_bins + v, rows);
        if (v == 0) continue;
        const auto up = [](uint32_t pair) { return (pair + 0x001f001fu) >> 5 & 0x07ff07ffu; };
        within += halves({up(above.x), up(above.y), up(above.z), up(above.w)});
        all += (halves(above) + 31) / 32;
    }
    add(sums, within);
    add(sums + 1, all);
}

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
