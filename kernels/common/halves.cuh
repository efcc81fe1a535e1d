// Values of 16 bits, which kernels convert to float: f16 (IEEE binary16) and bf16 (the upper half of a
// float). Both round to the nearest value, and to an even one between two (src/format/narrow/mod.rs).
#pragma once
#include "common.cuh"

struct F16 {
    uint16_t bits;

    F16() = default;
    __device__ __forceinline__ explicit F16(float value) {
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    }
    __device__ __forceinline__ explicit operator float() const {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
};

struct BF16 {
    uint16_t bits;

    BF16() = default;
    __device__ __forceinline__ explicit BF16(float value) {
        const uint32_t all = __float_as_uint(value);
        const bool is_nan = (all & 0x7fffffffu) > 0x7f800000u;
        bits = uint16_t((is_nan ? all | 0x400000u : all + 0x7fffu + (all >> 16 & 1)) >> 16);
    }
    __device__ __forceinline__ explicit operator float() const {
        return __uint_as_float(uint32_t(bits) << 16);
    }
};

__device__ __forceinline__ F16 stream(const F16* p) {
    F16 v;
    v.bits = __ldcs(&p->bits);
    return v;
}
__device__ __forceinline__ BF16 stream(const BF16* p) {
    BF16 v;
    v.bits = __ldcs(&p->bits);
    return v;
}

// True for fill, as for other types (common.cuh).
__device__ __forceinline__ bool is_fill(F16 v) { return v.bits == 0x8000u; }
__device__ __forceinline__ bool is_fill(BF16 v) { return v.bits == 0x8000u; }
