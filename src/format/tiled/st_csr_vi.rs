//! ST-CSR-VI, sorted-tile CSR with indexed values: sorted tiles of a matrix with few distinct
//! values.
//!
//! ```text
//!     | 4 . 1 . |      tile = 4 entries         tiles, sorted    = 4 4 1 | 1 4
//!     | . 4 . . |                               their numbers    = 1 1 0 | 0 1
//!     | . . . . |      values = 1 4             columns          = 0 1 2 | 0 3
//!     | 1 . . 4 |                               places in tile   = 0 2 1 | 0 1
//! ```
//!
//! Each distinct value is stored once, and each entry stores the 8-bit number of its value; the
//! numbers are omitted where there is only one value, as in the adjacency matrix of a graph without
//! weights. An entry then takes 2.6 to 5 bytes in any precision, where CSR takes 8 or 12. The
//! module `sorted_tiles` documents how columns and places are stored, [`super::st_csr`] how products
//! are computed; a block of threads keeps the values in shared memory.
//!
//! New values must be equal wherever the old values were equal; otherwise they are refused.
//! Good for: graphs, incidence and constraint matrices. Bad for: regular rows of few values, which
//! hll_vi stores in fewer bytes. Refused where there are more than 256 distinct values.

use super::gpu::launch::{Arrays, NULL};
use super::sorted_tiles::gpu::{GpuSortedTiles, TilePlan};
use super::sorted_tiles::{self, SortedTiles, TILE};
use super::value_dictionary::{self, GpuDictionary, Numbered};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, OnDevice, Param, Params, Refusal, Stop, Storage,
    Target, Work,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::par::Scratch;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct StCsrViFormat;

impl Storage for StCsrViFormat {
    const NAME: &'static str = "st_csr_vi";
    const ALIASES: &'static [&'static str] = &["stvi"];
    const TITLE: &'static str = "ST-CSR-VI, sorted-tile CSR with indexed values";
    const SOURCE: &'static str = "the indexed values (CSR-VI) of K. Kourtis, G. Goumas, N. Koziris, \
        Optimizing sparse matrix-vector multiplication using index and value compression (2008), \
        section 4.2, in the tiles of st_csr";
    const SUITS: &'static str = "graphs, incidence and constraint matrices; bad for regular rows, \
        refused for more than 256 distinct values";
    const PARAMS: &'static [Param] = &[TILE];
    const BY_VALUES: bool = true;
    const KERNELS_OF: &'static [&'static str] = &["st_csr"];

    type Layout<T: Scalar> = StCsrViLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let count = value_dictionary::count(analysis)?;
        let w = target.precision.bytes() as u64;
        let bytes = |slots| value_dictionary::number_bytes(slots, count) + w * count;
        sorted_tiles::work(analysis, params.int("tile"), target, bytes)
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<StCsrViLayout<T>, Refusal> {
        let few = analysis.few_values().ok_or_else(value_dictionary::not_few)?;
        let tiles = SortedTiles::new(csr.pattern(), params.int("tile"), size_of::<T>());
        let values = Numbered::new(&few, csr.values(), |number| {
            let mut numbers = vec![0; tiles.slots()];
            tiles.fill(&mut numbers, |slot| slot, |k| number(csr.values()[k]));
            numbers
        });
        Ok(StCsrViLayout { tiles, values, scratch: Scratch::default() })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, precision) = (converter.matrix(), target.precision);
        let few = GpuDictionary::new(converter, target)?;
        let sorted = GpuSortedTiles::new(converter, params.int("tile"), false, target)?;
        let plan = &sorted.plan;
        let numbers = if few.count > 1 { converter.array(plan.slots())? } else { NULL };
        if few.count > 1 {
            let args = [few.numbers, numbers];
            converter.launch(&sorted.step("number_tiles", matrix, precision, &args))?;
        }
        let row = converter.array(4)?;
        let rows = [Arg::U32(matrix.nrows as u32), Arg::RowPtr];
        let args = [rows.as_slice(), &[numbers, few.entries, Arg::Values, row]].concat();
        let launch = sorted.step("check_numbers", matrix, precision, &args);
        Ok(GpuLayout {
            launches: launches(plan, [numbers, Arg::U32(few.count), few.values], precision),
            scratch: plan.scratch(precision),
            update: vec![few.update(target)],
            check: Some(few.check(launch, row)),
            ..GpuLayout::default()
        })
    }
}

/// The launches of a product; `dictionary` holds the numbers, the number of distinct values, and
/// the values.
fn launches(plan: &TilePlan, dictionary: [Arg; 3], precision: Precision) -> Vec<Launch> {
    let [numbers, ..] = dictionary;
    let suffix = value_dictionary::suffix(numbers != NULL);
    let kernel = format!("st_csr_vi_{}_{precision}_{}{suffix}", plan.tile, plan.extra);
    plan.launches("st_csr_vi", kernel, &dictionary, precision)
}

/// A matrix in sorted tiles, with the number of each slot's value.
#[derive(Debug)]
pub struct StCsrViLayout<T> {
    tiles: SortedTiles,
    values: Numbered<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> StCsrViLayout<T> {
    /// The distinct values among the new values of all entries.
    fn take(&self, values: &[T]) -> Result<Vec<T>, Refusal> {
        let row_of = |k| self.tiles.row_ptr().partition_point(|&start| start <= k) - 1;
        self.values.take(values, |f| self.tiles.over_slots(|slot, _, k| f(slot, k)), row_of)
    }
}

impl<T: Scalar> Layout<T> for StCsrViLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let value = |slot| self.values.value(slot);
        self.tiles.product(&self.scratch, value, (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        self.tiles.bytes() + self.values.bytes()
    }

    fn limits_values(&self) -> bool {
        true
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.take(values).map(|_| ())
    }

    fn set_values(&mut self, values: &[T]) {
        if let Ok(values) = self.take(values) {
            self.values.values = values;
        }
    }

    fn to_csr(&self) -> Csr<T> {
        self.tiles.to_csr(|slot| self.values.value(slot))
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let plan = self.tiles.on_device(&mut arrays);
        let dictionary = self.values.on_device(&mut arrays);
        let [_, _, values] = dictionary;
        let launches = launches(&plan, dictionary, T::PRECISION);
        let scratch = plan.scratch(T::PRECISION);
        Some(OnDevice { scratch, ..arrays.on_device(values, launches) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(csr: &Csr<f64>) -> Result<StCsrViLayout<f64>, Refusal> {
        let device = crate::device::find("h200").expect("shipped");
        let target = Target {
            device: &device,
            precision: Precision::F64,
            basis: super::super::Basis::Original,
            memory_limit: u64::MAX,
            stored: Default::default(),
        };
        let params = Params::defaults(StCsrViFormat::PARAMS);
        StCsrViFormat::convert(csr.as_ref(), &Analysis::of(csr), &params, &target)
    }

    fn matrix(values: &[f64]) -> Csr<f64> {
        // The matrix drawn in the module's documentation.
        Csr::new(4, 4, vec![0, 2, 3, 3, 5], vec![0, 2, 1, 0, 3], values.to_vec()).expect("valid")
    }

    #[test]
    fn each_value_is_stored_once() {
        let csr = matrix(&[4.0, 1.0, 4.0, 1.0, 4.0]);
        let stored = layout(&csr).expect("two values");
        assert_eq!(stored.values.values, [1.0, 4.0]);
        assert_eq!(stored.values.numbers.len(), 1024);
        assert_eq!(stored.to_csr(), csr);
        let ones = layout(&matrix(&[1.0; 5])).expect("one value");
        assert!(ones.values.numbers.is_empty());
        assert_eq!(stored.bytes() - ones.bytes(), 1024 + 8);
    }

    #[test]
    fn new_values_must_be_equal_where_they_were() {
        let mut stored = layout(&matrix(&[4.0, 1.0, 4.0, 1.0, 4.0])).expect("two values");
        stored.set_values(&[0.5, 2.0, 0.5, 2.0, 0.5]);
        assert_eq!(stored.to_csr(), matrix(&[0.5, 2.0, 0.5, 2.0, 0.5]));
        let refusal = stored.check_values(&[0.5, 2.0, 0.5, 3.0, 0.5]).expect_err("two for one");
        assert!(refusal.to_string().contains("row 3"), "{refusal}");
        stored.check_values(&[7.0; 5]).expect("equal again");
    }

    #[test]
    fn many_values_are_refused() {
        let csr = crate::generate::by_name("heat", 2000, 1).expect("a class");
        let refusal = layout(&csr).expect_err("values of every size");
        assert!(refusal.to_string().contains("256"), "{refusal}");
    }
}
