//! ELLPACK: every row padded to the longest one, stored column by column.
//!
//! ```text
//!     | 4 . 1 . |      K = 2      column 0    column 1
//!     | . 5 . . |      col_idx =  0 1 - 0  |  2 - - 3
//!     | . . . . |      values  =  4 5 0 2  |  1 0 0 6
//!     | 2 . . 6 |
//! ```
//!
//! Padding (`-`): column `u32::MAX` and value 0. The format stores no row lengths, so this column
//! ends a row; padding is never multiplied.
//! Good for: rows of nearly the same length. Bad for: a few long rows, each of which lengthens all
//! others; refused where there are more than three slots per entry.

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
pub struct EllFormat;

impl Storage for EllFormat {
    const NAME: &'static str = "ell";
    const TITLE: &'static str = "ELLPACK";
    const SOURCE: &'static str = "D. Kincaid, T. Oppe, D. Young, ITPACKV 2D User's Guide (1989); \
        N. Bell, M. Garland, Efficient Sparse Matrix-Vector Multiplication on CUDA (2008), \
        section 3.2";
    const SUITS: &'static str = "rows of nearly the same length; bad where a few rows are long";

    type Layout<T: Scalar> = ColumnMajor<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let (nrows, width) = (analysis.pattern().nrows(), analysis.max_length());
        let slots = row_order::full_columns(analysis.pattern().nnz(), nrows, width)?;
        let bytes = slots * (4 + target.precision.bytes() as u64);
        let arrays = ArrayCosts {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: slots,
            steps: nrows.div_ceil(WARP) as u64 * width as u64,
        };
        Ok(row_order::work(analysis, target, Sort::None, 1, arrays))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnMajor<T>, Refusal> {
        let starts = ColumnStarts::Pitch(csr.nrows());
        Ok(ColumnMajor::new(csr, analysis, target, Sort::None, starts, StoredLengths::none()))
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
            KeptLengths::Nothing,
            1,
        )
    }
}
