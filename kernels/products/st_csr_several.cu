// Y = alpha A X + beta Y for several vectors, with A in tiles of CSR rows whose entries are sorted by column
// (products/st_csr.cu): the matrix is read once for all of them.
//
// Every thread keeps the columns and values of its slots, and multiplies them with a group of vectors at a
// time, whose products lie in shared memory. Sums of rows that began in an earlier tile go to
// heads[tile * vectors + v], which st_csr_heads adds to Y afterwards.
//
// Launch: as st_csr.cu; tiles have 1024 slots. `extra` is the number of further bits of columns: 4, 8 or 16.
#include "several.cuh"
#include "sorted_values.cuh"

// Slots that a thread multiplies at a time.
constexpr int BATCH = 4;

// The further bits of the columns of a thread's slots.
struct Further {
    uint4 words;
    uint32_t width;

    __device__ __forceinline__ Further(const uint32_t* all, uint64_t thread, uint32_t width)
        : words(), width(width) {
        if (width == 4) {
            words.x = __ldcs(all + thread);
        } else if (width == 8) {
            const uint2 two = __ldcs(reinterpret_cast<const uint2*>(all) + thread);
            words.x = two.x, words.y = two.y;
        } else {
            words = __ldcs(reinterpret_cast<const uint4*>(all) + thread);
        }
    }
    __device__ __forceinline__ uint32_t of(int k) const {
        if (width == 4) return words.x >> 4 * k & 0xf;
        if (width == 8) return (k < 4 ? words.x : words.y) >> 8 * (k % 4) & 0xff;
        const uint32_t word = k < 4 ? (k < 2 ? words.x : words.y) : (k < 6 ? words.z : words.w);
        return word >> 16 * (k % 2) & 0xffff;
    }
};

template <class T, int size, int vectors, bool packed>
__device__ __forceinline__ void
tile(const Header* __restrict__ tiles, const uint16_t* __restrict__ ends,
     const uint8_t* __restrict__ lasts, const uint4* __restrict__ bases,
     const uint32_t* __restrict__ low, const uint32_t* __restrict__ high,
     const uint32_t* __restrict__ wide, const Values<T> values, const T* __restrict__ x,
     T* __restrict__ heads, T* y, T alpha, T beta, uint32_t extra, uint64_t x_row,
     uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {
    constexpr int threads = size / OWN, bits = place_bits(size), left = 16 - bits;
    // Vectors at a time: an access of 32 bytes reads their elements of a row of X.
    constexpr int most = 32 / sizeof(T), group = vectors < most ? vectors : most;
    __shared__ Products<T, size> products[group];
    await_previous();
    const uint32_t t = blockIdx.x, warp = threadIdx.x / 32;
    const uint64_t thread = t * uint64_t(threads) + threadIdx.x;
    const Numbers<16> places(low, thread);
    const Further more(high, thread, extra);
    const uint4 base = __ldg(bases + thread / 32);
    const Header header = __ldg(tiles + t);
    const uint32_t last = lasts[thread];
    uint32_t column[OWN];
#pragma unroll
    for (int k = 0; k < OWN; k++) {
        const uint32_t from = k < 4 ? (k < 2 ? base.x : base.y) : (k < 6 ? base.z : base.w);
        column[k] = from + (places.of(k) >> bits | more.of(k) << left);
    }
    if (header.w >> warp & 1) {
        const uint64_t at = header.z + __popc(header.w & ((1u << warp) - 1));
        const Numbers<16> upper(wide, at * 32 + threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < OWN; k++) column[k] += upper.of(k) << (left + extra);
    }
    T value[OWN];
    const uint32_t first = header.x, rows = header.y & 0xffff, begun = header.y >> 16;
    ends += first + 2 * uint64_t(t) + 1;
    y += first * y_row;
#pragma unroll 1
    for (int v = 0; v < vectors; v += group) {
        // The sums of the vectors before have been read.
        if (v > 0) __syncthreads();
#pragma unroll
        for (int k = 0; k < OWN; k += BATCH) {
            T row[BATCH][group];
#pragma unroll
            for (int b = 0; b < BATCH; b++)
                load_row<packed, group>(x + column[k + b] * x_row + v * x_vector, x_vector, row[b]);
            // Loaded earlier, values would delay the columns, for which the loads of X wait.
            if (v == 0 && k == 0) values.take(thread, value);
#pragma unroll
            for (int b = 0; b < BATCH; b++) {
                const uint32_t at = places.of(k + b) & (size - 1);
#pragma unroll
                for (int i = 0; i < group; i++) products[i].at[at] = value[k + b] * row[b][i];
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < group; i++) sum_rows(products[i], last);
        __syncthreads();
#pragma unroll 1
        for (uint32_t r = threadIdx.x; r < rows; r += threads) {
            const uint32_t from = ends[r], to = ends[r + 1];
            T sums[group];
#pragma unroll
            for (int i = 0; i < group; i++) sums[i] = sum_of(products[i], from, to);
            store_row<group>(y + r * y_row + v * y_vector, y_vector, alpha, sums, beta);
        }
        if (begun > 0 && threadIdx.x < group)
            heads[t * uint64_t(vectors) + v + threadIdx.x] = sum_of(products[threadIdx.x], 0, begun);
    }
}

template <class T, int vectors>
__device__ __forceinline__ void add_heads(uint32_t count, const Header* __restrict__ tiles,
                                          const T* __restrict__ heads, T* y, T alpha, uint64_t y_row,
                                          uint64_t y_vector) {
    await_previous();
    const uint32_t t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= count || tiles[t].y >> 16 == 0) return;
    y += (tiles[t].x - 1) * y_row;
#pragma unroll
    for (int v = 0; v < vectors; v++)
        atomicAdd(y + v * y_vector, alpha * gather(heads + t * uint64_t(vectors) + v));
}

#define KERNEL(T, name, access, vectors, packed)                                                  \
    extern "C" __global__ void __launch_bounds__(1024 / OWN, 5)                                   \
        st_csr_v##vectors##_##access##_##name(                                                    \
            TILE_ARGS, const T* values, VECTOR_ARGS(T), uint32_t extra, uint64_t x_row,           \
            uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {                               \
        tile<T, 1024, vectors, packed>(tiles, ends, lasts, bases, low, high, wide,                \
                                       Values<T>{values}, x, heads, y, alpha, beta, extra, x_row, \
                                       x_vector, y_row, y_vector);                                \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        st_csr_heads_v##vectors##_##access##_##name(                                              \
            uint32_t count, const Header* tiles, const T* heads, T* y, T alpha, uint64_t x_row,   \
            uint64_t x_vector, uint64_t y_row, uint64_t y_vector) {                               \
        add_heads<T, vectors>(count, tiles, heads, y, alpha, y_row, y_vector);                    \
    }
#define PRECISION(T, name)                                                                        \
    KERNEL(T, name, strided, 1, false)                                                            \
    KERNEL(T, name, strided, 2, false)                                                            \
    KERNEL(T, name, strided, 4, false)                                                            \
    KERNEL(T, name, strided, 8, false)                                                            \
    KERNEL(T, name, packed, 2, true)                                                              \
    KERNEL(T, name, packed, 4, true)                                                              \
    KERNEL(T, name, packed, 8, true)
PRECISION(float, f32)
PRECISION(double, f64)
