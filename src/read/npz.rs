//! Archives written by `scipy.sparse.save_npz`, stored or deflated: csr, csc and coo.
//!
//! ```text
//! format.npy  'csr'                        'csc'                        'coo'
//! shape.npy   [nrows, ncols]               the same                     the same
//! data.npy    values                       values                       values
//!             indices.npy  columns         indices.npy  rows            row.npy, col.npy
//!             indptr.npy   nrows + 1       indptr.npy   ncols + 1
//! ```
//!
//! Values are f32, f64, integers or booleans; indices are 32- or 64-bit integers; both byte orders
//! are supported. Entries stored twice are summed. Other arrays are ignored.

mod npy;

use std::io::{Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use super::triplets::{Symmetry, Triplets};
use super::{Limits, excerpt, io_error, too_many_bytes};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;
use npy::NpyHeader;

const NOT_WHOLE: &str = "it must be a whole number and not negative";

/// Reads the archive.
///
/// # Errors
/// [`Error::Input`] with the array and element of the fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: impl Read + Seek, limits: &Limits) -> Result<Csr<T>> {
    let zip = ZipArchive::new(source).map_err(zip_error)?;
    let mut archive = Archive { zip, limits, bytes: 0 };
    let format = archive.text("format")?;
    if !["csr", "csc", "coo"].contains(&format.as_str()) {
        return Err(Error::input(format!(
            "the sparse format is {}; supported are csr, csc and coo (A.tocsr() converts)",
            excerpt(format.as_bytes())
        )));
    }
    let shape = archive.elements("shape", 1, 2, |header, bytes| {
        header.index(bytes).ok_or_else(|| NOT_WHOLE.into())
    })?;
    let &[nrows, ncols] = shape.as_slice() else {
        return Err(Error::input(format!("the array has {} dimensions, not 2", shape.len())));
    };
    let (nrows, ncols) = limits.dimensions(At::Whole, nrows, ncols)?;
    let mut values = archive.values::<T>()?;
    let entries = values.len();
    let (rows, cols) = match format.as_str() {
        "coo" => (archive.indices("row", nrows, entries)?, archive.indices("col", ncols, entries)?),
        "csc" => {
            let mut rows = archive.indices("indices", nrows, entries)?;
            let pointers = archive.pointers(ncols, entries)?;
            let mut cols = Vec::with_capacity(pointers[ncols]);
            for col in 0..ncols {
                cols.resize(pointers[col + 1], col as u32);
            }
            // SciPy may leave unused room after the last entry.
            rows.truncate(cols.len());
            values.truncate(cols.len());
            (rows, cols)
        }
        _ => {
            let mut col_idx = archive.indices("indices", ncols, entries)?;
            let row_ptr = archive.pointers(nrows, entries)?;
            col_idx.truncate(row_ptr[nrows]);
            values.truncate(row_ptr[nrows]);
            limits.borne_out(0, ncols, values.len())?;
            return Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values);
        }
    };
    Triplets { rows, cols, values: Some(values) }.into_csr(nrows, ncols, Symmetry::General, limits)
}

struct Archive<'a, R> {
    zip: ZipArchive<R>,
    limits: &'a Limits,
    /// Bytes of all arrays so far.
    bytes: u64,
}

impl<R: Read + Seek> Archive<'_, R> {
    fn text(&mut self, name: &str) -> Result<String> {
        const LONGEST: usize = 64;
        let mut text = String::new();
        self.elements(name, 0, 1, |header, bytes| {
            let known = matches!(header.kind, b'S' | b'U') && header.size <= LONGEST;
            // Numpy pads strings with zeros; a character of 4 bytes is ASCII followed by zeros.
            text.extend(bytes.iter().filter(|&&b| b != 0).map(|&b| char::from(b)));
            known.then_some(()).ok_or_else(|| "it must be a short string".into())
        })?;
        Ok(text)
    }

    /// Reads the row or column index of each of `entries` entries; each must be below `bound`.
    fn indices(&mut self, name: &str, bound: usize, entries: usize) -> Result<Vec<u32>> {
        let most = self.limits.nonzeros;
        let indices = self.elements(name, 1, most, |header, bytes| match header.index(bytes) {
            Some(index) if index < bound as u64 => Ok(index as u32),
            Some(index) => Err(format!("index {index} is not below {bound}")),
            None => Err(NOT_WHOLE.into()),
        })?;
        if indices.len() == entries {
            return Ok(indices);
        }
        Err(Error::input(format!(
            "array '{name}' has {} elements and array 'data' {entries}; the numbers must be equal",
            indices.len()
        )))
    }

    /// Reads the `len + 1` offsets of rows or columns, which rise from 0, into arrays of `entries`
    /// entries.
    fn pointers(&mut self, len: usize, entries: usize) -> Result<Vec<usize>> {
        let bound = entries as u64 + 1;
        let mut last = 0;
        let pointers = self.elements("indptr", 1, len as u64 + 1, |header, bytes| match header
            .index(bytes)
        {
            Some(pointer) if pointer < bound && pointer >= last => {
                last = pointer;
                Ok(pointer as usize)
            }
            _ => Err(format!("it must be a whole number from {last} to {entries}")),
        })?;
        if pointers.len() != len + 1 || pointers[0] != 0 {
            return Err(Error::input(format!(
                "array 'indptr' has {} elements and starts with {:?}; it must have {} and start \
                 with 0",
                pointers.len(),
                pointers.first(),
                len + 1
            )));
        }
        Ok(pointers)
    }

    fn values<T: Scalar>(&mut self) -> Result<Vec<T>> {
        self.elements("data", 1, self.limits.nonzeros, |header, bytes| {
            let number = header.number(bytes).ok_or("values must be real, of at most 64 bits")?;
            let value = T::from_f64(number);
            if value.to_f64().is_finite() {
                Ok(value)
            } else {
                Err(format!("{number:e} is not finite in {}", T::PRECISION))
            }
        })
    }

    /// Reads an array of `dimensions` (0 or 1) dimensions and at most `most` elements, each decoded
    /// by `decode`.
    fn elements<U>(
        &mut self,
        name: &str,
        dimensions: usize,
        most: u64,
        mut decode: impl FnMut(&NpyHeader, &[u8]) -> std::result::Result<U, String>,
    ) -> Result<Vec<U>> {
        let in_array = |what: String| Error::input(format!("array '{name}': {what}"));
        let mut file = match self.zip.by_name(&format!("{name}.npy")) {
            Err(ZipError::FileNotFound) => {
                return Err(in_array(
                    "it is missing from the archive; scipy.sparse.save_npz writes it".into(),
                ));
            }
            other => other.map_err(zip_error)?,
        };
        let header = NpyHeader::read(&mut file)?;
        let Some(len) = header.len().filter(|_| header.shape.len() == dimensions) else {
            return Err(in_array(format!(
                "its shape is {:?}; it must have {dimensions} dimensions",
                header.shape
            )));
        };
        let is_text = matches!(header.kind, b'S' | b'U');
        if header.size == 0 || header.size > if is_text { 64 } else { 8 } {
            return Err(in_array(format!("elements of {} bytes are not supported", header.size)));
        }
        if len > most {
            self.limits.entries(At::Whole, len)?;
            return Err(in_array(format!("it has {len} elements; the limit is {most}")));
        }
        self.bytes = self.bytes.saturating_add(len.saturating_mul(header.size as u64));
        if self.bytes > self.limits.bytes {
            return Err(too_many_bytes(self.bytes, self.limits.bytes));
        }

        let mut elements = Vec::new();
        let per_buffer = (1 << 16) / header.size;
        let mut buffer = vec![0; per_buffer * header.size];
        while (elements.len() as u64) < len {
            let left = len - elements.len() as u64;
            let wanted = header.size * per_buffer.min(usize::try_from(left).unwrap_or(per_buffer));
            file.read_exact(&mut buffer[..wanted]).map_err(io_error)?;
            for bytes in buffer[..wanted].chunks_exact(header.size) {
                let element = decode(&header, bytes)
                    .map_err(|what| in_array(format!("element {}: {what}", elements.len())))?;
                elements.push(element);
            }
        }
        // Reading to the end makes the archive verify its checksum.
        match file.read(&mut buffer).map_err(io_error)? {
            0 => Ok(elements),
            _ => Err(in_array(format!("more bytes follow its {len} elements"))),
        }
    }
}

fn zip_error(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) => io_error(error),
        other => Error::input(format!("the .npz archive is damaged: {other}")),
    }
}
