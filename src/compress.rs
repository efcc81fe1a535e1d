//! Compresses and decompresses model files and shipped wisdom with zstd (feature `zstd`; without
//! it, `compress_none.rs` replaces this module).

use std::io;

/// Decompresses the frames in `bytes`.
///
/// # Errors
/// If they are damaged or truncated.
pub(crate) fn decode(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(2 * bytes.len());
    zstd::stream::copy_decode(bytes, &mut plain)?;
    Ok(plain)
}

/// Compresses `bytes` to one frame, with zstd's compression level `level`.
///
/// # Errors
/// If memory runs out.
pub(crate) fn encode(bytes: &[u8], level: i32) -> io::Result<Vec<u8>> {
    zstd::encode_all(bytes, level)
}
