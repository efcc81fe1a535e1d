//! PELLR: ELLPACK-R with all rows sorted by length, so that the rows of a warp end together.
//!
//! ```text
//!     | 4 . 1 . |      perm = 0 3 1 2    rl = 2 (one warp)
//!     | . 5 . . |                 column 0    column 1
//!     | . . . . |      col_idx =  0 0 1 -  |  2 3 - -
//!     | 2 . . 6 |      values  =  4 2 5 0  |  1 6 0 0
//! ```
//!
//! Rows are in descending order of length, rows of equal length in the matrix's order. `rl` holds
//! one length per warp, that of its longest row, as the paper proposes for practice: the lanes of a
//! warp run together anyway, and shorter rows meet padding (`-`: column `u32::MAX`, value 0), which
//! is not multiplied.
//! Good for: row lengths that vary between neighbours but have no long tail. Bad for: memory, which
//! equals that of ELLPACK (refused where there are more than three slots per entry; pjds stores the
//! same rows without that padding), and rows that share x with their neighbours, which sorting
//! separates.

use super::column_major::{
    self, ColumnMajor, ColumnPlan, ColumnStarts, KeptLengths, StoredLengths,
};
use super::row_order::{self, ArrayCosts, WARP};
use super::{GpuConverter, GpuLayout, Params, Refusal, Stop, Storage, Target, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct PellrFormat;

impl Storage for PellrFormat {
    const NAME: &'static str = "pellr";
    const TITLE: &'static str = "PELLR, permuted ELLPACK-R";
    const SOURCE: &'static str = "Z. Wang, T. Gu, PELLR: A Permutated ELLPACK-R Format for SpMV on \
        GPUs (2020), section 3";
    const SUITS: &'static str = "row lengths that vary between neighbours without a long tail; \
        bad where a few rows are long";

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let nrows = analysis.pattern().nrows();
        let slots =
            row_order::full_columns(analysis.pattern().nnz(), nrows, analysis.max_length())?;
        let entry_bytes = 4 + target.precision.bytes() as u64;
        let length_bytes = 4 * nrows.div_ceil(WARP) as u64;
        let read = analysis.slots(WARP, Sort::All);
        let arrays = ArrayCosts {
            layout_bytes: slots * entry_bytes + length_bytes,
            stream_bytes: read * entry_bytes + length_bytes,
            entries: read,
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
        let starts = ColumnStarts::Pitch(csr.nrows());
        let lengths = StoredLengths::of_warps(analysis, Sort::All);
        Ok(ColumnMajor::new(csr, analysis, target, Sort::All, starts, lengths))
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
            ColumnPlan::Full(1),
            KeptLengths::Warps,
            1,
        )
    }
}
