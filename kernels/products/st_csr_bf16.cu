// y = alpha A x + beta y with A in tiles of CSR rows whose entries are sorted by column, values stored
// in bf16, and vectors and sums in f32 (src/format/tiled/st_csr_narrow.rs).
#include "halves_sorted.cuh"
#include "sorted_narrow.cuh"

TILES(st_csr_bf16, f32, float, BF16)
