// y = alpha A x + beta y with A stored by diagonals in hacks of `hack` rows, values stored in bf16, and
// vectors and sums in f32 (src/format/dia/hdia_narrow.rs).
#include "diagonals_narrow.cuh"
#include "halves.cuh"

__device__ __forceinline__ Pack<BF16> load(const BF16* p) {
    const ushort2 v = __ldcs(reinterpret_cast<const ushort2*>(p));
    Pack<BF16> pack;
    pack.at[0].bits = v.x, pack.at[1].bits = v.y;
    return pack;
}

DIAGONALS(hdia_bf16, f32, float, BF16)
