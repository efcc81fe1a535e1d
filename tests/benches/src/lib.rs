//! Matrices that the benchmarks share.
