// y = alpha A x + beta y with A in HLL, values stored in f16, and vectors and sums in f32
// (src/format/sliced/hll_narrow.rs).
#include "hacks_narrow.cuh"
#include "halves.cuh"

HACKS(hll_f16, f32, float, F16)
