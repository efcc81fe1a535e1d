//! HDIA-F32, HDIA-F16 and HDIA-BF16: the diagonals of [`super::hdia`] with values in fewer bits than vectors
//! have: in f32 for matrices of f64, in f16 or bf16 for matrices of f32.
//!
//! ```text
//!     | 4 . 1 . |      hackSize = 2    hackOffsets = 0 2 4
//!     | . 5 . . |                 hack 0          hack 1
//!     | . . . . |      offsets =  0  2        |  -3  0         4 bytes each
//!     | 2 . . 6 |      values  =  4 5 | 1 *   |  * 2 | * 6     4 or 2 bytes each
//! ```
//!
//! A product converts each value to the type of the vectors and computes as `hdia` does. Without column
//! indices, an entry takes 4 bytes in f32 and 2 bytes in f16 or bf16, half of what it takes in HDIA. Fill
//! (`*`) has the value -0.0 and is never multiplied into a result.
//!
//! They apply to the values that `hll_f32`, `hll_f16` and `hll_bf16` take, and refuse new values under the
//! same conditions.
//! Good for: the matrices that suit HDIA. Bad for: the same as HDIA.

use std::marker::PhantomData;

use super::diagonals::{self, DiagonalLayout};
use super::many::LARGEST_BLOCK;
use super::narrow::gpu::Search;
use super::narrow::{self, In, Narrow};
use super::{
    GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Several, Stop, Storage, StoredValues,
    Target, Value, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The format for values in f32, of matrices of f64.
pub type HdiaF32Format = HdiaNarrow<f32>;

/// The format for values in f16, of matrices of f32.
pub type HdiaF16Format = HdiaNarrow<half::f16>;

/// The format for values in bf16, of matrices of f32.
pub type HdiaBf16Format = HdiaNarrow<half::bf16>;

/// See the module.
#[derive(Debug)]
pub struct HdiaNarrow<N>(PhantomData<N>);

impl<N: Narrow> Storage for HdiaNarrow<N> {
    const NAME: &'static str = narrow::text_for::<N>(["hdia_f32", "hdia_f16", "hdia_bf16"]);
    const TITLE: &'static str = narrow::text_for::<N>([
        "HDIA-F32, hacked DIA with values in f32",
        "HDIA-F16, hacked DIA with values in f16",
        "HDIA-BF16, hacked DIA with values in bf16",
    ]);
    const SOURCE: &'static str = "the diagonals of hdia, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular precision \
        ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = narrow::text_for::<N>([
        "stencils and banded matrices of f64 whose values are f32 numbers or may be \
            rounded to them",
        "stencils and banded matrices, of f32 whose values may be rounded to f16; by \
            consent",
        "stencils and banded matrices, of f32 whose values may be rounded to bf16; by \
            consent",
    ]);
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const VECTORS_AT_ONCE_ON_GPU: usize = match N::STORES {
        StoredValues::F16 | StoredValues::BF16 => 1,
        StoredValues::Exact | StoredValues::F32 => LARGEST_BLOCK,
    };
    const PARAMS: &'static [Param] = &[Param {
        name: "hack",
        doc: "number of rows of a hack (hackSize)",
        values: &[Value::Int(256), Value::Int(64), Value::Int(1024)],
        gpu: &[Value::Int(64), Value::Int(256), Value::Int(1024)],
        host: &[Value::Int(256)],
    }];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("hdia");
    const STORES: StoredValues = N::STORES;
    const SAVES: f64 = narrow::saves_for::<N>([0.85, 0.35, 0.0]);

    type Layout<T: Scalar> = DiagonalLayout<T, In<N>>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check::<N>(analysis, target)?;
        let value_bytes = size_of::<N>();
        let work = diagonals::work(analysis, target, params.int("hack"), value_bytes)?;
        Ok(narrow::checked::<N>(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all::<N>(analysis, target)?;
        let stored = (Self::NAME, In::<N>::of(target));
        DiagonalLayout::new(csr, analysis, params.int("hack"), stored)
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        if N::STORES != StoredValues::F32 {
            return None;
        }
        diagonals::several(one, several, "hdia_f32_several")
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let search = Search::begin::<N>(converter, target)?;
        diagonals::build(converter, target, params.int("hack"), (Self::NAME, Some(search)))
    }
}
