//! HLL-VI, HLL with indexed values: hacks of a matrix with few distinct values.
//!
//! ```text
//!     | 4 . 1 . |      hacks of 2 rows          hack 0                        hack 1
//!     | . 4 . . |      columns, by fours     =  0 2 - -  1 - - -         ||  - - - -  0 3 - -
//!     | . . . . |      their numbers         =  1 0 . .  1 . . .         ||  . . . .  0 1 . .
//!     | 1 . . 4 |      values = 1 4
//! ```
//!
//! Each distinct value is stored once, and each slot stores the 8-bit number of its value; the
//! numbers are omitted where there is only one value. With columns of 16 bits an entry takes 2 or 3
//! bytes in any precision, where CSR takes 8 or 12. (Hacks have 32 rows; the drawing shows 2.) Rows
//! are sorted as in [`super::hll`], but four consecutive slots of a row are stored next to each
//! other, so that a lane loads four columns, or four numbers, at once; rows are padded to a
//! multiple of four. A block of threads keeps the values in shared memory.
//!
//! Padding (`-`): the largest column index of 16 or 32 bits; read, but not multiplied. New values
//! must be equal wherever the old values were equal; otherwise they are refused.
//! Good for: Laplacians, adjacency matrices of meshes, piecewise constant coefficients. Bad for:
//! rows of very different lengths. Refused where there are more than 256 distinct values.

use super::gpu::launch::{Arrays, NULL};
use super::sliced::{ColumnWidth, SliceProduct, Sliced, check_narrow};
use super::sliced_quads::{self, HACK, Quads, RUN, STEP, sort};
use super::value_dictionary::{self, GpuDictionary, Numbered};
use super::{
    Arg, GpuConverter, GpuLayout, Layout, Offsets, OnDevice, Param, Params, Refusal, Stop, Storage,
    Target, Value, Work, gpu::hacks,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::par::Scratch;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct HllViFormat;

impl Storage for HllViFormat {
    const NAME: &'static str = "hll_vi";
    const ALIASES: &'static [&'static str] = &["hllvi"];
    const TITLE: &'static str = "HLL-VI, hacked ELLPACK with indexed values";
    const SOURCE: &'static str = "the indexed values (CSR-VI) of K. Kourtis, G. Goumas, N. Koziris, \
        Optimizing sparse matrix-vector multiplication using index and value compression (2008), \
        section 4.2, in the hacks of hll";
    const SUITS: &'static str = "Laplacians, adjacency matrices of meshes; bad for rows of very \
        different lengths, refused for more than 256 distinct values";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "sort",
            doc: "window of rows sorted by descending length (rIdx)",
            values: &[Value::Word("none"), Value::Int(512), Value::Int(4096)],
            gpu: &[Value::Word("none"), Value::Int(512), Value::Int(4096)],
            host: &[],
        },
        Param {
            name: "col",
            doc: "bits of a column index; 16-bit indices count from the hack's first column",
            values: &[Value::Int(32), Value::Int(16)],
            gpu: &[Value::Int(32), Value::Int(16)],
            host: &[],
        },
    ];
    const BY_VALUES: bool = true;

    type Layout<T: Scalar> = HllViLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let (count, sort) = (value_dictionary::count(analysis)?, sort(params));
        let slots = sliced_quads::runs(analysis, sort) * STEP as u64;
        let hacks = analysis.pattern().nrows().div_ceil(HACK);
        let offset_bytes = ((hacks + 1) * Offsets::width(slots as usize)) as u64;
        let column_bytes = match width(params) {
            ColumnWidth::Wide => 4 * slots,
            ColumnWidth::Narrow => {
                check_narrow(analysis, target, HACK, sort)?;
                2 * slots + 4 * hacks as u64
            }
        };
        let value_bytes =
            count * target.precision.bytes() as u64 + value_dictionary::number_bytes(slots, count);
        let bytes = offset_bytes + column_bytes + value_bytes;
        Ok(sliced_quads::work(analysis, target, sort, bytes))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<HllViLayout<T>, Refusal> {
        let few = analysis.few_values().ok_or_else(value_dictionary::not_few)?;
        let shape = Quads::new(analysis, sort(params));
        let pattern = csr.pattern();
        let sliced = Sliced::new(pattern, analysis, target, sort(params), shape, width(params))?;
        let values = Numbered::new(&few, csr.values(), |number| {
            let mut numbers = vec![0; sliced.slots()];
            sliced.fill(csr.row_ptr(), csr.values(), &mut numbers, |_, value| number(value));
            numbers
        });
        Ok(HllViLayout { sliced, values, scratch: Scratch::default() })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let (matrix, precision) = (converter.matrix(), target.precision);
        let few = GpuDictionary::new(converter, target)?;
        let narrow = width(params) == ColumnWidth::Narrow;
        let hacks = hacks::GpuHacks::new(converter, [HACK, RUN], sort(params), narrow, target)?;
        let hacks::GpuHacks { rows, starts, base, column_bits: bits, .. } = &hacks;
        let numbers = value_dictionary::number_bytes(starts.total, u64::from(few.count));
        target.check_bytes(starts.total * bits / 8 + numbers)?;
        let columns = converter.array(starts.total * bits / 8)?;
        hacks.slots(columns, NULL).fill(converter, rows, target)?;
        let numbers = if numbers > 0 { converter.array(numbers)? } else { NULL };
        if numbers != NULL {
            hacks.slots(NULL, numbers).fill_bytes(converter, rows, few.numbers)?;
        }
        let [narrow, wide] = starts.args;
        let row = converter.array(4)?;
        let layout = [Arg::U32(matrix.nrows as u32), narrow, wide, rows.order, numbers];
        let args = [&layout[..], &[Arg::RowPtr, few.entries, Arg::Values, row]].concat();
        let kernel = format!("check_slots_{}_{precision}", matrix.offset_name());
        let check = few.check(value_dictionary::launch(kernel, matrix.nrows as u64, args), row);
        let values = vec![numbers, Arg::U32(few.count), few.values];
        let (starts, base, scatter) = (starts.args, *base, rows.scatter);
        let product = SliceProduct { starts, base, scatter, columns, values };
        let kernel = format!("{}_{precision}", stem(*bits as usize, few.count > 1));
        let [_, stored] = hacks.slots_and_rows();
        Ok(GpuLayout {
            launches: vec![product.launch("hll_vi", kernel, matrix.nrows, stored as usize)],
            update: vec![few.update(target)],
            check: Some(check),
            order: rows.basis_order(),
            ..GpuLayout::default()
        })
    }
}

fn width(params: &Params) -> ColumnWidth {
    if params.int("col") == 16 { ColumnWidth::Narrow } else { ColumnWidth::Wide }
}

/// Name of the kernel without the precision, for columns of `column_bits` bits and `several`
/// distinct values or one.
fn stem(column_bits: usize, several: bool) -> String {
    format!("hll_vi_c{column_bits}{}", value_dictionary::suffix(several))
}

/// A matrix in hacks, with the number of each slot's value.
#[derive(Debug)]
pub struct HllViLayout<T> {
    sliced: Sliced<Quads>,
    values: Numbered<T>,
    scratch: Scratch<T>,
}

impl<T: Scalar> HllViLayout<T> {
    /// The distinct values among the new values of all entries.
    fn take(&self, values: &[T]) -> Result<Vec<T>, Refusal> {
        let (rows, row_ptr) = (&self.sliced.rows, self.sliced.row_ptr());
        let places = |f: &mut dyn FnMut(usize, usize)| {
            for i in 0..rows.nrows() {
                let entries = row_ptr[rows.old(i)]..;
                for (k, (_, slot)) in entries.zip(self.sliced.entries(i)) {
                    f(slot, k);
                }
            }
        };
        self.values.take(values, places, |k| row_ptr.partition_point(|&start| start <= k) - 1)
    }
}

impl<T: Scalar> Layout<T> for HllViLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let Sliced { rows, .. } = &self.sliced;
        rows.product(&self.scratch, (alpha, beta), y, &|rows, sums| {
            for (i, sum) in rows.zip(sums) {
                for (column, slot) in self.sliced.entries(i) {
                    *sum += self.values.value(slot) * x[column as usize];
                }
            }
        });
    }

    fn bytes(&self) -> u64 {
        self.sliced.bytes() + self.values.bytes()
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
        self.sliced.to_csr(|slot| self.values.value(slot))
    }

    fn order(&self) -> Option<&[u32]> {
        self.sliced.rows.basis_order()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let product = self.sliced.on_device(&mut arrays);
        let dictionary = self.values.on_device(&mut arrays);
        let [_, _, values] = dictionary;
        let product = SliceProduct { values: dictionary.to_vec(), ..product };
        let several = self.values.values.len() > 1;
        let kernel = format!("{}_{}", stem(self.sliced.column_bits(), several), T::PRECISION);
        let nrows = self.sliced.rows.nrows();
        let launch = product.launch("hll_vi", kernel, nrows, nrows.next_multiple_of(HACK));
        Some(arrays.on_device(values, vec![launch]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Basis;
    use crate::scalar::Precision;

    #[test]
    fn four_slots_of_a_row_are_adjacent() {
        // Rows of 1 to 5 entries: the second run of the hack holds only the fifth entries.
        let row =
            |i: usize| (0..=i % 5).map(move |k| (i, (i + k) % 40, if k < 2 { 1.0 } else { 2.0 }));
        let csr: Csr<f64> =
            Csr::from_triplets(40, 40, (0..40).flat_map(row)).expect("indices are in range");
        let device = crate::device::find("h200").expect("shipped");
        let (precision, basis) = (Precision::F64, Basis::Original);
        let target = Target {
            device: &device,
            precision,
            basis,
            memory_limit: u64::MAX,
            stored: Default::default(),
        };
        let params = Params::defaults(HllViFormat::PARAMS);
        let analysis = Analysis::of(&csr);
        let stored =
            HllViFormat::convert(csr.as_ref(), &analysis, &params, &target).expect("two values");
        assert_eq!(stored.to_csr(), csr);
        let slots: Vec<usize> = stored.sliced.entries(4).map(|(_, slot)| slot).collect();
        assert_eq!(slots, [16, 17, 18, 19, 128 + 16]);
        let numbers: Vec<usize> = slots.iter().map(|&slot| stored.values.number(slot)).collect();
        assert_eq!(numbers, [0, 0, 1, 1, 1]);
        let work = HllViFormat::work(&analysis, &params, &target).expect("two values");
        assert_eq!((work.entries, work.layout_bytes), (2 * 256, stored.bytes()));
    }
}
