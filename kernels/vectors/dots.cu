// Steps of solvers that read each vector once: several dot products of one vector y with w = w + gamma y,
// y = alpha x + beta y with (y, y), x = x + alpha p with p = r + beta p, and the updates of an iteration of
// conjugate gradients that needs one sum.
//
// Factors are those of numbers.cuh. Sums are added in double precision, in an order that depends on the
// length alone, so equal vectors give equal bits. Block b of B writes its partial sum of dot product k
// to parts[k * B + b].
//
// Launch: dots_parts, dots_parts_add, axpby_dot and one_sum_step in at most VECTORS_PARTS blocks of VECTORS_THREADS
// threads; dots_sum in one block of DOTS_THREADS threads for each result; advance in blocks of 256
// threads over ceil(n / 2). No dynamic shared memory.
#include "dots.cuh"
#include "numbers.cuh"

// Elements that a thread loads at a time.
constexpr int EACH = 4;

// Calls load(e, i) for each of the elements i of a thread, several at a time, and then use(e, i).
template <class Load, class Use>
__device__ __forceinline__ void in_batches(uint64_t n, const Load& load, const Use& use) {
    const uint64_t threads = uint64_t(gridDim.x) * VECTORS_THREADS;
    for (uint64_t i = uint64_t(blockIdx.x) * VECTORS_THREADS + threadIdx.x; i < n; i += EACH * threads) {
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (i + e * threads < n) load(e, i + e * threads);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (i + e * threads < n) use(e, i + e * threads);
    }
}

// Dot products of y with x (number 0), y (1) and z (2), as far as `wanted` (common/dots.cuh).
template <class T>
__device__ __forceinline__ void dots_parts(uint64_t n, const T* x, const T* y, const T* z,
                                           uint32_t wanted, double* parts) {
    await_previous();
    Dots<T> dots(x, nullptr, T(0), T(0), z, wanted, nullptr, T(0));
    T of_y[EACH];
    in_batches(
        n, [&](int e, uint64_t i) { of_y[e] = y[i]; },
        [&](int e, uint64_t i) { dots.add(i, of_y[e]); });
    dots.template finish<VECTORS_THREADS>(parts);
}

// As dots_parts, and w = w + gamma y. A kernel of its own, as it takes more registers.
template <class T>
__device__ __forceinline__ void dots_parts_add(uint64_t n, const T* x, const T* y, const T* z,
                                               uint32_t wanted, double* parts, T* w, T gamma) {
    await_previous();
    Dots<T> dots(x, nullptr, T(0), T(0), z, wanted, w, gamma);
    T of_y[EACH], of_w[EACH];
    in_batches(
        n, [&](int e, uint64_t i) { of_y[e] = y[i], of_w[e] = w[i]; },
        [&](int e, uint64_t i) {
            w[i] = of_w[e] + gamma * of_y[e];
            dots.add(i, of_y[e]);
        });
    dots.template finish<VECTORS_THREADS>(parts);
}

template <class T>
__device__ __forceinline__ void axpby_dot(uint64_t n, T alpha, const T* alpha_over,
                                          const T* alpha_under, const T* x, T beta,
                                          const T* beta_over, const T* beta_under, T* y,
                                          double* parts) {
    await_previous();
    const T a = factor(alpha, alpha_over, alpha_under), b = factor(beta, beta_over, beta_under);
    T of_x[EACH], of_y[EACH];
    double sum = 0;
    in_batches(
        n,
        [&](int e, uint64_t i) {
            of_x[e] = x[i];
            of_y[e] = b == T(0) ? T(0) : y[i];
        },
        [&](int e, uint64_t i) {
            const T result = b == T(0) ? a * of_x[e] : a * of_x[e] + b * of_y[e];
            y[i] = result;
            sum += double(result) * double(result);
        });
    sum = block_sum<VECTORS_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// Adds `count` partial sums; block r writes result r, which is dot product (places >> 2 r) % 4.
template <class T>
__device__ __forceinline__ void dots_sum(uint32_t count, const double* parts, uint32_t places,
                                         T* results) {
    await_previous();
    constexpr uint32_t batch = 8;
    parts += uint64_t(places >> 2 * blockIdx.x & 3) * count;
    double sum = 0;
    for (uint64_t i = threadIdx.x; i < count; i += batch * DOTS_THREADS) {
        double part[batch];
#pragma unroll
        for (uint32_t b = 0; b < batch; b++)
            part[b] = i + b * DOTS_THREADS < count ? parts[i + b * DOTS_THREADS] : 0.0;
#pragma unroll
        for (uint32_t b = 0; b < batch; b++) sum += part[b];
    }
    sum = block_sum<DOTS_THREADS>(sum);
    if (threadIdx.x == 0) results[blockIdx.x] = T(sum);
}

// x = x + alpha p, then p = r + beta p.
template <class T>
__device__ __forceinline__ void advance(uint64_t n, T alpha, const T* alpha_over,
                                        const T* alpha_under, const T* r, T beta,
                                        const T* beta_over, const T* beta_under, T* p, T* x) {
    await_previous();
    constexpr int each = 2;
    const uint64_t first = uint64_t(blockIdx.x) * (each * blockDim.x) + threadIdx.x;
    const T a = factor(alpha, alpha_over, alpha_under), b = factor(beta, beta_over, beta_under);
    T of_x[each], of_p[each], of_r[each];
#pragma unroll
    for (int e = 0; e < each; e++) {
        const uint64_t i = first + e * blockDim.x;
        if (i < n) of_p[e] = p[i], of_x[e] = x[i], of_r[e] = r[i];
    }
#pragma unroll
    for (int e = 0; e < each; e++) {
        const uint64_t i = first + e * blockDim.x;
        if (i < n) {
            x[i] = of_x[e] + a * of_p[e];
            p[i] = of_r[e] + b * of_p[e];
        }
    }
}

// The updates of conjugate gradients by Chronopoulos and Gear, with w = A r, rr = (r, r) and rw = (r, w):
// p = r + beta p, s = w + beta s, x = x + alpha p, r = r - alpha s, and (r, r) of the new r. Here s = A p, and
// pq = (p, A p) = rw - beta^2 (p, A p) of the iteration before. In the first iteration, rr_before is 0.
template <class T>
__device__ __forceinline__ void one_sum_step(uint64_t n, const T* rr, const T* rr_before, const T* rw,
                                             const T* pq_before, T* pq, const T* w, T* p, T* s, T* x,
                                             T* r, double* parts) {
    await_previous();
    const T beta = factor(T(1), rr, rr_before), of_pq = *rw - beta * beta * *pq_before;
    const T alpha = of_pq == T(0) ? T(0) : *rr / of_pq;
    if (blockIdx.x == 0 && threadIdx.x == 0) *pq = of_pq;
    T of_w[EACH], of_p[EACH], of_s[EACH], of_x[EACH], of_r[EACH];
    double sum = 0;
    in_batches(
        n,
        [&](int e, uint64_t i) {
            of_w[e] = w[i], of_p[e] = p[i], of_s[e] = s[i], of_x[e] = x[i], of_r[e] = r[i];
        },
        [&](int e, uint64_t i) {
            const T to_p = of_r[e] + beta * of_p[e], to_s = of_w[e] + beta * of_s[e];
            const T to_r = of_r[e] - alpha * to_s;
            p[i] = to_p, s[i] = to_s, x[i] = of_x[e] + alpha * to_p, r[i] = to_r;
            sum += double(to_r) * double(to_r);
        });
    sum = block_sum<VECTORS_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        dots_parts_##name(uint64_t n, const T* x, const T* y, const T* z, uint32_t wanted,        \
                          double* parts) {                                                        \
        dots_parts<T>(n, x, y, z, wanted, parts);                                                 \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        dots_parts_add_##name(uint64_t n, const T* x, const T* y, const T* z, uint32_t wanted,    \
                              double* parts, T* w, T gamma) {                                     \
        dots_parts_add<T>(n, x, y, z, wanted, parts, w, gamma);                                   \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        axpby_dot_##name(uint64_t n, T alpha, const T* alpha_over, const T* alpha_under,          \
                         const T* x, T beta, const T* beta_over, const T* beta_under, T* y,       \
                         double* parts) {                                                         \
        axpby_dot<T>(n, alpha, alpha_over, alpha_under, x, beta, beta_over, beta_under, y,        \
                     parts);                                                                      \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(VECTORS_THREADS)                                 \
        one_sum_step_##name(uint64_t n, const T* rr, const T* rr_before, const T* rw,             \
                            const T* pq_before, T* pq, const T* w, T* p, T* s, T* x, T* r,        \
                            double* parts) {                                                      \
        one_sum_step<T>(n, rr, rr_before, rw, pq_before, pq, w, p, s, x, r, parts);               \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(DOTS_THREADS)                                    \
        dots_sum_##name(uint32_t count, const double* parts, uint32_t places, T* results) {       \
        dots_sum<T>(count, parts, places, results);                                               \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        advance_##name(uint64_t n, T alpha, const T* alpha_over, const T* alpha_under,            \
                       const T* r, T beta, const T* beta_over, const T* beta_under, T* p,         \
                       T* x) {                                                                    \
        advance<T>(n, alpha, alpha_over, alpha_under, r, beta, beta_over, beta_under, p, x);      \
    }
KERNELS(double, f64)
KERNELS(float, f32)
