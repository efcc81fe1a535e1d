//! Replaces `decoders.rs` in builds without the feature `read-archives`: every function fails.

use super::context::Context;
use super::layers::Source;
use crate::error::{Error, Result};

macro_rules! refusals {
    ($($function:ident $what:literal)*) => {$(
        /// Fails, because this build has no decoder.
        ///
        /// # Errors
        /// Always [`Error::Input`], with the name of the feature.
        pub(super) fn $function<'a>(_: Source<'a>, _: &Context<'_>) -> Result<Source<'a>> {
            Err(Error::input(concat!(
                "the input is ", $what, ", which this build of ellect cannot read: decompress it, \
                 or enable the feature `read-archives`"
            )))
        }
    )*};
}

refusals!(gzip "gzip" zstd "zstd" bzip2 "bzip2" xz "xz" zlib "a compressed MATLAB file");

#[cfg(test)]
mod tests {
    use crate::read::{self, Limits};
    use crate::{Csr, Result};

    #[test]
    fn compressed_input_is_refused_with_the_name_of_the_feature() {
        let starts =
            [&b"\x1f\x8b"[..], b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh9", b"\xfd7zXZ\x00"];
        for start in starts {
            let read: Result<Csr<f64>> = read::bytes(start, &Limits::default());
            let error = read.expect_err("it is not built").to_string();
            assert!(error.contains("feature `read-archives`"), "{error}");
        }
    }
}
