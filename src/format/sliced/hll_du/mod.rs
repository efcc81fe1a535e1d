//! HLL-DU, HLL with delta units: each column is stored as its distance from the first column of its
//! slot, in as few bytes as each hack needs.
//!
//! ```text
//!     | 4 . 1 . |      hacks of 2 rows           hack 0                        hack 1
//!     | . 5 . . |      first of each slot     =  0 2 0 0                   ||  0 3 0 0
//!     | . . . . |      columns, by fours      =  0 0 - -  1 - - -          ||  - - - -  0 0 - -
//!     | 2 . . 6 |      values                 =  4 1 0 0  5 0 0 0          ||  0 0 0 0  2 6 0 0
//! ```
//!
//! The j-th entries of the rows of a hack form its slot j. Neighbouring rows of a mesh have their
//! j-th entries close together, however many columns the hack spans. So the first column of each
//! slot is stored once, in 32 bits, and the distance of every column from it in 1, 2 or 4 bytes:
//! the fewest that suffice for the whole hack. (In CSR-DU a unit is a piece of a row; here it is a
//! slot of 32 rows. Hacks have 32 rows; the drawing shows 2.) Rows are sorted as in [`super::hll`],
//! but four consecutive slots of a row are stored next to each other, so that a lane loads four
//! columns at once, and as many values as 16 bytes hold; rows are padded to a multiple of four. The
//! number of bytes per column follows from the start of the hack's columns and the start of the
//! next hack's columns, in units of 128 bytes.
//!
//! Padding (`-`): value 0 and the largest number of 1, 2 or 4 bytes, which is never a distance;
//! read, but not multiplied.
//! Good for: meshes with 15 or more entries per row, above all in single precision. Bad for: short
//! rows, for which the first columns take extra memory, and rows that differ from their neighbours.

use std::ops::Range;

mod deltas;

use super::gpu::launch::{Arrays, NULL};
use super::gpu::slot_fill::SlotFill;
use super::row_order::{self, StoredRows};
use super::sliced::{SLICE_PTR, SliceColumns, SliceProduct, SliceShape, Sliced};
use super::sliced_quads::{self, HACK, Quads, RUN, STEP, sort};
use super::{
    Arg, Basis, GpuConverter, GpuLayout, Launch, Layout, Offsets, OnDevice, Param, Params, Refusal,
    Stop, Storage, Target, Value, Work, bytes_of, gpu::hacks,
};
use crate::analysis::{Analysis, inverse};
use crate::csr::{Csr, CsrRef, Pattern};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;
use deltas::{SlotSpans, padding};

/// See the module.
#[derive(Debug)]
pub struct HllDuFormat;

/// The columns of every hack start at a multiple of this number of bytes: one run at 1 byte per
/// column.
const UNIT: usize = STEP;

/// Bytes of values that a lane loads at once.
const LOAD: usize = 16;

impl Storage for HllDuFormat {
    const NAME: &'static str = "hll_du";
    const ALIASES: &'static [&'static str] = &["hlldu"];
    const TITLE: &'static str = "HLL-DU, hacked ELLPACK with delta units";
    const SOURCE: &'static str = "the delta units (CSR-DU) of K. Kourtis, G. Goumas, N. Koziris, \
        Optimizing sparse matrix-vector multiplication using index and value compression (2008), \
        section 4.1, in the hacks of hll";
    const SUITS: &'static str = "meshes with 15 or more entries per row, above all in single \
        precision; bad for short rows";
    const PARAMS: &'static [Param] = &[Param {
        name: "sort",
        doc: "window of rows sorted by descending length (rIdx)",
        values: &[Value::Word("none"), Value::Int(512), Value::Int(4096)],
        gpu: &[Value::Word("none"), Value::Int(512)],
        host: &[],
    }];

    type Layout<T: Scalar> = HllDuLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let sort = sort(params);
        let new = match row_order::basis(analysis, sort, target) {
            Basis::Permuted => Some(inverse(&analysis.order(sort))),
            Basis::Original => None,
        };
        let units = analysis.delta_units(sort, new.as_deref());
        check_units(units)?;
        let runs = sliced_quads::runs(analysis, sort);
        let slots = runs * STEP as u64;
        let starts = analysis.pattern().nrows().div_ceil(HACK) + 1;
        let start_bytes = (starts * (Offsets::width(slots as usize) + 4)) as u64;
        let column_bytes = runs * 4 * RUN as u64 + units * UNIT as u64;
        let bytes = start_bytes + column_bytes + slots * target.precision.bytes() as u64;
        Ok(sliced_quads::work(analysis, target, sort, bytes))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<HllDuLayout<T>, Refusal> {
        let sort = sort(params);
        let (rows, shape) =
            (StoredRows::new(analysis, sort, HACK, target), Quads::new(analysis, sort));
        let columns = Deltas::new(csr.pattern(), &rows, &shape)?;
        let sliced = Sliced { rows, shape, columns };
        let values = vec![T::ZERO; sliced.slots()];
        let mut layout = HllDuLayout { sliced, values, scratch: Scratch::default() };
        layout.fill(csr.row_ptr(), csr.values());
        Ok(layout)
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, value_bytes) = (converter.matrix(), target.precision.bytes());
        let hacks = hacks::GpuHacks::new(converter, [HACK, RUN], sort(params), false, target)?;
        let hacks::GpuHacks { rows, starts, .. } = &hacks;
        let count = matrix.nrows.div_ceil(HACK);
        let [narrow, wide] = starts.args;
        let of_rows = [Arg::U32(matrix.nrows as u32), Arg::U32(count as u32), narrow, wide];
        let of_entries = [rows.order, rows.relabel, Arg::RowPtr, Arg::ColIdx];
        let step = |kernel: &str, arrays: &[Arg]| {
            let kernel = format!("{kernel}_{}", matrix.offset_name());
            let args = [&of_rows[..], &of_entries, arrays].concat();
            Launch::over("convert_deltas", kernel, (count * HACK) as u64, 256, args)
        };
        let first_bytes = starts.total / STEP as u64 * 4 * RUN as u64;
        let firsts = converter.array(first_bytes)?;
        let widths = converter.temporary(4 * (count as u64 + 1))?;
        converter.launch(&step("firsts", &[firsts, widths]))?;
        let units = converter.starts(widths, 1, count + 1)?;
        check_units(units.total)?;
        let column_bytes = units.total * UNIT as u64;
        let all_values = starts.total * value_bytes as u64;
        target.check_bytes(first_bytes + column_bytes + all_values)?;
        let columns = converter.array(column_bytes)?;
        let [units, _] = units.args;
        converter.launch(&step("distances", &[firsts, units, columns]))?;
        let values = converter.array(all_values)?;
        let slots = hacks.slots(NULL, values);
        let slots = SlotFill { run: (LOAD / value_bytes) as u32, ..slots };
        let update = slots.fill(converter, rows, target)?;
        let (starts, base, scatter) = (starts.args, firsts, rows.scatter);
        let product = SliceProduct { starts, base, scatter, columns, values: vec![units, values] };
        let kernel = format!("hll_du_{}", target.precision);
        let launch = product.launch("hll_du", kernel, matrix.nrows, count * HACK);
        let order = rows.basis_order();
        Ok(GpuLayout { launches: vec![launch], update, order, ..GpuLayout::default() })
    }
}

/// Checks that 32 bits hold the starts of columns.
///
/// # Errors
/// [`Refusal`] with needed and allowed units.
fn check_units(units: u64) -> Result<(), Refusal> {
    if units <= u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "columns take {units} units of {UNIT} bytes; {} are allowed",
        u32::MAX
    )))
}

/// Position of the value of a slot, relative to the same start as the slot; runs of values are as
/// long as a load.
fn place<T>(slot: usize) -> usize {
    let run = LOAD / size_of::<T>();
    let (first, row, k) = (slot / STEP * STEP, slot % STEP / RUN, slot % RUN);
    first + k / run * (run * HACK) + row * run + k % run
}

/// Columns stored as distances from the first column of their slot.
#[derive(Debug)]
struct Deltas {
    /// First column of each slot, four per run; 0 for a slot without entries.
    firsts: Vec<u32>,
    /// Start of the columns of each hack in `bytes`, in [`UNIT`]s, and the end of the last ones.
    units: Vec<u32>,
    /// Distance of each slot's column, a little-endian number in the width of its hack.
    bytes: Vec<u8>,
}

impl Deltas {
    /// Computes the distances in two passes over the entries of each hack.
    fn new(pattern: Pattern<'_>, rows: &StoredRows, shape: &Quads) -> Result<Self, Refusal> {
        let new = rows.relabelled();
        let relabel = |&old: &u32| new.as_ref().map_or(old, |new| new[old as usize]);
        let of_row = |i: usize| pattern.row(rows.old(i)).iter().map(relabel);
        let of_hack = |h: usize| {
            let stored = h * HACK..((h + 1) * HACK).min(rows.nrows());
            let slots = SlotSpans::of(stored.clone().map(of_row));
            let width = slots.width();
            let mut firsts: Vec<u32> = slots.firsts().collect();
            firsts.resize(slots.runs() * RUN, 0);
            let mut bytes = vec![u8::MAX; slots.runs() * UNIT * width];
            for (r, i) in stored.enumerate() {
                for ((slot, column), first) in shape.slots(h, r).zip(of_row(i)).zip(&firsts) {
                    let distance = (column - first).to_le_bytes();
                    bytes[slot * width..][..width].copy_from_slice(&distance[..width]);
                }
            }
            (firsts, bytes)
        };
        let hacks: Vec<(Vec<u32>, Vec<u8>)> = par::map(shape.offsets().len() - 1, 1, of_hack);
        let ends = hacks.iter().scan(0, |end, (_, bytes)| {
            *end += bytes.len() / UNIT;
            Some(*end)
        });
        let units: Vec<usize> = std::iter::once(0).chain(ends).collect();
        check_units(units[units.len() - 1] as u64)?;
        let (firsts, bytes): (Vec<_>, Vec<_>) = hacks.into_iter().unzip();
        Ok(Deltas {
            firsts: firsts.concat(),
            units: units.into_iter().map(|unit| unit as u32).collect(),
            bytes: bytes.concat(),
        })
    }
}

impl SliceColumns for Deltas {
    fn of_slice(&self, s: usize, slots: Range<usize>) -> impl Fn(usize) -> Option<u32> {
        let [unit, end] = [self.units[s], self.units[s + 1]].map(|unit| unit as usize);
        let width = (end - unit) * UNIT / slots.len().max(1);
        move |slot| {
            let mut distance = [0; 4];
            let at = unit * UNIT + (slot - slots.start) * width;
            distance[..width].copy_from_slice(&self.bytes[at..at + width]);
            let distance = u32::from_le_bytes(distance);
            let first = || self.firsts[slot / STEP * RUN + slot % RUN];
            (distance != padding(width)).then(|| first() + distance)
        }
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.firsts) + bytes_of(&self.units) + bytes_of(&self.bytes)
    }
}

/// A matrix in hacks, with columns stored as distances.
#[derive(Debug)]
pub struct HllDuLayout<T> {
    sliced: Sliced<Quads, Deltas>,
    /// Value of each slot, at the position that [`place`] computes.
    values: Vec<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> HllDuLayout<T> {
    /// Stores values, which are in the order of the CSR matrix, in their places.
    fn fill(&mut self, row_ptr: &[usize], values: &[T]) {
        self.sliced.fill_places(row_ptr, values, &mut self.values, place::<T>, |_, value| value);
    }

    fn value(&self, slot: usize) -> T {
        self.values[place::<T>(slot)]
    }
}

impl<T: Scalar> Layout<T> for HllDuLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let Sliced { rows, .. } = &self.sliced;
        rows.product(&self.scratch, (alpha, beta), y, &|rows, sums| {
            for (i, sum) in rows.zip(sums) {
                for (column, slot) in self.sliced.entries(i) {
                    *sum += self.value(slot) * x[column as usize];
                }
            }
        });
    }

    fn bytes(&self) -> u64 {
        self.sliced.bytes() + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        self.fill(&self.sliced.row_ptr(), values);
    }

    fn to_csr(&self) -> Csr<T> {
        self.sliced.to_csr(|slot| self.value(slot))
    }

    fn order(&self) -> Option<&[u32]> {
        self.sliced.rows.basis_order()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let Sliced { rows, shape, columns } = &self.sliced;
        let mut arrays = Arrays::default();
        let starts = arrays.add_offsets(SLICE_PTR[0], SLICE_PTR[1], shape.offsets());
        let scatter = arrays.add_row_order(rows.scatter());
        let base = arrays.add("first_col", "first column of each slot of a hack", &columns.firsts);
        let of_bytes = "distance of each column from the first of its slot, in 1, 2 or 4 bytes; all \
                        ones for padding";
        let of_units = "start of each hack in col_bytes, in units of 128 bytes, and the end";
        let bytes = arrays.add("col_bytes", of_bytes, &columns.bytes);
        let units = arrays.add("units", of_units, &columns.units);
        let values = arrays.add_values("values", "value of each slot, by 16 bytes", &self.values);
        arrays.number("hack", "rows of a hack", HACK);
        let value_args = vec![units, values];
        let product = SliceProduct { starts, base, scatter, columns: bytes, values: value_args };
        let (kernel, nrows) = (format!("hll_du_{}", T::PRECISION), rows.nrows());
        let launch = product.launch("hll_du", kernel, nrows, nrows.next_multiple_of(HACK));
        Some(arrays.on_device(values, vec![launch]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Precision;

    #[test]
    fn columns_take_as_few_bytes_as_their_hack_needs() {
        // Rows of 1 to 5 entries: the second run of each hack holds only the fifth entries. In each
        // hack, the last row's entries are farther away than the others'.
        let far = [0, 253, 254, 65_533, 65_534, 1_000_000];
        let nrows = 32 * far.len() - 7;
        let row = |i: usize| {
            let first = i / 32 + if i % 32 == 24 { far[i / 32] } else { i % 2 };
            (0..=i % 5).map(move |k| (i, first + 1000 * k, (i + k) as f64))
        };
        let csr: Csr<f64> = Csr::from_triplets(nrows, 2_000_000, (0..nrows).flat_map(row))
            .expect("indices are in range");
        let device = crate::device::find("h200").expect("shipped");
        let (precision, basis) = (Precision::F64, Basis::Original);
        let target = Target {
            device: &device,
            precision,
            basis,
            memory_limit: u64::MAX,
            stored: Default::default(),
        };
        let params = Params::defaults(HllDuFormat::PARAMS);
        let analysis = Analysis::of(&csr);
        let mut stored =
            HllDuFormat::convert(csr.as_ref(), &analysis, &params, &target).expect("applies");
        assert_eq!(stored.to_csr(), csr);
        let Sliced { columns, .. } = &stored.sliced;
        assert_eq!(columns.units, [0, 2, 4, 6, 10, 14, 22]);
        let work = HllDuFormat::work(&analysis, &params, &target).expect("applies");
        assert_eq!((work.entries, work.layout_bytes), (12 * 128, stored.bytes()));
        // Four columns of a row are stored next to each other, and two values.
        let slots: Vec<usize> = stored.sliced.entries(4).map(|(_, slot)| slot).collect();
        assert_eq!(slots, [16, 17, 18, 19, 128 + 16]);
        let places: Vec<usize> = slots.iter().map(|&slot| place::<f64>(slot)).collect();
        assert_eq!(places, [8, 9, 64 + 8, 64 + 9, 128 + 8]);
        assert!(slots.iter().all(|&slot| place::<f32>(slot) == slot));
        let mut every: Vec<usize> = (0..2 * STEP).map(place::<f64>).collect();
        every.sort_unstable();
        assert!(every.into_iter().eq(0..2 * STEP));
        let twice = csr.map_values(|value| value + value);
        stored.set_values(twice.values());
        assert_eq!(stored.to_csr(), twice);
    }

    #[test]
    fn columns_of_more_than_512_gib_are_refused() {
        assert!(check_units(u64::from(u32::MAX)).is_ok());
        let refusal = check_units(1 << 32).expect_err("one more").to_string();
        assert!(refusal.contains("4294967296 units of 128 bytes; 4294967295 are"), "{refusal}");
    }
}
