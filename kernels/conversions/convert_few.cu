// The distinct values of a CSR matrix that the GPU holds, where there are few
// (src/format/value_dictionary/distinct.rs), and the number of each entry's value. Values are
// compared by their bits, so they are numbers of 32 or 64 bits here; the value with all bits set
// marks an empty place.
//
// Launch: blocks of 256 threads over entries, over rows for check_slots; order_values in one block
// of 1024 threads. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include "common.cuh"

// Maximum number of distinct values, and number of places of the hash table.
constexpr uint32_t FEW = FEW_VALUES, PLACES = FEW_PLACES;

template <class Word> constexpr Word EMPTY = Word(~Word(0));

__device__ __forceinline__ uint32_t first_place(uint32_t value) {
    return value * 0x9e3779b9u >> 22;
}
__device__ __forceinline__ uint32_t first_place(uint64_t value) {
    return first_place(uint32_t(value) ^ uint32_t(value >> 32) * 0x85ebca6bu);
}

__device__ __forceinline__ uint32_t claim(uint32_t* place, uint32_t value) {
    return atomicCAS(place, EMPTY<uint32_t>, value);
}
__device__ __forceinline__ uint64_t claim(uint64_t* place, uint64_t value) {
    static_assert(sizeof(unsigned long long) == 8, "");
    return atomicCAS(reinterpret_cast<unsigned long long*>(place),
                     static_cast<unsigned long long>(EMPTY<uint64_t>),
                     static_cast<unsigned long long>(value));
}

// Threads per block, and entries that each examines at a time: every THREADS-th from first_entry()
// on.
constexpr uint32_t THREADS = 256;
constexpr int EACH = 8;
__device__ __forceinline__ uint64_t first_entry() {
    return uint64_t(blockIdx.x) * (THREADS * EACH) + threadIdx.x;
}

// Inserts a value into the hash table and counts it if it is new. Returns false if the table is
// full.
template <class Word>
__device__ __forceinline__ bool put(volatile Word* places, Word value, uint32_t* count) {
    uint32_t p = first_place(value);
    for (uint32_t steps = 0; steps < PLACES; steps++, p = (p + 1) % PLACES) {
        Word there = places[p];
        if (there == EMPTY<Word>) {
            there = claim(const_cast<Word*>(places + p), value);
            if (there == EMPTY<Word>) {
                atomicAdd(count, 1u);
                return true;
            }
        }
        if (there == value) return true;
    }
    return false;
}

// Inserts the values of all entries into `places`, initially empty, and counts them in *count,
// initially 0. *count exceeds FEW where there are more values or one equals the empty mark;
// `places` is then meaningless.
template <class Word>
__device__ __forceinline__ void find_values(uint64_t nnz, const Word* __restrict__ from,
                                            Word* places, uint32_t* count) {
    __shared__ Word own[PLACES];
    __shared__ uint32_t own_count;
    for (uint32_t p = threadIdx.x; p < PLACES; p += blockDim.x) own[p] = EMPTY<Word>;
    if (threadIdx.x == 0) own_count = 0;
    __syncthreads();
    volatile uint32_t *const found = &own_count, *const all = count;
    const uint64_t stride = uint64_t(gridDim.x) * THREADS * EACH;
    for (uint64_t k = first_entry(); k < nnz && *found <= FEW && *all <= FEW; k += stride) {
        Word value[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) value[i] = from[min(k + i * THREADS, nnz - 1)];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (i > 0 && value[i] == value[i - 1]) continue;
            const bool fits = value[i] != EMPTY<Word> && put(own, value[i], &own_count);
            if (!fits) atomicMax(&own_count, FEW + 1);
        }
    }
    __syncthreads();
    if (own_count > FEW) {
        if (threadIdx.x == 0) atomicMax(count, FEW + 1);
        return;
    }
    for (uint32_t p = threadIdx.x; p < PLACES; p += blockDim.x) {
        if (own[p] == EMPTY<Word> || *all > FEW) continue;
        if (!put(places, own[p], count)) atomicMax(count, FEW + 1);
    }
}

// The values in the order of their bits. The first entry of a single value is entry 0; the first
// entries of several values are set past the end here, and number_values finds them. One block.
template <class Word>
__device__ __forceinline__ void order_values(const Word* __restrict__ places, Word* values,
                                             unsigned long long* entries) {
    __shared__ Word all[FEW];
    __shared__ uint32_t count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    const Word value = places[threadIdx.x];
    const bool is = value != EMPTY<Word>;
    if (is) {
        const uint32_t at = atomicAdd(&count, 1u);
        if (at < FEW) all[at] = value;
    }
    __syncthreads();
    if (!is || count > FEW) return;
    uint32_t rank = 0;
    for (uint32_t i = 0; i < count; i++) rank += all[i] < value;
    values[rank] = value, entries[rank] = count > 1 ? ~0ull : 0;
}

// numbers[k] = index of entry k's value among the `count` values, at least two, in the order of
// their bits; entries[i] = the first entry with value i (initially past the end).
template <class Word>
__device__ __forceinline__ void number_values(uint64_t nnz, uint32_t count,
                                              const Word* __restrict__ from,
                                              const Word* __restrict__ values,
                                              unsigned long long* entries, uint8_t* numbers) {
    __shared__ Word all[FEW];
    __shared__ unsigned long long firsts[FEW];
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) all[i] = values[i], firsts[i] = ~0ull;
    __syncthreads();
    const uint32_t widest = 1u << (31 - __clz(count - 1));
    const uint64_t stride = uint64_t(gridDim.x) * THREADS * EACH;
    for (uint64_t k = first_entry(); k < nnz; k += stride) {
        Word value[EACH];
        uint32_t low[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) value[i] = from[min(k + i * THREADS, nnz - 1)], low[i] = 0;
        for (uint32_t step = widest; step > 0; step /= 2) {
#pragma unroll
            for (int i = 0; i < EACH; i++)
                if (low[i] + step < count && all[low[i] + step] <= value[i]) low[i] += step;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const unsigned long long at = k + i * THREADS;
            if (at >= nnz) break;
            numbers[at] = uint8_t(low[i]);
            if (at < *(volatile unsigned long long*)(firsts + low[i])) atomicMin(firsts + low[i], at);
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        if (firsts[i] < __ldcg(entries + i)) atomicMin(entries + i, firsts[i]);
}

// values[i] = the value of the entry of value i.
template <class Word>
__device__ __forceinline__ void take_values(uint32_t count, const uint64_t* __restrict__ entries,
                                            const Word* __restrict__ from, Word* values) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] = from[entries[i]];
}

// *other = min(*other, first row with a value that differs from that of its number's entry): one
// thread per stored row of hacks of 32 (src/format/sliced/hll_vi.rs). `numbers` is null where all
// entries have the first value.
template <class Word, class Offset>
__device__ __forceinline__ void check_slots(uint32_t nrows, const uint32_t* narrow,
                                            const uint64_t* wide,
                                            const uint32_t* __restrict__ order,
                                            const uint8_t* __restrict__ numbers,
                                            const Offset* __restrict__ row_ptr,
                                            const uint64_t* __restrict__ entries,
                                            const Word* __restrict__ from, uint32_t* other) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nrows) return;
    const uint32_t h = i / 32, row = order ? order[i] : i;
    const uint64_t start = (narrow ? narrow[h] : wide[h]) + i % 32 * 4;
    const uint64_t first = row_ptr[row], n = row_ptr[row + uint64_t(1)] - first;
    bool differs = false;
    for (uint64_t k = 0; k < n; k++) {
        const uint32_t number = numbers ? numbers[start + k / 4 * 128 + k % 4] : 0;
        differs |= from[first + k] != from[entries[number]];
    }
    if (differs) atomicMin(other, row);
}

// Marks places as empty, in words of 32 bits.
extern "C" __global__ void __launch_bounds__(256) clear_places(uint32_t* words) {
    words[blockIdx.x * blockDim.x + threadIdx.x] = 0xffffffffu;
}

#define PRECISION(name, Word)                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        find_values_##name(uint64_t nnz, const Word* from, Word* places, uint32_t* count) {       \
        find_values<Word>(nnz, from, places, count);                                              \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(PLACES)                                          \
        order_values_##name(const Word* places, Word* values, unsigned long long* entries) {      \
        order_values<Word>(places, values, entries);                                              \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        number_values_##name(uint64_t nnz, uint32_t count, const Word* from, const Word* values,  \
                             unsigned long long* entries, uint8_t* numbers) {                     \
        number_values<Word>(nnz, count, from, values, entries, numbers);                          \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        take_values_##name(uint32_t count, const uint64_t* entries, const Word* from,             \
                           Word* values) {                                                        \
        take_values<Word>(count, entries, from, values);                                          \
    }
#define CHECK(width, Offset, name, Word)                                                          \
    extern "C" __global__ void __launch_bounds__(256) check_slots_##width##_##name(               \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* order,      \
        const uint8_t* numbers, const Offset* row_ptr, const uint64_t* entries, const Word* from, \
        uint32_t* other) {                                                                        \
        check_slots<Word, Offset>(nrows, narrow, wide, order, numbers, row_ptr, entries, from,    \
                                  other);                                                         \
    }
PRECISION(f64, uint64_t)
PRECISION(f32, uint32_t)
CHECK(narrow, uint32_t, f64, uint64_t)
CHECK(narrow, uint32_t, f32, uint32_t)
CHECK(wide, uint64_t, f64, uint64_t)
CHECK(wide, uint64_t, f32, uint32_t)
