//! The lines before the entries: banner, comments and size line.

use std::io::{BufRead, Read};

use super::super::Complex;
use super::super::content::excerpt;
use super::super::context::{COMPLEX_REMEDY, Context};
use super::super::limits::io_error;
use super::super::triplets::Symmetry;
use super::LINE_BYTES;
use crate::error::{At, Error, Result};

/// The format of the entries in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryFormat {
    /// One line per entry, with its indices.
    Coordinate,
    /// Every value, column by column, without indices.
    Array,
}

/// The type of the values in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Real,
    Integer,
    /// Integers that are not negative.
    Unsigned,
    /// Real and imaginary part of each value; every imaginary part must be zero.
    Complex,
    /// Real and imaginary part of each value, both of which are read.
    Both,
    Pattern,
}

/// The content of the lines before the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct MtxHeader {
    pub layout: EntryFormat,
    pub field: Field,
    /// Symmetry of the values, or of their real parts.
    pub symmetry: Symmetry,
    /// Symmetry of the imaginary parts.
    pub imaginary: Symmetry,
    pub nrows: usize,
    pub ncols: usize,
    /// Number of entry lines that must follow.
    pub entries: u64,
    /// Number of lines read so far.
    pub lines: u64,
}

const LAYOUTS: [(&str, EntryFormat); 2] =
    [("coordinate", EntryFormat::Coordinate), ("array", EntryFormat::Array)];

/// The kinds of values; SciPy writes `unsigned-integer`.
const FIELDS: [(&str, Field); 6] = [
    ("real", Field::Real),
    ("double", Field::Real),
    ("integer", Field::Integer),
    ("unsigned-integer", Field::Unsigned),
    ("pattern", Field::Pattern),
    ("complex", Field::Complex),
];

/// The symmetries; the real parts of a hermitian matrix are symmetric.
const SYMMETRIES: [(&str, Symmetry); 4] = [
    ("general", Symmetry::General),
    ("symmetric", Symmetry::Symmetric),
    ("skew-symmetric", Symmetry::Skew),
    ("hermitian", Symmetry::Hermitian),
];

/// Reads up to and including the size line; blanks, blank lines and a byte order mark may stand
/// before the banner.
///
/// # Errors
/// [`Error::Input`] and [`Error::Limit`] with the line of the fault.
pub(super) fn read(source: &mut impl BufRead, context: &Context<'_>) -> Result<MtxHeader> {
    let mut line = Vec::new();
    let mut lines = 1;
    while next_line(source, lines, &mut line)? && is_blank(&line) {
        lines += 1;
    }
    let text = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
    let (layout, field, imaginary) =
        banner(text, context.complex).map_err(|what| Error::line(lines, what))?;
    let symmetry = match imaginary {
        Symmetry::Hermitian => Symmetry::Symmetric,
        other => other,
    };
    let sizes = loop {
        lines += 1;
        if !next_line(source, lines, &mut line)? {
            return Err(Error::line(lines, "the file ends before its size line"));
        }
        let text = line.trim_ascii();
        if !text.is_empty() && !text.starts_with(b"%") {
            break sizes(text, layout).map_err(|what| Error::line(lines, what))?;
        }
    };

    let at = At::Line(lines);
    let (nrows, ncols) = context.limits.dimensions(at, sizes[0], sizes[1])?;
    if symmetry != Symmetry::General && nrows != ncols {
        return Err(Error::line(
            lines,
            format!("a symmetric matrix must be square, this one is {nrows} x {ncols}"),
        ));
    }
    // Dimensions are below 2^32, so none of these products overflows.
    let [m, n] = [nrows as u64, ncols as u64];
    let entries = match (layout, symmetry) {
        (EntryFormat::Coordinate, _) => sizes[2],
        (EntryFormat::Array, Symmetry::General) => m * n,
        (EntryFormat::Array, Symmetry::Symmetric | Symmetry::Hermitian) => m * (m + 1) / 2,
        (EntryFormat::Array, Symmetry::Skew) => m * m.saturating_sub(1) / 2,
    };
    context.limits.entries(at, entries)?;
    Ok(MtxHeader { layout, field, symmetry, imaginary, nrows, ncols, entries, lines })
}

/// Reads a line into `line`; returns false at the end of the source.
fn next_line(source: &mut impl BufRead, number: u64, line: &mut Vec<u8>) -> Result<bool> {
    line.clear();
    let limit = LINE_BYTES as u64;
    let got = source.take(limit).read_until(b'\n', line).map_err(io_error)?;
    if got as u64 == limit && line.last() != Some(&b'\n') {
        return Err(super::too_long(number));
    }
    Ok(got > 0)
}

fn is_blank(line: &[u8]) -> bool {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii().is_empty()
}

fn banner(
    line: &[u8],
    complex: Complex,
) -> std::result::Result<(EntryFormat, Field, Symmetry), String> {
    let lower = line.trim_ascii_start().to_ascii_lowercase();
    // Some writers lose one of the two percent signs, or add a blank.
    let text = lower.strip_prefix(b"%").map(|text| text.strip_prefix(b"%").unwrap_or(text));
    let words: Vec<&[u8]> = text
        .unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let &[b"matrixmarket", object, layout, field, symmetry, ref more @ ..] = words.as_slice()
    else {
        return Err(format!(
            "the file starts with {}; it must start with '%%MatrixMarket matrix', then coordinate \
             or array, the kind of values and the symmetry",
            excerpt(line.trim_ascii())
        ));
    };
    if object != b"matrix" {
        return Err(format!("the object is {}; only 'matrix' is supported", excerpt(object)));
    }
    if complex == Complex::Refuse && (field == b"complex" || symmetry == b"hermitian") {
        return Err(format!("complex and hermitian matrices need an option; {COMPLEX_REMEDY}"));
    }
    let stated = [layout, field, symmetry];
    let layout = look_up("layout", layout, &LAYOUTS)?;
    let field = match look_up("kind of values", field, &FIELDS)? {
        Field::Complex if complex == Complex::Blocks => Field::Both,
        field => field,
    };
    let symmetry = look_up("symmetry", symmetry, &SYMMETRIES)?;
    if field == Field::Pattern && (layout == EntryFormat::Array || symmetry == Symmetry::Skew) {
        return Err("a pattern has no values, so it can be neither an array nor skew-symmetric; \
                    write it as 'coordinate pattern general' or 'symmetric'"
            .into());
    }
    // A remark may follow, but no other word of a banner, and no sizes.
    let remark: Vec<_> = more.iter().take_while(|word| !word.starts_with(b"%")).collect();
    let sizes = remark.first().filter(|word| super::lines::whole_number(word).is_some());
    let contradiction = remark.iter().find(|word| is_keyword(word) && !stated.contains(word));
    match sizes.or(contradiction) {
        Some(word) => Err(format!(
            "{} follows the banner, which is complete after the symmetry; remove it, or put it in \
             its place",
            excerpt(word)
        )),
        None => Ok((layout, field, symmetry)),
    }
}

/// Returns true for a layout, a kind of values and a symmetry.
fn is_keyword(word: &[u8]) -> bool {
    let names = LAYOUTS.iter().map(|&(name, _)| name);
    let names = names.chain(FIELDS.iter().map(|&(name, _)| name));
    let mut names = names.chain(SYMMETRIES.iter().map(|&(name, _)| name));
    names.any(|name| name.as_bytes() == word)
}

fn look_up<V: Copy>(
    what: &str,
    word: &[u8],
    table: &[(&str, V)],
) -> std::result::Result<V, String> {
    table.iter().find(|(name, _)| name.as_bytes() == word).map(|&(_, value)| value).ok_or_else(
        || {
            let names: Vec<_> = table.iter().map(|&(name, _)| name).collect();
            format!("the {what} is {}; it must be one of: {}", excerpt(word), names.join(", "))
        },
    )
}

fn sizes(text: &[u8], layout: EntryFormat) -> std::result::Result<[u64; 3], String> {
    let (names, needed) = match layout {
        EntryFormat::Coordinate => ("rows, columns and entries", 3),
        EntryFormat::Array => ("rows and columns", 2),
    };
    let mut sizes = [0; 3];
    let mut count = 0;
    for word in text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        let size = super::lines::whole_number(word);
        let (Some(size), true) = (size, count < needed) else { break };
        sizes[count] = size;
        count += 1;
    }
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).count();
    if count == needed && words == needed {
        Ok(sizes)
    } else {
        Err(format!("the size line is {}; it must hold the numbers of {names}", excerpt(text)))
    }
}
