// y = alpha A x + beta y with A in CHLL (src/format/sliced/chll/mod.rs): blocks [[a, -b], [b, a]] in
// hacks of 32 block rows, of which (a, b) are stored.
//
// A lane processes a block row, and holds the sums of both of its rows. x is read as pairs, which
// one load fetches where x is aligned to them.
//
// Launch: blocks of 256 threads over ceil(nrows / 32) * 32 threads, where `nrows` counts block rows;
// no shared memory. Block columns are 32-bit, or 16-bit counted from `base` of the hack; the largest
// column marks padding, which is read but not multiplied. `order` is the block row of the matrix that
// each stored block row is, or null. `values` holds the pairs (a, b), which are aligned.
#include "common.cuh"

// Two numbers of a type, as one load fetches them.
template <class T> struct Pair;
template <> struct Pair<double> {
    using type = double2;
};
template <> struct Pair<float> {
    using type = float2;
};

__device__ __forceinline__ double2 gather(const double2* p) {
    double2 v;
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ float2 gather(const float2* p) {
    float2 v;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p) : "memory");
    return v;
}

// Sums of a lane's block row: `left` columns of the hack, from this lane's first slot on.
template <class T, class Column, int batch, bool aligned>
__device__ __forceinline__ void sum_pairs(uint32_t left, const Column* __restrict__ columns,
                                          const typename Pair<T>::type* __restrict__ values,
                                          const T* __restrict__ x, T& real, T& imaginary) {
    using P = typename Pair<T>::type;
    constexpr Column padding = Column(~Column(0));
    // Columns are loaded a batch ahead, so that the loads of values and of x need not wait.
    Column column[batch];
#pragma unroll
    for (int k = 0; k < batch; k++) column[k] = k < left ? stream(columns + 32 * k) : padding;
    for (uint32_t s = 0; s < left; s += batch, values += 32 * batch) {
        columns += 32 * batch;
        Column next[batch];
        P value[batch], near[batch];
#pragma unroll
        for (int k = 0; k < batch; k++) {
            near[k].x = near[k].y = T(0);
            if (column[k] == padding) continue;
            const T* const p = x + 2 * uint64_t(column[k]);
            if (aligned) near[k] = gather(reinterpret_cast<const P*>(p));
            else near[k].x = gather(p), near[k].y = gather(p + 1);
        }
#pragma unroll
        for (int k = 0; k < batch; k++) {
            value[k].x = value[k].y = T(0);
            if (s + k < left) value[k] = stream(values + 32 * k);
        }
#pragma unroll
        for (int k = 0; k < batch; k++)
            next[k] = s + batch + k < left ? stream(columns + 32 * k) : padding;
#pragma unroll
        for (int k = 0; k < batch; k++) {
            real += value[k].x * near[k].x;
            real -= value[k].y * near[k].y;
            imaginary += value[k].y * near[k].x;
            imaginary += value[k].x * near[k].y;
        }
#pragma unroll
        for (int k = 0; k < batch; k++) column[k] = next[k];
    }
}

template <class T, class Column, int batch>
__device__ __forceinline__ void complex_hacks(uint32_t nrows, const uint32_t* narrow,
                                              const uint64_t* wide,
                                              const uint32_t* __restrict__ base,
                                              const uint32_t* __restrict__ order,
                                              const Column* __restrict__ columns,
                                              const T* __restrict__ values,
                                              const T* __restrict__ x, T* y, T alpha, T beta) {
    await_previous();
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, h = i / 32, lane = i % 32;
    if (h * 32 >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h], end = narrow ? narrow[h + 1] : wide[h + 1];
    const uint32_t left = uint32_t(end - start);
    if (base) x += 2 * uint64_t(base[h]);
    columns += start * 32 + lane;
    const auto pairs = reinterpret_cast<const typename Pair<T>::type*>(values) + start * 32 + lane;
    T real = 0, imaginary = 0;
    if (reinterpret_cast<uintptr_t>(x) % (2 * sizeof(T)) == 0)
        sum_pairs<T, Column, batch, true>(left, columns, pairs, x, real, imaginary);
    else sum_pairs<T, Column, batch, false>(left, columns, pairs, x, real, imaginary);
    if (i >= nrows) return;
    const uint64_t row = 2 * uint64_t(order ? order[i] : i);
    store(y + row, alpha, real, beta);
    store(y + row + 1, alpha, imaginary, beta);
}

#define KERNEL(name, T, Column, batch)                                                            \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        name(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,  \
             const uint32_t* order, const Column* columns, const T* values, const T* x, T* y,     \
             T alpha, T beta) {                                                                   \
        complex_hacks<T, Column, batch>(nrows, narrow, wide, base, order, columns, values, x, y,  \
                                        alpha, beta);                                             \
    }
KERNEL(chll_c32_f64, double, uint32_t, 4)
KERNEL(chll_c16_f64, double, uint16_t, 4)
KERNEL(chll_c32_f32, float, uint32_t, 4)
KERNEL(chll_c16_f32, float, uint16_t, 4)
