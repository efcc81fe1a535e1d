//! HDIA-F32: the diagonals of [`super::hdia`] with values in f32, for matrices and vectors of f64.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 2 4
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      offsets =  0  2        |  -3  0         4 bytes each
//!     | 2 . . 6 |      values  =  4 5 | 1 *   |  * 2 | * 6     4 bytes each
//! ```
//!
//! A product converts each value to f64 and computes as `hdia` does. Without column indices, an entry
//! takes 4 bytes, half of what it takes in HDIA. Fill (`*`) has the value -0.0 and is never
//! multiplied into a result.
//!
//! It applies to the values that `hll_f32` takes, and refuses new values under the same conditions.
//! Good for: the matrices that suit HDIA. Bad for: the same as HDIA.

use super::diagonals::{self, DiagonalLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, InF32};
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, Target, Value,
    Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct HdiaF32Format;

impl Storage for HdiaF32Format {
    const NAME: &'static str = "hdia_f32";
    const TITLE: &'static str = "HDIA-F32, hacked DIA with values in f32";
    const SOURCE: &'static str = "the diagonals of hdia, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision \
        ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = "stencils and banded matrices of f64 whose values are f32 numbers or \
        may be rounded to them";
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[Param {
        name: "hack",
        doc: "number of rows of a hack (hackSize)",
        values: &[Value::Int(256), Value::Int(64), Value::Int(1024)],
        gpu: &[Value::Int(64), Value::Int(256), Value::Int(1024)],
        host: &[Value::Int(256)],
    }];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("hdia");
    const SAVES: f64 = 0.85;

    type Layout<T: Scalar> = DiagonalLayout<T, InF32>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check(analysis, target)?;
        let value_bytes = Precision::F32.bytes();
        let work = diagonals::work(analysis, target, params.int("hack"), value_bytes)?;
        Ok(narrow::checked(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all(analysis, target)?;
        let stored = (Self::NAME, InF32::of(target));
        DiagonalLayout::new(csr, analysis, params.int("hack"), stored)
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        diagonals::several(one, several, "hdia_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin(converter, target)?;
        diagonals::build(converter, target, params.int("hack"), (Self::NAME, Some(search)))
    }
}
