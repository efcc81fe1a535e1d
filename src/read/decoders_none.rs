//! Replaces `decoders.rs` in builds without the feature `read-archives`: every function fails.

use std::io::Read;

use super::Limits;
use crate::error::{Error, Result};

fn refusal(what: &str) -> Error {
    Error::input(format!(
        "the input is {what}, which this build of ellect cannot read: decompress it, or enable the \
         feature `read-archives`"
    ))
}

/// Fails, because this build has no decoder.
///
/// # Errors
/// Always [`Error::Input`], with the name of the feature.
pub(super) fn gzip<'a>(_source: impl Read + Send + 'a) -> Result<Box<dyn Read + Send + 'a>> {
    Err(refusal("gzip"))
}

/// Fails, because this build has no decoder.
///
/// # Errors
/// Always [`Error::Input`], with the name of the feature.
pub(super) fn zstd<'a>(
    _source: impl Read + Send + 'a,
    _limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>> {
    Err(refusal("zstd"))
}

#[cfg(test)]
mod tests {
    use crate::read::{self, Limits};
    use crate::{Csr, Result};

    #[test]
    fn compressed_input_is_refused_with_the_name_of_the_feature() {
        for start in [&b"\x1f\x8b"[..], b"\x28\xb5\x2f\xfd", b"PK\x03\x04"] {
            let read: Result<Csr<f64>> = read::bytes(start, &Limits::default());
            let error = read.expect_err("it is not built").to_string();
            assert!(error.contains("feature `read-archives`"), "{error}");
        }
    }
}
