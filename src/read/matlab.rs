//! Sparse matrices in MATLAB's files of versions 5 to 7 (`save -v6` and `-v7`; `matlab73` reads
//! 7.3), also as fields of a structure, as the SuiteSparse collection stores `Problem.A`.
//!
//! ```text
//! text, 116 bytes | 8 bytes | version 0x0100 | "MI", which as a number tells the byte order
//! element:  type, 4 bytes | size in bytes, 4 bytes | data, padded to a multiple of 8 bytes
//!     or:   size, 2 bytes | type, 2 bytes | data, 4 bytes         for data of up to 4 bytes
//!
//! 15  compressed   one element in zlib; not padded
//! 14  matrix       flags | dimensions | name | sparse: rows, column pointers, values, imaginary
//!                                            | structure: length of names, names, a matrix each
//! ```
//!
//! Source: The MathWorks, "MAT-File Format", 2020.

mod element;

use std::io::{self, Read};

use self::element::{Element, Order, Type};
use super::archive::{Candidate, Picker};
use super::context::Context;
use super::decoders;
use super::layers::Source;
use super::limits::{Limited, io_error};
use super::triplets::{Symmetry, Triplets};
use super::{Complex, binary};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

/// Number of bytes before the first element.
const HEADER_BYTES: usize = 128;

/// Maximum depth of structures in structures.
const MAX_DEPTH: usize = 4;

/// Maximum number of fields or elements of a structure.
const MAX_FIELDS: usize = 4096;

/// Class of a sparse matrix, of a structure, and of other values by name.
const SPARSE: u8 = 5;
const STRUCTURE: u8 = 2;
const CLASSES: [&str; 18] = [
    "value",
    "cell array",
    "structure",
    "object",
    "text",
    "sparse matrix",
    "double",
    "single",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "function",
    "object",
];

/// Reads the sparse matrix, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] if the file is damaged, or holds no sparse matrix or several; faults of the
/// matrix.
pub(super) fn read<T: Scalar>(mut source: Source<'_>, context: &Context<'_>) -> Result<Csr<T>> {
    let mut header = [0; HEADER_BYTES];
    source.read_exact(&mut header).map_err(io_error)?;
    let order = match &header[126..] {
        b"IM" => Order::Little,
        b"MI" => Order::Big,
        _ => return Err(Error::input("the MATLAB file states no byte order in its header")),
    };
    let mut picker = Picker::new(context);
    while let Some(mut element) = Element::next(&mut source, order)? {
        if element.kind == Type::Compressed {
            let inner = decoders::zlib(Box::new(&mut element.data), context)?;
            let mut inner: Source<'_> = Box::new(Limited::bytes(inner, context.limits));
            if let Some(element) = Element::next(&mut inner, order)? {
                variable(element, "", MAX_DEPTH, &mut picker, context)?;
            }
            // Reading to the end makes the decoder verify its checksum.
            io::copy(&mut inner, &mut io::sink()).map_err(io_error)?;
            drop(inner);
            element.finish()?;
        } else {
            variable(element, "", MAX_DEPTH, &mut picker, context)?;
        }
    }
    picker.finish("MATLAB file")
}

/// Offers a variable, or the fields of a structure, to the picker, and passes over the rest of the
/// element; `path` is the name of a field, with the structure's.
fn variable<T: Scalar>(
    mut element: Element<'_, '_>,
    path: &str,
    depth: usize,
    picker: &mut Picker<'_, T>,
    context: &Context<'_>,
) -> Result<()> {
    if element.kind == Type::Matrix && !element.is_empty() {
        let parts: Source<'_> = Box::new(&mut element.data);
        matrix(parts, element.order, path, depth, picker, context)?;
    }
    element.finish()
}

fn matrix<T: Scalar>(
    mut parts: Source<'_>,
    order: Order,
    path: &str,
    depth: usize,
    picker: &mut Picker<'_, T>,
    context: &Context<'_>,
) -> Result<()> {
    let flags = Element::part(&mut parts, order, "flags")?.words(2)?;
    let &[flags, ..] = flags.as_slice() else { return Err(damaged("a matrix has no flags")) };
    let (class, is_complex) = (flags as u8, flags & 0x800 != 0);
    let dimensions = Element::part(&mut parts, order, "dimensions")?.words(32)?;
    let own = Element::part(&mut parts, order, "name")?.text()?;
    // A field has no name of its own; the structure holds it.
    let name = if path.is_empty() { own } else { path.to_string() };
    match class {
        SPARSE => {
            let &[nrows, ncols] = dimensions.as_slice() else {
                return Err(Error::input("a sparse matrix must have 2 dimensions"));
            };
            let is_wanted = context.member.is_none_or(|member| member == name);
            if !is_wanted {
                return picker.other(name);
            }
            let candidate = Candidate::variable(&name, nrows == 1 || ncols == 1);
            picker.offer(candidate, || {
                sparse(&mut parts, order, [nrows, ncols], is_complex, context)
            });
            Ok(())
        }
        STRUCTURE if depth > 0 => structure(&mut parts, order, &name, depth - 1, picker, context),
        _ => {
            let sizes: Vec<_> = dimensions.iter().map(u32::to_string).collect();
            let class = CLASSES.get(usize::from(class)).unwrap_or(&CLASSES[0]);
            picker.other(format!("{name} ({} {class})", sizes.join(" x ")))
        }
    }
}

fn structure<T: Scalar>(
    parts: &mut Source<'_>,
    order: Order,
    name: &str,
    depth: usize,
    picker: &mut Picker<'_, T>,
    context: &Context<'_>,
) -> Result<()> {
    let length = Element::part(parts, order, "length of field names")?.words(1)?;
    let length = length.first().copied().filter(|length| (1..=256).contains(length));
    let length = length.ok_or_else(|| damaged("field names have no length"))? as usize;
    let names = Element::part(parts, order, "field names")?.bytes(MAX_FIELDS * length)?;
    let fields: Vec<String> = names
        .chunks(length)
        .map(|name| String::from_utf8_lossy(name).trim_end_matches('\0').to_string())
        .collect();
    // A structure of several elements lists all fields of the first, then those of the next.
    for k in 0..MAX_FIELDS.max(fields.len()) {
        let Some(field) = fields.get(k % fields.len().max(1)) else { break };
        let Some(element) = Element::next(parts, order)? else { break };
        variable(element, &format!("{name}.{field}"), depth, picker, context)?;
    }
    Ok(())
}

fn damaged(what: &str) -> Error {
    Error::input(format!("the MATLAB file is damaged: {what}"))
}

/// Reads rows, column pointers and values of a sparse matrix.
fn sparse<T: Scalar>(
    parts: &mut Source<'_>,
    order: Order,
    [nrows, ncols]: [u32; 2],
    is_complex: bool,
    context: &Context<'_>,
) -> Result<Csr<T>> {
    if is_complex {
        context.accept_complex("the MATLAB matrix is complex, which needs an option")?;
    }
    let (nrows, ncols) = context.limits.dimensions(At::Whole, nrows.into(), ncols.into())?;
    let most = context.limits.nonzeros;
    let rows = Element::part(parts, order, "row indices")?;
    let rows = rows.numbers(most, |row: f64| row_index(row, nrows))?;
    let mut last = 0;
    let pointers = Element::part(parts, order, "column pointers")?;
    let pointers = pointers
        .numbers(ncols as u64 + 1, |pointer: f64| next_pointer(pointer, &mut last, rows.len()))?;
    let values = Element::part(parts, order, "values")?.numbers(most, binary::value::<T>)?;
    if !is_complex {
        return assemble(rows, pointers, values, [nrows, ncols], context);
    }
    let imaginary = Element::part(parts, order, "imaginary parts")?;
    if context.complex != Complex::Blocks {
        imaginary.numbers(most, binary::no_imaginary_part)?;
        return assemble(rows, pointers, values, [nrows, ncols], context);
    }
    let imaginary = imaginary.numbers(most, binary::value::<T>)?;
    let real = assemble(rows.clone(), pointers.clone(), values, [nrows, ncols], context)?;
    context.blocks(real, assemble(rows, pointers, imaginary, [nrows, ncols], context)?)
}

/// Checks a row index, counted from 0.
///
/// # Errors
/// A text, if there is no such row.
pub(super) fn row_index(row: f64, nrows: usize) -> std::result::Result<u32, String> {
    if (0.0..nrows as f64).contains(&row) {
        Ok(row as u32)
    } else {
        Err(format!("the row index is {row}; it must be from 0 to {nrows} less 1"))
    }
}

/// Checks the position of a column's first entry against the one before, `last`, and the number of
/// entries.
///
/// # Errors
/// A text, if it is smaller than the one before, or too large.
pub(super) fn next_pointer(
    pointer: f64,
    last: &mut usize,
    entries: usize,
) -> std::result::Result<usize, String> {
    if pointer >= *last as f64 && pointer <= entries as f64 {
        *last = pointer as usize;
        Ok(*last)
    } else {
        Err(format!("the pointer is {pointer}; it must be from {last} to {entries}"))
    }
}

/// Assembles the matrix from row indices, column pointers and values, each of them checked alone.
///
/// # Errors
/// [`Error::Input`] if their lengths do not agree.
pub(super) fn assemble<T: Scalar>(
    mut rows: Vec<u32>,
    pointers: Vec<usize>,
    mut values: Vec<T>,
    [nrows, ncols]: [usize; 2],
    context: &Context<'_>,
) -> Result<Csr<T>> {
    if pointers.len() != ncols + 1 || pointers[0] != 0 {
        return Err(damaged(&format!(
            "there are {} column pointers; there must be {}, from 0 on",
            pointers.len(),
            ncols + 1
        )));
    }
    let entries = pointers[ncols];
    if values.len() < entries {
        return Err(damaged(&format!("there are {} values for {entries} entries", values.len())));
    }
    // MATLAB may leave unused room after the last entry.
    rows.truncate(entries);
    values.truncate(entries);
    let mut cols = Vec::with_capacity(entries);
    for col in 0..ncols {
        cols.resize(pointers[col + 1], col as u32);
    }
    drop(pointers);
    let triplets = Triplets { rows, cols, values: Some(values) };
    triplets.into_csr(nrows, ncols, Symmetry::General, context.limits)
}
