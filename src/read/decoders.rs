//! Decoders of compressed input (feature `read-archives`; without it, `decoders_none.rs` is
//! compiled instead).

use std::io::Read;

use super::{Limits, io_error};
use crate::error::Result;

/// Decompresses gzip, including files of several members.
///
/// # Errors
/// None; the version in `decoders_none.rs` always fails.
pub(super) fn gzip<'a>(source: impl Read + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    Ok(Box::new(flate2::read::MultiGzDecoder::new(source)))
}

/// Decompresses zstd. Reading fails if a frame needs a window larger than the byte limit.
///
/// # Errors
/// [`Error::Io`](crate::Error::Io) if the decoder cannot be created.
pub(super) fn zstd<'a>(
    source: impl Read + Send + 'a,
    limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>> {
    let mut decoder = zstd::Decoder::new(source).map_err(io_error)?;
    // A frame of a few bytes may claim a window of up to 128 MiB.
    let window = limits.bytes.max(1).ilog2() + 1;
    decoder.window_log_max(window.clamp(23, 27)).map_err(io_error)?;
    Ok(Box::new(decoder))
}
