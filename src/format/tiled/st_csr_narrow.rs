//! ST-CSR-F32, ST-CSR-F16 and ST-CSR-BF16: the tiles of [`super::st_csr`] with values in fewer bits than
//! vectors have: in f32 for matrices of f64, in f16 or bf16 for matrices of f32.
//!
//! ```text
//!     | 4 . 1 . |      tile = 4 entries         tiles, sorted    = 4 5 1 | 2 6   4 or 2 bytes each
//!     | . 5 . . |                               columns          = 0 1 2 | 0 3
//!     | . . . . |      ends of rows = 2 3 3 | 2 places in tile   = 0 2 1 | 0 1
//!     | 2 . . 6 |    last of row = 0 1 1 . | 0 1
//! ```
//!
//! A product converts each value to the type of the vectors and computes as `st_csr` does. With its column
//! and place, an entry of f64 takes about 7 bytes in f32, where ST-CSR takes 11 and CSR 12; an entry of f32
//! takes about 5 bytes in f16 or bf16. Padding is that of ST-CSR.
//!
//! They apply to the values that `hll_f32`, `hll_f16` and `hll_bf16` take, and refuse new values under the
//! same conditions.
//! Good for: the matrices that suit ST-CSR. Bad for: the same as ST-CSR.

use std::marker::PhantomData;

use super::narrow::gpu::Search;
use super::narrow::{self, In, Narrow};
use super::sorted_tiles::{self, TILE, gpu::GpuSortedTiles};
use super::st_csr::{self, StCsrLayout};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Param, Params, Refusal, Stop, Storage, StoredValues,
    Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::CsrRef;
use crate::scalar::Scalar;

/// The format for values in f32, of matrices of f64.
pub type StCsrF32Format = StCsrNarrow<f32>;

/// The format for values in f16, of matrices of f32.
pub type StCsrF16Format = StCsrNarrow<half::f16>;

/// The format for values in bf16, of matrices of f32.
pub type StCsrBf16Format = StCsrNarrow<half::bf16>;

/// See the module.
#[derive(Debug)]
pub struct StCsrNarrow<N>(PhantomData<N>);

impl<N: Narrow> Storage for StCsrNarrow<N> {
    const NAME: &'static str = narrow::text_for::<N>(["st_csr_f32", "st_csr_f16", "st_csr_bf16"]);
    const TITLE: &'static str = narrow::text_for::<N>([
        "ST-CSR-F32, sorted-tile CSR with values in f32",
        "ST-CSR-F16, sorted-tile CSR with values in f16",
        "ST-CSR-BF16, sorted-tile CSR with values in bf16",
    ]);
    const SOURCE: &'static str = "the tiles of st_csr, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular \
        precision ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = narrow::text_for::<N>([
        "matrices of f64 whose values are f32 numbers or may be rounded to them, where \
            st_csr suits",
        "matrices that suit st_csr, of f32 whose values may be rounded to f16; by consent",
        "matrices that suit st_csr, of f32 whose values may be rounded to bf16; by consent",
    ]);
    const PARAMS: &'static [Param] = &[TILE];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("st_csr");
    const STORES: StoredValues = N::STORES;
    const SAVES: f64 = narrow::saves_for::<N>([0.4, 0.15, 0.15]);
    const KERNELS_OF: &'static [&'static str] = &["st_csr"];

    type Layout<T: Scalar> = StCsrLayout<T, In<N>>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check::<N>(analysis, target)?;
        let w = size_of::<N>() as u64;
        let work = sorted_tiles::work(analysis, params.int("tile"), target, |slots| w * slots)?;
        Ok(narrow::checked::<N>(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Self::Layout<T>, Refusal> {
        narrow::check_all::<N>(analysis, target)?;
        Ok(StCsrLayout::new(csr, params.int("tile"), (Self::NAME, In::<N>::of(target))))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, precision) = (converter.matrix(), target.precision);
        let search = Search::begin::<N>(converter, target)?;
        let sorted = GpuSortedTiles::new(converter, params.int("tile"), false, target);
        // The host checks values first, and the GPU states the same reason.
        search.end(converter)?;
        let sorted = sorted?;
        let plan = &sorted.plan;
        let values = converter.array(search.bytes() * plan.slots())?;
        let fill = Launch {
            image: search.image(),
            kernel: format!("update_tiles_{}_{}", matrix.offset_name(), search.type_name()),
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
