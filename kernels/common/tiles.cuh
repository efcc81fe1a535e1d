// Sums of the items of a tile (pcsr.cu, st_csr.cu): item 0 is the rest of the row that began in an
// earlier tile, item r + 1 is the r-th row that begins in this one. Their products are stored in
// shared memory, one item after the other.
#pragma once
#include "common.cuh"

// Number of bits of a packed entry that hold its place in a tile of `size` entries; the others hold
// its column.
constexpr __host__ __device__ int place_bits(int size) { return size == 1 ? 0 : 1 + place_bits(size / 2); }

// Entries of an item per lane above which a warp sums the item.
constexpr uint32_t LONG = TILE_LONG;

// log2 of the lanes per item that let `count` items run at once: at least one, at most a warp.
template <int threads> __device__ __forceinline__ uint32_t lanes_shift(uint32_t count) {
    const int all = 31 - __clz(threads), needed = count <= 1 ? 0 : 32 - __clz(count - 1);
    return min(5, max(0, all - needed));
}

// bounds(item, from, to) sets the range of an item's products. `find` reads the bounds of the first
// items; call it early, since loads after those of x wait with them. `sum` follows a barrier.
template <int threads, class Bounds> struct Items {
    const Bounds bounds;
    const uint32_t skip, items, shift;  // 1 << shift lanes sum an item
    uint32_t item, from, to;

    __device__ __forceinline__ Items(const Bounds& bounds, uint32_t skip, uint32_t items,
                                     uint32_t shift)
        : bounds(bounds), skip(skip), items(items), shift(shift),
          item(skip + (threadIdx.x >> shift)) {}

    __device__ __forceinline__ void find() {
        from = to = 0;
        if (item < items) bounds(item, from, to);
    }

    // Calls put(item, sum) for each item on one thread.
    template <class T, class Put> __device__ __forceinline__ void sum(const T* v, const Put& put) {
        const uint32_t lanes = 1u << shift, lane = threadIdx.x & (lanes - 1), step = threads >> shift;
        for (uint32_t base = skip; base < items; base += step) {
            const bool whole = shift < 5 && to - from > LONG << shift;
            T sum = 0;
            if (!whole)
                for (uint32_t k = from + lane; k < to; k += lanes) sum += v[k];
            for (uint32_t distance = lanes >> 1; distance > 0; distance >>= 1)
                sum += __shfl_xor_sync(0xffffffffu, sum, distance);
            // Items too long for their lanes are summed by the whole warp, one after the other.
            uint32_t waiting = __ballot_sync(0xffffffffu, whole && lane == 0);
            while (waiting != 0) {
                const int owner = __ffs(waiting) - 1;
                waiting &= waiting - 1;
                const uint32_t end = __shfl_sync(0xffffffffu, to, owner);
                uint32_t k = __shfl_sync(0xffffffffu, from, owner) + threadIdx.x % 32;
                T part = 0;
                for (; k < end; k += 32) part += v[k];
                part = group_sum<32>(part);
                if (threadIdx.x % 32 == owner) sum = part;
            }
            if (item < items && lane == 0) put(item, sum);
            item += step;
            if (base + step < items) find();
        }
    }
};
