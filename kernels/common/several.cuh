// Products with several vectors at once (products/hll_several.cu, products/csr_several.cu,
// products/csr_long_several.cu): access to the rows of X and Y.
//
// Element v of row r of X is at x + r * x_row + v * x_vector, counted in elements; Y likewise. `parts`
// neighbouring lanes share an entry of the matrix: each multiplies it with `width` of the vectors.
#pragma once
#include "common.cuh"

// Numbers that one load reads: up to 16 bytes.
template <class T, int n> struct alignas(sizeof(T) * n) Pack {
    T at[n];
};

// Reads `width` elements of a row of X. Packed: they follow each other, the first of them at a
// multiple of 16 bytes or of all their bytes, whichever is less. Otherwise they are `x_vector`
// elements apart.
template <bool packed, int width, class T>
__device__ __forceinline__ void load_row(const T* x, uint64_t x_vector, T* row) {
    if (packed) {
        constexpr int n = sizeof(T) * width > 16 ? 16 / sizeof(T) : width;
#pragma unroll
        for (int i = 0; i < width; i += n) {
            const Pack<T, n> pack = *reinterpret_cast<const Pack<T, n>*>(x + i);
#pragma unroll
            for (int j = 0; j < n; j++) row[i + j] = pack.at[j];
        }
    } else {
#pragma unroll
        for (int i = 0; i < width; i++) row[i] = x[i * x_vector];
    }
}

// Adds the products of a batch of entries with their rows of X to the sums; is_entry(b) tells whether
// place b of the batch holds an entry.
template <bool packed, int width, int batch, class T, class Column, class IsEntry>
__device__ __forceinline__ void add_batch(const Column* column, const T* value, const T* x,
                                          uint64_t x_row, uint64_t x_vector, T* sums,
                                          const IsEntry& is_entry) {
    T row[batch][width];
#pragma unroll
    for (int b = 0; b < batch; b++) {
        if (is_entry(b)) {
            load_row<packed, width>(x + column[b] * x_row, x_vector, row[b]);
        } else {
#pragma unroll
            for (int i = 0; i < width; i++) row[b][i] = T(0);
        }
    }
#pragma unroll
    for (int b = 0; b < batch; b++)
#pragma unroll
        for (int i = 0; i < width; i++) sums[i] += value[b] * row[b][i];
}

// Adds the products of every `lanes`th entry of compressed sparse rows from `start` up to `end` to the
// sums.
template <int lanes, bool packed, int width, int batch, class T, class Offset>
__device__ __forceinline__ void add_entries(Offset start, Offset end,
                                            const uint32_t* __restrict__ col_idx,
                                            const T* __restrict__ values,
                                            const T* __restrict__ x, uint64_t x_row,
                                            uint64_t x_vector, T* sums) {
    T value[batch];
    uint32_t column[batch];
    for (Offset k = start; k < end; k += batch * lanes) {
#pragma unroll
        for (int b = 0; b < batch; b++)
            column[b] = k + b * lanes < end ? stream(col_idx + k + b * lanes) : 0;
#pragma unroll
        for (int b = 0; b < batch; b++)
            value[b] = k + b * lanes < end ? stream(values + k + b * lanes) : T(0);
        add_batch<packed, width, batch>(column, value, x, x_row, x_vector, sums,
                                        [&](int b) { return k + b * lanes < end; });
    }
}

// Adds up the sums of lanes that are `step`, 2 `step`, ... below `lanes` apart; every lane gets them.
template <int step, int lanes, int width, class T> __device__ __forceinline__ void group_sums(T* sums) {
#pragma unroll
    for (int distance = step; distance < lanes; distance *= 2)
#pragma unroll
        for (int i = 0; i < width; i++)
            sums[i] += __shfl_xor_sync(0xffffffffu, sums[i], distance);
}

// Tells whether one of the sums is NaN.
template <int count, class T> __device__ __forceinline__ bool has_nan(const T* sums) {
    bool finite = true;
#pragma unroll
    for (int i = 0; i < count; i++) finite &= sums[i] == sums[i];
    return !finite;
}

// Writes a row of Y: alpha * sums + beta * y.
template <int width, class T>
__device__ __forceinline__ void store_row(T* y, uint64_t y_vector, T alpha, const T* sums, T beta) {
#pragma unroll
    for (int i = 0; i < width; i++) store(y + i * y_vector, alpha, sums[i], beta);
}

// The kernels of one matrix: NAME_v1_strided (a single vector whose elements are apart), and those of
// 2, 4 and 8 vectors. KERNEL(name, vectors, parts, packed, batch, blocks) defines one; `batch` entries
// of a row are read at a time, and `blocks` blocks share a processor. Parts and batches are the fastest
// of those tried on an H200.
#define SEVERAL(KERNEL, name, eight_parts)                                                        \
    KERNEL(name##_v1_strided, 1, 1, false, 8, 5)                                                  \
    KERNEL(name##_v2_strided, 2, 1, false, 4, 5)                                                  \
    KERNEL(name##_v4_strided, 4, 1, false, 4, 4)                                                  \
    KERNEL(name##_v8_strided, 8, 1, false, 2, 3)                                                  \
    KERNEL(name##_v2_packed, 2, 1, true, 4, 5)                                                    \
    KERNEL(name##_v4_packed, 4, 1, true, 4, 4)                                                    \
    KERNEL(name##_v8_packed, 8, eight_parts, true, (eight_parts == 1 ? 2 : 4),                    \
           (eight_parts == 1 ? 3 : 4))
