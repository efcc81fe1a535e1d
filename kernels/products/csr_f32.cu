// y = alpha A x + beta y with A in compressed sparse rows, values stored in f32, and vectors and sums in
// f64 (src/format/csr/csr_narrow.rs).
#include "csr_narrow.cuh"

ROWS(csr_f32, f64, double, float)
