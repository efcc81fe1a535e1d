//! Jagged diagonals: all rows sorted by length and stored column by column without padding.
//!
//! ```text
//!     | 4 . 1 . |      perm = 0 3 1 2    jd_ptr = 0 3 5
//!     | . 5 . . |                 diagonal 0   diagonal 1
//!     | . . . . |      col_idx =  0 0 1     |  2 3
//!     | 2 . . 6 |      values  =  4 2 5     |  1 6
//! ```
//!
//! Jagged diagonal `k` holds entry `k` of every row that has one; rows are in descending order of
//! length, so these are the first `jd_ptr[k + 1] - jd_ptr[k]` rows. No padding.
//! Good for: row lengths of any spread, in the memory of CSR. Bad for: rows that share x with their
//! neighbours, which sorting separates; diagonals start at any slot, so reads are not aligned.

use super::column_major::{
    self, ColumnMajor, ColumnPlan, ColumnStarts, KeptLengths, StoredLengths, jagged_starts,
};
use super::row_order::{self, ArrayCosts, WARP};
use super::{GpuConverter, GpuLayout, Offsets, Params, Refusal, Stop, Storage, Target, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct JadFormat;

impl Storage for JadFormat {
    const NAME: &'static str = "jad";
    const TITLE: &'static str = "jagged diagonals";
    const SOURCE: &'static str = "Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. \
        (2003), section 3.4; R. Li, Y. Saad, GPU-Accelerated Preconditioned Iterative Linear \
        Solvers (2013), section 3";
    const SUITS: &'static str = "row lengths of any spread, without padding; bad where \
        neighbouring rows share x";

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let nnz = analysis.pattern().nnz();
        let start_bytes = (analysis.max_length() + 1) * Offsets::width(nnz);
        let bytes = (start_bytes + nnz * (4 + target.precision.bytes())) as u64;
        let arrays = ArrayCosts {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: nnz as u64,
            steps: analysis.n_iter(WARP, 1, Sort::All),
        };
        Ok(row_order::work(analysis, target, Sort::All, 1, arrays))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnMajor<T>, Refusal> {
        let starts = ColumnStarts::List(Offsets::new(&jagged_starts(analysis, 1)));
        Ok(ColumnMajor::new(csr, analysis, target, Sort::All, starts, StoredLengths::none()))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        column_major::build(
            converter,
            target,
            Sort::All,
            ColumnPlan::Jagged(1),
            KeptLengths::Nothing,
            1,
        )
    }
}
