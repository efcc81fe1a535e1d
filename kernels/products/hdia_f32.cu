// y = alpha A x + beta y with A stored by diagonals in hacks of `hack` rows, values stored in f32, and
// vectors and sums in f64 (src/format/dia/hdia_narrow.rs).
#include "diagonals_narrow.cuh"

DIAGONALS(hdia_f32, f64, double, float)
