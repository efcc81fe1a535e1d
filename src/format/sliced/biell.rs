//! BiELL, bisection ELLPACK: the rows of a warp are sorted, and lanes whose rows have ended process
//! half of the remaining columns of the other rows.
//!
//! ```text
//!     | 4 3 1 7 |      with a warp of 4: perm = 0 3 1 2    I = 0 4 8 12
//!     | . 5 . . |            group 0       group 1       group 2
//!     | . . . . |            4 rows        2 rows        1 row
//!     | 2 . . 6 |      J  =  0 0 1 -   ||  1 3 2 -   ||  3 - - -
//!                      A  =  4 2 5 0   ||  3 6 1 0   ||  7 0 0 0
//! ```
//!
//! Rows are sorted by descending length within each warp of 32. The groups of a warp hold 32, 16,
//! 8, 4, 2 and 1 rows with 1, 2, 4, 8, 16 and 32 lanes each (in the example 4, 2 and 1 rows). Group
//! 0 holds the columns that more than half of the rows reach, each further group those that half as
//! many rows reach. `I` holds the slot at which each group starts, `perm` the order of the rows.
//!
//! Padding (`-`): column `u32::MAX` and value 0, read but not multiplied.
//! Good for: row lengths that vary within a warp, without moving rows far. Bad for: rows of equal
//! length, where it is ELLPACK with more overhead.

use super::bisection::{self, Bisection};
use super::many::LARGEST_BLOCK;
use super::row_order::WARP;
use super::sliced::SlicedLayout;
use super::{Params, Refusal, Storage, Target, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct BiellFormat;

impl Storage for BiellFormat {
    const NAME: &'static str = "biell";
    const TITLE: &'static str = "BiELL, bisection ELLPACK";
    const SOURCE: &'static str = "C. Zheng, S. Gu, T.-X. Gu, B. Yang, X.-P. Liu, BiELL: A \
        bisection ELLPACK-based storage format for optimizing SpMV on GPUs (2014)";
    const SUITS: &'static str = "row lengths that vary between neighbours; bad for rows of \
        equal length";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;

    type Layout<T: Scalar> = SlicedLayout<T, Bisection>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        Ok(bisection::work(analysis, target, Sort::Window(WARP)))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<SlicedLayout<T, Bisection>, Refusal> {
        bisection::convert(csr, analysis, target, Sort::Window(WARP))
    }
}
