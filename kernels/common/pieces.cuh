// The product of a matrix in constant pieces of diagonals (products/cdia.cu, products/cdia_dot.cu).
//
// A block processes a hack of 1024 rows; it keeps offsets, values and row bits of up to `held`
// pieces in shared memory at a time. A lane processes 8 rows at a distance of 32, so that one read
// of a piece serves them all; where every row of a warp has the piece, no bit is tested.
#pragma once
#include "common.cuh"

constexpr uint32_t threads = CDIA_THREADS, each = CDIA_HACK / threads;
constexpr uint32_t words = threads * each / 32, held = 32;

// Offsets, values and row bits of the pieces that a block holds.
template <class T> struct Held {
    int32_t offsets[held];
    T values[held];
    __align__(16) uint32_t rows[held * words];
};

// Loads the bits of piece p for the rows of a warp; returns true where every row has the piece.
template <class T>
__device__ __forceinline__ bool bits_of(const Held<T>& here, uint32_t p, uint32_t warp,
                                        uint32_t (&bits)[each]) {
    uint32_t everywhere = ~0u;
#pragma unroll
    for (uint32_t e = 0; e < each; e += 4) {
        const uint4 four =
            *reinterpret_cast<const uint4*>(here.rows + p * words + warp * each + e);
        bits[e] = four.x, bits[e + 1] = four.y, bits[e + 2] = four.z, bits[e + 3] = four.w;
        everywhere &= four.x & four.y & four.z & four.w;
    }
    return everywhere == ~0u;
}

// Processes one piece after another; the work of other warps hides the latency of x.
template <class T> struct InTurn {
    static __device__ __forceinline__ void add(const Held<T>& here, uint32_t n, const T* x,
                                               uint64_t first, uint32_t lane, uint32_t warp,
                                               T (&sums)[each]) {
#pragma unroll 4
        for (uint32_t p = 0; p < n; p++) {
            uint32_t bits[each];
            const bool everywhere = bits_of(here, p, warp, bits);
            const T* const near = x + (int64_t(first) + here.offsets[p]);
            const T value = here.values[p];
            if (everywhere) {
#pragma unroll
                for (uint32_t e = 0; e < each; e++) sums[e] += value * gather(near + 32 * e);
            } else {
#pragma unroll
                for (uint32_t e = 0; e < each; e++)
                    if (bits[e] >> lane & 1) sums[e] += value * gather(near + 32 * e);
            }
        }
    }
};

// Loads x for `batch` pieces at once, where there are too few warps to hide the latency.
template <class T, uint32_t batch> struct Batched {
    static __device__ __forceinline__ void add(const Held<T>& here, uint32_t n, const T* x,
                                               uint64_t first, uint32_t lane, uint32_t warp,
                                               T (&sums)[each]) {
        for (uint32_t p0 = 0; p0 < n; p0 += batch) {
            T loaded[batch][each];
#pragma unroll
            for (uint32_t q = 0; q < batch; q++) {
                if (p0 + q >= n) break;
                uint32_t bits[each];
                bits_of(here, p0 + q, warp, bits);
                const T* const near = x + (int64_t(first) + here.offsets[p0 + q]);
#pragma unroll
                for (uint32_t e = 0; e < each; e++)
                    if (bits[e] >> lane & 1) loaded[q][e] = gather(near + 32 * e);
            }
            all_under_way();
#pragma unroll
            for (uint32_t q = 0; q < batch; q++) {
                if (p0 + q >= n) break;
                uint32_t bits[each];
                bits_of(here, p0 + q, warp, bits);
                const T value = here.values[p0 + q];
#pragma unroll
                for (uint32_t e = 0; e < each; e++)
                    if (bits[e] >> lane & 1) sums[e] += value * loaded[q][e];
            }
        }
    }
};

// Calls put(row, sum) for the rows of a thread.
template <class T, class How, class Put>
__device__ __forceinline__ void pieces(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                       const int32_t* __restrict__ offsets,
                                       const T* __restrict__ values,
                                       const uint32_t* __restrict__ rows, const T* __restrict__ x,
                                       const Put& put) {
    __shared__ Held<T> here;
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
            here.offsets[threadIdx.x] = __ldcs(offsets + from + threadIdx.x);
            here.values[threadIdx.x] = __ldcs(values + from + threadIdx.x);
        }
        for (uint32_t i = threadIdx.x; i < n * words; i += threads)
            here.rows[i] = __ldcs(rows + from * words + i);
        __syncthreads();
        How::add(here, n, x, first, lane, warp, sums);
    }
#pragma unroll
    for (uint32_t e = 0; e < each; e++)
        if (first + 32 * e < nrows) put(first + 32 * e, sums[e]);
}
