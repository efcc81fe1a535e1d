// Extracts a slab of columns from a CSR matrix that the GPU holds
// (src/format/tiled/cache_blocked/gpu.rs).
//
// Every entry has a bit that is set if its column is in the slab, in words of 32 entries. Together
// with the number of set bits before each word, this gives the place of any entry in the slab, at a
// cost that does not depend on row lengths.
//
// Launch: blocks of 256 threads. Row pointers are 32-bit (`*_narrow`) or 64-bit (`*_wide`).
#include <cstdint>

// bits[w] = bit mask of the entries 32 w to 32 w + 31 with a column in first..past, counts[w] =
// their number.
extern "C" __global__ void __launch_bounds__(256)
    mark_slab(uint64_t nnz, uint64_t words, uint32_t first, uint32_t past, const uint32_t* col_idx,
              uint32_t* bits, uint32_t* counts) {
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x, w = k / 32;
    const uint32_t column = k < nnz ? __ldcs(col_idx + k) : 0;
    const uint32_t all = __ballot_sync(0xffffffffu, k < nnz && column >= first && column < past);
    if (threadIdx.x % 32 > 0 || w >= words) return;
    bits[w] = all, counts[w] = __popc(all);
}

// Entries of a slab: their bits, and the number of set bits before each word.
struct Slab {
    const uint32_t* bits;
    const uint32_t* narrow;
    const uint64_t* wide;
    __device__ __forceinline__ bool has(uint64_t k) const { return bits[k / 32] >> k % 32 & 1; }
    // Number of entries of the slab before entry k.
    __device__ __forceinline__ uint64_t before(uint64_t k) const {
        const uint64_t sum = narrow ? narrow[k / 32] : wide[k / 32];
        return sum + __popc(bits[k / 32] & ((1u << k % 32) - 1));
    }
};

// Row pointers of the slab, `rows` of them.
template <class Offset>
__device__ __forceinline__ void slab_rows(uint64_t rows, const Slab slab,
                                          const Offset* __restrict__ row_ptr, Offset* to) {
    const uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < rows) to[i] = Offset(slab.before(row_ptr[i]));
}

// Values of the slab, and columns where requested.
template <class T>
__device__ __forceinline__ void take_slab(uint64_t nnz, const Slab slab,
                                          const uint32_t* __restrict__ col_idx,
                                          const T* __restrict__ from, uint32_t* columns, T* values) {
    const uint64_t k = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (k >= nnz || !slab.has(k)) return;
    const uint64_t to = slab.before(k);
    if (columns) columns[to] = __ldcs(col_idx + k);
    values[to] = __ldcs(from + k);
}

#define OFFSETS(width, Offset)                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        slab_rows_##width(uint64_t rows, const uint32_t* bits, const uint32_t* narrow,            \
                          const uint64_t* wide, const Offset* row_ptr, Offset* to) {              \
        slab_rows<Offset>(rows, {bits, narrow, wide}, row_ptr, to);                               \
    }
#define PRECISION(name, T)                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                             \
        take_slab_##name(uint64_t nnz, const uint32_t* bits, const uint32_t* narrow,              \
                         const uint64_t* wide, const uint32_t* col_idx, const T* from,            \
                         uint32_t* columns, T* values) {                                          \
        take_slab<T>(nnz, {bits, narrow, wide}, col_idx, from, columns, values);                  \
    }
OFFSETS(narrow, uint32_t)
OFFSETS(wide, uint64_t)
PRECISION(f64, double)
PRECISION(f32, float)
