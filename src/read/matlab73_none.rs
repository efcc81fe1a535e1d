//! Replaces `matlab73.rs` in builds without the feature `read-archives`: reading fails.

use std::io::{Read, Seek};

use super::context::Context;
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Fails, because this build cannot read HDF5.
///
/// # Errors
/// Always [`Error::Input`], with the name of the feature.
pub(super) fn read<T: Scalar>(
    _source: impl Read + Seek + Send + 'static,
    _context: &Context<'_>,
) -> Result<Csr<T>> {
    Err(Error::input(
        "the input is a MATLAB 7.3 file, which is HDF5, which this build of ellect cannot read: \
         write it in MATLAB with save('name.mat', 'A', '-v7'), or enable the feature \
         `read-archives`",
    ))
}
