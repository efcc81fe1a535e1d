// Values of 16 bits in the slots of tiles sorted by column (products/st_csr_f16.cu, st_csr_bf16.cu).
#pragma once
#include "halves.cuh"
#include "sorted_values.cuh"

// The values of a lane are one piece of 16 bytes.
template <class Value> struct HalfValues {
    const Value* __restrict__ values;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t thread, Value (&v)[OWN]) const {
        const uint4* const warp = reinterpret_cast<const uint4*>(values + thread / 32 * (32 * OWN));
        const uint4 q = __ldcs(warp + threadIdx.x % 32);
        const uint32_t pairs[OWN / 2] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int k = 0; k < int(OWN); k++) v[k].bits = uint16_t(pairs[k / 2] >> 16 * (k % 2));
    }
};
template <> struct Values<F16> : HalfValues<F16> {};
template <> struct Values<BF16> : HalfValues<BF16> {};
