// Sums and sorts over arrays on the device, with CUB.
//
// If `temporary` is null, a function only reports the bytes of temporary memory that it needs;
// otherwise it runs. All take device addresses and a stream, and return a CUDA error code.
#include <cstddef>
#include <cstdint>

#include <cub/cub.cuh>
#include <thrust/iterator/transform_iterator.h>

namespace {
struct Times {
    uint64_t each;
    __host__ __device__ uint64_t operator()(uint32_t n) const { return n * each; }
};
}  // namespace

extern "C" {

// sums[i] = (counts[0] + ... + counts[i - 1]) * each.
int ellect_exclusive_sum(void* temporary, size_t* bytes, const uint32_t* counts, uint64_t each,
                         uint64_t* sums, uint64_t n, cudaStream_t stream) {
    const auto wide = thrust::make_transform_iterator(counts, Times{each});
    return cub::DeviceScan::ExclusiveSum(temporary, *bytes, wide, sums, int64_t(n), stream);
}

// Sorts rows by descending keys, of which only the low `bits` bits count; stable.
int ellect_sort_down(void* temporary, size_t* bytes, const uint64_t* keys, uint64_t* sorted_keys,
                     const uint32_t* rows, uint32_t* sorted_rows, uint64_t n, int bits,
                     cudaStream_t stream) {
    return cub::DeviceRadixSort::SortPairsDescending(temporary, *bytes, keys, sorted_keys, rows,
                                                     sorted_rows, int64_t(n), 0, bits, stream);
}
}
