//! ST-CSR-F32: the tiles of [`super::st_csr`] with values in f32, for matrices and vectors of f64.
//!
//! ```text
//!     | 4 . 1 . |      tile = 4 entries         tiles, sorted    = 4 5 1 | 2 6      4 bytes each
//!     | . 5 . . |                               columns          = 0 1 2 | 0 3
//!     | . . . . |      ends of rows = 2 3 3 | 2 places in tile   = 0 2 1 | 0 1
//!     | 2 . . 6 |    last of row = 0 1 1 . | 0 1
//! ```
//!
//! A product converts each value to f64 and computes as `st_csr` does. An entry takes about 7 bytes
//! with its column and place, where ST-CSR takes 11 and CSR 12. Padding is that of ST-CSR.
//!
//! It applies to the values that `hll_f32` takes, and refuses new values under the same conditions.
//! Good for: the matrices that suit ST-CSR. Bad for: the same as ST-CSR.

use super::narrow::gpu::{NARROW, NARROWED, Search};
use super::narrow::{self, InF32};
use super::sorted_tiles::{self, TILE, gpu::GpuSortedTiles};
use super::st_csr::{self, StCsrLayout};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Stop, Storage, Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct StCsrF32Format;

impl Storage for StCsrF32Format {
    const NAME: &'static str = "st_csr_f32";
    const TITLE: &'static str = "ST-CSR-F32, sorted-tile CSR with values in f32";
    const SOURCE: &'static str = "the tiles of st_csr, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular \
        precision ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = "matrices of f64 whose values are f32 numbers or may be rounded to \
        them, where st_csr suits";
    const PARAMS: &'static [Param] = &[TILE];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("st_csr");
    const KERNELS_OF: &'static [&'static str] = &["st_csr"];

    type Layout<T: Scalar> = StCsrLayout<T, InF32>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check(analysis, target)?;
        let w = Precision::F32.bytes() as u64;
        let work = sorted_tiles::work(analysis, params.int("tile"), target, |slots| w * slots)?;
        Ok(narrow::checked(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all(analysis, target)?;
        Ok(StCsrLayout::new(csr, params.int("tile"), (Self::NAME, InF32::of(target))))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, precision) = (converter.matrix(), target.precision);
        let search = Search::begin(converter, target)?;
        let sorted = GpuSortedTiles::new(converter, params.int("tile"), false, target);
        // The host checks values first, and the GPU states the same reason.
        search.end(converter)?;
        let sorted = sorted?;
        let plan = &sorted.plan;
        let values = converter.array(Precision::F32.bytes() as u64 * plan.slots())?;
        let fill = Launch {
            image: NARROW,
            kernel: format!("update_tiles_{}_{NARROWED}", matrix.offset_name()),
            ..sorted.step("update_tiles", matrix, precision, &[Arg::Values, values])
        };
        converter.launch(&fill)?;
        Ok(GpuLayout {
            launches: st_csr::launches(Self::NAME, plan, values, precision),
            scratch: plan.scratch(precision),
            update: vec![fill],
            check: Some(search.check(converter)?),
            ..GpuLayout::default()
        })
    }
}
