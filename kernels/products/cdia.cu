// y = alpha A x + beta y with A in constant pieces of diagonals (see src/format/dia/cdia/mod.rs).
//
// The form for blocks that are all resident at once (`_resident`) loads x for several pieces at a
// time.
//
// Launch: blocks of 128 threads, one block per hack; static shared memory.
#include "pieces.cuh"

#define KERNEL(name, T, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(threads)                                         \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,                        \
             const int32_t* offsets, const T* values, const uint32_t* rows, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        pieces<T, __VA_ARGS__>(                                                                   \
            nrows, narrow, wide, offsets, values, rows, x,                                        \
            [&](uint64_t row, T sum) { store(y + row, alpha, sum, beta); });                      \
    }
KERNEL(cdia_f64, double, InTurn<double>)
KERNEL(cdia_f32, float, InTurn<float>)
KERNEL(cdia_f64_resident, double, Batched<double, 7>)
KERNEL(cdia_f32_resident, float, Batched<float, 9>)
