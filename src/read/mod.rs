//! Reading matrices in the forms in which people exchange them, plain, compressed or in archives.
//!
//! ```text
//! file | bytes | stream -> recognise -> gzip, zstd, bzip2, xz -> recognise again
//!    +-> tar, zip         the member that is the matrix -> recognise again
//!    +-> matrix_market    blocks of lines, parsed in parallel                    -> triplets -> Csr
//!    +-> harwell_boeing   Rutherford-Boeing and Harwell-Boeing, assembled        -> triplets -> Csr
//!    +-> npz              SciPy's csr, csc, coo, bsr, dia; plain indptr, indices, data      -> Csr
//!    +-> petsc            PETSc's binary MatView, 32- or 64-bit indices                     -> Csr
//!    +-> matlab           MATLAB 5 to 7, sparse                                  -> triplets -> Csr
//!    +-> matlab73         MATLAB 7.3, sparse                                     -> triplets -> Csr
//!    +-> json             {"nrows","ncols","row_ptr","col_idx","values"?}                   -> Csr
//! ```
//!
//! The content decides the format; a file's name helps only where the content of several formats
//! looks alike. Entries stored twice are summed, in every format. Values must be finite: a product
//! with infinite or NaN values could not be checked.
//!
//! An archive is read in one pass. Vectors, coordinates and further matrices of a problem
//! (`NAME_b.mtx` beside `NAME.mtx`) are passed over and named in a note; where several matrices
//! could be meant, the message lists them and `archive.tar.gz:NAME/NAME.mtx` picks one.
//!
//! The reader trusts no claim of a file: it checks sizes against [`Limits`] before it uses them,
//! and it allocates memory for the entries that it has read, not for those that the file announces.
//! Every fault is an [`Error::Input`] or [`Error::Limit`] with its line, byte or array element.

mod archive;
mod binary;
mod content;
mod context;
#[cfg_attr(not(feature = "read-archives"), path = "decoders_none.rs")]
mod decoders;
mod fortran;
mod harwell_boeing;
mod json;
mod layers;
mod limits;
mod matlab;
#[cfg_attr(not(feature = "read-archives"), path = "matlab73_none.rs")]
mod matlab73;
mod matrix_market;
mod petsc;
mod placed;
mod shared_file;
mod triplets;
#[cfg_attr(not(feature = "read-archives"), path = "zip_none.rs")]
mod zip;

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use self::content::{Content, HEAD_BYTES, sniff};
use self::context::{Context, Notes};
pub use self::limits::Limits;
use self::limits::io_error;
pub use self::matrix_market::Shape;
pub use self::placed::Placed;
use self::shared_file::SharedFile;
use crate::csr::{ComplexCsr, Csr, complex};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Treatment of complex values; all formats multiply real ones.
///
/// ```
/// use ellect::read::{Complex, Options};
///
/// # fn main() -> ellect::Result<()> {
/// let text = b"%%MatrixMarket matrix coordinate real hermitian\n2 2 1\n2 1 3.0\n";
/// let options = Options { complex: Complex::RealPart, ..Options::default() };
/// assert_eq!(options.bytes::<f64>(text)?.csr.nnz(), 2);
/// assert!(Options::default().bytes::<f64>(text).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Complex {
    /// Complex and hermitian matrices are refused.
    #[default]
    Refuse,
    /// Complex values are read if every imaginary part is zero; a hermitian matrix is then a
    /// symmetric one.
    RealPart,
    /// A complex matrix is read as the real one of twice as many rows and columns in which each entry
    /// a + bi is the block `[[a, -b], [b, a]]`: see [`ComplexCsr`]. Real matrices stay as they are.
    Blocks,
}

/// Options of a reading.
///
/// ```
/// use ellect::read::{Complex, Options};
///
/// # fn main() -> ellect::Result<()> {
/// let text = b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 5.0 0.0\n";
/// assert!(Options::default().bytes::<f64>(text).is_err());
/// let options = Options { complex: Complex::RealPart, ..Options::default() };
/// let found = options.bytes::<f64>(text)?;
/// assert_eq!((found.csr.values(), found.notes.len()), (&[5.0][..], 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Limits on sizes.
    pub limits: Limits,
    /// Treatment of complex values.
    pub complex: Complex,
    /// The member of an archive, or the variable of a MATLAB file, that holds the matrix; `None`
    /// reads the one that can be meant.
    pub member: Option<String>,
}

/// A matrix that was read, and what the reader has to say of it.
///
/// ```
/// use ellect::read::Options;
///
/// # fn main() -> ellect::Result<()> {
/// let text = b"%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 9007199254740993\n";
/// let found = Options::default().bytes::<f64>(text)?;
/// assert_eq!(found.csr.nnz(), 1);
/// assert!(found.notes[0].starts_with("1 integer over 2^53 was rounded"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Found<T> {
    /// The matrix.
    pub csr: Csr<T>,
    /// Notes, one sentence each: members of an archive that were passed over, values that were
    /// rounded, bytes that were ignored.
    pub notes: Vec<String>,
    /// True if the matrix stands for a complex one of half its size ([`Complex::Blocks`]).
    pub is_complex: bool,
}

impl<T: Scalar> Found<T> {
    /// Returns the complex matrix that was read; that of a real matrix has imaginary parts of zero.
    ///
    /// # Errors
    /// [`Error::Input`] if a real matrix has more than 2^31 - 1 rows or columns.
    pub fn into_complex(self) -> Result<ComplexCsr<T>> {
        if self.is_complex { ComplexCsr::from_blocks(&self.csr) } else { (&self.csr).try_into() }
    }
}

/// Reads the matrix in the file at `path`.
///
/// # Errors
/// [`Error::Io`] if the system cannot read the file, [`Error::Input`] if the content is malformed,
/// [`Error::Limit`] if it exceeds `limits`.
pub fn file<T: Scalar>(path: impl AsRef<Path>, limits: &Limits) -> Result<Csr<T>> {
    with(limits).file(path).map(|found| found.csr)
}

/// Reads the complex or real matrix in the file at `path`.
///
/// ```
/// use ellect::read::{Complex, Options};
///
/// # fn main() -> ellect::Result<()> {
/// let text = b"%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 4 0\n2 1 1 -3\n";
/// let options = Options { complex: Complex::Blocks, ..Options::default() };
/// let a = options.bytes::<f64>(text)?.into_complex()?;
/// assert_eq!((a.values()[1].re, a.values()[1].im), (1.0, 3.0), "in row 0, column 1");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`file()`].
pub fn complex_file<T: Scalar>(path: impl AsRef<Path>, limits: &Limits) -> Result<ComplexCsr<T>> {
    let options = Options { complex: Complex::Blocks, ..with(limits) };
    options.file(path)?.into_complex()
}

/// Reads the matrix in `bytes`, which hold the content of a file.
///
/// # Errors
/// As [`file()`].
pub fn bytes<T: Scalar>(bytes: &[u8], limits: &Limits) -> Result<Csr<T>> {
    with(limits).bytes(bytes).map(|found| found.csr)
}

/// Reads the matrix that `source` delivers, to its end.
///
/// Text is parsed on rayon's current threads while the next blocks are read and decompressed. Only
/// a zip archive, as `.npz` is one, and a MATLAB 7.3 file are held in memory as a whole.
///
/// # Errors
/// As [`file()`].
pub fn stream<T: Scalar>(source: impl Read + Send, limits: &Limits) -> Result<Csr<T>> {
    with(limits).stream(source).map(|found| found.csr)
}

/// Returns the size that the first lines of a Matrix Market file state, plain or compressed; `None`
/// for a file of another kind and for one that cannot be read.
///
/// ```
/// use ellect::read;
///
/// assert_eq!(read::shape("tests/data/circuit.mtx").map(|shape| shape.is_vector()), Some(false));
/// assert_eq!(read::shape("Cargo.toml"), None);
/// ```
pub fn shape(path: impl AsRef<Path>) -> Option<Shape> {
    let options = Options::default();
    let file = File::open(path.as_ref()).ok()?;
    let context = options.context("", None);
    let opened = layers::open(Box::new(file), "", archive::GLANCE_BYTES, &context).ok()?;
    matrix_market::shape(&opened.head)
}

fn with(limits: &Limits) -> Options {
    Options { limits: *limits, ..Options::default() }
}

impl Options {
    /// Reads the matrix in the file at `path`, which may be a pipe, or in a member of the archive
    /// at `path`: `archive.tar.gz:NAME/NAME.mtx`.
    ///
    /// # Errors
    /// As [`file()`].
    pub fn file<T: Scalar>(&self, path: impl AsRef<Path>) -> Result<Found<T>> {
        let (path, member) = split_member(path.as_ref());
        let named = |error| match error {
            Error::Io { source, .. } => Error::Io { what: path.display().to_string(), source },
            other => other,
        };
        let file = File::open(&path).map_err(io_error).map_err(named)?;
        let context = self.context(&path.to_string_lossy(), member.as_deref());
        opened(file, &context).map_err(named)
    }

    /// Reads the matrix in an open file, which may be a pipe.
    ///
    /// # Errors
    /// As [`file()`].
    pub fn opened<T: Scalar>(&self, file: File) -> Result<Found<T>> {
        opened(file, &self.context("", None))
    }

    /// Reads the matrix in `bytes`, which hold the content of a file.
    ///
    /// # Errors
    /// As [`file()`].
    pub fn bytes<T: Scalar>(&self, bytes: &[u8]) -> Result<Found<T>> {
        let context = self.context("", None);
        let head = &bytes[..bytes.len().min(HEAD_BYTES as usize)];
        match sniff(head, "") {
            Ok(Content::Zip) => found(zip::read(Cursor::new(bytes), &context), &context),
            _ => found(layers::read(Box::new(bytes), &context), &context),
        }
    }

    /// Reads the matrix that `source` delivers, to its end.
    ///
    /// # Errors
    /// As [`file()`].
    pub fn stream<T: Scalar>(&self, source: impl Read + Send) -> Result<Found<T>> {
        let context = self.context("", None);
        found(layers::read(Box::new(source), &context), &context)
    }

    fn context<'a>(&'a self, name: &str, member: Option<&'a str>) -> Context<'a> {
        Context {
            limits: &self.limits,
            complex: self.complex,
            name: name.to_string(),
            member: member.or(self.member.as_deref()),
            notes: Notes::default(),
            is_complex: AtomicBool::default(),
        }
    }
}

fn opened<T: Scalar>(mut file: File, context: &Context<'_>) -> Result<Found<T>> {
    let mut head = Vec::new();
    file.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(io_error)?;
    let content = sniff(&head, &context.name).ok();
    // A file with a directory is read in place; a pipe cannot be.
    if let Some(content @ (Content::Zip | Content::Matlab73)) = content
        && file.metadata().map_err(io_error)?.is_file()
    {
        file.rewind().map_err(io_error)?;
        let source = SharedFile::new(file);
        return match content {
            Content::Zip => found(zip::read(source, context), context),
            _ => found(matlab73::read(source, context), context),
        };
    }
    found(layers::read(Box::new(Cursor::new(head).chain(file)), context), context)
}

/// Splits `archive.tar.gz:NAME/NAME.mtx` into the file and the member, unless a file has the whole
/// name.
fn split_member(path: &Path) -> (PathBuf, Option<String>) {
    let whole = (path.to_path_buf(), None);
    let Some(text) = path.to_str().filter(|_| !path.exists()) else { return whole };
    let at = text.match_indices(':').find(|&(at, _)| Path::new(&text[..at]).is_file());
    at.map_or(whole, |(at, _)| (PathBuf::from(&text[..at]), Some(text[at + 1..].to_string())))
}

/// Checks that sums of repeated entries are finite; each single value was checked when it was read.
fn found<T: Scalar>(read: Result<Csr<T>>, context: &Context<'_>) -> Result<Found<T>> {
    let csr = read?;
    // Looking at all values of a part is faster than looking for the first one.
    const PART: usize = 1 << 14;
    let is_finite = |part: &[T]| part.iter().fold(true, |all, v| all & v.to_f64().is_finite());
    let values = csr.values();
    let fault = match values.len() <= PART {
        true => (!is_finite(values)).then_some(0),
        false => values.par_chunks(PART).position_first(|part| !is_finite(part)),
    };
    // A file may hold several matrices, of which one was chosen.
    let is_complex =
        context.is_complex.load(Ordering::Relaxed) && complex::consists_of_blocks(csr.as_ref());
    let Some(part) = fault else {
        return Ok(Found { csr, notes: context.notes.take(), is_complex });
    };
    let first = part * PART;
    let within = csr.values()[first..].iter().position(|value| !value.to_f64().is_finite());
    let k = first + within.unwrap_or(0);
    let row = csr.row_ptr().partition_point(|&start| start <= k);
    // Two rows and two columns stand for a complex one.
    let size = 1 + usize::from(is_complex);
    Err(Error::input(format!(
        "the entries of row {}, column {} sum to {:e}; the sum must be finite in {}",
        row.div_ceil(size),
        csr.col_idx()[k] as usize / size + 1,
        csr.values()[k].to_f64(),
        T::PRECISION
    )))
}
