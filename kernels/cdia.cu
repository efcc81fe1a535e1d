// y = alpha A x + beta y with A in pieces of diagonals with one value each (see src/format/cdia.rs).
//
// A warp takes 128 rows of one hack, a lane four of them that lie 32 apart, so that offset, value
// and row bits of a piece are read once for all.
//
// Launch: blocks of 128 threads, a warp for every 128 rows; no shared memory. `hack` is a multiple
// of 128.
#include "common.cuh"

template <class T>
__device__ __forceinline__ void pieces(uint32_t nrows, uint32_t hack, const uint32_t* narrow,
                                       const uint64_t* wide, const int32_t* __restrict__ offsets,
                                       const T* __restrict__ values,
                                       const uint32_t* __restrict__ rows, const T* __restrict__ x,
                                       T* y, T alpha, T beta) {
    constexpr int each = 4, batch = 4;
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t first = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * (32 * each);
    if (first >= nrows) return;
    const uint32_t h = uint32_t(first / hack), words = hack / 32;
    const uint32_t word = uint32_t(first - uint64_t(h) * hack) / 32;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    const T* const here = x + (first + lane);
    T sums[each] = {};
    for (uint32_t p0 = 0; p0 < count; p0 += batch) {
        uint4 bits[batch];
        int32_t offset[batch];
        T value[batch], near[batch][each];
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const uint64_t p = start + p0 + b;
            const bool inside = p0 + b < count;
            bits[b] = inside ? __ldg(reinterpret_cast<const uint4*>(rows + p * words + word))
                             : make_uint4(0, 0, 0, 0);
            offset[b] = inside ? __ldg(offsets + p) : 0;
            value[b] = inside ? __ldg(values + p) : T(0);
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const uint32_t of[each] = {bits[b].x, bits[b].y, bits[b].z, bits[b].w};
#pragma unroll
            for (int e = 0; e < each; e++)
                near[b][e] = of[e] >> lane & 1 ? gather(here + (offset[b] + 32 * e)) : T(0);
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            const uint32_t of[each] = {bits[b].x, bits[b].y, bits[b].z, bits[b].w};
#pragma unroll
            for (int e = 0; e < each; e++)
                if (of[e] >> lane & 1) sums[e] += value[b] * near[b][e];
        }
    }
#pragma unroll
    for (int e = 0; e < each; e++) {
        const uint64_t row = first + lane + 32 * e;
        if (row < nrows) store(y + row, alpha, sums[e], beta);
    }
}

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void __launch_bounds__(128)                                             \
        name(uint32_t nrows, uint32_t hack, const uint32_t* narrow, const uint64_t* wide,         \
             const int32_t* offsets, const T* values, const uint32_t* rows, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        pieces<T>(nrows, hack, narrow, wide, offsets, values, rows, x, y, alpha, beta);           \
    }
KERNEL(cdia_f64, double)
KERNEL(cdia_f32, float)
