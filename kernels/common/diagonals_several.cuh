// The product of a matrix stored by diagonals in hacks with several vectors
// (products/diagonals_several.cu, products/hdia_f32_several.cu): diagonals.cuh for one vector.
//
// A thread processes one row, or with `parts` 2 half of the vectors of a row, and `batch` diagonals at
// a time. Fill has the value -0.0, as there.
#pragma once
#include "several.cuh"

template <class T, class Value, int width, bool packed, int batch, bool masked>
__device__ __forceinline__ void sum_diagonals(uint32_t row, uint32_t ncols, uint32_t pitch,
                                              uint32_t count, const int32_t* __restrict__ offsets,
                                              const Value* __restrict__ values,
                                              const T* __restrict__ x, uint64_t x_row,
                                              uint64_t x_vector, T (&sums)[width]) {
#pragma unroll
    for (int i = 0; i < width; i++) sums[i] = T(0);
// Not unrolled: otherwise the rarely executed loop would take registers from the other one.
#pragma unroll 1
    for (uint32_t d = 0; d < count; d += batch, values += uint64_t(batch) * pitch) {
        Value value[batch];
        uint32_t column[batch];
        T near[batch][width] = {};
#pragma unroll
        for (int k = 0; k < batch; k++)
            value[k] = d + k < count ? stream(values + uint64_t(k) * pitch) : Value(0);
#pragma unroll
        for (int k = 0; k < batch; k++)
            column[k] = d + k < count ? row + uint32_t(__ldg(offsets + d + k)) : ~0u;
#pragma unroll
        for (int k = 0; k < batch; k++)
            if (column[k] < ncols)
                load_row<packed, width>(x + column[k] * x_row, x_vector, near[k]);
#pragma unroll
        for (int k = 0; k < batch; k++)
#pragma unroll
            for (int i = 0; i < width; i++)
                if (!masked || !is_fill(value[k])) sums[i] += T(value[k]) * near[k][i];
    }
}

template <class T, class Value, int vectors, int parts, bool packed, int batch>
__device__ __forceinline__ void diagonals(uint32_t nrows, uint32_t ncols, uint32_t shift,
                                          uint32_t pitch, const uint32_t* __restrict__ narrow,
                                          const uint64_t* __restrict__ wide,
                                          const int32_t* __restrict__ offsets,
                                          const Value* __restrict__ values,
                                          const T* __restrict__ x, T* y, T alpha, T beta,
                                          uint64_t x_row, uint64_t x_vector, uint64_t y_row,
                                          uint64_t y_vector) {
    await_previous();
    constexpr int width = vectors / parts;
    const uint64_t thread = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint32_t row = uint32_t(thread / parts), part = uint32_t(thread % parts);
    if (thread / parts >= nrows) return;
    const uint32_t h = shift < 32 ? row >> shift : 0;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    const uint32_t count = uint32_t((narrow ? narrow[h + 1] : wide[h + 1]) - start);
    values += start * pitch + (row - h * pitch);
    offsets += start;
    x += part * width * x_vector;
    T sums[width];
    sum_diagonals<T, Value, width, packed, batch, false>(row, ncols, pitch, count, offsets, values, x,
                                                         x_row, x_vector, sums);
    if (has_nan<width>(sums))
        sum_diagonals<T, Value, width, packed, 1, true>(row, ncols, pitch, count, offsets, values, x,
                                                        x_row, x_vector, sums);
    y += row * y_row + part * width * y_vector;
    store_row<width>(y, y_vector, alpha, sums, beta);
}

// The kernels for several vectors. KERNEL(name, vectors, parts, packed, batch, blocks) defines one:
// `blocks` thread blocks share a processor. Batches are the fastest of those tried on an H200.
#define DIAGONALS_SEVERAL(KERNEL, eight_parts)                                                    \
    KERNEL(v1_strided, 1, 1, false, 4, 6)                                                         \
    KERNEL(v2_strided, 2, 1, false, 4, 5)                                                         \
    KERNEL(v4_strided, 4, 1, false, 4, 4)                                                         \
    KERNEL(v8_strided, 8, 1, false, 2, 3)                                                         \
    KERNEL(v2_packed, 2, 1, true, 4, 6)                                                           \
    KERNEL(v4_packed, 4, 1, true, 2, 4)                                                           \
    KERNEL(v8_packed, 8, eight_parts, true, 2, (eight_parts == 1 ? 3 : 4))
