//! Replaces `zip.rs` in builds without the feature `read-archives`: reading fails.

use std::io::{Read, Seek};

use super::context::Context;
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Fails, because this build cannot read archives.
///
/// # Errors
/// Always [`Error::Input`], with the name of the feature.
pub(super) fn read<T: Scalar>(
    _source: impl Read + Seek + Clone + Send + Sync,
    _context: &Context<'_>,
) -> Result<Csr<T>> {
    Err(Error::input(
        "the input is a zip archive, as SciPy's .npz is one, which this build of ellect cannot \
         read: write the matrix with scipy.io.mmwrite, or enable the feature `read-archives`",
    ))
}
