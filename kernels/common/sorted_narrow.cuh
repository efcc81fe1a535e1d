// Kernels of tiles of CSR rows whose entries are sorted by column, with values of a type with fewer bits
// than vectors and sums (products/st_csr_f32.cu, st_csr_f16.cu, st_csr_bf16.cu). The kernels
// st_csr_heads_* of st_csr.cu add the parts of rows that began in earlier tiles.
#pragma once
#include "sorted.cuh"
#include "sorted_values.cuh"

template <class T, class Value> struct Narrow {
    Values<Value> values;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t thread, T (&v)[OWN]) const {
        Value narrow[OWN];
        values.take(thread, narrow);
#pragma unroll
        for (int k = 0; k < int(OWN); k++) v[k] = T(narrow[k]);
    }
};

#define TILE(stem, precision, T, Value, size, extra)                                              \
    extern "C" __global__ void __launch_bounds__(size / OWN, RESIDENT<T> / (size / OWN))          \
        stem##_##size##_##precision##_##extra(TILE_ARGS, const Value* values, VECTOR_ARGS(T)) {   \
        tile<T, size, extra>(tiles, ends, lasts, bases, low, high, wide,                          \
                             Narrow<T, Value>{Values<Value>{values}}, x, heads, y, alpha, beta);  \
    }
#define SIZES(stem, precision, T, Value, extra)                                                   \
    TILE(stem, precision, T, Value, 1024, extra)                                                  \
    TILE(stem, precision, T, Value, 2048, extra)                                                  \
    TILE(stem, precision, T, Value, 4096, extra)
#define TILES(stem, precision, T, Value)                                                          \
    SIZES(stem, precision, T, Value, 4)                                                           \
    SIZES(stem, precision, T, Value, 8)                                                           \
    SIZES(stem, precision, T, Value, 16)
