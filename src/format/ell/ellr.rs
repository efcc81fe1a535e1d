//! ELLPACK-R: ELLPACK with the length of each row, so that no thread reads past the end of its row.
//!
//! ```text
//!     | 4 . 1 . |      rl = 2 1 0 2
//!     | . 5 . . |                 column 0    column 1
//!     | . . . . |      col_idx =  0 1 - 0  |  2 - - 3
//!     | 2 . . 6 |      values  =  4 5 0 2  |  1 0 0 6
//! ```
//!
//! Padding (`-`): column `u32::MAX` and value 0, stored but not read. One thread processes one row,
//! and a warp is busy until its longest row ends. A product reads the arrays in whole 32-byte
//! sectors, each up to the longest of its rows.
//! Good for: rows of nearly the same length within a warp. Bad for: memory, which equals that of
//! ELLPACK; refused where there are more than three slots per entry.

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
pub struct EllrFormat;

impl Storage for EllrFormat {
    const NAME: &'static str = "ellr";
    const TITLE: &'static str = "ELLPACK-R";
    const SOURCE: &'static str = "F. Vazquez, G. Ortega, J. J. Fernandez, E. M. Garzon, Improving \
        the Performance of the Sparse Matrix Vector Product with GPUs (2010)";
    const SUITS: &'static str = "neighbouring rows of about the same length; bad where a few \
        rows are long";

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let nrows = analysis.pattern().nrows();
        padded_work(analysis, target, nrows, 1)
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnMajor<T>, Refusal> {
        let starts = ColumnStarts::Pitch(csr.nrows());
        let lengths = StoredLengths::of_rows(analysis, Sort::None);
        Ok(ColumnMajor::new(csr, analysis, target, Sort::None, starts, lengths))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        column_major::build(
            converter,
            target,
            Sort::None,
            ColumnPlan::Full(1),
            KeptLengths::Rows,
            1,
        )
    }
}

/// The work of full columns of `pitch` rows with the length of each row.
pub(super) fn padded_work(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    pitch: usize,
    threads: usize,
) -> Result<Work, Refusal> {
    let pattern = analysis.pattern();
    let slots = row_order::full_columns(pattern.nnz(), pitch, analysis.max_length())?;
    let length_bytes = 4 * pattern.nrows() as u64;
    let arrays = ArrayCosts {
        layout_bytes: slots * (4 + target.precision.bytes() as u64) + length_bytes,
        stream_bytes: row_order::sector_bytes(analysis, target, Sort::None) + length_bytes,
        entries: pattern.nnz() as u64,
        steps: analysis.n_iter(WARP, threads, Sort::None),
    };
    Ok(row_order::work(analysis, target, Sort::None, threads, arrays))
}
