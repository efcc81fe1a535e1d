//! A table with one more format, which is added like every format: by its module, a line of the
//! table, and a `.cu` file with its kernels. It uses only public items of the library.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod bitmap;

use ellect::format::Format;

/// The formats of this folder.
pub static FORMATS: &[Format] = &[Format::of::<bitmap::BitmapFormat>()];
