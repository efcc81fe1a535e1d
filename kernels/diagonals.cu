// y = alpha A x + beta y with A stored by diagonals in hacks of `hack` rows: dia and hdia.
//
// A thread takes `rows` neighbouring rows, which lie in one hack, and `batch` diagonals at a time.
// Fill has the value -0.0: it adds nothing to a sum but makes it NaN where x is not finite; such
// sums are computed again with fill masked.
//
// Launch: blocks of 256 threads over ceil(nrows / rows) threads; no shared memory. `hack` is a
// multiple of `rows`.
#include "common.cuh"

template <class T, int rows> struct alignas(sizeof(T) * rows) Pack {
    T at[rows];
};

// What a thread reads in one go: values that are read once, and x.
template <int rows> __device__ __forceinline__ Pack<double, rows> pack(const double* p, bool once) {
    if constexpr (rows == 1) {
        return {{once ? __ldcs(p) : __ldg(p)}};
    } else {
        const double2* q = reinterpret_cast<const double2*>(p);
        const double2 v = once ? __ldcs(q) : __ldg(q);
        return {{v.x, v.y}};
    }
}
template <int rows> __device__ __forceinline__ Pack<float, rows> pack(const float* p, bool once) {
    if constexpr (rows == 1) {
        return {{once ? __ldcs(p) : __ldg(p)}};
    } else {
        const float2* q = reinterpret_cast<const float2*>(p);
        const float2 v = once ? __ldcs(q) : __ldg(q);
        return {{v.x, v.y}};
    }
}

// Columns are counted modulo 2^32: one left of the matrix is past its end.
template <class T, int rows, int batch, bool masked>
__device__ __forceinline__ void sum_rows(uint32_t first, uint32_t ncols, uint32_t hack, uint32_t count,
                                         const int32_t* __restrict__ offsets,
                                         const T* __restrict__ values, const T* __restrict__ x,
                                         T (&sums)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; r++) sums[r] = T(0);
    for (uint32_t d = 0; d < count; d += batch, values += uint64_t(batch) * hack) {
        Pack<T, rows> value[batch];
        T near[batch][rows];
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (d + b < count) value[b] = pack<rows>(values + uint64_t(b) * hack, true);
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (d + b >= count) continue;
            const uint32_t column = first + uint32_t(__ldg(offsets + d + b));
#pragma unroll
            for (int r = 0; r < rows; r++)
                near[b][r] = column + r < ncols ? gather(x + (column + r)) : T(0);
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (d + b >= count) continue;
#pragma unroll
            for (int r = 0; r < rows; r++)
                if (!masked || !is_fill(value[b].at[r])) sums[r] += value[b].at[r] * near[b][r];
        }
    }
}

// The same for rows all of whose x lies inside, and whole packs around it, with x aligned to packs:
// lanes read packs of x, one where the offset is a multiple of them and two otherwise.
template <class T, int rows, int batch>
__device__ __forceinline__ void sum_inner(uint32_t first, uint32_t hack, uint32_t count,
                                          const int32_t* __restrict__ offsets,
                                          const T* __restrict__ values, const T* __restrict__ x,
                                          T (&sums)[rows]) {
#pragma unroll
    for (int r = 0; r < rows; r++) sums[r] = T(0);
    for (uint32_t d = 0; d < count; d += batch, values += uint64_t(batch) * hack) {
        Pack<T, rows> value[batch], low[batch], high[batch];
        uint32_t shift[batch];
#pragma unroll
        for (int b = 0; b < batch; b++)
            if (d + b < count) value[b] = pack<rows>(values + uint64_t(b) * hack, true);
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (d + b >= count) continue;
            const uint32_t column = first + uint32_t(__ldg(offsets + d + b));
            shift[b] = column % rows;
            low[b] = pack<rows>(x + (column - shift[b]), false);
            if (shift[b] > 0) high[b] = pack<rows>(x + (column - shift[b] + rows), false);
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
            if (d + b >= count) continue;
#pragma unroll
            for (int r = 0; r < rows; r++) {
                T near = low[b].at[r];
#pragma unroll
                for (int s = 1; s < rows; s++) {
                    const T other = r + s < rows ? low[b].at[(r + s) % rows] : high[b].at[(r + s) % rows];
                    near = shift[b] == s ? other : near;
                }
                sums[r] += value[b].at[r] * near;
            }
        }
    }
}

template <class T, int rows, int batch, bool packs>
__device__ __forceinline__ void diagonals(uint32_t nrows, uint32_t ncols, uint32_t hack,
                                          const uint32_t* __restrict__ narrow,
                                          const uint64_t* __restrict__ wide,
                                          const int32_t* __restrict__ offsets,
                                          const T* __restrict__ values, const T* __restrict__ x,
                                          T* y, T alpha, T beta) {
    const uint32_t first = (blockIdx.x * blockDim.x + threadIdx.x) * rows;
    if (first >= nrows) return;
    const uint32_t h = first / hack, r = first - h * hack;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    values += start * hack + r;
    offsets += start;
    T sums[rows];
    // Offsets rise: all of x lies inside where that of the first and of the last diagonal does.
    bool inner = packs && count > 0 && reinterpret_cast<uint64_t>(x) % sizeof(Pack<T, rows>) == 0;
    if (inner) {
        const int64_t low = int64_t(first) + offsets[0], high = int64_t(first) + offsets[count - 1];
        inner = low >= 0 && high + 2 * rows <= int64_t(ncols);
    }
    if (packs && inner) sum_inner<T, rows, batch>(first, hack, count, offsets, values, x, sums);
    else sum_rows<T, rows, batch, false>(first, ncols, hack, count, offsets, values, x, sums);
    bool finite = true;
#pragma unroll
    for (int q = 0; q < rows; q++) finite &= sums[q] == sums[q];
    if (!finite) sum_rows<T, rows, 1, true>(first, ncols, hack, count, offsets, values, x, sums);
#pragma unroll
    for (int q = 0; q < rows; q++)
        if (first + q < nrows) store(y + first + q, alpha, sums[q], beta);
}

// Packs of x pay where two values are no more than a lane reads at a time anyway.
#define KERNEL(name, T, rows, batch, packs)                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4)                                          \
        name(uint32_t nrows, uint32_t ncols, uint32_t hack, const uint32_t* narrow,               \
             const uint64_t* wide, const int32_t* offsets, const T* values, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        diagonals<T, rows, batch, packs>(nrows, ncols, hack, narrow, wide, offsets, values, x, y, \
                                         alpha, beta);                                            \
    }
KERNEL(diagonals_r1_f64, double, 1, 4, false)
KERNEL(diagonals_r2_f64, double, 2, 4, false)
KERNEL(diagonals_r1_f32, float, 1, 7, false)
KERNEL(diagonals_r2_f32, float, 2, 3, true)
