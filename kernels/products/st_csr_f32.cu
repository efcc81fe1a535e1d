// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column, values stored
// in f32, and vectors and sums in f64 (src/format/tiled/st_csr_narrow.rs).
#include "sorted_narrow.cuh"

TILES(st_csr_f32, f64, double, float)
