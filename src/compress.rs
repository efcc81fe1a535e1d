//! zstd compression of model files and of shipped wisdom (feature `zstd`; without it,
//! `compress_none.rs` takes this module's place).

use std::io;

/// Decompresses the frames in `bytes`.
///
/// # Errors
/// Where they are damaged or cut off.
pub(crate) fn decode(bytes: &[u8]) -> io::Result<Vec<u8>> {
    zstd::decode_all(bytes)
}

/// Compresses `bytes` to one frame.
///
/// # Errors
/// Where memory is short.
pub(crate) fn encode(bytes: &[u8], level: i32) -> io::Result<Vec<u8>> {
    zstd::encode_all(bytes, level)
}
