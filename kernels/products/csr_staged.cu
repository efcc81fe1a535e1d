// y = alpha A x + beta y with A in compressed sparse rows, none of them long: a block of threads reads
// the entries of its rows evenly, stores their products in shared memory, and sums each row from there.
//
// Launch: ceil(nrows * lanes / 256) blocks of 256 threads, each with 256 / `lanes` rows; 1,024 products
// in static shared memory, with a gap after every 32 of them, so that neighbouring rows are in different
// banks. Lane 0 of a row's `lanes` lanes holds the result. Offsets are 32-bit (`csr_staged_*`) or 64-bit
// (`csr_staged_wide_*`).
#include "common.cuh"

constexpr int THREADS = 256, EACH = CSR_STAGED_EACH, STAGED = THREADS * EACH;

// Place of product `k` in shared memory.
__device__ __forceinline__ uint32_t place(uint32_t k) { return k + k / 32; }

template <class T, class Offset, int lanes>
__device__ __forceinline__ void rows(uint32_t nrows, const Offset* __restrict__ row_ptr,
                                     const uint32_t* __restrict__ col_idx,
                                     const T* __restrict__ values, const T* __restrict__ x, T* y,
                                     T alpha, T beta) {
    constexpr uint32_t own = THREADS / lanes;
    __shared__ T products[STAGED + STAGED / 32];
    const uint32_t t = threadIdx.x, lane = t % lanes;
    const uint64_t first = uint64_t(blockIdx.x) * own, row = first + t / lanes;
    const uint64_t last = first + own < nrows ? first + own : nrows;
    const Offset start = row_ptr[first], all_end = row_ptr[last];
    const Offset from = row < nrows ? row_ptr[row] : all_end;
    const Offset to = row < nrows ? row_ptr[row + 1] : all_end;
    await_previous();
    // Entries are counted from the first one of the block, of which there are less than 2^32.
    const uint32_t total = uint32_t(all_end - start);
    const uint32_t begin = uint32_t(from - start), end = uint32_t(to - start);
    T sum = 0;
    for (uint32_t at = 0; at < total; at += STAGED) {
        const uint32_t n = min(total - at, uint32_t(STAGED));
        uint32_t column[EACH];
        T factor[EACH], value[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const uint32_t e = t + k * THREADS;
            column[k] = e < n ? stream(col_idx + (start + (at + e))) : 0;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++)
            factor[k] = t + k * THREADS < n ? gather(x + column[k]) : T(0);
        // Values are loaded after x: if they were loaded earlier, they would delay the columns, for
        // which the loads of x wait, and occupy registers meanwhile.
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const uint32_t e = t + k * THREADS;
            value[k] = e < n ? stream(values + (start + (at + e))) : T(0);
        }
        if (at > 0) __syncthreads();
#pragma unroll
        for (int k = 0; k < EACH; k++) products[place(t + k * THREADS)] = value[k] * factor[k];
        __syncthreads();
        const uint32_t low = begin > at ? begin - at : 0, high = end > at ? min(end - at, n) : 0;
        for (uint32_t k = min(low, high) + lane; k < high; k += lanes) sum += products[place(k)];
    }
    sum = group_sum<lanes>(sum);
    if (row < nrows && lane == 0) store(y + row, alpha, sum, beta);
}

// Threads per processor: as many as registers allow without spills.
template <class T, class Offset, int lanes>
constexpr int RESIDENT = sizeof(T) == 4 || (lanes == 1 && sizeof(Offset) == 4) ? 2048 : 1536;

#define KERNEL(name, T, Offset, lanes)                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, (RESIDENT<T, Offset, lanes> / THREADS)) \
        name(uint32_t nrows, const Offset* row_ptr, const uint32_t* col_idx, const T* values,     \
             const T* x, T* y, T alpha, T beta) {                                                 \
        rows<T, Offset, lanes>(nrows, row_ptr, col_idx, values, x, y, alpha, beta);               \
    }
#define BOTH(lanes)                                                                               \
    KERNEL(csr_staged_t##lanes##_f64, double, uint32_t, lanes)                                    \
    KERNEL(csr_staged_t##lanes##_f32, float, uint32_t, lanes)                                     \
    KERNEL(csr_staged_wide_t##lanes##_f64, double, uint64_t, lanes)                               \
    KERNEL(csr_staged_wide_t##lanes##_f32, float, uint64_t, lanes)
BOTH(1)
BOTH(2)
BOTH(4)
BOTH(8)
BOTH(16)
