//! Rutherford-Boeing and Harwell-Boeing files: assembled real, integer and pattern matrices.
//!
//! ```text
//! title (72 characters)                                                  key (8 characters)
//! lines in all | of pointers | of indices | of values | of right-hand sides (Harwell-Boeing)
//! type: R, I or P; S, U, Z or R; A     nrows ncols entries 0
//! (16I5)          (16I5)          (3E25.16)            formats of pointers, indices, values
//! formats of right-hand sides, where there are any
//! pointers: ncols + 1, from 1 on
//! indices: the row of each entry, column by column, from 1 on
//! values
//! ```
//!
//! A symmetric (S) or skew-symmetric (Z) matrix lists one triangle. Right-hand sides are passed
//! over. Source: I. Duff, R. Grimes, J. Lewis, "The Rutherford-Boeing sparse matrix collection",
//! RAL-TR-97-031, 1997.

use std::io::{self, BufRead, Read};

use super::binary::value;
use super::content::excerpt;
use super::context::Context;
use super::fortran::LineFormat;
use super::limits::io_error;
use super::triplets::{Symmetry, Triplets};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

/// Maximum number of bytes of a line.
const LINE_BYTES: u64 = 1 << 16;

/// Returns true if `head` holds the four lines that every such file starts with.
pub(super) fn is_head(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n').skip(1);
    let (Some(counts), Some(sizes), Some(formats)) = (lines.next(), lines.next(), lines.next())
    else {
        return false;
    };
    let counted = words(counts).take(4).all(|word| word.iter().all(u8::is_ascii_digit));
    counted
        && words(counts).next().is_some()
        && sizes.get(..3).is_some_and(|kind| Kind::parse(kind).is_some())
        && formats.trim_ascii_start().starts_with(b"(")
}

/// Returns true for the name of such a file: `.rb`, or `.rua` and the like, by the type.
pub(super) fn is_name(name: &str) -> bool {
    let Some((_, ending)) = name.rsplit_once('.') else { return false };
    ending.eq_ignore_ascii_case("rb")
        || ending.eq_ignore_ascii_case("hb")
        || (ending.len() == 3 && Kind::parse(ending.as_bytes()).is_some())
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// The three letters of the type, in upper case: values, symmetry, assembled or elemental.
struct Kind([u8; 3]);

impl Kind {
    fn parse(text: &[u8]) -> Option<Kind> {
        let &[a, b, c] = text else { return None };
        let letters = [a, b, c].map(|letter| letter.to_ascii_uppercase());
        let known = b"RCPIQ".contains(&letters[0])
            && b"SUHZR".contains(&letters[1])
            && b"AE".contains(&letters[2]);
        known.then_some(Kind(letters))
    }

    /// Returns the symmetry of the matrix.
    ///
    /// # Errors
    /// A text for types that are not supported.
    fn symmetry(&self, context: &Context<'_>) -> Result<Symmetry> {
        let name = self.0.escape_ascii();
        if self.0[2] == b'E' {
            return Err(Error::input(format!(
                "the type is {name}, an elemental matrix; assemble it and write it as {}A",
                self.0[..2].escape_ascii()
            )));
        }
        match self.0[0] {
            b'C' => {
                return Err(Error::input(format!(
                    "the type is {name}, a complex matrix; write the real and the imaginary part \
                     as two matrices"
                )));
            }
            b'Q' => {
                return Err(Error::input(format!(
                    "the type is {name}, a pattern with values in another file; write the values \
                     with the pattern"
                )));
            }
            _ => {}
        }
        match self.0[1] {
            b'S' => Ok(Symmetry::Symmetric),
            b'Z' => Ok(Symmetry::Skew),
            b'H' => {
                context.accept_complex(&format!("the type is {name}, a hermitian matrix"))?;
                Ok(Symmetry::Symmetric)
            }
            _ => Ok(Symmetry::General),
        }
    }
}

struct Header {
    symmetry: Symmetry,
    nrows: usize,
    ncols: usize,
    entries: u64,
    pointers: LineFormat,
    indices: LineFormat,
    /// Format of the values; `None` for a pattern.
    values: Option<LineFormat>,
    /// Number of lines of right-hand sides, behind the matrix.
    right_hand_sides: u64,
}

/// Reads a matrix, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the line of the first fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: impl BufRead, context: &Context<'_>) -> Result<Csr<T>> {
    let mut lines = Lines { source, number: 0, line: Vec::new(), at: 0, left: 0 };
    let header = lines.header(context)?;
    let Header { symmetry, nrows, ncols, entries, .. } = header;
    let mut last = 1;
    let pointers =
        lines.section("pointers", header.pointers, ncols as u64 + 1, |field, format| {
            let pointer = format.whole(field).filter(|&pointer| pointer >= last);
            last = pointer.filter(|&pointer| pointer <= entries + 1).ok_or_else(|| {
                format!(
                    "the pointer is {}; it must be from {last} to {}",
                    excerpt(field),
                    entries + 1
                )
            })?;
            Ok(last - 1)
        })?;
    if pointers[0] != 0 || pointers[ncols] != entries {
        return Err(Error::input(format!(
            "the pointers go from {} to {}; they must go from 1 to {}",
            pointers[0] + 1,
            pointers[ncols] + 1,
            entries + 1
        )));
    }
    let rows = lines.section("row indices", header.indices, entries, |field, format| {
        let row = format.whole(field).filter(|row| (1..=nrows as u64).contains(row));
        row.map(|row| (row - 1) as u32).ok_or_else(|| {
            format!("the row index is {}; it must be from 1 to {nrows}", excerpt(field))
        })
    })?;
    let values = match header.values {
        None => None,
        Some(format) => Some(lines.section("values", format, entries, |field, format| {
            let number = format.value::<T>(field);
            let number = number
                .ok_or_else(|| format!("the value is {}; it must be a number", excerpt(field)))?;
            // The value is rounded once already; this checks that it is finite.
            value::<T>(number.to_f64())
        })?),
    };
    // Reading to the end makes a decoder verify its checksum.
    io::copy(&mut lines.source, &mut io::sink()).map_err(io_error)?;
    if header.right_hand_sides > 0 {
        context.notes.tell("passed over the right-hand sides behind the matrix".into());
    }
    let mut cols = Vec::with_capacity(rows.len());
    for col in 0..ncols {
        cols.resize(pointers[col + 1] as usize, col as u32);
    }
    drop(pointers);
    let triplets = Triplets { rows, cols, values };
    triplets.check(symmetry)?;
    triplets.into_csr(nrows, ncols, symmetry, context.limits)
}

/// The lines of the file, cut into fields.
struct Lines<R> {
    source: R,
    /// Number of the current line, from 1 on.
    number: u64,
    line: Vec<u8>,
    /// Position of the next field in the line.
    at: usize,
    /// Number of fields that the line may still hold.
    left: usize,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line; returns false at the end.
    fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        self.number += 1;
        let got = self.source.by_ref().take(LINE_BYTES).read_until(b'\n', &mut self.line);
        if got.map_err(io_error)? as u64 == LINE_BYTES {
            return Err(self.fault(&format!("the line is longer than {LINE_BYTES} bytes")));
        }
        let len = self.line.trim_ascii_end().len();
        let ended = self.line.is_empty();
        self.line.truncate(len);
        Ok(!ended)
    }

    fn fault(&self, what: &str) -> Error {
        Error::line(self.number, what)
    }

    fn header_line(&mut self, what: &str) -> Result<()> {
        match self.advance()? {
            true => Ok(()),
            false => Err(self.fault(&format!("the file ends before the line with {what}"))),
        }
    }

    fn header(&mut self, context: &Context<'_>) -> Result<Header> {
        self.header_line("the title")?;
        self.header_line("the numbers of lines")?;
        let count = |word: &[u8]| super::matrix_market::whole_number(word);
        let counts: Option<Vec<u64>> = words(&self.line).map(count).collect();
        let Some(counts) = counts.filter(|counts| counts.len() >= 4) else {
            return Err(self.fault(&format!(
                "the line is {}; it must hold the numbers of lines, 4 or 5 of them",
                excerpt(&self.line)
            )));
        };
        self.header_line("the type and the sizes")?;
        let kind = self.line.get(..3).and_then(Kind::parse).ok_or_else(|| {
            let got = excerpt(&self.line[..self.line.len().min(3)]);
            self.fault(&format!("the type is {got}; it must be one such as RUA, RSA or PUA"))
        })?;
        let sizes: Option<Vec<u64>> = words(&self.line[3..]).map(count).collect();
        let Some(&[nrows, ncols, entries, ..]) = sizes.as_deref() else {
            return Err(self.fault(&format!(
                "the line is {}; it must hold the type and the numbers of rows, columns and \
                 entries",
                excerpt(&self.line)
            )));
        };
        let at = At::Line(self.number);
        let symmetry = kind.symmetry(context).map_err(|error| match error {
            Error::Input { what, .. } => Error::Input { at, what },
            other => other,
        })?;
        let (nrows, ncols) = context.limits.dimensions(at, nrows, ncols)?;
        context.limits.entries(at, entries)?;
        if symmetry != Symmetry::General && nrows != ncols {
            return Err(self.fault(&format!(
                "a symmetric matrix must be square, this one is {nrows} x {ncols}"
            )));
        }
        self.header_line("the formats")?;
        let formats: Vec<&[u8]> = groups(&self.line).collect();
        let format = |k: usize, what: &str| {
            let text = formats.get(k).copied().unwrap_or_default();
            LineFormat::parse(text).ok_or_else(|| {
                self.fault(&format!(
                    "the format of the {what} is {}; it must be one such as (16I5) or (3E25.16)",
                    excerpt(text)
                ))
            })
        };
        let (pointers, indices) = (format(0, "pointers")?, format(1, "row indices")?);
        if !pointers.integer || !indices.integer {
            return Err(self.fault("the formats of pointers and row indices must be of integers"));
        }
        let values = if kind.0[0] == b'P' { None } else { Some(format(2, "values")?) };
        let right_hand_sides = counts.get(4).copied().unwrap_or(0);
        if right_hand_sides > 0 {
            self.header_line("the formats of right-hand sides")?;
        }
        Ok(Header { symmetry, nrows, ncols, entries, pointers, indices, values, right_hand_sides })
    }

    /// Reads `len` fields of one array, which starts on a new line.
    fn section<U>(
        &mut self,
        what: &str,
        format: LineFormat,
        len: u64,
        mut decode: impl FnMut(&[u8], LineFormat) -> std::result::Result<U, String>,
    ) -> Result<Vec<U>> {
        let mut items = Vec::new();
        self.left = 0;
        while (items.len() as u64) < len {
            if self.left == 0 || self.at >= self.line.len() {
                if !self.advance()? {
                    return Err(
                        self.fault(&format!("the file ends after {} {what} of {len}", items.len()))
                    );
                }
                (self.at, self.left) = (0, format.count);
                continue;
            }
            let end = (self.at + format.width).min(self.line.len());
            let item =
                decode(&self.line[self.at..end], format).map_err(|what| self.fault(&what))?;
            items.push(item);
            self.at = end;
            self.left -= 1;
        }
        if self.left > 0 && !self.line[self.at..].trim_ascii().is_empty() {
            return Err(self.fault(&format!("more than {len} {what}")));
        }
        Ok(items)
    }
}

/// Returns the texts in outermost parentheses, in their order, with the parentheses.
fn groups(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut depth, mut start) = (0_usize, 0);
    line.iter().enumerate().filter_map(move |(k, &b)| {
        match b {
            b'(' => {
                if depth == 0 {
                    start = k;
                }
                depth += 1;
            }
            b')' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Some(&line[start..=k]);
                }
            }
            _ => {}
        }
        None
    })
}
