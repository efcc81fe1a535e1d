//! A CSR matrix as a JSON object, for small matrices.
//!
//! ```text
//! {"nrows": 2, "ncols": 3, "row_ptr": [0, 1, 3], "col_idx": [2, 0, 1], "values": [1.5, 2, -3]}
//! ```
//!
//! Indices count from 0. Without `values`, every value is 1. Unknown keys are refused, and so is
//! text of more than 256 MiB: use another format for large matrices.

use std::io::{self, BufReader, Read};

use serde::Deserialize;

use super::{Limited, Limits, io_error, too_much_held};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

/// Maximum number of bytes of the text: the 2 bytes of a short number may take up to 8 bytes in
/// memory.
const MAX_BYTES: u64 = 1 << 28;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonMatrix {
    nrows: u64,
    ncols: u64,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
    #[serde(default)]
    values: Option<Vec<f64>>,
}

/// Reads one JSON object, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the line of the fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: impl Read, limits: &Limits) -> Result<Csr<T>> {
    let over = |_, _| too_much_held("JSON of over 256 MiB");
    let source = Limited { source, read: 0, limit: MAX_BYTES, over };
    let matrix: JsonMatrix = serde_json::from_reader(BufReader::new(source)).map_err(json_error)?;
    let (nrows, ncols) = limits.dimensions(At::Whole, matrix.nrows, matrix.ncols)?;
    limits.entries(At::Whole, matrix.col_idx.len() as u64)?;
    limits.borne_out(0, ncols, matrix.col_idx.len())?;
    let values = match matrix.values {
        Some(values) => finite(&values)?,
        None => vec![T::ONE; matrix.col_idx.len()],
    };
    Csr::from_unsorted(nrows, ncols, matrix.row_ptr, matrix.col_idx, values)
}

fn finite<T: Scalar>(values: &[f64]) -> Result<Vec<T>> {
    let rounded: Vec<T> = values.iter().map(|&value| T::from_f64(value)).collect();
    match rounded.iter().position(|value| !value.to_f64().is_finite()) {
        None => Ok(rounded),
        Some(k) => Err(Error::input(format!(
            "values[{k}] is {:e}; it must be finite in {}",
            values[k],
            T::PRECISION
        ))),
    }
}

fn json_error(error: serde_json::Error) -> Error {
    if error.is_io() {
        return io_error(io::Error::from(error));
    }
    let (line, column) = (error.line() as u64, error.column());
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or(&text);
    Error::line(line, format!("column {column}: {what}"))
}
