//! Limits on what is read, and sources that stop at a limit.

use std::io::{self, Read};

use crate::csr::{MAX_DIMENSION, over_dimension};
use crate::error::{At, Error, Result};

/// Limits on the size of a matrix and of its file.
///
/// ```
/// use ellect::read::{self, Limits};
/// use ellect::Csr;
///
/// # fn main() -> ellect::Result<()> {
/// let text = b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 5.0\n";
/// let csr: Csr<f64> = read::bytes(text, &Limits::default())?;
/// assert_eq!(csr.nnz(), 1);
/// let few = Limits { nonzeros: 0, ..Limits::default() };
/// assert!(read::bytes::<f64>(text, &few).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of rows; the format allows at most 2^32 - 1.
    pub rows: u64,
    /// Maximum number of columns; the format allows at most 2^32 - 1.
    pub columns: u64,
    /// Maximum number of stored entries, after mirroring a triangle.
    pub nonzeros: u64,
    /// Maximum number of bytes of the input, and of each layer of decompressed data.
    pub bytes: u64,
    /// Maximum number of rows, and likewise of columns, in addition to the number of entries. An
    /// empty row costs 8 bytes too, so this bounds the memory that a tiny file can claim.
    pub empty_rows: u64,
}

impl Default for Limits {
    /// Limits for files that the caller chose: 2^32 - 1 rows and columns, 2^36 entries, 1 TiB, and
    /// 2^25 rows (256 MiB of row pointers) in addition to the number of entries.
    fn default() -> Self {
        Limits {
            rows: MAX_DIMENSION as u64,
            columns: MAX_DIMENSION as u64,
            nonzeros: 1 << 36,
            bytes: 1 << 40,
            empty_rows: 1 << 25,
        }
    }
}

impl Limits {
    fn check(&self, at: At, what: &'static str, got: u64, limit: Limit) -> Result<()> {
        let (limit, remedy) = match limit {
            Limit::Rows => (self.rows.min(MAX_DIMENSION as u64), "rows"),
            Limit::Columns => (self.columns.min(MAX_DIMENSION as u64), "columns"),
            Limit::Nonzeros => (self.nonzeros, "nonzeros"),
        };
        match got {
            _ if got <= limit => Ok(()),
            _ if limit == MAX_DIMENSION as u64 => {
                Err(Error::Input { at, what: over_dimension(what, got) })
            }
            _ => Err(Error::Limit { at, what, got, limit, remedy }),
        }
    }

    /// Checks the claimed dimensions and returns them.
    pub(super) fn dimensions(&self, at: At, nrows: u64, ncols: u64) -> Result<(usize, usize)> {
        self.check(at, "number of rows", nrows, Limit::Rows)?;
        self.check(at, "number of columns", ncols, Limit::Columns)?;
        Ok((nrows as usize, ncols as usize))
    }

    /// Checks a number of stored entries.
    pub(super) fn entries(&self, at: At, entries: u64) -> Result<()> {
        self.check(at, "number of entries", entries, Limit::Nonzeros)
    }

    /// Checks the dimensions against the number of entries that were read.
    pub(super) fn borne_out(&self, nrows: usize, ncols: usize, entries: usize) -> Result<()> {
        for (what, got) in [
            ("number of rows beyond the number of entries", nrows),
            ("number of columns beyond the number of entries", ncols),
        ] {
            let (got, limit) = (got.saturating_sub(entries) as u64, self.empty_rows);
            if got > limit {
                return Err(Error::Limit { at: At::Whole, what, got, limit, remedy: "empty_rows" });
            }
        }
        Ok(())
    }
}

enum Limit {
    Rows,
    Columns,
    Nonzeros,
}

/// A source that fails after delivering more than `limit` bytes.
pub(super) struct Limited<R> {
    source: R,
    read: u64,
    limit: u64,
    /// Creates the error from the number of bytes delivered and the limit.
    over: fn(u64, u64) -> Error,
}

impl<R> Limited<R> {
    /// Bounds `source` by the limit on bytes of one layer of data.
    pub fn bytes(source: R, limits: &Limits) -> Self {
        Limited { source, read: 0, limit: limits.bytes, over: too_many_bytes }
    }

    /// Bounds `source` by `limit`; `over` creates the error from the bytes delivered and the limit.
    pub fn new(source: R, limit: u64, over: fn(u64, u64) -> Error) -> Self {
        Limited { source, read: 0, limit, over }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.source.read(buffer)?;
        self.read += got as u64;
        if self.read > self.limit {
            return Err(io::Error::other((self.over)(self.read, self.limit)));
        }
        Ok(got)
    }
}

/// Creates the error for content that is held in memory and is too large.
pub(super) fn too_much_held(what: &str) -> Error {
    Error::input(format!("{what} is too large: decompress it, or write it as Matrix Market text"))
}

/// Creates the error for more bytes than the limit.
pub(super) fn too_many_bytes(got: u64, limit: u64) -> Error {
    Error::Limit { at: At::Whole, what: "number of bytes read", got, limit, remedy: "bytes" }
}

/// Separates errors of the system from errors of a decoder, which are faults of the content.
pub(super) fn io_error(error: io::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(ours) => return ours,
        Err(other) => other,
    };
    if error.raw_os_error().is_some() {
        Error::Io { what: "reading the matrix".into(), source: error }
    } else {
        Error::input(format!("the input is damaged or cut off: {error}"))
    }
}
