// y = alpha A x + beta y with A in dense b x b blocks, values stored in bf16, and vectors and sums in f32
// (src/format/sliced/bhll_narrow.rs).
#include "block_hacks_narrow.cuh"
#include "halves.cuh"

BLOCKS(bhll_bf16, f32, float, BF16)
