//! BiJAD, bisection jagged diagonals: BiELL with all rows sorted by length.
//!
//! ```text
//!     | 4 3 1 7 |      with a warp of 4: perm = 0 3 1 2    I = 0 4 8 12
//!     | . 5 . . |            group 0       group 1       group 2
//!     | . . . . |            4 rows        2 rows        1 row
//!     | 2 . . 6 |      J  =  0 0 1 -   ||  1 3 2 -   ||  3 - - -
//!                      A  =  4 2 5 0   ||  3 6 1 0   ||  7 0 0 0
//! ```
//!
//! The arrays are those of [`super::biell`], but rows are sorted by descending length over the
//! whole matrix. So the rows of a warp have nearly the same length, and only the first warps need
//! their later groups.
//!
//! Padding (`-`): column `u32::MAX` and value 0, read but not multiplied.
//! Good for: a few very long rows, whose warps share their work evenly. Bad for: rows that share x
//! with their neighbours, which sorting separates.

use super::bisection::{self, Bisection};
use super::sliced::SlicedLayout;
use super::{Params, Refusal, Storage, Target, Work};
use crate::analysis::{Analysis, Sort};
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct BijadFormat;

impl Storage for BijadFormat {
    const NAME: &'static str = "bijad";
    const TITLE: &'static str = "BiJAD, bisection jagged diagonals";
    const SOURCE: &'static str = "C. Zheng, S. Gu, T.-X. Gu, B. Yang, X.-P. Liu, BiELL: A \
        bisection ELLPACK-based storage format for optimizing SpMV on GPUs (2014)";
    const SUITS: &'static str = "a few very long rows; bad where neighbouring rows share x";

    type Layout<T: Scalar> = SlicedLayout<T, Bisection>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        Ok(bisection::work(analysis, target, Sort::All))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<SlicedLayout<T, Bisection>, Refusal> {
        bisection::convert(csr, analysis, target, Sort::All)
    }
}
