// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column (see
// src/format/stcsr.rs).
//
// A block of threads takes a tile. A thread reads groups of 4 entries, multiplies them and puts the
// products into shared memory in the order of rows, where they are summed (tiles.cuh). Lanes of a
// warp hold neighbouring columns: they ask for few lines of x. A row that began in an earlier tile
// is summed into heads[tile], which stcsr_heads adds to y after.
//
// Launch: tile / 8 threads a block in single, tile / 4 in double precision, one block a tile;
// `tile` products in static shared memory.
#include "tiles.cuh"

// x: first group, y: first row, z: rows and groups << 16 (1 or more), w: log2 of the lanes a row and
// entries of the row before << 16.
using Header = uint4;

__device__ __forceinline__ void load(const float* p, float (&v)[4]) {
    const float4 q = __ldcs(reinterpret_cast<const float4*>(p));
    v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
}
__device__ __forceinline__ void load(const double* p, double (&v)[4]) {
    const double2* pairs = reinterpret_cast<const double2*>(p);
    const double2 low = __ldcs(pairs), high = __ldcs(pairs + 1);
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
}

// Groups that a thread takes.
template <class T> constexpr int EACH = sizeof(T) == 4 ? 2 : 1;

template <class T, int size>
__device__ __forceinline__ void tile(const Header* __restrict__ tiles,
                                     const uint16_t* __restrict__ ends,
                                     const uint4* __restrict__ packed,
                                     const uint32_t* __restrict__ bases,
                                     const T* __restrict__ values, const T* __restrict__ x,
                                     T* __restrict__ heads, T* y, T alpha, T beta) {
    constexpr int each = EACH<T>, threads = size / (4 * each);
    constexpr int bits = place_bits(size);
    __shared__ T v[size];
    await_previous();
    const uint32_t t = blockIdx.x;
    const Header header = __ldg(tiles + t);
    const uint32_t first = header.y, rows = header.z & 0xffff, groups = header.z >> 16;
    ends += first + 2 * uint64_t(t);
    const auto bounds = [=](uint32_t item, uint32_t& from, uint32_t& to) {
        from = ends[item], to = ends[item + 1];
    };
    Items<threads, decltype(bounds)> items(bounds, header.w >> 16 == 0, rows + 1, header.w & 7);
    // Threads past the last group do it again: they put the same products in the same places.
    uint4 entry[each];
    T value[each][4];
    uint32_t base[each];
#pragma unroll
    for (int k = 0; k < each; k++) {
        const uint32_t at = min(threadIdx.x + k * threads, groups - 1);
        entry[k] = __ldcs(packed + (header.x + uint64_t(at)));
    }
#pragma unroll
    for (int k = 0; k < each; k++) {
        const uint32_t at = min(threadIdx.x + k * threads, groups - 1);
        base[k] = __ldg(bases + (t * uint64_t(size / 128) + at / 32));
    }
#pragma unroll
    for (int k = 0; k < each; k++) {
        const uint32_t at = min(threadIdx.x + k * threads, groups - 1);
        load(values + (header.x + uint64_t(at)) * 4, value[k]);
    }
    items.find();
    T factor[each][4];
#pragma unroll
    for (int k = 0; k < each; k++) {
        const T* from = x + base[k];
        factor[k][0] = gather(from + (entry[k].x >> bits));
        factor[k][1] = gather(from + (entry[k].y >> bits));
        factor[k][2] = gather(from + (entry[k].z >> bits));
        factor[k][3] = gather(from + (entry[k].w >> bits));
    }
    constexpr uint32_t place = (1u << bits) - 1;
#pragma unroll
    for (int k = 0; k < each; k++) {
        v[entry[k].x & place] = value[k][0] * factor[k][0];
        v[entry[k].y & place] = value[k][1] * factor[k][1];
        v[entry[k].z & place] = value[k][2] * factor[k][2];
        v[entry[k].w & place] = value[k][3] * factor[k][3];
    }
    __syncthreads();
    items.sum(v, [&](uint32_t item, T sum) {
        if (item == 0) heads[t] = sum;
        else store(y + first + item - 1, alpha, sum, beta);
    });
}

template <class T>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < count && tiles[t].w >> 16 > 0)
        atomicAdd(y + tiles[t].y - 1, alpha * gather(heads + t));
}

#define TILE(T, name, size, threads, blocks)                                                      \
    extern "C" __global__ void __launch_bounds__(threads, blocks) stcsr_##size##_##name(          \
        const Header* tiles, const uint16_t* ends, const uint4* packed, const uint32_t* bases,    \
        const T* values, const T* x, T* heads, T* y, T alpha, T beta) {                           \
        tile<T, size>(tiles, ends, packed, bases, values, x, heads, y, alpha, beta);              \
    }
#define HEADS(T, name)                                                                            \
    extern "C" __global__ void __launch_bounds__(256) stcsr_heads_##name(                         \
        uint32_t count, const Header* tiles, const T* heads, T* y, T alpha) {                     \
        add_heads<T>(count, tiles, heads, y, alpha);                                              \
    }
TILE(float, f32, 1024, 128, 12)
TILE(float, f32, 2048, 256, 6)
TILE(float, f32, 4096, 512, 3)
TILE(double, f64, 1024, 256, 8)
TILE(double, f64, 2048, 512, 4)
TILE(double, f64, 4096, 1024, 2)
HEADS(float, f32)
HEADS(double, f64)
