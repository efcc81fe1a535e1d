//! What a GPU does for a format, described without CUDA: launches of kernels and conversions.

pub mod convert;
pub mod launch;
