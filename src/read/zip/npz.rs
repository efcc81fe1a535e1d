//! Archives of numpy arrays: `scipy.sparse.save_npz` in csr, csc, coo, bsr and dia, and plain ones.
//!
//! ```text
//! format.npy  'csr'                  'csc'                  'coo'              'bsr'              'dia'
//! shape.npy   [nrows, ncols]
//! data.npy    values                 values                 values             blocks, R x C each diagonals, n x L
//!             indices.npy  columns   indices.npy  rows      row.npy, col.npy   as csr, of blocks  offsets.npy
//!             indptr.npy             indptr.npy                                indptr.npy
//! ```
//!
//! Without `format`, `indptr`, `indices` and `data` are those of csr (of csc, if only that agrees
//! with `shape`), and `row`, `col` and `data` are those of coo; without `shape`, the indices decide
//! the size, as SciPy does.
//!
//! Values are real, complex, integers or booleans; indices are integers; both byte orders are read.
//! Entries stored twice are summed. Zeros in a block remain entries; zeros in a diagonal do not.

use std::io::{Read, Seek};

use ::zip::ZipArchive;
use ::zip::result::ZipError;

use super::super::Complex;
use super::super::binary::{self, is_rounded};
use super::super::content::excerpt;
use super::super::context::{Context, Part, list};
use super::super::limits::{io_error, too_many_bytes};
use super::super::triplets::{Symmetry, Triplets};
use super::npy::NpyHeader;
use super::zip_error;
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::par;
use crate::scalar::Scalar;

const NOT_WHOLE: &str = "it must be a whole number and not negative";

/// Reads the archive.
///
/// # Errors
/// [`Error::Input`] with the array and element of the fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(
    zip: ZipArchive<impl Read + Seek + Clone + Send + Sync>,
    context: &Context<'_>,
) -> Result<Csr<T>> {
    let mut archive = Archive { zip, context, bytes: 0, part: Part::Only };
    if context.complex != Complex::Blocks || !archive.is_complex() {
        return archive.matrix();
    }
    let one = |part| Archive { zip: archive.zip.clone(), context, bytes: 0, part }.matrix();
    context.blocks(one(Part::Real)?, one(Part::Imaginary)?)
}

/// An array of one dimension or more, in the order in which it is stored.
struct Array<U> {
    elements: Vec<U>,
    shape: Vec<u64>,
    /// True if the first index runs fastest.
    fortran: bool,
}

impl<U> Array<U> {
    /// Returns the step in `elements` of each index.
    fn steps<const N: usize>(&self) -> [usize; N] {
        let mut steps = [1; N];
        let mut step = 1_usize;
        for k in 0..N {
            let k = if self.fortran { k } else { N - 1 - k };
            steps[k] = step;
            // An array without elements may have any other lengths.
            step = step.wrapping_mul(self.shape[k] as usize);
        }
        steps
    }
}

impl<U: Copy> Array<U> {
    /// Returns the elements of an array of three dimensions, the last index running fastest.
    fn by_rows(&self) -> Vec<U> {
        let [of_block, of_row, of_col] = self.steps();
        let [blocks, r, c] = [0, 1, 2].map(|k| self.shape[k] as usize);
        let lines = (0..blocks).flat_map(|block| (0..r).map(move |row| (block, row)));
        let starts = lines.map(|(block, row)| block * of_block + row * of_row);
        starts.flat_map(|at| (0..c).map(move |col| self.elements[at + col * of_col])).collect()
    }
}

/// The arrays of csr or csc.
struct Compressed<T> {
    pointers: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<T>,
}

struct Archive<'a, R> {
    zip: ZipArchive<R>,
    context: &'a Context<'a>,
    /// Bytes of all arrays so far.
    bytes: u64,
    part: Part,
}

impl<R: Read + Seek + Clone + Send + Sync> Archive<'_, R> {
    fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Tells whether the values are complex; an array that cannot be read is not.
    fn is_complex(&mut self) -> bool {
        let file = self.zip.by_name("data.npy").ok();
        file.and_then(|mut file| NpyHeader::read(&mut file).ok()).is_some_and(|it| it.kind == b'c')
    }

    fn matrix<T: Scalar>(&mut self) -> Result<Csr<T>> {
        let format = self.format()?;
        match format.as_str() {
            "csr" | "csc" => self.compressed(Some(&format)),
            "" => self.compressed(None),
            "coo" => self.coo(),
            "bsr" => self.bsr(),
            "dia" => self.dia(),
            other => Err(Error::input(format!(
                "the sparse format is {}; supported are csr, csc, coo, bsr and dia (A.tocsr() \
                 converts)",
                excerpt(other.as_bytes())
            ))),
        }
    }

    /// Returns the sparse format, which is empty for plain csr or csc.
    fn format(&mut self) -> Result<String> {
        if self.has("format") {
            return self.text("format");
        }
        if self.has("indptr") && self.has("indices") && self.has("data") {
            return Ok(String::new());
        }
        if self.has("row") && self.has("col") && self.has("data") {
            return Ok("coo".into());
        }
        let names: Vec<_> =
            self.zip.file_names().flatten().map(|n| n.replace(".npy", "")).collect();
        Err(Error::input(format!(
            "the archive holds no sparse matrix but the arrays {}; write it with \
             scipy.sparse.save_npz(file, scipy.sparse.csr_array(A))",
            list(&names)
        )))
    }

    /// Returns the numbers of rows and columns, if the archive states them.
    fn shape(&mut self) -> Result<Option<(usize, usize)>> {
        if !self.has("shape") {
            return Ok(None);
        }
        let whole = |header: &NpyHeader, bytes: &[u8]| header.index(bytes).ok_or(NOT_WHOLE.into());
        let header = self.header("shape", 1, 2)?;
        let shape = self.elements("shape", header, whole)?.elements;
        let &[nrows, ncols] = shape.as_slice() else {
            return Err(Error::input(format!("the array has {} dimensions, not 2", shape.len())));
        };
        self.context.limits.dimensions(At::Whole, nrows, ncols).map(Some)
    }

    /// Returns the numbers of rows and columns, which SciPy always states.
    fn stated_shape(&mut self) -> Result<(usize, usize)> {
        let missing =
            "array 'shape': it is missing from the archive; scipy.sparse.save_npz writes it";
        self.shape()?.ok_or_else(|| Error::input(missing))
    }

    /// Returns the size of a dimension that the archive does not state, from its indices.
    fn size_of(&self, indices: &[u32]) -> Result<usize> {
        let size = indices.iter().max().map_or(0, |&last| u64::from(last) + 1);
        self.context.limits.dimensions(At::Whole, size, size).map(|(size, _)| size)
    }

    /// Reads csr or csc; without a stated format, the sizes decide, and csr if both agree.
    fn compressed<T: Scalar>(&mut self, format: Option<&str>) -> Result<Csr<T>> {
        let shape = match format {
            Some(_) => Some(self.stated_shape()?),
            None => self.shape()?,
        };
        let Some((nrows, ncols)) = shape else {
            let Compressed { pointers, indices, values } =
                self.compressed_arrays(None, u32::MAX as usize)?;
            let (nrows, ncols) = (pointers.len() - 1, self.size_of(&indices)?);
            self.context.notes.tell(format!(
                "the archive states no shape: read as csr with {nrows} rows and {ncols} columns"
            ));
            return self.rows(nrows, ncols, pointers, indices, values);
        };
        let by_columns = match format {
            Some(format) => format == "csc",
            None => {
                let len = self.len("indptr")?;
                len != nrows as u64 + 1 && len == ncols as u64 + 1
            }
        };
        if !by_columns {
            let Compressed { pointers, indices, values } =
                self.compressed_arrays(Some(nrows), ncols)?;
            return self.rows(nrows, ncols, pointers, indices, values);
        }
        let Compressed { pointers, indices: mut rows, mut values } =
            self.compressed_arrays(Some(ncols), nrows)?;
        let mut cols = Vec::with_capacity(pointers[ncols]);
        for col in 0..ncols {
            cols.resize(pointers[col + 1], col as u32);
        }
        // SciPy may leave unused room after the last entry.
        rows.truncate(cols.len());
        values.truncate(cols.len());
        let triplets = Triplets { rows, cols, values: Some(values) };
        triplets.into_csr(nrows, ncols, Symmetry::General, self.context.limits)
    }

    /// Reads the arrays of csr or csc, the values beside the others: `lines` rows or columns, and
    /// indices below `bound`.
    fn compressed_arrays<T: Scalar>(
        &mut self,
        lines: Option<usize>,
        bound: usize,
    ) -> Result<Compressed<T>> {
        let most = self.context.limits.nonzeros;
        let data = self.header("data", 1, most)?;
        // At most `most`, or its header would have been refused.
        let entries = data.len().unwrap_or(0) as usize;
        let indices = self.header("indices", 1, most)?;
        let indptr = self.header("indptr", 1, self.most_pointers(lines, entries))?;
        let archive = &*self;
        let values = || archive.values(data);
        let pattern = || {
            let indices = archive.indices("indices", indices, bound, entries)?;
            Ok((indices, archive.pointers(indptr, lines, entries)?))
        };
        let (values, pattern) = match entries < par::GRAIN {
            true => (values(), pattern()),
            false => par::join(values, pattern),
        };
        let values = values?.elements;
        let (indices, pointers) = pattern?;
        Ok(Compressed { pointers, indices, values })
    }

    fn rows<T: Scalar>(
        &self,
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<usize>,
        mut col_idx: Vec<u32>,
        mut values: Vec<T>,
    ) -> Result<Csr<T>> {
        col_idx.truncate(row_ptr[nrows]);
        values.truncate(row_ptr[nrows]);
        self.context.limits.borne_out(0, ncols, values.len())?;
        Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)
    }

    fn coo<T: Scalar>(&mut self) -> Result<Csr<T>> {
        let shape = self.shape()?;
        let most = self.context.limits.nonzeros;
        let data = self.header("data", 1, most)?;
        let [of_rows, of_cols] = [self.header("row", 1, most)?, self.header("col", 1, most)?];
        let values = self.values::<T>(data)?.elements;
        let bound = u32::MAX as usize;
        let (nrows, ncols) = shape.unwrap_or((bound, bound));
        let rows = self.indices("row", of_rows, nrows, values.len())?;
        let cols = self.indices("col", of_cols, ncols, values.len())?;
        let (nrows, ncols) = match shape {
            Some(shape) => shape,
            None => {
                let (nrows, ncols) = (self.size_of(&rows)?, self.size_of(&cols)?);
                self.context.notes.tell(format!(
                    "the archive states no shape: read with {nrows} rows and {ncols} columns"
                ));
                (nrows, ncols)
            }
        };
        let triplets = Triplets { rows, cols, values: Some(values) };
        triplets.into_csr(nrows, ncols, Symmetry::General, self.context.limits)
    }

    fn bsr<T: Scalar>(&mut self) -> Result<Csr<T>> {
        let (nrows, ncols) = self.stated_shape()?;
        let most = self.context.limits.nonzeros;
        let header = self.header("data", 3, most)?;
        let data = self.values::<T>(header)?;
        let [blocks, r, c] = [0, 1, 2].map(|k| data.shape[k] as usize);
        if r == 0 || c == 0 || nrows % r != 0 || ncols % c != 0 {
            return Err(Error::input(format!(
                "the blocks are {r} x {c}, which do not divide a matrix of {nrows} x {ncols}"
            )));
        }
        let header = self.header("indices", 1, most)?;
        let block_cols = self.indices("indices", header, ncols / c, blocks)?;
        let lines = Some(nrows / r);
        let header = self.header("indptr", 1, self.most_pointers(lines, blocks))?;
        let pointers = self.pointers(header, lines, blocks)?;
        // SciPy may leave unused room after the last block.
        let used = pointers[nrows / r];
        let (sizes, nnz) = ([nrows / r, ncols / c], used * r * c);
        self.context.limits.borne_out(nrows, ncols, nnz)?;
        let values = match data.fortran {
            true => &data.by_rows(),
            false => &data.elements,
        };
        Csr::from_bsr(sizes, [r, c], &pointers, &block_cols[..used], &values[..nnz])
    }

    fn dia<T: Scalar>(&mut self) -> Result<Csr<T>> {
        let (nrows, ncols) = self.stated_shape()?;
        let header = self.header("data", 2, self.context.limits.nonzeros)?;
        let data = self.values::<T>(header)?;
        let [diagonals, len] = [0, 1].map(|k| data.shape[k] as usize);
        let header = self.header("offsets", 1, diagonals as u64)?;
        let offsets = self.elements("offsets", header, |header, bytes| {
            let offset = header.integer(bytes).and_then(|offset| i64::try_from(offset).ok());
            offset.ok_or_else(|| "it must be a whole number".into())
        })?;
        if offsets.elements.len() != diagonals {
            return Err(Error::input(format!(
                "array 'offsets' has {} elements and array 'data' {diagonals} rows; the numbers must \
                 be equal",
                offsets.elements.len()
            )));
        }
        let [of_diagonal, of_col] = data.steps();
        let mut triplets = Triplets { rows: Vec::new(), cols: Vec::new(), values: None };
        let mut values = Vec::new();
        for (diagonal, &offset) in offsets.elements.iter().enumerate() {
            // Element j of a diagonal is in column j.
            for col in 0..len.min(ncols) {
                let row = (col as i64).checked_sub(offset);
                let row = row.and_then(|row| usize::try_from(row).ok()).filter(|&row| row < nrows);
                let value = data.elements[diagonal * of_diagonal + col * of_col];
                if let Some(row) = row
                    && value != T::ZERO
                {
                    triplets.rows.push(row as u32);
                    triplets.cols.push(col as u32);
                    values.push(value);
                }
            }
        }
        drop(data);
        triplets.values = Some(values);
        triplets.into_csr(nrows, ncols, Symmetry::General, self.context.limits)
    }

    fn text(&mut self, name: &str) -> Result<String> {
        const LONGEST: usize = 64;
        let mut text = String::new();
        let header = self.header(name, 0, 1)?;
        self.elements(name, header, |header, bytes| {
            let known = matches!(header.kind, b'S' | b'U') && header.size <= LONGEST;
            // Numpy pads strings with zeros; a character of 4 bytes is ASCII followed by zeros.
            text.extend(bytes.iter().filter(|&&b| b != 0).map(|&b| char::from(b)));
            known.then_some(()).ok_or_else(|| "it must be a short string".into())
        })?;
        Ok(text)
    }

    /// Reads the row or column index of each of `entries` entries; each must be below `bound`.
    fn indices(
        &self,
        name: &str,
        header: NpyHeader,
        bound: usize,
        entries: usize,
    ) -> Result<Vec<u32>> {
        let indices = self.elements(name, header, |header, bytes| match header.index(bytes) {
            Some(index) if index < bound as u64 => Ok(index as u32),
            Some(index) => Err(format!("index {index} is not below {bound}")),
            None => Err(NOT_WHOLE.into()),
        })?;
        if indices.elements.len() == entries {
            return Ok(indices.elements);
        }
        Err(Error::input(format!(
            "array '{name}' has {} elements and array 'data' {entries}; the numbers must be equal",
            indices.elements.len()
        )))
    }

    /// Returns the maximum number of offsets of this number of rows or columns, if it is stated.
    fn most_pointers(&self, lines: Option<usize>, entries: usize) -> u64 {
        let stated = lines.map(|lines| lines as u64 + 1);
        stated.unwrap_or(self.context.limits.empty_rows.saturating_add(entries as u64 + 1))
    }

    /// Reads the offsets of rows or columns, one more than there are, which rise from 0, into arrays
    /// of `entries` entries. Without a stated number, the array decides it.
    fn pointers(
        &self,
        header: NpyHeader,
        len: Option<usize>,
        entries: usize,
    ) -> Result<Vec<usize>> {
        let mut last = 0;
        let pointers =
            self.elements("indptr", header, |header, bytes| match header.index(bytes) {
                Some(pointer) if pointer <= entries as u64 && pointer >= last => {
                    last = pointer;
                    Ok(pointer as usize)
                }
                _ => Err(format!("it must be a whole number from {last} to {entries}")),
            })?;
        let pointers = pointers.elements;
        let needed = len.map_or(pointers.len().max(1), |len| len + 1);
        if pointers.len() != needed || pointers[0] != 0 {
            return Err(Error::input(format!(
                "array 'indptr' has {} elements and starts with {:?}; it must have {needed} and start \
                 with 0",
                pointers.len(),
                pointers.first(),
            )));
        }
        Ok(pointers)
    }

    /// Reads the values.
    fn values<T: Scalar>(&self, header: NpyHeader) -> Result<Array<T>> {
        let mut rounded = 0;
        let values = self.elements("data", header, |header, bytes| {
            if let Some(number) = header.double(bytes) {
                return binary::value(number);
            }
            if header.integer(bytes).is_some_and(is_rounded) {
                rounded += 1;
            }
            let number = match header.complex(bytes) {
                Some((real, imaginary)) => self.part.of(real, imaginary)?,
                None => header.number(bytes).ok_or_else(|| {
                    format!("values of type {} are not supported", header.type_name())
                })?,
            };
            binary::value(number)
        })?;
        self.context.note_rounded(rounded);
        Ok(values)
    }

    /// Returns the number of elements of an array of one dimension.
    fn len(&mut self, name: &str) -> Result<u64> {
        let mut file = self.zip.by_name(&format!("{name}.npy")).map_err(zip_error)?;
        Ok(NpyHeader::read(&mut file)?.len().unwrap_or(u64::MAX))
    }

    /// Reads the header of an array of this many dimensions and at most `most` elements, and counts
    /// its bytes.
    fn header(&mut self, name: &str, dimensions: usize, most: u64) -> Result<NpyHeader> {
        let in_array = |what: String| Error::input(format!("array '{name}': {what}"));
        let header = match self.zip.by_name(&format!("{name}.npy")) {
            Err(ZipError::FileNotFound) => {
                return Err(in_array(
                    "it is missing from the archive; scipy.sparse.save_npz writes it".into(),
                ));
            }
            other => NpyHeader::read(&mut other.map_err(zip_error)?)?,
        };
        let Some(len) = header.len().filter(|_| header.shape.len() == dimensions) else {
            return Err(in_array(format!(
                "its shape is {:?}; it must have {dimensions} dimensions",
                header.shape
            )));
        };
        header.check_type(self.context).map_err(in_array)?;
        if len > most {
            self.context.limits.entries(At::Whole, len)?;
            return Err(in_array(format!("it has {len} elements; the limit is {most}")));
        }
        self.bytes = self.bytes.saturating_add(len.saturating_mul(header.size as u64));
        if self.bytes > self.context.limits.bytes {
            return Err(too_many_bytes(self.bytes, self.context.limits.bytes));
        }
        Ok(header)
    }

    /// Reads the elements of the array with this header, each decoded by `decode`. Several arrays can
    /// be read at once.
    fn elements<U>(
        &self,
        name: &str,
        header: NpyHeader,
        mut decode: impl FnMut(&NpyHeader, &[u8]) -> std::result::Result<U, String>,
    ) -> Result<Array<U>> {
        let in_array = |what: String| Error::input(format!("array '{name}': {what}"));
        let mut zip = self.zip.clone();
        let mut file = zip.by_name(&format!("{name}.npy")).map_err(zip_error)?;
        NpyHeader::read(&mut file)?;
        let len = header.len().unwrap_or(u64::MAX);
        let of_header = |bytes: &[u8]| decode(&header, bytes);
        let elements = binary::elements(&mut file, len, header.size, of_header, in_array)?;
        // Reading to the end makes the archive verify its checksum.
        match file.read(&mut [0; 1]).map_err(io_error)? {
            0 => Ok(Array { elements, shape: header.shape, fortran: header.fortran }),
            _ => Err(in_array(format!("more bytes follow its {len} elements"))),
        }
    }
}
