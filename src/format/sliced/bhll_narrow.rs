//! BHLL-F32, BHLL-F16 and BHLL-BF16: the blocks of [`super::bhll`] with values in fewer bits than vectors
//! have: in f32 for matrices of f64, in f16 or bf16 for matrices of f32.
//!
//! ```text
//!     | 4 3 . . |      b = 2, block rows of a hack side by side: one lane each
//!     | 1 5 . . |      block columns     =  0 | 0   - | 1      2 or 4 bytes each
//!     | 2 . 6 1 |      values, element 0 =  4 | 2   * | 6      4 or 2 bytes each
//!     | . 7 . 8 |              element 1 =  3 | *   * | 1
//!                              element 2 =  1 | *   * | *
//!                              element 3 =  5 | 7   * | 8
//! ```
//!
//! A product converts each value to the type of the vectors and computes as `bhll` does. Since one column
//! serves a block, an entry takes little more than 4 bytes in f32 and 2 bytes in f16 or bf16, half of what
//! it takes in BHLL. Orders, columns, padding (`-`) and fill (`*`) are those of BHLL.
//!
//! They apply to the values that `hll_f32`, `hll_f16` and `hll_bf16` take, and refuse new values under the
//! same conditions.
//! Good for: the matrices that suit BHLL. Bad for: the same as BHLL.

use std::marker::PhantomData;

use super::bhll::{self, BhllLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, In, Narrow};
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, StoredValues,
    Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The format for values in f32, of matrices of f64.
pub type BhllF32Format = BhllNarrow<f32>;

/// The format for values in f16, of matrices of f32.
pub type BhllF16Format = BhllNarrow<half::f16>;

/// The format for values in bf16, of matrices of f32.
pub type BhllBf16Format = BhllNarrow<half::bf16>;

/// See the module.
#[derive(Debug)]
pub struct BhllNarrow<N>(PhantomData<N>);

impl<N: Narrow> Storage for BhllNarrow<N> {
    const NAME: &'static str = narrow::text_for::<N>(["bhll_f32", "bhll_f16", "bhll_bf16"]);
    const TITLE: &'static str = narrow::text_for::<N>([
        "BHLL-F32, blocked HLL with values in f32",
        "BHLL-F16, blocked HLL with values in f16",
        "BHLL-BF16, blocked HLL with values in bf16",
    ]);
    const SOURCE: &'static str = "the blocks of bhll, with storage in a lower precision than arithmetic: \
        H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision ecosystem for \
        high-performance computing (2019)";
    const SUITS: &'static str = narrow::text_for::<N>([
        "finite elements with several unknowns per node, in f64 with values that are \
            f32 numbers or may be rounded to them",
        "finite elements with several unknowns per node, of f32 whose values may be \
            rounded to f16; by consent",
        "finite elements with several unknowns per node, of f32 whose values may be \
            rounded to bf16; by consent",
    ]);
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = match N::STORES {
        StoredValues::F16 | StoredValues::BF16 => 1,
        StoredValues::Exact | StoredValues::F32 => LARGEST_BLOCK,
    };
    const PARAMS: &'static [Param] = &[bhll::B, bhll::SORT, bhll::COL];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("bhll");
    const STORES: StoredValues = N::STORES;
    const SAVES: f64 = narrow::saves_for::<N>([0.95, 0.65, 0.65]);

    type Layout<T: Scalar> = BhllLayout<T, In<N>>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check::<N>(analysis, target)?;
        let work = bhll::work_with(analysis, params, target, size_of::<N>())?;
        Ok(narrow::checked::<N>(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all::<N>(analysis, target)?;
        bhll::convert_with(csr, analysis, params, target, (Self::NAME, In::<N>::of(target)))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        if N::STORES != StoredValues::F32 {
            return None;
        }
        bhll::several_with(one, several, "bhll_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin::<N>(converter, target)?;
        bhll::build_with(converter, params, target, (Self::NAME, Some(search)))
    }
}
