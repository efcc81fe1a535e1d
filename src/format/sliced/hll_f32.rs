//! HLL-F32: the hacks of [`super::hll`] with values in f32, for matrices and vectors of f64.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 4 8
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      col_idx =  0 1 | 2 -   ||  - 0 | - 3      2 or 4 bytes each
//!     | 2 . . 6 |      values  =  4 5 | 1 0   ||  0 2 | 0 6      4 bytes each
//! ```
//!
//! A product converts each value to f64 and computes as `hll` does, so its result is that of the
//! stored values to the rounding of f64. With columns of 16 bits an entry takes 6 bytes, where HLL
//! takes 10 and CSR 12. Orders of rows, columns and padding are those of HLL.
//!
//! It applies where f32 holds every value: whole numbers, halves and quarters, values that were
//! measured or computed in f32. Where the caller allows rounded values
//! ([`StoredValues`](crate::format::StoredValues)), it applies to values within the range of f32.
//! New values are refused under the same conditions.
//! Good for: the matrices that suit HLL. Bad for: the same as HLL.

use super::hll::{self, HackShape};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, InF32};
use super::sliced::SlicedLayout;
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, Target, Value,
    Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct HllF32Format;

impl Storage for HllF32Format {
    const NAME: &'static str = "hll_f32";
    const TITLE: &'static str = "HLL-F32, hacked ELLPACK with values in f32";
    const SOURCE: &'static str = "the hacks of hll, with storage in a lower precision than arithmetic: \
        H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision ecosystem for \
        high-performance computing (2019)";
    const SUITS: &'static str = "matrices of f64 whose values are f32 numbers or may be rounded to \
        them, where hll suits";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
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

    type Layout<T: Scalar> = SlicedLayout<T, HackShape, InF32>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check(analysis, target)?;
        let work = hll::work_with(analysis, params, target, Precision::F32.bytes())?;
        Ok(narrow::checked(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all(analysis, target)?;
        hll::convert_with(csr, analysis, params, target, (Self::NAME, InF32::of(target)))
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        hll::several_with(one, several, Self::NAME, "hll_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin(converter, target)?;
        hll::build_with(converter, params, target, (Self::NAME, Some(search)))
    }
}
