//! pJDS, padded jagged diagonals: jagged diagonals in blocks of `br` rows, each padded to its
//! longest.
//!
//! ```text
//!     | 4 . 1 . |      perm = 0 3 1 2    rowmax = 2 2 1 0    br = 2    col_start = 0 4 6
//!     | . 5 . . |                 column 0    column 1
//!     | . . . . |      col_idx =  0 0 1 -  |  2 3
//!     | 2 . . 6 |      values  =  4 2 5 0  |  1 6
//! ```
//!
//! Rows are in descending order of length, rows of equal length in the matrix's order. Entry `j` of
//! row `i` is at `col_start[j] + i`; every column is a multiple of `br` rows long, so reads stay
//! aligned.
//! Padding (`-`): column `u32::MAX` and value 0, stored but not read: `rowmax` ends each row.
//! Good for: a wide spread of row lengths, in hardly more memory than CSR. Bad for: rows that share
//! x with their neighbours, which sorting separates.

use super::column_major::{
    self, ColumnMajor, ColumnPlan, ColumnStarts, KeptLengths, StoredLengths, jagged_starts,
};
use super::row_order::{self, ArrayCosts, WARP};
use super::{
    GpuConverter, GpuLayout, Offsets, Param, Params, Refusal, Stop, Storage, Target, Value, Work,
};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct PjdsFormat;

impl Storage for PjdsFormat {
    const NAME: &'static str = "pjds";
    const TITLE: &'static str = "pJDS, padded jagged diagonals";
    const SOURCE: &'static str = "M. Kreutzer, G. Hager, G. Wellein, H. Fehske, A. Basermann, \
        A. R. Bishop, Sparse matrix-vector multiplication on GPGPU clusters: a new storage format \
        and a scalable implementation (2012), section 2.1, listing 2";
    const SUITS: &'static str = "a wide spread of row lengths; bad where neighbouring rows share x";
    const PARAMS: &'static [Param] = &[Param {
        name: "br",
        doc: "number of rows of a block, which is padded to its longest row",
        values: &[
            Value::Int(32),
            Value::Int(2),
            Value::Int(4),
            Value::Int(8),
            Value::Int(16),
            Value::Int(64),
            Value::Int(128),
        ],
        gpu: &[Value::Int(32)],
        host: &[Value::Int(32)],
    }];

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let slots = analysis.slots(params.int("br"), Sort::All);
        let start_bytes = (analysis.max_length() + 1) * Offsets::width(slots as usize);
        let other_bytes = (start_bytes + 4 * pattern.nrows()) as u64;
        let arrays = ArrayCosts {
            layout_bytes: slots * (4 + target.precision.bytes() as u64) + other_bytes,
            stream_bytes: row_order::sector_bytes(analysis, target, Sort::All) + other_bytes,
            entries: pattern.nnz() as u64,
            steps: analysis.n_iter(WARP, 1, Sort::All),
        };
        Ok(row_order::work(analysis, target, Sort::All, 1, arrays))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnMajor<T>, Refusal> {
        let starts = jagged_starts(analysis, params.int("br"));
        let starts = ColumnStarts::List(Offsets::new(&starts));
        let lengths = StoredLengths::of_rows(analysis, Sort::All);
        Ok(ColumnMajor::new(csr, analysis, target, Sort::All, starts, lengths))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        column_major::build(
            converter,
            target,
            Sort::All,
            ColumnPlan::Jagged(params.int("br")),
            KeptLengths::Rows,
            1,
        )
    }
}
