//! The GPU side of a format, described without CUDA: kernel launches and conversions.

pub mod convert;
pub mod launch;
pub mod stop;
