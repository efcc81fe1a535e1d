//! A CSR matrix as a JSON object, for small matrices.
//!
//! ```text
//! {"nrows": 2, "ncols": 3, "row_ptr": [0, 1, 3], "col_idx": [2, 0, 1], "values": [1.5, 2, -3]}
//! {"shape": [2, 3],        "indptr": [0, 1, 3],  "indices": [2, 0, 1], "data": [1.5, 2, -3]}
//! ```
//!
//! Indices count from 0. The names of either line can be used; `shape` takes the place of `nrows`
//! and `ncols`, and without all three the indices decide the size. Without `values`, all values
//! are 1. Unknown keys are refused, and so is text of more than 256 MiB: use another format for
//! large matrices.

use std::io::{self, BufRead, BufReader, Read};

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::context::Context;
use super::limits::{Limited, io_error, too_much_held};
use crate::csr::Csr;
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

/// Maximum number of bytes of the text: the 2 bytes of a short number may take up to 8 bytes in
/// memory.
const MAX_BYTES: u64 = 1 << 28;

/// The keys of the object, and SciPy's names for the same.
const KEYS: [&str; 9] =
    ["nrows", "ncols", "row_ptr", "col_idx", "values", "shape", "indptr", "indices", "data"];

struct JsonMatrix {
    /// Numbers of rows and columns, unless the indices decide them.
    shape: Option<[u64; 2]>,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
    values: Option<Vec<f64>>,
}

impl<'de> Deserialize<'de> for JsonMatrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_struct("JsonMatrix", &KEYS, Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = JsonMatrix;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a matrix in CSR")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<JsonMatrix, A::Error> {
        let (mut nrows, mut ncols, mut shape) = (None, None, None);
        let (mut row_ptr, mut col_idx, mut values) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let again = match key.as_str() {
                "nrows" => nrows.replace(map.next_value::<u64>()?).is_some(),
                "ncols" => ncols.replace(map.next_value::<u64>()?).is_some(),
                "shape" => shape.replace(map.next_value::<[u64; 2]>()?).is_some(),
                "row_ptr" | "indptr" => row_ptr.replace(map.next_value::<Vec<usize>>()?).is_some(),
                "col_idx" | "indices" => col_idx.replace(map.next_value::<Vec<u32>>()?).is_some(),
                "values" | "data" => values.replace(map.next_value::<Vec<f64>>()?).is_some(),
                other => return Err(de::Error::unknown_field(other, &KEYS)),
            };
            if again {
                return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
            }
        }
        let missing = de::Error::missing_field;
        let shape = match (shape, nrows, ncols) {
            (None, Some(nrows), Some(ncols)) => Some([nrows, ncols]),
            (None, Some(_), None) => return Err(missing("ncols")),
            (None, None, Some(_)) => return Err(missing("nrows")),
            (shape, None, None) => shape,
            (Some(_), _, _) => {
                return Err(de::Error::custom("`shape` and `nrows` or `ncols` are both there"));
            }
        };
        Ok(JsonMatrix {
            shape,
            row_ptr: row_ptr.ok_or_else(|| missing("row_ptr"))?,
            col_idx: col_idx.ok_or_else(|| missing("col_idx"))?,
            values,
        })
    }
}

/// Reads one JSON object, to the end of `source`.
///
/// # Errors
/// [`Error::Input`] with the line of the fault; [`Error::Limit`].
pub(super) fn read<T: Scalar>(source: impl Read, context: &Context<'_>) -> Result<Csr<T>> {
    let limits = context.limits;
    let over = |_, _| too_much_held("JSON of over 256 MiB");
    let mut source = BufReader::new(Limited::new(source, MAX_BYTES, over));
    skip_byte_order_mark(&mut source)?;
    let matrix: JsonMatrix = serde_json::from_reader(source).map_err(json_error)?;
    let [nrows, ncols] = matrix.shape.unwrap_or_else(|| {
        let nrows = matrix.row_ptr.len().saturating_sub(1) as u64;
        let ncols = matrix.col_idx.iter().max().map_or(0, |&last| u64::from(last) + 1);
        context.notes.tell(format!(
            "the matrix states no shape: read with {nrows} rows and {ncols} columns"
        ));
        [nrows, ncols]
    });
    let (nrows, ncols) = limits.dimensions(At::Whole, nrows, ncols)?;
    limits.entries(At::Whole, matrix.col_idx.len() as u64)?;
    limits.borne_out(0, ncols, matrix.col_idx.len())?;
    let values = match matrix.values {
        Some(values) => finite(values)?,
        None => vec![T::ONE; matrix.col_idx.len()],
    };
    Csr::from_unsorted(nrows, ncols, matrix.row_ptr, matrix.col_idx, values)
}

/// Rounds the values, in the memory that holds them.
fn finite<T: Scalar>(values: Vec<f64>) -> Result<Vec<T>> {
    let is_finite = |&value: &f64| T::from_f64(value).to_f64().is_finite();
    if let Some(k) = values.iter().position(|value| !is_finite(value)) {
        return Err(Error::input(format!(
            "values[{k}] is {:e}; it must be finite in {}",
            values[k],
            T::PRECISION
        )));
    }
    Ok(values.into_iter().map(T::from_f64).collect())
}

fn skip_byte_order_mark(source: &mut impl BufRead) -> Result<()> {
    let is_marked = source.fill_buf().map_err(io_error)?.starts_with(b"\xef\xbb\xbf");
    source.consume(if is_marked { 3 } else { 0 });
    Ok(())
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
