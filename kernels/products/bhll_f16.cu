// y = alpha A x + beta y with A in dense b x b blocks, values stored in f16, and vectors and sums in f32
// (src/format/sliced/bhll_narrow.rs).
#include "block_hacks_narrow.cuh"
#include "halves.cuh"

BLOCKS(bhll_f16, f32, float, F16)
