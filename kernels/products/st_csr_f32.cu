// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column, values stored
// in f32, and vectors and sums in f64 (src/format/tiled/st_csr_f32.rs). st_csr_heads_f64 of st_csr.cu
// adds the parts of rows that began in earlier tiles.
#include "sorted.cuh"
#include "sorted_values.cuh"

struct Narrow {
    Values<float> values;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t thread, double (&v)[OWN]) const {
        float narrow[OWN];
        values.take(thread, narrow);
#pragma unroll
        for (int k = 0; k < int(OWN); k++) v[k] = narrow[k];
    }
};

#define TILE(size, extra)                                                                         \
    extern "C" __global__ void __launch_bounds__(size / OWN, RESIDENT<double> / (size / OWN))     \
        st_csr_f32_##size##_f64_##extra(TILE_ARGS, const float* values, VECTOR_ARGS(double)) {    \
        tile<double, size, extra>(tiles, ends, lasts, bases, low, high, wide,                     \
                                  Narrow{Values<float>{values}}, x, heads, y, alpha, beta);       \
    }
#define SIZES(extra)                                                                              \
    TILE(1024, extra)                                                                             \
    TILE(2048, extra)                                                                             \
    TILE(4096, extra)
SIZES(4)
SIZES(8)
SIZES(16)
