//! DIA: every diagonal with an entry is stored whole, with its offset; no column indices.
//!
//! ```text
//!     | 4 . 1 . |      offsets = -3  0  2
//!     | . 5 . . |      values  =  *  4  1     row 0
//!     | . . . . |                 *  5  *     row 1
//!     | 2 . . 6 |                 *  *  *     row 2
//!                                 2  6  *     row 3
//! ```
//!
//! Values are stored diagonal by diagonal, with `nrows` places each, or one more where `nrows` is
//! odd: a GPU loads two rows of a diagonal at once. Fill (`*`) has the value -0.0 and is never
//! multiplied into a result.
//! Good for: stencils on regular grids with fixed neighbours. Bad for: everything else; refused
//! where there are more than three places per entry.

use super::diagonals::{self, DiagonalLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::AsGiven;
use super::{Launch, Params, Refusal, Several, Storage, Target, Work};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct DiaFormat;

impl Storage for DiaFormat {
    const NAME: &'static str = "dia";
    const TITLE: &'static str = "diagonals";
    const SOURCE: &'static str = "Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. \
        (2003), section 3.4; N. Bell, M. Garland, Efficient Sparse Matrix-Vector Multiplication \
        on CUDA (2008), section 3.1";
    const SUITS: &'static str = "stencils with few, nearly full diagonals; bad for all else";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;

    type Layout<T: Scalar> = DiagonalLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        diagonals::work(analysis, target, rows(analysis), target.precision.bytes())
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        _target: &Target<'_>,
    ) -> Result<DiagonalLayout<T>, Refusal> {
        DiagonalLayout::new(csr, analysis, rows(analysis), (diagonals::KERNEL, AsGiven))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        diagonals::several(one, several, "diagonals_several")
    }

    fn with_dots(one: &Launch) -> Option<Launch> {
        diagonals::with_dots(one)
    }
}

/// Rows of the single hack.
fn rows(analysis: &Analysis<'_>) -> usize {
    analysis.pattern().nrows().max(1).next_multiple_of(2)
}
