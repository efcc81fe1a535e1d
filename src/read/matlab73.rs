//! Sparse matrices in MATLAB's files of version 7.3 (`save -v7.3`), also as fields of a structure
//! (feature `read-archives`; without it, `matlab73_none.rs` is compiled instead).
//!
//! ```text
//! text, 512 bytes | HDF5:
//! group, attribute MATLAB_sparse = number of rows
//!    jc    column pointers
//!    ir    rows, from 0    } absent if there are no entries
//!    data  values          }
//! group, no such attribute: a structure, with a field in each dataset and group
//! ```
//!
//! Source: The MathWorks, "MAT-File Versions", 2024; arrays are laid out as in memory.

use std::io::{Read, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};

use hdf5_pure::{Chunk, DType, Dataset, File, Group, ReadSeekSource};

use super::archive::{Candidate, Picker};
use super::context::{Context, Part};
use super::limits::too_many_bytes;
use super::matlab;
use super::{Complex, binary};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

/// Maximum depth of structures in structures.
const MAX_DEPTH: usize = 4;

/// Number of elements that are read at once, unless a chunk has more.
const BLOCK: u64 = 1 << 16;

/// Maximum number of elements of a chunk; MATLAB uses far fewer.
const MAX_CHUNK: u64 = 1 << 23;

/// Filters of a chunk: deflate, shuffle and Fletcher's checksum.
const FILTERS: [u16; 3] = [1, 2, 3];

/// Maximum size of an element in bytes: that of two doubles.
const MAX_ELEMENT: u64 = 16;

/// Group of MATLAB's own, which holds the elements of cell arrays.
const OWN: &str = "#refs#";

/// Reads the sparse matrix.
///
/// # Errors
/// [`Error::Input`] if the file is damaged, or holds no sparse matrix or several; faults of the
/// matrix.
pub(super) fn read<T: Scalar>(
    source: impl Read + Seek + Send + 'static,
    context: &Context<'_>,
) -> Result<Csr<T>> {
    let read = || {
        let file = File::from_source(ReadSeekSource::new(source).map_err(fault)?).map_err(fault)?;
        let mut picker = Picker::new(context);
        let reader = Reader { context, file_bytes: file.file_size() };
        reader.members(&file.root(), "", MAX_DEPTH, &mut picker)?;
        picker.finish("MATLAB file")
    };
    // A damaged file must not end the process, whatever the crate makes of it.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(fault("its HDF5 is damaged")))
}

fn fault(what: impl std::fmt::Display) -> Error {
    Error::input(format!(
        "the MATLAB 7.3 file cannot be read: {what}; write it in MATLAB with save('name.mat', 'A', \
         '-v7'), or with scipy.io.mmwrite"
    ))
}

/// Reads the groups of one file.
struct Reader<'a> {
    context: &'a Context<'a>,
    file_bytes: u64,
}

impl Reader<'_> {
    /// Offers the variables of a file, or the fields of a structure, to the picker.
    fn members<T: Scalar>(
        &self,
        group: &Group,
        path: &str,
        depth: usize,
        picker: &mut Picker<'_, T>,
    ) -> Result<()> {
        let full =
            |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
        for (name, dataset) in group.iter_datasets().map_err(fault)? {
            let sizes = dataset.shape().map_err(fault)?;
            // HDF5 counts the slowest index first, MATLAB the fastest.
            let sizes: Vec<_> = sizes.iter().rev().map(u64::to_string).collect();
            picker.other(format!("{} ({})", full(&name), sizes.join(" x ")))?;
        }
        for (name, child) in group.iter_groups().map_err(fault)? {
            let name = full(&name);
            if path.is_empty() && name == OWN {
                continue;
            }
            let attributes = child.attrs().map_err(fault)?;
            let nrows = attributes.get("MATLAB_sparse").map(|rows| rows.as_u64());
            let is_wanted = self.context.member.is_none_or(|member| member == name);
            match nrows {
                Some(Some(nrows)) if is_wanted => {
                    let pointers = child.dataset("jc").map_err(fault)?;
                    let ncols = length(&pointers)?.saturating_sub(1);
                    let candidate = Candidate::variable(&name, nrows == 1 || ncols == 1);
                    picker.offer(candidate, || self.sparse(&child, &pointers, [nrows, ncols]));
                }
                Some(Some(_)) => picker.other(name)?,
                Some(None) => return Err(fault(format!("{name} has no number of rows"))),
                None if depth == 0 => picker.other(name)?,
                None => self.members(&child, &name, depth - 1, picker)?,
            }
        }
        Ok(())
    }

    /// Reads rows, column pointers and values of a sparse matrix.
    fn sparse<T: Scalar>(
        &self,
        group: &Group,
        pointers: &Dataset,
        [nrows, ncols]: [u64; 2],
    ) -> Result<Csr<T>> {
        let (nrows, ncols) = self.context.limits.dimensions(At::Whole, nrows, ncols)?;
        let names = group.datasets().map_err(fault)?;
        let mut rows = Vec::new();
        let mut values = Vec::new();
        let mut imaginary = None;
        // MATLAB leaves both lists out of a matrix without entries.
        if names.iter().any(|name| name == "ir") {
            let list = group.dataset("ir").map_err(fault)?;
            rows = self.blocks(&list, "rows", Dataset::read_f64_rows, |row| {
                matlab::row_index(row, nrows)
            })?;
            let list = group.dataset("data").map_err(fault)?;
            values = match list.dtype().map_err(fault)? {
                DType::Compound(_) if self.context.complex == Complex::Blocks => {
                    imaginary = Some(self.parts(&list, Part::Imaginary)?);
                    self.parts(&list, Part::Real)?
                }
                DType::Compound(_) => self.parts(&list, Part::Only)?,
                _ => self.blocks(&list, "values", Dataset::read_f64_rows, binary::value)?,
            };
        }
        let mut last = 0;
        let pointers =
            self.blocks(pointers, "column pointers", Dataset::read_f64_rows, |pointer| {
                matlab::next_pointer(pointer, &mut last, rows.len())
            })?;
        let size = [nrows, ncols];
        let Some(imaginary) = imaginary else {
            return matlab::assemble(rows, pointers, values, size, self.context);
        };
        let real = matlab::assemble(rows.clone(), pointers.clone(), values, size, self.context)?;
        let imaginary = matlab::assemble(rows, pointers, imaginary, size, self.context)?;
        self.context.blocks(real, imaginary)
    }

    /// Reads one part of complex values, which MATLAB stores as pairs of doubles.
    fn parts<T: Scalar>(&self, values: &Dataset, part: Part) -> Result<Vec<T>> {
        self.context.accept_complex("the MATLAB matrix is complex, which needs an option")?;
        if values.element_size().map_err(fault)? != 16 {
            return Err(fault("its complex values are not pairs of doubles"));
        }
        let pairs = |values: &Dataset, start, count| {
            let bytes = values.read_raw_rows(start, count)?;
            let double = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap_or_default());
            Ok(bytes.chunks_exact(16).map(|b| (double(&b[..8]), double(&b[8..]))).collect())
        };
        self.blocks(values, "values", pairs, |(real, imaginary)| {
            binary::value(part.of(real, imaginary)?)
        })
    }

    /// Reads a list block by block, decoded by `decode`, so that memory is taken for elements that the
    /// file holds.
    fn blocks<I, U>(
        &self,
        list: &Dataset,
        what: &str,
        read: impl Fn(&Dataset, u64, u64) -> std::result::Result<Vec<I>, hdf5_pure::Error>,
        mut decode: impl FnMut(I) -> std::result::Result<U, String>,
    ) -> Result<Vec<U>> {
        let len = length(list)?;
        let size = list.element_size().map_err(fault)?;
        if size > MAX_ELEMENT {
            return Err(fault(format!("the list of {what} has elements of {size} bytes")));
        }
        let bytes = len.saturating_mul(size);
        if bytes > self.context.limits.bytes {
            return Err(too_many_bytes(bytes, self.context.limits.bytes));
        }
        let block = self.block(list, what, len)?;
        let mut elements = Vec::new();
        while (elements.len() as u64) < len {
            let items = read(list, elements.len() as u64, block).map_err(fault)?;
            if items.is_empty() {
                return Err(fault(format!("the list of {what} ends early")));
            }
            let left = usize::try_from(len - elements.len() as u64).unwrap_or(usize::MAX);
            binary::reserve(&mut elements, items.len(), left);
            for item in items {
                let element = decode(item).map_err(|what| {
                    let k = elements.len();
                    Error::input(format!(
                        "the MATLAB file is damaged: an array: element {k}: {what}"
                    ))
                })?;
                elements.push(element);
            }
        }
        Ok(elements)
    }

    /// Returns the number of elements to read at once: whole chunks, which are compressed each.
    fn block(&self, list: &Dataset, what: &str, len: u64) -> Result<u64> {
        let Some(chunk) = list.chunk_shape().map_err(fault)? else { return Ok(BLOCK) };
        let chunk = chunk.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        let chunk = chunk.filter(|chunk| (1..=MAX_CHUNK).contains(chunk));
        let chunk =
            chunk.ok_or_else(|| fault(format!("the list of {what} is in too large chunks")))?;
        if list.filters().iter().any(|filter| !FILTERS.contains(filter)) {
            return Err(fault(format!("the list of {what} is not compressed by deflate")));
        }
        let chunks = list.chunks().map_err(fault)?;
        // A chunk that is missing would be read as zeros, at no cost for the file.
        if chunks.len() as u64 != len.div_ceil(chunk) {
            return Err(fault(format!("the list of {what} misses chunks")));
        }
        let is_outside = |part: &Chunk| {
            part.address.checked_add(part.storage_size).is_none_or(|end| end > self.file_bytes)
        };
        if chunks.iter().any(is_outside) {
            return Err(fault(format!("a chunk of the list of {what} ends behind the file")));
        }
        Ok(chunk * (BLOCK / chunk).max(1))
    }
}

/// Returns the number of elements of a list.
fn length(list: &Dataset) -> Result<u64> {
    let shape = list.shape().map_err(fault)?;
    let elements = shape.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
    match (elements, shape.iter().filter(|&&size| size != 1).count()) {
        // Only the first index is read in blocks.
        (Some(elements), 0 | 1) if shape.first() == Some(&elements) => Ok(elements),
        _ => Err(fault("an array of a sparse matrix has several dimensions")),
    }
}
