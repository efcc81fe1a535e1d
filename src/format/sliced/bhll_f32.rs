//! BHLL-F32: the blocks of [`super::bhll`] with values in f32, for matrices and vectors of f64.
//!
//! ```text
//!     | 4 3 . . |      b = 2, block rows of a hack side by side: one lane each
//!     | 1 5 . . |      block columns     =  0 | 0   - | 1      2 or 4 bytes each
//!     | 2 . 6 1 |      values, element 0 =  4 | 2   * | 6      4 bytes each
//!     | . 7 . 8 |              element 1 =  3 | *   * | 1
//!                              element 2 =  1 | *   * | *
//!                              element 3 =  5 | 7   * | 8
//! ```
//!
//! A product converts each value to f64 and computes as `bhll` does. Since one column serves a block, an
//! entry takes little more than 4 bytes, half of what it takes in BHLL. Orders, columns, padding (`-`)
//! and fill (`*`) are those of BHLL.
//!
//! It applies to the values that `hll_f32` takes, and refuses new values under the same conditions.
//! Good for: the matrices that suit BHLL. Bad for: the same as BHLL.

use super::bhll::{self, BhllLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, InF32};
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct BhllF32Format;

impl Storage for BhllF32Format {
    const NAME: &'static str = "bhll_f32";
    const TITLE: &'static str = "BHLL-F32, blocked HLL with values in f32";
    const SOURCE: &'static str = "the blocks of bhll, with storage in a lower precision than arithmetic: \
        H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision ecosystem for \
        high-performance computing (2019)";
    const SUITS: &'static str = "finite elements with several unknowns per node, in f64 with values \
        that are f32 numbers or may be rounded to them";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[bhll::B, bhll::SORT, bhll::COL];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("bhll");
    const SAVES: f64 = 0.95;

    type Layout<T: Scalar> = BhllLayout<T, InF32>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check(analysis, target)?;
        let work = bhll::work_with(analysis, params, target, Precision::F32.bytes())?;
        Ok(narrow::checked(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all(analysis, target)?;
        bhll::convert_with(csr, analysis, params, target, (Self::NAME, InF32::of(target)))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        bhll::several_with(one, several, "bhll_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin(converter, target)?;
        bhll::build_with(converter, params, target, (Self::NAME, Some(search)))
    }
}
