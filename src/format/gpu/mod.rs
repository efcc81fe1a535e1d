//! The GPU side of a format, described without CUDA: kernel launches and conversions.

pub mod convert;
pub mod dots;
pub mod hacks;
pub mod launch;
pub mod several;
pub mod slot_fill;
pub mod small;
pub mod stop;
pub mod stored;
