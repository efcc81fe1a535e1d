// Gathering of the elements of a vector that others need: to[k] = x[from[k]].
//
// `done` counts the launches that have ended with all work before them, so that the host can tell a
// long queue from one that no longer moves.
//
// Launch: one thread an element, blocks of 256 threads, at least one block. No dynamic shared memory.
#include "common.cuh"

template <class T>
__device__ __forceinline__ void pack(uint64_t count, const uint32_t* from, const T* x, T* to,
                                     uint64_t* done) {
    await_previous();
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k == 0) *done += 1;
    if (k < count) to[k] = x[from[k]];
}

#define KERNELS(T, name)                                                                          \
    extern "C" __global__ void __launch_bounds__(256) pack_##name(                                \
        uint64_t count, const uint32_t* from, const T* x, T* to, uint64_t* done) {                \
        pack<T>(count, from, x, to, done);                                                        \
    }
KERNELS(double, f64)
KERNELS(float, f32)
