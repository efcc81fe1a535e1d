//! The lines with entries: a strict fast path, and an explanation of the line that it rejects.

use super::super::binary::is_rounded;
use super::super::content::excerpt;
use super::super::fortran;
use super::super::triplets::Symmetry;
use super::header::{EntryFormat, Field, MtxHeader};
use crate::scalar::Scalar;

/// Bytes of a short line of an entry.
const SHORT_LINE: usize = 8;

/// The parsed lines of one block. Line numbers count from 1 at the start of the block.
pub(super) struct ParsedLines<T> {
    /// Row indices; `rows` and `cols` stay empty for arrays, `values` for patterns. Where both parts of
    /// complex values are read, `values` holds them in turn.
    pub rows: Vec<u32>,
    pub cols: Vec<u32>,
    pub values: Vec<T>,
    /// Number of entry lines before the fault, if there is one.
    pub entries: u64,
    /// Number of lines, including the faulty one.
    pub lines: u64,
    /// Number of integers that f64 does not hold exactly.
    pub rounded: u64,
    /// The first line with an entry above the diagonal, in a symmetric file.
    pub above: Option<u64>,
    /// The first line with an entry below the diagonal, in a symmetric file.
    pub below: Option<u64>,
    /// The fault of the last line, if there is one.
    pub fault: Option<String>,
}

impl<T> Default for ParsedLines<T> {
    fn default() -> Self {
        ParsedLines {
            rows: Vec::new(),
            cols: Vec::new(),
            values: Vec::new(),
            entries: 0,
            lines: 0,
            rounded: 0,
            above: None,
            below: None,
            fault: None,
        }
    }
}

impl<T: Scalar> ParsedLines<T> {
    /// Parses all lines of `text`, up to the first malformed one.
    pub fn parse(&mut self, text: &[u8], header: &MtxHeader) {
        let ParsedLines { mut rows, mut cols, mut values, .. } = std::mem::take(self);
        rows.clear();
        cols.clear();
        values.clear();
        // Lines of one file resemble each other.
        let line = text.iter().position(|&b| b == b'\n').unwrap_or(text.len());
        let lines = text.len() / line.max(SHORT_LINE) + 1;
        if header.layout == EntryFormat::Coordinate {
            rows.reserve(lines);
            cols.reserve(lines);
        }
        if header.field != Field::Pattern {
            values.reserve(lines);
        }
        *self = ParsedLines { rows, cols, values, ..ParsedLines::default() };
        let plain = matches!(
            (header.layout, header.field, header.symmetry),
            (EntryFormat::Coordinate, Field::Real, Symmetry::General)
        );
        let mut rest = text;
        while !rest.is_empty() {
            self.lines += 1;
            let after = if plain { self.plain_line(rest, header) } else { None };
            match after.or_else(|| self.line(rest, header)) {
                Some(after) => rest = after,
                None => {
                    let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                    self.fault = Some(explain::<T>(&rest[..end], header));
                    return;
                }
            }
        }
    }

    /// Parses the line at the start of `text`, of a coordinate file of general real values, if it is
    /// written as most are: short indices, each with one blank after it. Returns the text after it;
    /// `None`, with nothing kept, if [`ParsedLines::line`] must parse it.
    #[inline(always)]
    fn plain_line<'a>(&mut self, text: &'a [u8], header: &MtxHeader) -> Option<&'a [u8]> {
        let (row, rest) = few_digits(text)?;
        let (col, rest) = few_digits(rest.strip_prefix(b" ")?)?;
        let rest = rest.strip_prefix(b" ")?;
        let (row, col) = (row.wrapping_sub(1), col.wrapping_sub(1));
        let (value, len) = T::parse_prefix(rest)?;
        let after = skip_blanks(rest.get(len..)?).strip_prefix(b"\n")?;
        let within = row < header.nrows as u64 && col < header.ncols as u64;
        if !within || !value.to_f64().is_finite() {
            return None;
        }
        self.rows.push(row as u32);
        self.cols.push(col as u32);
        self.values.push(value);
        self.entries += 1;
        Some(after)
    }

    /// Parses the line at the start of `rest` and returns the text after it; `None` if it is
    /// malformed.
    #[inline(always)]
    fn line<'a>(&mut self, rest: &'a [u8], header: &MtxHeader) -> Option<&'a [u8]> {
        let rest = skip_blanks(rest);
        match rest.first() {
            None => return Some(rest),
            Some(b'\n') => return Some(&rest[1..]),
            Some(b'%') => return Some(after_line(rest)),
            Some(_) => {}
        }
        let rest = match header.layout {
            EntryFormat::Array => rest,
            EntryFormat::Coordinate => {
                let (row, rest) = index(rest, header.nrows)?;
                let (col, rest) = index(rest, header.ncols)?;
                self.rows.push(row);
                self.cols.push(col);
                if header.symmetry != Symmetry::General && row != col {
                    let side = if row < col { &mut self.above } else { &mut self.below };
                    side.get_or_insert(self.lines);
                }
                rest
            }
        };
        let rest = match header.field {
            Field::Pattern => rest,
            field => {
                let (value, len) = match T::parse_prefix(rest) {
                    Some((value, len)) if ends(rest, len) => (value, len),
                    _ => other_number::<T>(rest)?,
                };
                if !value.to_f64().is_finite() {
                    return None;
                }
                let (mut len, mut imaginary) = (len, None);
                match field {
                    Field::Real => {}
                    Field::Both => {
                        let (part, to) = imaginary_part::<T>(rest, len)?;
                        (imaginary, len) = (Some(part), to);
                    }
                    _ => len = self.narrower(rest, len, field)?,
                }
                if header.symmetry == Symmetry::Skew
                    && self.rows.last() == self.cols.last()
                    && header.layout == EntryFormat::Coordinate
                    && (value != T::ZERO || imaginary.is_some_and(|part| part != T::ZERO))
                {
                    return None;
                }
                self.values.push(value);
                if let Some(part) = imaginary {
                    self.values.push(part);
                }
                skip_blanks(&rest[len..])
            }
        };
        // Nothing may follow the value.
        let rest = match rest.first() {
            None => rest,
            Some(b'\n') => &rest[1..],
            Some(_) => return None,
        };
        self.entries += 1;
        Some(rest)
    }
}

impl<T> ParsedLines<T> {
    /// Checks a value, the first `len` bytes of `text`, that is not simply real; returns the length
    /// of all that belongs to it.
    fn narrower(&mut self, text: &[u8], len: usize, field: Field) -> Option<usize> {
        if field == Field::Complex {
            let (imaginary, len) = imaginary_part::<f64>(text, len)?;
            return (imaginary == 0.0).then_some(len);
        }
        let word = &text[..len];
        if !is_integer(word, field) {
            return None;
        }
        // Integers of up to 15 digits are exact.
        if len > 15 && whole(word).is_none_or(is_rounded) {
            self.rounded += 1;
        }
        Some(len)
    }
}

/// Parses the imaginary part behind the real part, the first `len` bytes of `text`; returns it with the
/// length of both.
fn imaginary_part<T: Scalar>(text: &[u8], len: usize) -> Option<(T, usize)> {
    let after = skip_blanks(&text[len..]);
    let (part, part_len) = T::parse_prefix(after)
        .filter(|&(_, len)| ends(after, len))
        .or_else(|| other_number(after))?;
    part.to_f64().is_finite().then_some((part, text.len() - after.len() + part_len))
}

fn is_integer(word: &[u8], field: Field) -> bool {
    let sign = |b: &u8| *b == b'+' || (*b == b'-' && field != Field::Unsigned);
    let digits = &word[usize::from(word.first().is_some_and(sign))..];
    digits.iter().all(u8::is_ascii_digit)
}

fn whole(word: &[u8]) -> Option<i128> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Returns true if nothing, a blank or a line end follows the first `len` bytes.
#[inline(always)]
fn ends(text: &[u8], len: usize) -> bool {
    text.get(len).is_none_or(|&b| is_blank(b) || b == b'\n')
}

/// Parses the number at the start of `text` as Fortran programs write it.
#[cold]
fn other_number<T: Scalar>(text: &[u8]) -> Option<(T, usize)> {
    let len = text.iter().position(|&b| is_blank(b) || b == b'\n').unwrap_or(text.len());
    fortran::number(&text[..len], 0, 0).map(|value| (value, len))
}

/// Returns the line of `text` that holds entry number `entry`; both count from 1.
pub(super) fn line_of_entry(text: &[u8], entry: u64) -> u64 {
    let mut seen = 0;
    for (line, content) in (1..).zip(text.split(|&b| b == b'\n')) {
        let content = content.trim_ascii_start();
        if !content.is_empty() && content[0] != b'%' {
            seen += 1;
        }
        if seen == entry {
            return line;
        }
    }
    1
}

/// Parses a number of at most 19 digits, which always fit in 64 bits; `None` for anything else.
pub(in super::super) fn whole_number(word: &[u8]) -> Option<u64> {
    match digits(word) {
        Some((number, [])) => Some(number),
        _ => None,
    }
}

#[inline(always)]
fn digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    let mut len = 0;
    while let Some(digit) = text.get(len).map(|b| b.wrapping_sub(b'0'))
        && digit < 10
    {
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        len += 1;
    }
    (1..=19).contains(&len).then(|| (number, &text[len..]))
}

/// Parses a number of 1 to 7 digits at once, if at least 8 bytes are left; `None` for anything else.
#[inline(always)]
fn few_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let bytes = u64::from_le_bytes(*text.first_chunk()?) ^ (EACH * u64::from(b'0'));
    // The highest bit of each byte that is no digit; those above the first one do not matter.
    let others = (bytes | bytes.wrapping_add(EACH * 0x76)) & (EACH * 0x80);
    let len = others.trailing_zeros() as usize / 8;
    if !(1..=7).contains(&len) {
        return None;
    }
    // Zeros take the place of the missing first digits of 8; then neighbours are joined in pairs.
    let digits = bytes << (64 - 8 * len);
    let pairs = (10 * digits + (digits >> 8)) & (0x00ff * 0x0001_0001_0001_0001);
    let fours = (100 * pairs + (pairs >> 16)) & (0xffff * 0x0000_0001_0000_0001);
    let number = (10_000 * fours + (fours >> 32)) & 0xffff_ffff;
    Some((number, &text[len..]))
}

/// Parses an index into a dimension of `size`; returns it counted from 0, with the text after it
/// and its blanks.
#[inline(always)]
fn index(text: &[u8], size: usize) -> Option<(u32, &[u8])> {
    let (number, rest) = match few_digits(text) {
        Some(few) => few,
        None => digits(text)?,
    };
    let index = number.wrapping_sub(1);
    if index >= size as u64 {
        return None;
    }
    let after = skip_blanks(rest);
    let separated = after.len() < rest.len() || matches!(after.first(), None | Some(b'\n'));
    separated.then_some((index as u32, after))
}

#[inline(always)]
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\x0c')
}

#[inline(always)]
fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = text
        && is_blank(*first)
    {
        text = rest;
    }
    text
}

fn after_line(text: &[u8]) -> &[u8] {
    match text.iter().position(|&b| b == b'\n') {
        Some(end) => &text[end + 1..],
        None => &[],
    }
}

/// Explains why [`ParsedLines::line`] rejects `line`.
#[cold]
fn explain<T: Scalar>(line: &[u8], header: &MtxHeader) -> String {
    let words: Vec<&[u8]> =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    check::<T>(&words, header)
        .err()
        .unwrap_or_else(|| format!("the line {} cannot be read", excerpt(line)))
}

fn check<T: Scalar>(words: &[&[u8]], header: &MtxHeader) -> Result<(), String> {
    let mut words = words.iter();
    let mut indices = [0; 2];
    if header.layout == EntryFormat::Coordinate {
        let dimensions = [("row", header.nrows), ("column", header.ncols)];
        for (slot, (what, size)) in indices.iter_mut().zip(dimensions) {
            let word = words.next().ok_or(format!("the {what} index is missing"))?;
            let number = whole_number(word).ok_or_else(|| {
                format!("the {what} index is {}; it must be a whole number", excerpt(word))
            })?;
            if number == 0 {
                return Err(format!("the {what} index is 0; indices count from 1"));
            }
            if number > size as u64 {
                return Err(format!(
                    "the {what} index is {number}, but the matrix is {} x {}",
                    header.nrows, header.ncols
                ));
            }
            *slot = number;
        }
    }
    if header.field != Field::Pattern {
        let word = words.next().ok_or("the value is missing")?;
        let parsed = value::<T>(word, header.field)?;
        let on_zeros = header.symmetry == Symmetry::Skew
            && header.layout == EntryFormat::Coordinate
            && indices[0] == indices[1];
        let not_zero = |word: &[u8]| {
            Err(format!(
                "the diagonal entry is {}; a skew-symmetric matrix has a zero diagonal",
                excerpt(word)
            ))
        };
        if on_zeros && parsed != T::ZERO {
            return not_zero(word);
        }
        if header.field == Field::Both {
            let word = words.next().ok_or("the imaginary part is missing")?;
            if value::<T>(word, Field::Real)? != T::ZERO && on_zeros {
                return not_zero(word);
            }
        }
        if header.field == Field::Complex {
            let word = words.next().ok_or("the imaginary part is missing")?;
            if value::<f64>(word, Field::Real)? != 0.0 {
                return Err(format!(
                    "the imaginary part is {}; only matrices whose imaginary parts are all zero can \
                     be read by their real parts",
                    excerpt(word)
                ));
            }
        }
    }
    match words.next() {
        Some(word) => Err(format!("{} follows the entry; a line holds one entry", excerpt(word))),
        None => Ok(()),
    }
}

fn value<T: Scalar>(word: &[u8], field: Field) -> Result<T, String> {
    let plain = T::parse_prefix(word).filter(|&(_, len)| len == word.len());
    let Some(value) = plain.map(|(value, _)| value).or_else(|| fortran::number(word, 0, 0)) else {
        return Err(format!("the value is {}; it must be a number", excerpt(word)));
    };
    match field {
        Field::Integer if !is_integer(word, field) => {
            return Err(format!("the value is {}; the file promises integers", excerpt(word)));
        }
        Field::Unsigned if !is_integer(word, field) => {
            return Err(format!(
                "the value is {}; the file promises integers that are not negative",
                excerpt(word)
            ));
        }
        _ => {}
    }
    if !value.to_f64().is_finite() {
        return Err(format!(
            "the value is {}; it must be finite in {}",
            excerpt(word),
            T::PRECISION
        ));
    }
    Ok(value)
}
