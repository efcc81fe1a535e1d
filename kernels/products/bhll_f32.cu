// y = alpha A x + beta y with A in dense b x b blocks, values stored in f32, and vectors and sums in f64
// (src/format/sliced/bhll_narrow.rs).
#include "block_hacks_narrow.cuh"

BLOCKS(bhll_f32, f64, double, float)
