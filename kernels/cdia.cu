// y = alpha A x + beta y with A in pieces of diagonals with one value each (see src/format/cdia.rs).
//
// A block takes a hack of 1024 rows; it keeps offsets, values and row bits of up to `held` pieces in
// shared memory at a time. A lane takes 8 rows that lie 32 apart, so that what it reads of a piece
// serves them all; where every row of a warp has the piece, no bit is looked at.
//
// Launch: blocks of 128 threads, a block a hack; static shared memory.
#include "common.cuh"

constexpr uint32_t threads = 128, each = 8, words = threads * each / 32, held = 32;

template <class T>
__device__ __forceinline__ void pieces(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                       const int32_t* __restrict__ offsets,
                                       const T* __restrict__ values,
                                       const uint32_t* __restrict__ rows, const T* __restrict__ x,
                                       T* y, T alpha, T beta) {
    __shared__ int32_t held_offsets[held];
    __shared__ T held_values[held];
    __shared__ __align__(16) uint32_t held_rows[held * words];
    await_previous();
    const uint32_t h = blockIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    const uint64_t first = uint64_t(h) * (threads * each) + warp * (32 * each) + lane;
    T sums[each] = {};
    for (uint32_t p0 = 0; p0 < count; p0 += held) {
        const uint32_t n = min(held, count - p0);
        const uint64_t from = start + p0;
        if (p0 > 0) __syncthreads();
        if (threadIdx.x < n) {
            held_offsets[threadIdx.x] = __ldcs(offsets + from + threadIdx.x);
            held_values[threadIdx.x] = __ldcs(values + from + threadIdx.x);
        }
        for (uint32_t i = threadIdx.x; i < n * words; i += threads)
            held_rows[i] = __ldcs(rows + from * words + i);
        __syncthreads();
#pragma unroll 4
        for (uint32_t p = 0; p < n; p++) {
            uint32_t bits[each], everywhere = ~0u;
#pragma unroll
            for (uint32_t e = 0; e < each; e += 4) {
                const uint4 four =
                    *reinterpret_cast<const uint4*>(held_rows + p * words + warp * each + e);
                bits[e] = four.x, bits[e + 1] = four.y, bits[e + 2] = four.z, bits[e + 3] = four.w;
                everywhere &= four.x & four.y & four.z & four.w;
            }
            const T* const near = x + (int64_t(first) + held_offsets[p]);
            const T value = held_values[p];
            if (everywhere == ~0u) {
#pragma unroll
                for (uint32_t e = 0; e < each; e++) sums[e] += value * gather(near + 32 * e);
            } else {
#pragma unroll
                for (uint32_t e = 0; e < each; e++)
                    if (bits[e] >> lane & 1) sums[e] += value * gather(near + 32 * e);
            }
        }
    }
#pragma unroll
    for (uint32_t e = 0; e < each; e++)
        if (first + 32 * e < nrows) store(y + first + 32 * e, alpha, sums[e], beta);
}

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,                        \
             const int32_t* offsets, const T* values, const uint32_t* rows, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        pieces<T>(nrows, narrow, wide, offsets, values, rows, x, y, alpha, beta);                 \
    }
KERNEL(cdia_f64, double)
KERNEL(cdia_f32, float)
