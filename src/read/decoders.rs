//! Decoders of compressed input (feature `read-archives`; without it, `decoders_none.rs` takes this
//! module's place).

use std::io::Read;

use super::{Limits, io_error};
use crate::error::Result;

/// Decompresses gzip, all members one after the other.
///
/// # Errors
/// None; the twin refuses.
pub(super) fn gzip<'a>(source: impl Read + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    Ok(Box::new(flate2::read::MultiGzDecoder::new(source)))
}

/// Decompresses zstd; a window larger than the limit of bytes is refused where it is read.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) where the decoder cannot be made.
pub(super) fn zstd<'a>(
    source: impl Read + Send + 'a,
    limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>> {
    let mut decoder = zstd::Decoder::new(source).map_err(io_error)?;
    // A frame claims its window, of up to 128 MiB, in a few bytes.
    let window = limits.bytes.max(1).ilog2() + 1;
    decoder.window_log_max(window.clamp(23, 27)).map_err(io_error)?;
    Ok(Box::new(decoder))
}
