//! Replaces `compress.rs` in a build without the feature `zstd`: every call fails.

use std::io;

fn refusal() -> io::Error {
    let why = "this build of ellect cannot read or write zstd: enable its feature `zstd`";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Fails, because this build has no zstd.
///
/// # Errors
/// Always; the message names the feature.
pub(crate) fn decode(_bytes: &[u8]) -> io::Result<Vec<u8>> {
    Err(refusal())
}

/// Fails, because this build has no zstd.
///
/// # Errors
/// As [`decode`].
pub(crate) fn encode(_bytes: &[u8], _level: i32) -> io::Result<Vec<u8>> {
    Err(refusal())
}
