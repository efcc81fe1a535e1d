// y = alpha A x + beta y with A in hacks of 32 rows, and few distinct values (see
// src/format/sliced/hll_vi.rs).
//
// A lane processes a row, four slots at a time: one load fetches four columns, another four value
// numbers; a block keeps the values themselves in shared memory. Where there is only one value
// (`_one`), slots have no numbers, and eight slots are processed at a time.
//
// Launch: blocks of 256 threads over the rows of all hacks. Columns are 32-bit, or 16-bit counted
// from `base` of the hack; the largest column marks padding, which is read but not multiplied.
// `order` is rIdx, or null where rows are in the matrix's order.
#include "common.cuh"

// Columns of four slots of a row.
template <class Column> struct Four;
template <> struct Four<uint16_t> {
    using Word = uint2;
    static __device__ __forceinline__ Word padding() { return make_uint2(0xffffffffu, 0xffffffffu); }
    static __device__ __forceinline__ uint32_t of(const Word& word, int k) {
        return (k < 2 ? word.x : word.y) >> 16 * (k % 2) & 0xffff;
    }
};
template <> struct Four<uint32_t> {
    using Word = uint4;
    static __device__ __forceinline__ Word padding() {
        return make_uint4(0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu);
    }
    static __device__ __forceinline__ uint32_t of(const Word& word, int k) {
        return k < 2 ? (k == 0 ? word.x : word.y) : (k == 2 ? word.z : word.w);
    }
};

// The maximum number of distinct values.
constexpr uint32_t FEW = FEW_VALUES;

template <class T, class Column, bool one>
__device__ __forceinline__ void hacks(uint32_t nrows, const uint32_t* narrow, const uint64_t* wide,
                                      const uint32_t* __restrict__ base,
                                      const uint32_t* __restrict__ order,
                                      const Column* __restrict__ all_columns,
                                      const uint32_t* __restrict__ numbers, uint32_t count,
                                      const T* __restrict__ few, const T* __restrict__ x, T* y,
                                      T alpha, T beta) {
    using Columns = Four<Column>;
    using Word = typename Columns::Word;
    constexpr int batch = one ? 2 : 1;
    constexpr uint32_t padding = Column(~Column(0));
    __shared__ T values[one ? 1 : FEW];
    await_previous();
    if (!one) {
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) values[i] = few[i];
        __syncthreads();
    }
    const uint32_t stored = blockIdx.x * blockDim.x + threadIdx.x, h = stored / 32, lane = stored % 32;
    if (stored - lane >= nrows) return;
    const uint64_t start = narrow ? narrow[h] : wide[h];
    int left = int(((narrow ? narrow[h + 1] : wide[h + 1]) - start) / 128);
    if (base) x += base[h];
    const Word* columns = reinterpret_cast<const Word*>(all_columns) + start / 4 + lane;
    if (!one) numbers += start / 4 + lane;
    const T value = one && left > 0 ? __ldg(few) : T(0);
    T sum = 0;
    for (; left > 0; left -= batch) {
        Word column[batch];
        uint32_t number[batch];
        T factor[batch][4];
#pragma unroll
        for (int b = 0; b < batch; b++) column[b] = left > b ? __ldcs(columns + 32 * b) : Columns::padding();
#pragma unroll
        for (int b = 0; b < batch; b++) number[b] = !one && left > b ? __ldcs(numbers + 32 * b) : 0;
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const uint32_t at = Columns::of(column[b], k);
                factor[b][k] = at != padding ? gather(x + at) : T(0);
            }
        }
#pragma unroll
        for (int b = 0; b < batch; b++) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                sum += (one ? value : values[number[b] >> 8 * k & 0xff]) * factor[b][k];
        }
        columns += 32 * batch;
        if (!one) numbers += 32 * batch;
    }
    if (stored < nrows) store(y + (order ? order[stored] : stored), alpha, sum, beta);
}

#define KERNEL(T, name, Column, bits, suffix, one)                                                \
    extern "C" __global__ void __launch_bounds__(256, 8) hll_vi_c##bits##suffix##_##name(         \
        uint32_t nrows, const uint32_t* narrow, const uint64_t* wide, const uint32_t* base,       \
        const uint32_t* order, const Column* columns, const uint32_t* numbers, uint32_t count,    \
        const T* few, const T* x, T* y, T alpha, T beta) {                                        \
        hacks<T, Column, one>(nrows, narrow, wide, base, order, columns, numbers, count, few, x,  \
                              y, alpha, beta);                                                    \
    }
#define KINDS(T, name, Column, bits)                                                              \
    KERNEL(T, name, Column, bits, , false)                                                        \
    KERNEL(T, name, Column, bits, _one, true)
KINDS(double, f64, uint16_t, 16)
KINDS(double, f64, uint32_t, 32)
KINDS(float, f32, uint16_t, 16)
KINDS(float, f32, uint32_t, 32)
