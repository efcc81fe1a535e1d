//! Zip archives: those of SciPy and numpy (`.npz`), and those with a file that is a matrix
//! (feature `read-archives`; without it, `zip_none.rs` is compiled instead).

mod in_place;
mod npy;
mod npz;

use std::io::{Read, Seek};

use ::zip::ZipArchive;
use ::zip::result::ZipError;

pub(super) use self::in_place::{Places, place};
use super::archive::Picker;
use super::context::Context;
use super::limits::io_error;
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Reads the matrix in the archive.
///
/// # Errors
/// [`Error::Input`] if the archive is damaged, or holds no matrix or several; faults of the matrix.
pub(super) fn read<T: Scalar>(
    source: impl Read + Seek + Clone + Send + Sync,
    context: &Context<'_>,
) -> Result<Csr<T>> {
    let mut zip = ZipArchive::new(source).map_err(zip_error)?;
    if zip.file_names().flatten().any(|name| name.ends_with(".npy")) {
        return npz::read(zip, context);
    }
    let mut picker = Picker::new(context);
    for k in 0..zip.len() {
        let name = zip.name_for_index(k).and_then(|name| Some(name.ok()?.into_owned()));
        let name = name.unwrap_or_default();
        match zip.by_index(k) {
            Ok(file) if file.is_file() => picker.member(&name, Box::new(file))?,
            Ok(_) => {}
            Err(error) => picker.unreadable(&name, zip_error(error))?,
        }
    }
    picker.finish("archive")
}

fn zip_error(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) => io_error(error),
        ZipError::UnsupportedArchive(what) => Error::input(format!(
            "the zip archive cannot be read ({what}); write it with deflate, without a password"
        )),
        other => Error::input(format!("the zip archive is damaged: {other}")),
    }
}
