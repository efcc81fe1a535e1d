//! Layouts stored slice by slice: hll, hll_f32, hll_vi, hll_du, biell and bijad.
//!
//! A slice consists of consecutive stored rows whose slots are stored together. [`SliceShape`] maps
//! the entries of a row to slots of its slice; [`SliceMultiply`] computes products.

use std::convert::Infallible;
use std::ops::Range;

use super::gpu::launch::{Arrays, NULL};
use super::many::{self, BlockProduct, XBlock, YBlock};
use super::narrow::{self, AsGiven, Keep, StoredValue};
use super::row_order::{Column, StoredRows};
use super::{Arg, Launch, Layout, Offsets, OnDevice, Refusal, Target, bytes_of};
use crate::analysis::{Analysis, Sort};
use crate::csr::{Csr, CsrRef, Pattern};
use crate::dense::{DenseMut, DenseRef, by_columns};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// Arrangement of the slots of a slice. Slots are counted from the start of the slice unless a
/// method says otherwise.
pub trait SliceShape: Send + Sync {
    /// Number of rows of a slice.
    fn rows(&self) -> usize;

    /// First slot of slice `s`, counted from the start of the layout; for the slice past the last
    /// one, the number of slots.
    fn start(&self, s: usize) -> usize;

    /// Slots of slice `s`, counted from the start of the layout.
    fn range(&self, s: usize) -> Range<usize> {
        self.start(s)..self.start(s + 1)
    }

    /// Slots that row `r` of slice `s` may fill, in the order of its entries.
    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize>;

    /// Starts of slices, or of parts of slices, as a GPU reads them.
    fn offsets(&self) -> &Offsets;
}

/// A shape with its own product.
pub trait SliceMultiply: SliceShape {
    /// Adds the products of the rows of slice `s` to `sums`.
    fn add<K: Keep, T: Scalar, C: Column>(
        &self,
        s: usize,
        columns: &[C],
        values: &[K::Of<T>],
        x: &[T],
        sums: &mut [T],
    );

    /// The kernel of this shape, for columns of `column_bits` bits.
    fn kernel(&self, column_bits: usize) -> Kernel;
}

/// Name and meaning of the starts of slices.
pub(super) const SLICE_PTR: [&str; 2] =
    ["slice_ptr", "first slot of each slice, or of each part of a slice, and the end"];

/// The kernel that multiplies a shape.
#[derive(Debug)]
pub struct Kernel {
    /// The `.cu` file.
    pub image: &'static str,
    /// The symbol, without the precision.
    pub stem: String,
    /// Threads that share a row.
    pub threads: usize,
}

/// Width of a stored column index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnWidth {
    /// 32 bits.
    Wide,
    /// 16 bits, counted from the first column of the slice.
    Narrow,
}

/// Storage of the columns of all slots.
pub(super) trait SliceColumns: Send + Sync {
    /// The column of each slot of slice `s`, which has the slots `slots`; `None` for padding. Slots
    /// are counted from the start of the layout.
    fn of_slice(&self, s: usize, slots: Range<usize>) -> impl Fn(usize) -> Option<u32>;

    /// Bytes of its arrays.
    fn bytes(&self) -> u64;
}

/// Column indices of one width, for all slices.
#[derive(Debug)]
pub(super) enum Indices {
    Wide(Vec<u32>),
    Narrow { base: Vec<u32>, offset: Vec<u16> },
}

impl SliceColumns for Indices {
    fn of_slice(&self, s: usize, _slots: Range<usize>) -> impl Fn(usize) -> Option<u32> {
        move |slot| match self {
            Indices::Wide(col_idx) => Some(col_idx[slot]).filter(|&column| column != u32::PADDING),
            Indices::Narrow { base, offset } => Some(offset[slot])
                .filter(|&offset| offset != u16::PADDING)
                .map(|offset| base[s] + u32::from(offset)),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Indices::Wide(col_idx) => bytes_of(col_idx),
            Indices::Narrow { base, offset } => bytes_of(base) + bytes_of(offset),
        }
    }
}

/// A matrix stored slice by slice, without its values.
#[derive(Debug)]
pub(super) struct Sliced<S, C = Indices> {
    pub rows: StoredRows,
    pub shape: S,
    pub columns: C,
}

impl<S: SliceShape> Sliced<S> {
    /// Stores columns in their slots, in parallel over parts of the rows.
    ///
    /// # Errors
    /// [`Refusal`] where 16 bits do not hold the columns of a slice.
    pub fn new(
        pattern: Pattern<'_>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        sort: Sort,
        shape: S,
        width: ColumnWidth,
    ) -> Result<Self, Refusal> {
        let rows = StoredRows::new(analysis, sort, shape.rows(), target);
        let new = rows.relabelled();
        let relabel = |old: u32| new.as_ref().map_or(old, |new| new[old as usize]);
        let mut sliced = Sliced { rows, shape, columns: Indices::Wide(Vec::new()) };
        let row_ptr = pattern.row_ptr();
        sliced.columns = match width {
            ColumnWidth::Wide => {
                let mut col_idx = vec![u32::PADDING; sliced.slots()];
                sliced.fill(row_ptr, pattern.col_idx(), &mut col_idx, |_, old| relabel(old));
                Indices::Wide(col_idx)
            }
            ColumnWidth::Narrow => {
                let spans = analysis.spans(sliced.shape.rows(), sort, new.as_deref());
                check_spans(&spans)?;
                let base: Vec<u32> = spans.iter().map(|span| span.start).collect();
                let mut offset = vec![u16::PADDING; sliced.slots()];
                sliced.fill(row_ptr, pattern.col_idx(), &mut offset, |s, old| {
                    (relabel(old) - base[s]) as u16
                });
                Indices::Narrow { base, offset }
            }
        };
        Ok(sliced)
    }

    /// Adds the arrays that a GPU holds, without the values. (cuSPARSE expects the arrays in this
    /// order.)
    pub fn on_device<'a>(&'a self, arrays: &mut Arrays<'a>) -> SliceProduct {
        let starts = arrays.add_offsets(SLICE_PTR[0], SLICE_PTR[1], self.shape.offsets());
        let scatter = arrays.add_row_order(self.rows.scatter());
        let (base, columns) = match &self.columns {
            Indices::Wide(col_idx) => {
                let meaning = "column of each slot; 2^32 - 1 for padding";
                (NULL, arrays.add("col_idx", meaning, col_idx))
            }
            Indices::Narrow { base, offset } => {
                let base = arrays.add("base", "first column of each slice", base);
                let meaning = "column of each slot, less base; 2^16 - 1 for padding";
                (base, arrays.add("col_offset", meaning, offset))
            }
        };
        arrays.number("slice_rows", "rows of a slice", self.shape.rows());
        SliceProduct { starts, base, scatter, columns, values: Vec::new() }
    }

    /// Bits of a stored column index.
    pub fn column_bits(&self) -> usize {
        match &self.columns {
            Indices::Wide(_) => 32,
            Indices::Narrow { .. } => 16,
        }
    }
}

impl<S: SliceShape, C: SliceColumns> Sliced<S, C> {
    /// Number of slots of all slices.
    pub fn slots(&self) -> usize {
        self.shape.start(self.rows.nrows().div_ceil(self.shape.rows()))
    }

    /// Writes `map(slice, entry)` of every entry of `source`, in the order of the CSR matrix, to
    /// the entry's slot.
    pub fn fill<E: Copy + Sync, F: Send>(
        &self,
        row_ptr: &[usize],
        source: &[E],
        slots: &mut [F],
        map: impl Fn(usize, E) -> F + Sync,
    ) {
        self.fill_places(row_ptr, source, slots, |slot| slot, map);
    }

    /// As [`Sliced::fill`], for places whose order within a slice differs from that of the slots.
    /// `place` maps a slot to its place; both are counted from the start of the slice.
    pub fn fill_places<E: Copy + Sync, F: Send>(
        &self,
        row_ptr: &[usize],
        source: &[E],
        slots: &mut [F],
        place: impl Fn(usize) -> usize + Sync,
        map: impl Fn(usize, E) -> F + Sync,
    ) {
        let slice = self.shape.rows();
        let mut rest = slots;
        let mut pieces = Vec::new();
        for part in self.rows.parts().windows(2) {
            let slices = part[0] / slice..part[1].div_ceil(slice);
            let len = self.shape.start(slices.end) - self.shape.start(slices.start);
            let (piece, after) = rest.split_at_mut(len);
            pieces.push((slices, piece));
            rest = after;
        }
        par::for_each(&mut pieces, 1, |_, (slices, piece)| {
            let mut rest = &mut **piece;
            for s in slices.clone() {
                let (slots, after) = rest.split_at_mut(self.shape.range(s).len());
                rest = after;
                let rows = s * slice..((s + 1) * slice).min(self.rows.nrows());
                for (r, i) in rows.enumerate() {
                    let old = self.rows.old(i);
                    let entries = &source[row_ptr[old]..row_ptr[old + 1]];
                    for (slot, &entry) in self.shape.slots(s, r).zip(entries) {
                        slots[place(slot)] = map(s, entry);
                    }
                }
            }
        });
    }

    /// Column and slot of the entries of stored row `i`.
    pub fn entries(&self, i: usize) -> impl Iterator<Item = (u32, usize)> {
        let s = i / self.shape.rows();
        let range = self.shape.range(s);
        let start = range.start;
        let column = self.columns.of_slice(s, range);
        let slots = self.shape.slots(s, i % self.shape.rows());
        slots.map_while(move |slot| Some((column(start + slot)?, start + slot)))
    }

    /// Number of entries of each stored row.
    fn counts(&self) -> Vec<u32> {
        par::map(self.rows.nrows(), 1, |i| self.entries(i).count() as u32)
    }

    /// Row pointers of the CSR matrix.
    pub fn row_ptr(&self) -> Vec<usize> {
        self.rows.row_ptr(&self.counts())
    }

    /// Bytes of all arrays.
    pub fn bytes(&self) -> u64 {
        self.rows.bytes() + self.shape.offsets().bytes() + self.columns.bytes()
    }

    /// The CSR matrix, with `value` giving the value of each slot.
    pub fn to_csr<T: Scalar>(&self, value: impl Fn(usize) -> T) -> Csr<T> {
        let entries = |i| self.entries(i).map(|(column, slot)| (column, value(slot)));
        self.rows.to_csr(&self.counts(), entries)
    }
}

/// The arrays of a layout stored slice by slice.
#[derive(Debug)]
pub struct SlicedLayout<T: Scalar, S, K: Keep = AsGiven> {
    sliced: Sliced<S>,
    values: Vec<K::Of<T>>,
    keep: K,
    scratch: Scratch<T>,
}

impl<T: Scalar, S: SliceMultiply, K: Keep> SlicedLayout<T, S, K> {
    /// Converts with one pass over columns and one over values.
    ///
    /// # Errors
    /// As for [`Sliced::new`].
    pub(super) fn new(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        (sort, width): (Sort, ColumnWidth),
        shape: S,
        keep: K,
    ) -> Result<Self, Refusal> {
        let sliced = Sliced::new(csr.pattern(), analysis, target, sort, shape, width)?;
        let mut values = vec![K::Of::<T>::ZERO; sliced.slots()];
        sliced.fill(csr.row_ptr(), csr.values(), &mut values, |_, value| K::store(value));
        Ok(SlicedLayout { sliced, values, keep, scratch: Scratch::default() })
    }
}

impl<T: Scalar, S: SliceMultiply, K: Keep> Layout<T> for SlicedLayout<T, S, K> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let Sliced { rows, shape, columns } = &self.sliced;
        let slice = shape.rows();
        rows.product(&self.scratch, (alpha, beta), y, &|rows, sums| {
            for (s, sums) in (rows.start / slice..).zip(sums.chunks_mut(slice)) {
                let range = shape.range(s);
                let values = &self.values[range.clone()];
                match columns {
                    Indices::Wide(all) => shape.add::<K, _, _>(s, &all[range], values, x, sums),
                    Indices::Narrow { base, offset } => {
                        // The slice of x ends before the offset that marks padding.
                        let base = base[s] as usize;
                        let x = &x[base..x.len().min(base + u16::PADDING.index())];
                        shape.add::<K, _, _>(s, &offset[range], values, x, sums);
                    }
                }
            }
        });
    }

    /// Columns are multiplied one by one if threads may not write the rows of y that they compute.
    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        if !self.sliced.rows.leave_parts() {
            return many::in_blocks(self, &self.scratch, (alpha, beta), x, y);
        }
        let Ok(()) = by_columns(x, y, beta != T::ZERO, &mut |x, y| {
            self.apply(alpha, x, beta, y);
            Ok::<(), Infallible>(())
        });
    }

    fn bytes(&self) -> u64 {
        self.sliced.bytes() + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.sliced.row_ptr();
        self.sliced.fill(&row_ptr, values, &mut self.values, |_, value| K::store(value));
    }

    fn limits_values(&self) -> bool {
        self.keep.limits()
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.keep.check(values, |k| narrow::row_of(&self.sliced.row_ptr(), k))
    }

    fn to_csr(&self) -> Csr<T> {
        self.sliced.to_csr(|slot| K::load(self.values[slot]))
    }

    fn order(&self) -> Option<&[u32]> {
        self.sliced.rows.basis_order()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let product = self.sliced.on_device(&mut arrays);
        let values = arrays.add_values("values", "value of each slot; 0 for padding", &self.values);
        let product = SliceProduct { values: vec![values], ..product };
        let Sliced { rows, shape, .. } = &self.sliced;
        let Kernel { image, stem, threads } = shape.kernel(self.sliced.column_bits());
        let lanes = rows.nrows().next_multiple_of(shape.rows()) * threads;
        let kernel = format!("{stem}_{}", T::PRECISION);
        let launch = product.launch(image, kernel, rows.nrows(), lanes);
        Some(arrays.on_device(values, vec![launch]))
    }
}

impl<T: Scalar, S: SliceMultiply, K: Keep> BlockProduct<T> for SlicedLayout<T, S, K> {
    fn block<const B: usize>(&self, x: XBlock<'_, T>, (alpha, beta): (T, T), y: YBlock<'_, T, B>) {
        let Sliced { rows, shape, columns } = &self.sliced;
        let (slice, scatter) = (shape.rows(), rows.scatter());
        y.over_parts(rows.parts(), &|part, mut y| {
            for s in part.start / slice..part.end.div_ceil(slice) {
                let range = shape.range(s);
                let values = &self.values[range.clone()];
                let stored = s * slice..part.end.min((s + 1) * slice);
                let put = |i: usize, sums: &[T; B]| {
                    let row = scatter.map_or(i, |scatter| scatter[i] as usize);
                    y.put(row - part.start, alpha, sums, beta);
                };
                match columns {
                    Indices::Wide(columns) => {
                        multiply_rows::<K, _, _, B>(shape, stored, &columns[range], values, x, put);
                    }
                    Indices::Narrow { base, offset } => {
                        // The slice of x ends before the offset that marks padding.
                        let x = x.from(base[s] as usize, u16::PADDING.index());
                        multiply_rows::<K, _, _, B>(shape, stored, &offset[range], values, x, put);
                    }
                }
            }
        });
    }
}

/// Sums the stored rows `rows` of one slice with `B` columns of x, and calls `put` with each sum.
#[inline(always)]
fn multiply_rows<K: Keep, T: Scalar, C: Column, const B: usize>(
    shape: &impl SliceShape,
    rows: Range<usize>,
    columns: &[C],
    values: &[K::Of<T>],
    x: XBlock<'_, T>,
    mut put: impl FnMut(usize, &[T; B]),
) {
    let s = rows.start / shape.rows();
    for (r, i) in rows.enumerate() {
        let mut sums = [T::ZERO; B];
        for slot in shape.slots(s, r) {
            // Padding ends a row.
            let Some(x) = x.row(columns[slot].index()) else { break };
            let value = K::load(values[slot]);
            many::add(&mut sums, x, |x| value * x);
        }
        put(i, &sums);
    }
}

/// The arrays that a product with slices reads on a GPU.
pub(super) struct SliceProduct {
    /// Starts of the slices.
    pub starts: [Arg; 2],
    /// The first column of each slice, or of each slot; null for 32-bit columns.
    pub base: Arg,
    /// The row of y for each stored row; null where rows keep their order.
    pub scatter: Arg,
    pub columns: Arg,
    /// Arguments from which the kernel reads values.
    pub values: Vec<Arg>,
}

impl SliceProduct {
    /// The launch of one product.
    pub fn launch(self, image: &'static str, kernel: String, nrows: usize, lanes: usize) -> Launch {
        let SliceProduct { starts, base, scatter, columns, values } = self;
        let mut args = vec![Arg::U32(nrows as u32)];
        args.extend(starts);
        args.extend([base, scatter, columns]);
        args.extend(values);
        args.extend([Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
        Launch::over(image, kernel, lanes as u64, 256, args)
    }
}

/// Checks that 16-bit offsets hold the columns of every slice; the last offset marks padding.
///
/// # Errors
/// [`Refusal`] with the widest span.
pub(super) fn check_spans(spans: &[Range<u32>]) -> Result<(), Refusal> {
    match spans.iter().map(ExactSizeIterator::len).max() {
        Some(span) => check_span(span),
        None => Ok(()),
    }
}

/// Checks that 16-bit offsets hold a span of `widest` columns.
///
/// # Errors
/// [`Refusal`] with needed and allowed columns.
pub(super) fn check_span(widest: usize) -> Result<(), Refusal> {
    if widest <= u16::PADDING.index() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "a slice spans {widest} columns; 16-bit columns hold at most {}",
        u16::PADDING
    )))
}

/// As [`check_spans`], for rows in `sort` order and a basis that may be permuted.
///
/// # Errors
/// As for [`check_spans`].
pub(super) fn check_narrow(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    slice: usize,
    sort: Sort,
) -> Result<(), Refusal> {
    let widest = match super::row_order::basis(analysis, sort, target) {
        // Sorting within windows moves columns too little to show in a sample; a graph ordering
        // moves them far.
        super::Basis::Permuted if analysis.is_whole() || sort == Sort::Rcm => {
            analysis.widest_permuted_span(slice, sort)
        }
        super::Basis::Permuted | super::Basis::Original => analysis.widest_span(slice, sort, None),
    };
    check_span(widest as usize)
}
