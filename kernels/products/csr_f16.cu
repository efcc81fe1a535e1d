// y = alpha A x + beta y with A in compressed sparse rows, values stored in f16, and vectors and sums in
// f32 (src/format/csr/csr_narrow.rs).
#include "csr_narrow.cuh"
#include "halves.cuh"

ROWS(csr_f16, f32, float, F16)
