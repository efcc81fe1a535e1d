// y = alpha A x + beta y with A in compressed sparse rows, as csr.cu, dot products of y, and
// w = w + gamma y. Offsets are 32-bit.
//
// Launch: that of csr.cu. Arguments are those of csr.cu, then z, what is wanted, the places for partial
// sums, w and gamma (dots.cuh).
#include "csr_rows.cuh"
#include "dots.cuh"

#define KERNEL(name, T, tpr)                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 6)                                          \
        name(uint32_t nrows, const uint32_t* row_ptr, const uint32_t* col_idx, const T* values,   \
             const T* x, T* y, T alpha, T beta, const T* z, uint32_t wanted,                      \
             double* parts, T* w, T gamma) {                                                      \
        Dots<T> dots(x, y, alpha, beta, z, wanted, w, gamma);                                     \
        each_row<tpr, T>(                                                                         \
            nrows, row_ptr,                                                                       \
            [&](uint32_t k, uint32_t end) {                                                       \
                return lane_sum<tpr, T, uint32_t>(k, end, col_idx, values, x);                    \
            },                                                                                    \
            [&](uint64_t row, T sum) { dots.put(row, sum); });                                    \
        dots.template finish<256>(parts);                                                         \
    }
#define BOTH(tpr)                                                                                 \
    KERNEL(csr_dot_t##tpr##_f64, double, tpr)                                                     \
    KERNEL(csr_dot_t##tpr##_f32, float, tpr)
BOTH(2)
BOTH(4)
