//! Matrix Market text: coordinate and array; real, integer and pattern; general, symmetric and
//! skew-symmetric. The format is described by R. Boisvert, R. Pozo and K. Remington, "The Matrix
//! Market exchange formats: initial design", NISTIR 5935, 1996.
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
//! Indices count from 1. Words of the first line may be in any case; comments and blank lines may
//! stand anywhere after it; lines end in LF or CRLF; fields are parted by spaces or tabs.
//!
//! - Entries listed twice are summed; zeros listed in a coordinate file stay entries of the matrix,
//!   zeros of an array do not become entries.
//! - A symmetric file may list either triangle, but not both: the entries would count twice.
//! - A skew-symmetric file may list no diagonal entry but zeros.
//!
//! The text is cut at line ends into blocks. One batch of blocks is parsed in parallel while the
//! next is read; line numbers are relative to the block until the batch is merged in file order.

mod header;
mod lines;

use std::io::{BufRead, Read};

use rayon::prelude::*;

use self::header::{Field, Header, Layout};
use self::lines::Block;
use super::triplets::{Symmetry, Triplets};
use super::{Limits, io_error};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Bytes of a block of text; a line must fit into one.
const LINE_BYTES: usize = 1 << 19;

/// Reads a matrix to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the line of the first fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(mut source: impl BufRead + Send, limits: &Limits) -> Result<Csr<T>> {
    let header = header::read(&mut source, limits)?;
    let mut cutter = Cutter { source, carry: Vec::new(), state: State::Open };
    let mut entries = Entries::new(header);
    let slots = 2 * rayon::current_num_threads();
    let mut parsing: Vec<Slot<T>> = Vec::new();
    let mut reading: Vec<Slot<T>> = (0..slots).map(|_| Slot::default()).collect();
    parsing.resize_with(slots, Slot::default);
    let mut filled = cutter.fill(&mut reading)?;
    while filled > 0 {
        std::mem::swap(&mut parsing, &mut reading);
        let (merged, next) = rayon::join(
            || {
                let batch = &mut parsing[..filled];
                batch.par_iter_mut().for_each(|slot| slot.block.parse(&slot.text, &header));
                batch.iter().try_for_each(|slot| entries.merge(slot))
            },
            || cutter.fill(&mut reading),
        );
        merged?;
        filled = next?;
    }
    if matches!(cutter.state, State::LineTooLong) {
        return Err(too_long(entries.lines + 1));
    }
    drop((parsing, reading));
    entries.finish(limits)
}

fn too_long(line: u64) -> Error {
    Error::line(line, format!("the line is longer than {LINE_BYTES} bytes"))
}

/// A block of text and what it holds; the buffers are used again and again.
struct Slot<T> {
    text: Vec<u8>,
    block: Block<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { text: Vec::new(), block: Block::default() }
    }
}

/// Cuts a source into blocks that end with a line.
struct Cutter<R> {
    source: R,
    /// The start of a line whose end is yet to be read.
    carry: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Open,
    Ended,
    LineTooLong,
}

impl<R: Read> Cutter<R> {
    /// Fills the first slots with text, and returns how many.
    fn fill<T>(&mut self, slots: &mut [Slot<T>]) -> Result<usize> {
        for (filled, slot) in slots.iter_mut().enumerate() {
            self.next(&mut slot.text).map_err(io_error)?;
            if slot.text.is_empty() {
                return Ok(filled);
            }
        }
        Ok(slots.len())
    }

    fn next(&mut self, text: &mut Vec<u8>) -> std::io::Result<()> {
        text.clear();
        if !matches!(self.state, State::Open) {
            return Ok(());
        }
        text.append(&mut self.carry);
        let wanted = LINE_BYTES - text.len();
        let got = self.source.by_ref().take(wanted as u64).read_to_end(text)?;
        if got < wanted {
            self.state = State::Ended;
        } else if let Some(end) = text.iter().rposition(|&b| b == b'\n') {
            self.carry.extend_from_slice(&text[end + 1..]);
            text.truncate(end + 1);
        } else {
            self.state = State::LineTooLong;
            text.clear();
        }
        Ok(())
    }
}

/// The entries of all blocks so far.
struct Entries<T> {
    header: Header,
    triplets: Triplets<T>,
    /// Lines and entries so far.
    lines: u64,
    entries: u64,
    /// The first lines above and below the diagonal.
    above: Option<u64>,
    below: Option<u64>,
    /// Where the next value of an array belongs.
    row: usize,
    col: usize,
}

impl<T: Scalar> Entries<T> {
    fn new(header: Header) -> Self {
        let values = (header.field != Field::Pattern).then(Vec::new);
        Entries {
            header,
            triplets: Triplets { rows: Vec::new(), cols: Vec::new(), values },
            lines: header.lines,
            entries: 0,
            above: None,
            below: None,
            row: first_row(0, header.symmetry),
            col: 0,
        }
    }

    /// Takes over the next block in file order.
    fn merge(&mut self, slot: &Slot<T>) -> Result<()> {
        let block = &slot.block;
        let left = self.header.entries - self.entries;
        if block.entries > left {
            return Err(Error::line(
                self.lines + lines::line_of_entry(&slot.text, left + 1),
                format!("more entries than the {} of the size line", self.header.entries),
            ));
        }
        let triangles = (
            self.above.or(block.above.map(|line| self.lines + line)),
            self.below.or(block.below.map(|line| self.lines + line)),
        );
        if let (Some(above), Some(below)) = triangles {
            return Err(Error::line(
                above.max(below),
                "the file is symmetric, but lists entries both above and below the diagonal; list \
                 one triangle, or call it general",
            ));
        }
        (self.above, self.below) = triangles;
        if let Some(what) = &block.fault {
            return Err(Error::line(self.lines + block.lines, what.as_str()));
        }
        self.lines += block.lines;
        self.entries += block.entries;
        match self.header.layout {
            Layout::Coordinate => {
                self.triplets.rows.extend_from_slice(&block.rows);
                self.triplets.cols.extend_from_slice(&block.cols);
                if let Some(values) = &mut self.triplets.values {
                    values.extend_from_slice(&block.values);
                }
            }
            Layout::Array => block.values.iter().for_each(|&value| self.push_array_value(value)),
        }
        Ok(())
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

    fn finish(self, limits: &Limits) -> Result<Csr<T>> {
        let Header { nrows, ncols, symmetry, entries, .. } = self.header;
        if self.entries < entries {
            return Err(Error::line(
                self.lines,
                format!("the file ends after {} entries of {entries}", self.entries),
            ));
        }
        self.triplets.into_csr(nrows, ncols, symmetry, limits)
    }
}

/// The first row that an array lists of a column.
fn first_row(col: usize, symmetry: Symmetry) -> usize {
    match symmetry {
        Symmetry::General => 0,
        Symmetry::Symmetric => col,
        Symmetry::Skew => col + 1,
    }
}
