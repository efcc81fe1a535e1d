//! ST-CSR, sorted-tile CSR: the tiles of PCSR, with the entries of each tile sorted by column.
//!
//! ```text
//!     | 4 . 1 . |      tile = 4 entries         tiles, sorted    = 4 5 1 | 2 6
//!     | . 5 . . |                               columns          = 0 1 2 | 0 3
//!     | . . . . |      ends of rows = 2 3 3 | 2 places in tile   = 0 2 1 | 0 1
//!     | 2 . . 6 |    last of row = 0 1 1 . | 0 1
//! ```
//!
//! A product forms `values * x[column]` in the order of columns, writes each result to its row
//! position in shared memory, and sums the rows there. So the lanes of a warp read neighbouring
//! elements of x for any order of rows: entries of a tile that share a column, or a cache line of
//! x, load it once. The module `sorted_tiles` documents how columns and places are stored.
//!
//! Values are stored in pieces of 16 bytes: the first piece of all 32 lanes of a warp, then the
//! second piece of all lanes, and so on.
//!
//! Good for: unstructured meshes, circuits and graphs, rows of every length. Bad for: stencils and
//! blocks, whose columns need not be stored; tiles with few entries, as where most rows are empty;
//! a single product, since tiles must be sorted.

use super::gpu::launch::Arrays;
use super::many::LARGEST_BLOCK;
use super::narrow::{self, AsGiven, Keep, StoredValue};
use super::sorted_tiles::gpu::TilePlan;
use super::sorted_tiles::{self, EACH, LANES, SortedTiles, TILE, WARP};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, OnDevice, Param, Params, Refusal, Several, Stop,
    Storage, Target, Work, bytes_of,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::par::Scratch;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct StCsrFormat;

/// Slots of the tiles that are multiplied with several vectors at a time, and the image of their kernels.
const OF_SEVERAL: usize = 1024;
const IMAGE_OF_SEVERAL: &str = "st_csr_several";

impl Storage for StCsrFormat {
    const NAME: &'static str = "st_csr";
    const ALIASES: &'static [&'static str] = &["stcsr"];
    const TITLE: &'static str = "ST-CSR, sorted-tile CSR";
    const SOURCE: &'static str = "the tiles of G. He, J. Gao, A Novel CSR-Based Sparse \
        Matrix-Vector Multiplication on GPUs (2016), section 3; sorting them by column is our own";
    const SUITS: &'static str = "unstructured meshes, circuits, graphs, rows of every length; bad \
        for stencils and blocks";
    const PARAMS: &'static [Param] = &[TILE];

    type Layout<T: Scalar> = StCsrLayout<T>;

    fn vectors_at_once_on_gpu(params: &Params) -> usize {
        // The matrix is read once for up to 8 vectors. But each stores its products in shared memory, so
        // that they take about as long as if it were read for every two of them.
        if params.int("tile") == OF_SEVERAL { 2 } else { 1 }
    }

    fn several(one: &Launch, several: Several) -> Option<Launch> {
        // st_csr_heads_f64, st_csr_TILE_f64_EXTRA
        let kernel = one.kernel.strip_prefix("st_csr_")?;
        if let Some(precision) = kernel.strip_prefix("heads_") {
            return Some(several.launch(
                one,
                (IMAGE_OF_SEVERAL, "st_csr_heads", precision),
                [1; 3],
                &[],
            ));
        }
        let (tile, rest) = kernel.split_once('_')?;
        let (precision, extra) = rest.split_once('_')?;
        if tile.parse() != Ok(OF_SEVERAL) {
            return None;
        }
        let extra = Arg::U32(extra.parse().ok()?);
        Some(several.launch(one, (IMAGE_OF_SEVERAL, "st_csr", precision), [1; 3], &[extra]))
    }

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let w = target.precision.bytes() as u64;
        sorted_tiles::work(analysis, params.int("tile"), target, |slots| w * slots)
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<StCsrLayout<T>, Refusal> {
        Ok(StCsrLayout::new(csr, params.int("tile"), (Self::NAME, AsGiven)))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, precision) = (converter.matrix(), target.precision);
        let sorted =
            sorted_tiles::gpu::GpuSortedTiles::new(converter, params.int("tile"), true, target)?;
        let (plan, from, values) = (&sorted.plan, Arg::Values, sorted.values);
        Ok(GpuLayout {
            launches: launches(Self::NAME, plan, values, precision),
            scratch: plan.scratch_of(LARGEST_BLOCK, precision),
            update: vec![sorted.step("update_tiles", matrix, precision, &[from, values])],
            ..GpuLayout::default()
        })
    }
}

/// The launches of a product by the kernels of `image`.
pub(super) fn launches(
    image: &'static str,
    plan: &TilePlan,
    values: Arg,
    precision: Precision,
) -> Vec<Launch> {
    let kernel = format!("{image}_{}_{precision}_{}", plan.tile, plan.extra);
    plan.launches(image, kernel, &[values], precision)
}

/// Position of the value of a slot in the array of values, each of `bytes` bytes.
fn value_at(slot: usize, bytes: usize) -> usize {
    let piece = 16 / bytes;
    let (lane, k) = (slot % WARP / EACH, slot % EACH);
    slot / WARP * WARP + (k / piece * LANES + lane) * piece + k % piece
}

/// A matrix in sorted tiles, with the value of each slot.
#[derive(Debug)]
pub struct StCsrLayout<T: Scalar, K: Keep = AsGiven> {
    tiles: SortedTiles,
    values: Vec<K::Of<T>>,
    /// The image of the kernels.
    image: &'static str,
    keep: K,
    scratch: Scratch<T>,
}

impl<T: Scalar, K: Keep> StCsrLayout<T, K> {
    /// Bytes of a stored value.
    const BYTES: usize = size_of::<K::Of<T>>();

    pub(super) fn new(csr: CsrRef<'_, T>, tile: usize, (image, keep): (&'static str, K)) -> Self {
        let tiles = SortedTiles::new(csr.pattern(), tile, size_of::<T>());
        let values = vec![K::Of::<T>::ZERO; tiles.slots()];
        let mut layout = StCsrLayout { tiles, values, image, keep, scratch: Scratch::default() };
        layout.set_values(csr.values());
        layout
    }

    /// Row pointers of the CSR matrix.
    pub(super) fn row_ptr(&self) -> Vec<usize> {
        self.tiles.row_ptr()
    }

    /// The value of the entry in a slot.
    fn value(&self, slot: usize) -> T {
        K::load(self.values[value_at(slot, Self::BYTES)])
    }
}

impl<T: Scalar, K: Keep> Layout<T> for StCsrLayout<T, K> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.tiles.product(&self.scratch, |slot| self.value(slot), (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        self.tiles.bytes() + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let at = |slot| value_at(slot, Self::BYTES);
        self.tiles.fill(&mut self.values, at, |k| K::store(values[k]));
    }

    fn limits_values(&self) -> bool {
        self.keep.limits()
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.keep.check(values, |k| narrow::row_of(&self.row_ptr(), k))
    }

    fn to_csr(&self) -> Csr<T> {
        self.tiles.to_csr(|slot| self.value(slot))
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let plan = self.tiles.on_device(&mut arrays);
        let values = arrays.add_values("values", "value of each slot, by 16 bytes", &self.values);
        let launches = launches(self.image, &plan, values, T::PRECISION);
        let scratch = plan.scratch_of(LARGEST_BLOCK, T::PRECISION);
        Some(OnDevice { scratch, ..arrays.on_device(values, launches) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_value() {
        for bytes in [4, 8] {
            let mut all: Vec<_> = (0..1024).map(|slot| value_at(slot, bytes)).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..1024));
        }
    }
}
