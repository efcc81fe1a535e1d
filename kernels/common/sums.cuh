// Sums of the products of a sorted tile, row by row, in shared memory (st_csr.cu; convert_tiles.cu
// places entries accordingly).
//
// Every thread sums the same number of products, whichever rows they belong to, up to each end of a
// row. A remainder is passed to the following lanes, and a warp's remainder to the following warps.
// The sum of a row replaces its last product.
#pragma once
#include "common.cuh"

// Products that a thread sums.
constexpr uint32_t OWN = SORTED_EACH;

// The largest value of the lanes of a warp.
__device__ __forceinline__ uint32_t warp_max(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        value = max(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
#else
    return __reduce_max_sync(0xffffffffu, value);
#endif
}

// The place of product `at` of a tile; also the inverse, from place to product. Products are stored
// in pieces of 16 bytes, and a thread sums `own` consecutive pieces, permuted such that eight
// threads that load a piece each access every bank once.
template <class T> __device__ __forceinline__ uint32_t placed(uint32_t at) {
    constexpr uint32_t piece = 16 / sizeof(T), own = OWN / piece;
    return at ^ (at / (8 * piece) % own * piece);
}

__device__ __forceinline__ void take(const float* piece, float* products) {
    const float4 q = *reinterpret_cast<const float4*>(piece);
    products[0] = q.x, products[1] = q.y, products[2] = q.z, products[3] = q.w;
}
__device__ __forceinline__ void take(const double* piece, double* products) {
    const double2 q = *reinterpret_cast<const double2*>(piece);
    products[0] = q.x, products[1] = q.y;
}

// Products of a tile of `size` entries, and the remainder of each warp.
template <class T, int size> struct Products {
    alignas(16) T at[size];
    T rest[size / OWN / 32];
};

// Sums the rows. `ends` has a bit for each of this thread's products, set if its row ends with it.
// Call between two barriers.
template <class T, int size>
__device__ __forceinline__ void sum_rows(Products<T, size>& products, uint32_t ends) {
    constexpr int piece = 16 / sizeof(T);
    const uint32_t lane = threadIdx.x % 32;
    T* pieces[OWN / piece];
    T product[OWN];
#pragma unroll
    for (int k = 0; k < OWN / piece; k++) {
        pieces[k] = products.at + placed<T>(threadIdx.x * OWN + k * piece);
        take(pieces[k], product + k * piece);
    }
    // Sum of the products after this thread's last row end, then of the remainders of earlier lanes
    // back to the last row end among them.
    T sum = 0;
#pragma unroll
    for (int k = 0; k < OWN; k++) sum = (k > 0 && ends >> (k - 1) & 1 ? T(0) : sum) + product[k];
    if (ends >> (OWN - 1)) sum = 0;
    const uint32_t ended = __ballot_sync(0xffffffffu, ends != 0);
    const uint32_t since = ended & (0xffffffffu >> (31 - lane));
    const uint32_t lanes = since == 0 ? lane : lane - (31 - __clz(since));
    const uint32_t most = warp_max(lanes);
    for (uint32_t distance = 1; distance <= most; distance *= 2) {
        const T before = __shfl_up_sync(0xffffffffu, sum, distance);
        if (distance <= lanes) sum += before;
    }
    if (lane == 31) products.rest[threadIdx.x / 32] = sum;
    sum = __shfl_up_sync(0xffffffffu, sum, 1);
    if (lane == 0) sum = 0;
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        sum += product[k];
        if (ends >> k & 1) {
            pieces[k / piece][k % piece] = sum;
            sum = 0;
        }
    }
}

// The sum of the row of products from..to.
template <class T, int size>
__device__ __forceinline__ T sum_of(const Products<T, size>& products, uint32_t from, uint32_t to) {
    if (from == to) return T(0);
    T sum = products.at[placed<T>(to - 1)];
    constexpr uint32_t warp = 32 * OWN;
#pragma unroll 1
    for (uint32_t w = from / warp; w < (to - 1) / warp; w++) sum += products.rest[w];
    return sum;
}
