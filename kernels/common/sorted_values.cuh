// Values of the slots of tiles sorted by column (products/st_csr.cu, products/st_csr_f32.cu).
#pragma once
#include "sorted.cuh"

// Values of slots, in pieces of 16 bytes: the first piece of all lanes of a warp, then the second.
template <class T> struct Values {
    const T* __restrict__ values;

    __device__ __forceinline__ void begin() const {}
    __device__ __forceinline__ void take(uint64_t thread, T (&v)[OWN]) const {
        load(values + thread / 32 * (32 * OWN), v);
    }

private:
    static __device__ __forceinline__ void load(const float* warp, float (&v)[OWN]) {
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const float4 q = __ldcs(reinterpret_cast<const float4*>(warp) + (32 * k + threadIdx.x % 32));
            v[4 * k] = q.x, v[4 * k + 1] = q.y, v[4 * k + 2] = q.z, v[4 * k + 3] = q.w;
        }
    }
    static __device__ __forceinline__ void load(const double* warp, double (&v)[OWN]) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const double2 q = __ldcs(reinterpret_cast<const double2*>(warp) + (32 * k + threadIdx.x % 32));
            v[2 * k] = q.x, v[2 * k + 1] = q.y;
        }
    }
};

// Threads per processor: as many as registers allow without spills.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <class T> constexpr int RESIDENT = sizeof(T) == 4 ? 1536 : 1280;
#else
template <class T> constexpr int RESIDENT = 1536;
#endif
