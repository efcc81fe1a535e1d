//! Takes the place of `compress.rs` in a build without the feature `zstd`: refuses.

use std::io;

fn refusal() -> io::Error {
    let why = "this build of ellect cannot read or write zstd: enable its feature `zstd`";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Refuses.
///
/// # Errors
/// Always, with the name of the feature.
pub(crate) fn decode(_bytes: &[u8]) -> io::Result<Vec<u8>> {
    Err(refusal())
}

/// Refuses.
///
/// # Errors
/// As [`decode`].
pub(crate) fn encode(_bytes: &[u8], _level: i32) -> io::Result<Vec<u8>> {
    Err(refusal())
}
