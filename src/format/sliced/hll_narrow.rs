//! HLL-F32, HLL-F16 and HLL-BF16: the hacks of [`super::hll`] with values in fewer bits than vectors have: in
//! f32 for matrices of f64, in f16 or bf16 for matrices of f32.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 4 8
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      col_idx =  0 1 | 2 -   ||  - 0 | - 3      2 or 4 bytes each
//!     | 2 . . 6 |      values  =  4 5 | 1 0   ||  0 2 | 0 6      4 or 2 bytes each
//! ```
//!
//! A product converts each value to the type of the vectors and computes as `hll` does, so its result is
//! that of the stored values to the rounding of that type. With columns of 16 bits an entry of f64 takes 6
//! bytes in f32, where HLL takes 10 and CSR 12; an entry of f32 takes 4 bytes in f16 or bf16, where HLL
//! takes 6 and CSR 8. Orders of rows, columns and padding are those of HLL.
//!
//! They apply where the type holds every value: whole numbers, halves and quarters, values that were
//! measured or computed in it. Where the caller allows rounded values
//! ([`StoredValues`]), they apply to values within its range: 6.2e-5 to 65,504
//! for f16, about 1e-38 to 3e38 for f32 and bf16. New values are refused under the same conditions. f16 and
//! bf16 are chosen only where the caller allows them.
//! Good for: the matrices that suit HLL. Bad for: the same as HLL.

use std::marker::PhantomData;

use super::hll::{self, HackShape};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, In, Narrow};
use super::sliced::SlicedLayout;
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, StoredValues,
    Target, Value, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The format for values in f32, of matrices of f64.
pub type HllF32Format = HllNarrow<f32>;

/// The format for values in f16, of matrices of f32.
pub type HllF16Format = HllNarrow<half::f16>;

/// The format for values in bf16, of matrices of f32.
pub type HllBf16Format = HllNarrow<half::bf16>;

/// See the module.
#[derive(Debug)]
pub struct HllNarrow<N>(PhantomData<N>);

impl<N: Narrow> Storage for HllNarrow<N> {
    const NAME: &'static str = narrow::text_for::<N>(["hll_f32", "hll_f16", "hll_bf16"]);
    const TITLE: &'static str = narrow::text_for::<N>([
        "HLL-F32, hacked ELLPACK with values in f32",
        "HLL-F16, hacked ELLPACK with values in f16",
        "HLL-BF16, hacked ELLPACK with values in bf16",
    ]);
    const SOURCE: &'static str = "the hacks of hll, with storage in a lower precision than arithmetic: \
        H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision ecosystem for \
        high-performance computing (2019)";
    const SUITS: &'static str = narrow::text_for::<N>([
        "matrices of f64 whose values are f32 numbers or may be rounded to them, where \
            hll suits",
        "matrices that suit hll, of f32 whose values may be rounded to f16; by consent",
        "matrices that suit hll, of f32 whose values may be rounded to bf16; by consent",
    ]);
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = match N::STORES {
        StoredValues::F16 | StoredValues::BF16 => 1,
        StoredValues::Exact | StoredValues::F32 => LARGEST_BLOCK,
    };
    const PARAMS: &'static [Param] = &[
        Param {
            name: "hack",
            doc: "number of rows of a hack, which is padded to its longest row (hackSize)",
            values: &[Value::Int(32)],
            gpu: &[Value::Int(32)],
            host: &[Value::Int(32)],
        },
        Param {
            name: "sort",
            doc: "window of rows sorted by descending length (rIdx), or reverse Cuthill-McKee order",
            values: &[Value::Word("none"), Value::Int(512), Value::Int(4096), Value::Word("rcm")],
            gpu: &[Value::Word("none"), Value::Int(512), Value::Int(4096), Value::Word("rcm")],
            host: &[Value::Word("none"), Value::Int(512), Value::Word("rcm")],
        },
        Param {
            name: "tpr",
            doc: "number of threads that share a row",
            values: &[Value::Int(1), Value::Int(2), Value::Int(4)],
            gpu: &[Value::Int(1), Value::Int(2), Value::Int(4)],
            host: &[Value::Int(1)],
        },
        hll::COL,
    ];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("hll");
    const STORES: StoredValues = N::STORES;
    const SAVES: f64 = narrow::saves_for::<N>([0.4, 0.35, 0.3]);

    type Layout<T: Scalar> = SlicedLayout<T, HackShape, In<N>>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check::<N>(analysis, target)?;
        let work = hll::work_with(analysis, params, target, size_of::<N>())?;
        Ok(narrow::checked::<N>(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all::<N>(analysis, target)?;
        hll::convert_with(csr, analysis, params, target, (Self::NAME, In::<N>::of(target)))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        if N::STORES != StoredValues::F32 {
            return None;
        }
        hll::several_with(one, several, Self::NAME, "hll_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin::<N>(converter, target)?;
        hll::build_with(converter, params, target, (Self::NAME, Some(search)))
    }
}
