//! Reading matrices: Matrix Market text, SciPy `.npz` files and JSON, plain or compressed.
//!
//! ```text
//! file | bytes | stream -> sniff -> gzip, zstd -> sniff again
//!                            +-> matrix_market   blocks of lines, parsed in parallel -> triplets -> Csr
//!                            +-> npz             csr, csc, coo                       -> triplets -> Csr
//!                            +-> json            {"nrows","ncols","row_ptr","col_idx","values"?} -> Csr
//! ```
//!
//! The content decides the format, never the file's name. Entries stored twice are summed, in every
//! format. Values must be finite: a product with infinite or NaN values could not be checked.
//!
//! The reader trusts no claim of a file: it checks sizes against [`Limits`] before it uses them,
//! and it allocates memory for the entries that it has read, not for those that the file announces.
//! Every fault is an [`Error::Input`] or [`Error::Limit`] with its line, byte or array element.

#[cfg_attr(not(feature = "read-archives"), path = "decoders_none.rs")]
mod decoders;
mod json;
mod matrix_market;
#[cfg_attr(not(feature = "read-archives"), path = "npz_none.rs")]
mod npz;
mod triplets;

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::Path;

use rayon::prelude::*;

use crate::csr::{Csr, MAX_DIMENSION};
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

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

/// Reads the matrix in the file at `path`.
///
/// # Errors
/// [`Error::Io`] if the system cannot read the file, [`Error::Input`] if the content is malformed,
/// [`Error::Limit`] if it exceeds `limits`.
pub fn file<T: Scalar>(path: impl AsRef<Path>, limits: &Limits) -> Result<Csr<T>> {
    let path = path.as_ref();
    let named = |source| Error::Io { what: path.display().to_string(), source };
    let mut file = File::open(path).map_err(named)?;
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(named)?;
    file.rewind().map_err(named)?;
    match sniff(&head) {
        // An archive is read in place, because its directory is at the end.
        Ok(Content::Zip) => npz::read(BufReader::new(file), limits).and_then(finite),
        _ => stream(file, limits),
    }
}

/// Reads the matrix in `bytes`, which hold the content of a file.
///
/// # Errors
/// As [`file()`].
pub fn bytes<T: Scalar>(bytes: &[u8], limits: &Limits) -> Result<Csr<T>> {
    match sniff(bytes) {
        Ok(Content::Zip) => npz::read(Cursor::new(bytes), limits).and_then(finite),
        _ => stream(bytes, limits),
    }
}

/// Reads the matrix that `source` delivers, to its end.
///
/// Text is parsed on rayon's current threads while the next blocks are read and decompressed. Only
/// an `.npz` archive is held in memory as a whole.
///
/// # Errors
/// As [`file()`].
pub fn stream<T: Scalar>(source: impl Read + Send, limits: &Limits) -> Result<Csr<T>> {
    layer(Box::new(source), limits, MAX_LAYERS).and_then(finite)
}

/// Checks that sums of repeated entries are finite; each single value was checked when it was read.
fn finite<T: Scalar>(csr: Csr<T>) -> Result<Csr<T>> {
    let Some(k) = csr.values().par_iter().position_first(|value| !value.to_f64().is_finite())
    else {
        return Ok(csr);
    };
    let row = csr.row_ptr().partition_point(|&start| start <= k);
    Err(Error::input(format!(
        "the entries of row {row}, column {} sum to {:e}; the sum must be finite in {}",
        csr.col_idx()[k] + 1,
        csr.values()[k].to_f64(),
        T::PRECISION
    )))
}

/// Maximum number of bytes of a decompressed archive, which is held in memory.
const MAX_ARCHIVE: u64 = 1 << 30;

/// Maximum number of compression layers around a matrix.
const MAX_LAYERS: usize = 3;

fn layer<'a, T: Scalar>(
    source: Box<dyn Read + Send + 'a>,
    limits: &Limits,
    layers_left: usize,
) -> Result<Csr<T>> {
    let mut source = Limited { source, read: 0, limit: limits.bytes, over: too_many_bytes };
    let mut head = Vec::new();
    source.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(io_error)?;
    let content = sniff(&head)?;
    let source = Cursor::new(head).chain(source);
    match content {
        Content::MatrixMarket => matrix_market::read(BufReader::new(source), limits),
        Content::Json => json::read(source, limits),
        Content::Zip => {
            let mut archive = Vec::new();
            let limit = if layers_left < MAX_LAYERS { MAX_ARCHIVE } else { u64::MAX };
            let over = |_, _| too_much_held("an archive of over 1 GiB inside compression");
            Limited { source, read: 0, limit, over }.read_to_end(&mut archive).map_err(io_error)?;
            npz::read(Cursor::new(archive), limits)
        }
        Content::Gzip | Content::Zstd if layers_left == 0 => Err(Error::input(format!(
            "the matrix is compressed more than {MAX_LAYERS} times; decompress it first"
        ))),
        Content::Gzip => layer(decoders::gzip(source)?, limits, layers_left - 1),
        Content::Zstd => layer(decoders::zstd(source, limits)?, limits, layers_left - 1),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    MatrixMarket,
    Json,
    Zip,
    Gzip,
    Zstd,
}

/// The first bytes of each kind of content. A lone `%` is Matrix Market with a broken first line.
const STARTS: [(&[u8], Content); 6] = [
    (b"%", Content::MatrixMarket),
    (b"{", Content::Json),
    (b"PK\x03\x04", Content::Zip),
    (b"PK\x05\x06", Content::Zip),
    (b"\x1f\x8b", Content::Gzip),
    (b"\x28\xb5\x2f\xfd", Content::Zstd),
];

/// Known kinds of files that the reader does not support, with the remedy.
const REMEDIES: [(&[u8], &str); 5] = [
    (b"\x93NUMPY", "a single numpy array; save the matrix with scipy.sparse.save_npz"),
    (b"MATLAB 5.0", "a MATLAB file; save the matrix with scipy.io.mmwrite"),
    (b"\x89HDF", "an HDF5 file; save the matrix with scipy.io.mmwrite"),
    (b"BZh", "bzip2; decompress it first, or use gzip or zstd"),
    (b"\xfd7zXZ", "xz; decompress it first, or use gzip or zstd"),
];

const HEAD_BYTES: u64 = 64;

fn sniff(head: &[u8]) -> Result<Content> {
    let text = head.trim_ascii_start();
    for (start, content) in STARTS {
        if head.starts_with(start) || (content == Content::Json && text.starts_with(start)) {
            return Ok(content);
        }
    }
    if head.is_empty() {
        return Err(Error::input("the input is empty"));
    }
    for (start, what) in REMEDIES {
        if head.starts_with(start) {
            return Err(Error::byte(0, format!("the input is {what}")));
        }
    }
    Err(Error::byte(
        0,
        format!(
            "the input starts with {}; it must be Matrix Market text ('%%MatrixMarket'), a JSON \
             matrix ('{{') or a SciPy .npz file, each plain or in gzip or zstd",
            excerpt(head)
        ),
    ))
}

/// Returns the start of `text` in quotes, for a message.
fn excerpt(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let more = if text.len() > SHOWN { "..." } else { "" };
    format!("'{}{more}'", text[..text.len().min(SHOWN)].escape_ascii())
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
            _ if limit == MAX_DIMENSION as u64 => Err(Error::Input {
                at,
                what: format!("{what} is {got}; at most {limit} fit the 32-bit indices"),
            }),
            _ => Err(Error::Limit { at, what, got, limit, remedy }),
        }
    }

    /// Checks the claimed dimensions and returns them.
    fn dimensions(&self, at: At, nrows: u64, ncols: u64) -> Result<(usize, usize)> {
        self.check(at, "number of rows", nrows, Limit::Rows)?;
        self.check(at, "number of columns", ncols, Limit::Columns)?;
        Ok((nrows as usize, ncols as usize))
    }

    /// Checks a number of stored entries.
    fn entries(&self, at: At, entries: u64) -> Result<()> {
        self.check(at, "number of entries", entries, Limit::Nonzeros)
    }

    /// Checks the dimensions against the number of entries that were read.
    fn borne_out(&self, nrows: usize, ncols: usize, entries: usize) -> Result<()> {
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
struct Limited<R> {
    source: R,
    read: u64,
    limit: u64,
    /// Creates the error from the number of bytes delivered and the limit.
    over: fn(u64, u64) -> Error,
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
fn too_much_held(what: &str) -> Error {
    Error::input(format!("{what} is too large: decompress it, or write it as Matrix Market text"))
}

fn too_many_bytes(got: u64, limit: u64) -> Error {
    Error::Limit { at: At::Whole, what: "number of bytes read", got, limit, remedy: "bytes" }
}

/// Separates errors of the system from errors of a decoder, which are faults of the content.
fn io_error(error: io::Error) -> Error {
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
