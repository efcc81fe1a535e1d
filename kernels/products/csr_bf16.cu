// y = alpha A x + beta y with A in compressed sparse rows, values stored in bf16, and vectors and sums in
// f32 (src/format/csr/csr_narrow.rs).
#include "csr_narrow.cuh"
#include "halves.cuh"

ROWS(csr_bf16, f32, float, BF16)
