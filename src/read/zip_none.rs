//! Replaces `zip.rs` in builds without the feature `read-archives`: reading fails.

use std::io::{Read, Seek};
use std::ops::Range;

use super::context::Context;
use super::limits::Limits;
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

/// The arrays of a matrix in an archive, of which this build finds none.
pub(super) struct Places {
    pub nrows: usize,
    pub ncols: usize,
    pub row_ptr: Vec<usize>,
    pub columns: Range<usize>,
    pub values: Range<usize>,
}

/// Finds nothing.
#[expect(clippy::extra_unused_type_parameters, reason = "the other build finds values of type T")]
pub(super) fn place<T: Scalar>(_bytes: &mut [u8], _limits: &Limits) -> Option<Places> {
    None
}
