//! Matrix Market text: coordinate and array; real, integer, unsigned-integer, complex and pattern; general,
//! symmetric, skew-symmetric and hermitian. Source: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market exchange formats:
//! initial design", NISTIR 5935, 1996.
//!
//! ```text
//! %%MatrixMarket matrix coordinate real symmetric     | 4 1 . |
//! % a comment                                         | 1 . 2 |
//! 3 3 3                                               | . 2 . |
//! 1 1 4.0
//! 2 1 1.0
//! 3 2 2.0
//! ```
//!
//! Indices count from 1. The words of the first line may be in upper or lower case; comments and
//! blank lines may stand anywhere after it; lines end in LF, CRLF, or in CR alone throughout;
//! fields are separated by spaces or tabs.
//!
//! Deviations of other programs are read where they can only mean one thing: a byte order mark,
//! blanks and blank lines before the banner, a banner with one percent sign or with a remark behind
//! it, exponents as in Fortran (`1.0D+03`, `1.0+3`), skew-symmetric arrays with a zero diagonal.
//!
//! - Entries listed twice are summed. Zeros in a coordinate file remain entries of the matrix;
//!   zeros in an array do not become entries.
//! - A symmetric file may list either triangle, but not both, because the entries would count
//!   twice.
//! - A skew-symmetric file may list only zeros on the diagonal.
//!
//! The text is cut at line ends into blocks. One batch of blocks is parsed in parallel while the
//! next is read. Line numbers are relative to the block until the batch is merged in file order.

mod blocks;
mod header;
mod lines;

use std::io::{self, BufRead, BufReader, Read};
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;

use self::blocks::{Cutter, TextBlock};
use self::header::{EntryFormat, Field, MtxHeader};
use self::lines::ParsedLines;
pub(super) use self::lines::whole_number;
use super::context::{Context, Notes};
use super::layers::Source;
use super::limits::io_error;
use super::triplets::{Symmetry, Triplets};
use super::{Complex, Limits};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Maximum number of bytes of a line.
const LINE_BYTES: usize = 1 << 19;

/// Maximum number of blocks that one thread parses alone.
const FEW_BLOCKS: usize = 4;

/// Maximum number of entries for which memory is taken before they are read.
const MOST_ROOM: u64 = 1 << 16;

/// Blocks of a batch for each thread.
const BLOCKS_EACH: usize = 16;

/// Reads a matrix, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the line of the first fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: Source<'_>, context: &Context<'_>) -> Result<Csr<T>> {
    let mut source = BufReader::new(source);
    match ends_lines_in_cr(source.fill_buf().map_err(io_error)?) {
        true => read_lines(BufReader::new(CrAsLf(source)), context),
        false => read_lines(source, context),
    }
}

/// Returns true if the first line ends in CR without LF.
fn ends_lines_in_cr(head: &[u8]) -> bool {
    let cr = head.iter().position(|&b| b == b'\r' || b == b'\n').filter(|&at| head[at] == b'\r');
    cr.is_some_and(|at| head.get(at + 1).is_some_and(|&next| next != b'\n'))
}

/// A text whose lines end in CR, with LF in its place.
struct CrAsLf<R>(R);

impl<R: Read> Read for CrAsLf<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.0.read(buffer)?;
        buffer[..got].iter_mut().filter(|b| **b == b'\r').for_each(|b| *b = b'\n');
        Ok(got)
    }
}

/// The size of a matrix, as the first lines of its file state it.
///
/// ```
/// use ellect::read::{self, Shape};
///
/// let shape = Shape { nrows: 5, ncols: 1, array: true };
/// assert!(shape.is_vector() && read::shape("tests/data/circuit.mtx") != Some(shape));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows.
    pub nrows: usize,
    /// Number of columns.
    pub ncols: usize,
    /// True for an array, which lists every value.
    pub array: bool,
}

impl Shape {
    /// Returns true for vectors, coordinates and right-hand sides: an array, or a matrix of one row
    /// or column.
    pub fn is_vector(&self) -> bool {
        self.array || self.nrows == 1 || self.ncols == 1
    }
}

/// Returns the size of the Matrix Market file that starts with `head`; `None` if this is none, or
/// its size line is not in `head`.
pub(super) fn shape(head: &[u8]) -> Option<Shape> {
    let limits = Limits::default();
    let context = Context {
        limits: &limits,
        complex: Complex::RealPart,
        name: String::new(),
        member: None,
        notes: Notes::default(),
        is_complex: AtomicBool::default(),
    };
    let whole = head.iter().rposition(|&b| b == b'\n' || b == b'\r')?;
    let head = &head[..=whole];
    let header = match ends_lines_in_cr(head) {
        true => header::read(&mut BufReader::new(CrAsLf(head)), &context),
        false => header::read(&mut &head[..], &context),
    };
    let MtxHeader { nrows, ncols, layout, .. } = header.ok()?;
    Some(Shape { nrows, ncols, array: layout == EntryFormat::Array })
}

fn read_lines<T: Scalar>(mut source: impl BufRead + Send, context: &Context<'_>) -> Result<Csr<T>> {
    let header = header::read(&mut source, context)?;
    let mut cutter = Cutter::of(source);
    let mut entries = Entries::new(header);
    let blocks = BLOCKS_EACH * rayon::current_num_threads();
    let mut parsing: Vec<TextBlock<T>> = Vec::new();
    let mut reading: Vec<TextBlock<T>> = (0..blocks).map(|_| TextBlock::default()).collect();
    parsing.resize_with(blocks, TextBlock::default);
    let mut filled = cutter.fill(&mut reading)?;
    while filled > 0 {
        std::mem::swap(&mut parsing, &mut reading);
        let batch = &mut parsing[..filled];
        // Waking another thread takes longer than a small file.
        let (merged, next) = if filled <= FEW_BLOCKS {
            let merged = batch.iter_mut().try_for_each(|block| {
                block.parsed.parse(&block.text, &header);
                entries.merge(block)
            });
            (merged, cutter.fill(&mut reading))
        } else {
            rayon::join(
                || {
                    batch.par_iter_mut().for_each(|block| block.parsed.parse(&block.text, &header));
                    batch.iter().try_for_each(|block| entries.merge(block))
                },
                || cutter.fill(&mut reading),
            )
        };
        merged?;
        filled = next?;
    }
    if cutter.met_a_long_line() {
        return Err(too_long(entries.lines + 1));
    }
    drop((parsing, reading));
    context.note_rounded(entries.rounded);
    let Some(imaginary) = entries.imaginary.take() else { return entries.finish(context.limits) };
    let (real, imaginary) = (entries.finish(context.limits)?, imaginary.finish(context.limits)?);
    if header.imaginary == Symmetry::Hermitian {
        check_diagonal(&imaginary)?;
    }
    context.blocks(real, imaginary)
}

/// Checks the diagonal of the imaginary parts of a hermitian matrix.
fn check_diagonal<T: Scalar>(imaginary: &Csr<T>) -> Result<()> {
    let fault = |row: usize| Some((row, imaginary.get(row, row).filter(|&v| v != T::ZERO)?));
    match (0..imaginary.nrows()).find_map(fault) {
        None => Ok(()),
        Some((row, part)) => Err(Error::input(format!(
            "the diagonal entry of row {} has the imaginary part {}; the diagonal of a hermitian matrix \
             is real",
            row + 1,
            part.to_f64()
        ))),
    }
}

fn too_long(line: u64) -> Error {
    Error::line(line, format!("the line is longer than {LINE_BYTES} bytes"))
}

/// The entries of all blocks so far.
struct Entries<T> {
    header: MtxHeader,
    triplets: Triplets<T>,
    /// Numbers of lines and entries so far.
    lines: u64,
    entries: u64,
    /// Number of integers that lost digits.
    rounded: u64,
    /// The first lines with an entry above and below the diagonal.
    above: Option<u64>,
    below: Option<u64>,
    /// The place of the next array value.
    row: usize,
    col: usize,
    /// All values of a skew-symmetric array.
    array: Vec<T>,
    /// The imaginary parts of all entries, where both parts are read.
    imaginary: Option<Box<Entries<T>>>,
}

impl<T: Scalar> Entries<T> {
    fn new(header: MtxHeader) -> Self {
        let room = header.entries.min(MOST_ROOM) as usize;
        let of_places = if header.layout == EntryFormat::Coordinate { room } else { 0 };
        let place = || Vec::with_capacity(of_places);
        let values = (header.field != Field::Pattern).then(|| Vec::with_capacity(of_places));
        Entries {
            header,
            triplets: Triplets { rows: place(), cols: place(), values },
            lines: header.lines,
            entries: 0,
            rounded: 0,
            above: None,
            below: None,
            row: first_row(0, header.symmetry),
            col: 0,
            array: Vec::new(),
            imaginary: (header.field == Field::Both).then(|| {
                let symmetry = header.imaginary;
                Box::new(Entries::new(MtxHeader { field: Field::Real, symmetry, ..header }))
            }),
        }
    }

    /// Appends the next block in file order.
    fn merge(&mut self, block: &TextBlock<T>) -> Result<()> {
        let TextBlock { text, parsed } = block;
        let left = self.header.most_entries() - self.entries;
        if parsed.entries > left {
            let line = self.lines + lines::line_of_entry(text, left + 1);
            return Err(Error::line(line, self.header.too_many()));
        }
        let triangles = (
            self.above.or(parsed.above.map(|line| self.lines + line)),
            self.below.or(parsed.below.map(|line| self.lines + line)),
        );
        if let (Some(above), Some(below)) = triangles {
            return Err(Error::line(
                above.max(below),
                "the file is symmetric, but lists entries both above and below the diagonal; list \
                 one triangle, or declare the file general",
            ));
        }
        (self.above, self.below) = triangles;
        if let Some(what) = &parsed.fault {
            return Err(Error::line(self.lines + parsed.lines, what.as_str()));
        }
        match self.imaginary.take() {
            None => self.append(parsed, parsed.values.iter().copied()),
            Some(mut imaginary) => {
                let (pairs, _) = parsed.values.as_chunks::<2>();
                imaginary.append(parsed, pairs.iter().map(|pair| pair[1]));
                self.append(parsed, pairs.iter().map(|pair| pair[0]));
                self.imaginary = Some(imaginary);
            }
        }
        Ok(())
    }

    /// Appends entries with these values.
    fn append(&mut self, parsed: &ParsedLines<T>, values: impl Iterator<Item = T>) {
        self.lines += parsed.lines;
        self.entries += parsed.entries;
        self.rounded += parsed.rounded;
        match self.header.layout {
            EntryFormat::Coordinate => {
                self.triplets.rows.extend_from_slice(&parsed.rows);
                self.triplets.cols.extend_from_slice(&parsed.cols);
                if let Some(own) = &mut self.triplets.values {
                    own.extend(values);
                }
            }
            // Its number decides whether the diagonal is among the values.
            EntryFormat::Array if self.header.symmetry == Symmetry::Skew => {
                self.array.extend(values);
            }
            EntryFormat::Array => values.for_each(|value| self.push_array_value(value)),
        }
    }

    fn push_array_value(&mut self, value: T) {
        if value != T::ZERO {
            self.triplets.rows.push(self.row as u32);
            self.triplets.cols.push(self.col as u32);
            self.triplets.values.get_or_insert_default().push(value);
        }
        self.row += 1;
        if self.row == self.header.nrows {
            self.col += 1;
            self.row = first_row(self.col, self.header.symmetry);
        }
    }

    fn finish(mut self, limits: &Limits) -> Result<Csr<T>> {
        let MtxHeader { nrows, ncols, symmetry, entries, .. } = self.header;
        let with_diagonal = self.entries == self.header.most_entries() && self.entries > entries;
        if self.entries != entries && !with_diagonal {
            return Err(Error::line(self.lines, self.header.too_few(self.entries)));
        }
        if with_diagonal {
            self.drop_diagonal()?;
        }
        std::mem::take(&mut self.array).into_iter().for_each(|value| self.push_array_value(value));
        self.triplets.into_csr(nrows, ncols, symmetry, limits)
    }

    /// Removes the diagonal from the values of a skew-symmetric array, which lists it.
    fn drop_diagonal(&mut self) -> Result<()> {
        let (mut place, mut col) = (0, 0);
        let diagonal = std::iter::from_fn(|| {
            let this = (col < self.header.ncols).then_some((place, col))?;
            place += self.header.nrows - col;
            col += 1;
            Some(this)
        });
        let diagonal: Vec<_> = diagonal.collect();
        if let Some((place, col)) = diagonal.iter().find(|(place, _)| self.array[*place] != T::ZERO)
        {
            return Err(Error::line(
                self.lines,
                format!(
                    "the array lists its diagonal, whose value in column {} is {}; a skew-symmetric \
                     matrix has a zero diagonal",
                    col + 1,
                    self.array[*place]
                ),
            ));
        }
        let mut next = diagonal.iter().map(|&(place, _)| place).peekable();
        let mut place = 0;
        self.array.retain(|_| {
            let drop = next.next_if_eq(&place).is_some();
            place += 1;
            !drop
        });
        Ok(())
    }
}

impl MtxHeader {
    /// Returns the largest number of entries that the file may list: a skew-symmetric array may
    /// list its diagonal, too.
    fn most_entries(&self) -> u64 {
        match (self.layout, self.symmetry) {
            (EntryFormat::Array, Symmetry::Skew) => self.entries + self.nrows as u64,
            _ => self.entries,
        }
    }

    /// Returns the message about a file that ends after `got` entries.
    fn too_few(&self, got: u64) -> String {
        let MtxHeader { nrows, ncols, entries, .. } = self;
        match (self.layout, self.symmetry) {
            (EntryFormat::Array, Symmetry::Skew) => format!(
                "the file ends after {got} values; there must be the {entries} below the diagonal of \
                 a {nrows} x {ncols} array, or {} with the diagonal",
                self.most_entries()
            ),
            _ => format!("the file ends after {got} entries of {entries}"),
        }
    }

    /// Returns the message about more entries than that.
    fn too_many(&self) -> String {
        let MtxHeader { nrows, ncols, entries, .. } = self;
        match (self.layout, self.symmetry) {
            (EntryFormat::Array, Symmetry::Skew) => format!(
                "more values than the {entries} below the diagonal of a {nrows} x {ncols} array, or \
                 {} with the diagonal",
                self.most_entries()
            ),
            (EntryFormat::Array, Symmetry::Symmetric) => format!(
                "more values than the {entries} of the lower triangle of a {nrows} x {ncols} array"
            ),
            _ => format!("more entries than the {entries} of the size line"),
        }
    }
}

/// Returns the first row of a column that an array lists.
fn first_row(col: usize, symmetry: Symmetry) -> usize {
    match symmetry {
        Symmetry::General => 0,
        Symmetry::Symmetric | Symmetry::Hermitian => col,
        Symmetry::Skew => col + 1,
    }
}
