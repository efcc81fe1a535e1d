// y = alpha A x + beta y with A in HLL, values stored in f32, and vectors and sums in f64
// (src/format/sliced/hll_narrow.rs).
#include "hacks_narrow.cuh"

HACKS(hll_f32, f64, double, float)
