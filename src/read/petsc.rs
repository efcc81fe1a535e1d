//! PETSc's binary files, as `MatView` writes them with a binary viewer.
//!
//! ```text
//! matrix:  1211216   nrows  ncols  entries   entries of each row   columns   values
//! vector:  1211214   length   values                                         passed over
//! ```
//!
//! Everything is big-endian: integers of 32 bits, or of 64 bits in a PETSc with 64-bit indices;
//! values are f64. Rows and columns count from 0. Source: S. Balay et al., "PETSc/TAO users
//! manual", ANL-21/39, 2024, manual page of MatLoad.

use std::io::{self, Read};

use super::binary::{elements, value};
use super::context::Context;
use super::limits::io_error;
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

const MATRIX: u64 = 1_211_216;
const VECTOR: u64 = 1_211_214;

/// Size of the file's integers.
#[derive(Clone, Copy)]
enum Width {
    Bits32,
    Bits64,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Width::Bits32 => 4,
            Width::Bits64 => 8,
        }
    }

    /// Returns the number in `bytes`; `None` if it is negative.
    fn number(self, bytes: &[u8]) -> Option<u64> {
        let word = bytes.iter().fold(0, |word, &b| word << 8 | u64::from(b));
        match self {
            Width::Bits32 => i32::try_from(word).is_ok().then_some(word),
            Width::Bits64 => i64::try_from(word).is_ok().then_some(word),
        }
    }
}

/// Reads the first matrix, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the array and element of the fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: impl Read, context: &Context<'_>) -> Result<Csr<T>> {
    let mut file = File { source, width: Width::Bits32 };
    let mut first = [0; 4];
    file.source.read_exact(&mut first).map_err(io_error)?;
    let mut class = u64::from(u32::from_be_bytes(first));
    if class == 0 {
        file.width = Width::Bits64;
        file.source.read_exact(&mut first).map_err(io_error)?;
        class = u64::from(u32::from_be_bytes(first));
    }
    while class == VECTOR {
        file.pass_over_vector(context)?;
        class = file.number("the class of the next object")?.unwrap_or(0);
    }
    if class != MATRIX {
        return Err(Error::input(format!(
            "the PETSc file holds an object of class {class}; a matrix has class {MATRIX} (MatView)"
        )));
    }
    let csr = file.matrix(context)?;
    file.end(csr.1, context)?;
    Ok(csr.0)
}

struct File<R> {
    source: R,
    width: Width,
}

impl<R: Read> File<R> {
    /// Reads a number; `None` if it is negative.
    fn number(&mut self, what: &str) -> Result<Option<u64>> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.width.bytes()];
        self.source.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::input(format!("the PETSc file ends before {what}"))
            }
            _ => io_error(error),
        })?;
        Ok(self.width.number(bytes))
    }

    fn pass_over_vector(&mut self, context: &Context<'_>) -> Result<()> {
        let len = self.number("the length of a vector")?.and_then(|len| len.checked_mul(8));
        let len = len.ok_or_else(|| Error::input("the length of a vector is negative"))?;
        let got = io::copy(&mut self.source.by_ref().take(len), &mut io::sink());
        if got.map_err(io_error)? < len {
            return Err(Error::input("the PETSc file ends in a vector, and holds no matrix"));
        }
        context.notes.tell("passed over a vector of the PETSc file".into());
        Ok(())
    }

    /// Reads a matrix and the number of its entries in the file.
    fn matrix<T: Scalar>(&mut self, context: &Context<'_>) -> Result<(Csr<T>, u64)> {
        let negative = |what: &str| Error::input(format!("the number of {what} is negative"));
        let nrows = self.number("the number of rows")?.ok_or_else(|| negative("rows"))?;
        let ncols = self.number("the number of columns")?.ok_or_else(|| negative("columns"))?;
        let entries = self.number("the number of entries")?.ok_or_else(|| {
            Error::input(
                "the PETSc file holds a dense matrix; convert it with MatConvert to MATAIJ and \
                 write that",
            )
        })?;
        let (nrows, ncols) = context.limits.dimensions(At::Whole, nrows, ncols)?;
        context.limits.entries(At::Whole, entries)?;
        context.limits.borne_out(nrows, ncols, entries.try_into().unwrap_or(usize::MAX))?;

        let (width, mut end) = (self.width, 0);
        let lengths = |what| Error::input(format!("entries of each row: {what}"));
        let mut row_ptr = Vec::new();
        row_ptr.push(0);
        let decode = |bytes: &[u8]| {
            let len = width.number(bytes).filter(|&len| len <= entries - end);
            end += len.ok_or_else(|| format!("it must be from 0 to {}", entries - end))?;
            Ok(end as usize)
        };
        let ends = elements(&mut self.source, nrows as u64, width.bytes(), decode, lengths)?;
        row_ptr.reserve_exact(ends.len());
        row_ptr.extend_from_slice(&ends);
        drop(ends);
        if end != entries {
            return Err(Error::input(format!(
                "the rows have {end} entries together, the header says {entries}"
            )));
        }
        let columns = |what| Error::input(format!("columns: {what}"));
        let decode = |bytes: &[u8]| {
            let col = width.number(bytes).filter(|&col| col < ncols as u64);
            col.map(|col| col as u32).ok_or_else(|| format!("it must be from 0 to {ncols} less 1"))
        };
        let col_idx = elements(&mut self.source, entries, width.bytes(), decode, columns)?;
        let values = |what| Error::input(format!("values: {what}"));
        let decode = |bytes: &[u8]| {
            let word = bytes.iter().fold(0, |word, &b| word << 8 | u64::from(b));
            value::<T>(f64::from_bits(word))
        };
        let values = elements(&mut self.source, entries, 8, decode, values)?;
        Ok((Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)?, entries))
    }

    /// Passes over what follows the matrix of so many entries.
    ///
    /// # Errors
    /// [`Error::Input`] if it is no other object, for instance the second half of complex values.
    fn end(&mut self, entries: u64, context: &Context<'_>) -> Result<()> {
        let mut class = Vec::new();
        let width = self.width.bytes() as u64;
        self.source.by_ref().take(width).read_to_end(&mut class).map_err(io_error)?;
        let rest = io::copy(&mut self.source, &mut io::sink()).map_err(io_error)?;
        let rest = rest + class.len() as u64;
        let class = self.width.number(&class).unwrap_or(0);
        match rest {
            0 => Ok(()),
            _ if (VECTOR - 14..VECTOR + 30).contains(&class) => {
                context.notes.tell("passed over the objects behind the first PETSc matrix".into());
                Ok(())
            }
            _ if rest == 8 * entries => Err(Error::input(
                "the PETSc file holds complex values, which are not supported; write the matrix with \
                 a PETSc of real numbers",
            )),
            _ => Err(Error::input(format!(
                "{rest} bytes follow the values of the PETSc matrix, which are no other object"
            ))),
        }
    }
}
