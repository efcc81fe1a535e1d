//! BHLL, blocked HLL: dense `b` x `b` blocks in hacks of 32 block rows.
//!
//! ```text
//!     | 4 3 . . |      b = 2, block rows of a hack side by side: one lane each
//!     | 1 5 . . |      block columns     =  0 | 0   - | 1
//!     | 2 . 6 1 |      values, element 0 =  4 | 2   * | 6
//!     | . 7 . 8 |              element 1 =  3 | *   * | 1
//!                              element 2 =  1 | *   * | *
//!                              element 3 =  5 | 7   * | 8
//! ```
//!
//! One column index serves `b * b` values, and a lane reads `b` consecutive elements of x. With
//! `sort`, block rows are sorted by descending length within windows of that many block rows. With
//! `col=16`, a block column is stored as its distance from the first block column of the hack, in 2
//! bytes. Padding (`-`) is the largest index of 16 or 32 bits; fill (`*`) has the value -0.0 and is
//! never multiplied into a result.
//! Good for: finite elements with several unknowns per node. Bad for: matrices without dense
//! blocks; refused where there are more than three places per entry.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::block_conversion;
use super::gpu::launch::{Arrays, NULL};
use super::row_order::{self, Column, WARP};
use super::sliced::{SliceProduct, check_spans};
use super::{
    Basis, GpuConverter, GpuLayout, Layout, Matrix, Offsets, OnDevice, Param, Params, Refusal,
    Stop, Storage, Target, Value, Work, bytes_of, fill_marker, store,
};
use crate::analysis::{Analysis, Blocks, Sort, Walk, inverse};
use crate::csr::{Csr, CsrRef, accumulate};
use crate::par;
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct BhllFormat;

/// Block rows of a hack: one per lane.
pub(super) const HACK: usize = WARP;

/// The largest block.
const LARGEST: usize = 6;

impl Storage for BhllFormat {
    const NAME: &'static str = "bhll";
    const TITLE: &'static str = "BHLL, blocked HLL";
    const SOURCE: &'static str = "the extension to dense blocks announced by D. Barbieri, \
        V. Cardellini, A. Fanfarillo, S. Filippone, Three storage formats for sparse matrices on \
        GPGPUs (2015), section 5";
    const SUITS: &'static str = "finite elements with several unknowns per node; bad without \
        dense blocks";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "b",
            doc: "number of rows and columns of a block",
            values: &[Value::Int(3), Value::Int(2), Value::Int(4), Value::Int(5), Value::Int(6)],
            gpu: &[Value::Int(2), Value::Int(3), Value::Int(4), Value::Int(5), Value::Int(6)],
            host: &[Value::Int(2), Value::Int(3), Value::Int(4), Value::Int(5), Value::Int(6)],
        },
        Param {
            name: "sort",
            doc: "window of block rows sorted by descending length (rIdx)",
            values: &[Value::Word("none"), Value::Int(512)],
            gpu: &[Value::Word("none"), Value::Int(512)],
            host: &[Value::Word("none"), Value::Int(512)],
        },
        Param {
            name: "col",
            doc: "bits of a block column index; 16-bit indices count from the hack's first block column",
            values: &[Value::Int(32), Value::Int(16)],
            gpu: &[Value::Int(32), Value::Int(16)],
            host: &[Value::Int(32)],
        },
    ];

    type Layout<T: Scalar> = BhllLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let b = params.int("b");
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        check_rows(pattern.nrows())?;
        let full = analysis.block_fill(b);
        if full < 0.3 && row_order::allowed_slots(nnz) < (nnz as f64 / full) as u64 {
            return Err(Refusal::new(format!(
                "{b} x {b} blocks are {:.0} % full (sampled); at least 33 % are needed",
                100.0 * full
            )));
        }
        let plan = BlockPlan::new(analysis, params, target);
        let some = analysis.some_blocks(b);
        let block_analysis = Analysis::new(some.blocks.pattern());
        let slots = (some.scale * block_analysis.slots(HACK, plan.sort) as f64) as u64;
        let n_hacks = pattern.nrows().div_ceil(b).div_ceil(HACK) as u64;
        let entries =
            fill_marker::check("its blocks", u128::from(slots) * (b * b) as u128, nnz as usize)?;
        let w = target.precision.bytes() as u64;
        let column_bytes = match plan.narrow {
            true => {
                match analysis.is_whole() {
                    true => check_spans(&plan.spans(&block_analysis))?,
                    false => check_spans(&block_analysis.spans(HACK, plan.sort, None))?,
                }
                2 * slots + 4 * n_hacks
            }
            false => 4 * slots,
        };
        let order_bytes = plan.order_bytes(pattern.nrows());
        let scatters = plan.sort != Sort::None && plan.basis == Basis::Original;
        let pointers = (n_hacks + 1) * Offsets::width(slots as usize) as u64;
        let bytes = pointers + column_bytes + w * entries + order_bytes;
        let across = Walk::Rows { threads: 1, sort: Sort::None };
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes - if scatters { 0 } else { order_bytes },
            entries,
            // With one lane per block row, a lane requests `b` elements per block; with one lane
            // per row it requests one element per entry. But rows of a block request the same
            // elements.
            x_sectors: analysis.x_sectors(across, target.precision),
            x_loaded: analysis.x_loaded(across, target),
            scattered_rows: if scatters { nrows } else { 0 },
            steps: slots / HACK as u64,
            lanes: nrows,
            launches: 1,
            convert_bytes: 8 * nrows + 2 * (4 + w) * nnz + bytes,
            sorted_keys: if plan.sort == Sort::None { 0 } else { nrows / b as u64 },
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<BhllLayout<T>, Refusal> {
        BhllLayout::new(
            csr,
            &analysis.blocks(params.int("b")),
            &BlockPlan::new(analysis, params, target),
        )
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let b = params.int("b");
        let Matrix { nrows, ncols, .. } = converter.matrix();
        check_rows(nrows)?;
        let sort = sort(params);
        if movable(nrows, ncols, b, sort) && target.basis == Basis::Permuted {
            return Err(Stop::OnHost);
        }
        block_conversion::build(converter, target, b, sort, params.int("col") == 16)
    }
}

/// Refuses matrices with too many rows: 32 bits must hold the rows of all whole block rows.
fn check_rows(nrows: usize) -> Result<(), Refusal> {
    const MOST: usize = u32::MAX as usize - 256;
    if nrows <= MOST {
        return Ok(());
    }
    Err(Refusal::new(format!("the matrix has {nrows} rows; at most {MOST} are allowed")))
}

fn sort(params: &Params) -> Sort {
    match params.get("sort") {
        Value::Int(rows) => Sort::Window(rows as usize),
        Value::Word(_) => Sort::None,
    }
}

/// True if the basis may be permuted: a block row must move as a whole.
fn movable(nrows: usize, ncols: usize, b: usize, sort: Sort) -> bool {
    sort != Sort::None && nrows == ncols && nrows.is_multiple_of(b)
}

/// Parameters of the conversion of a matrix to blocks.
struct BlockPlan {
    b: usize,
    sort: Sort,
    basis: Basis,
    narrow: bool,
}

impl BlockPlan {
    fn new(analysis: &Analysis<'_>, params: &Params, target: &Target<'_>) -> Self {
        let pattern = analysis.pattern();
        let b = params.int("b");
        let sort = sort(params);
        let movable = movable(pattern.nrows(), pattern.ncols(), b, sort);
        BlockPlan {
            b,
            sort,
            basis: if movable { target.basis } else { Basis::Original },
            narrow: params.int("col") == 16,
        }
    }

    /// Bytes of the order: of block rows where y is scattered, of rows where the caller permutes by
    /// it.
    fn order_bytes(&self, nrows: usize) -> u64 {
        match (self.sort, self.basis) {
            (Sort::None, _) => 0,
            (_, Basis::Original) => 4 * nrows.div_ceil(self.b) as u64,
            (_, Basis::Permuted) => 4 * nrows as u64,
        }
    }

    /// First and one past the last block column of each hack.
    fn spans(&self, blocks: &Analysis<'_>) -> Arc<[Range<u32>]> {
        let new = (self.basis == Basis::Permuted).then(|| inverse(&blocks.order(self.sort)));
        blocks.spans(HACK, self.sort, new.as_deref())
    }
}

/// The blocks of a matrix, stored hack by hack.
#[derive(Debug)]
pub struct BhllLayout<T> {
    nrows: usize,
    ncols: usize,
    b: usize,
    /// First slot of each hack, and the end; a slot holds one block of each lane.
    hack_ptr: Offsets,
    columns: BlockColumns,
    /// Element `e` of the block of lane `l` in slot `s` is at `(s * b * b + e) * HACK + l`.
    values: Vec<T>,
    order: BlockRowOrder,
    /// Bounds, in hacks, of the parts that threads process.
    parts: Vec<usize>,
}

#[derive(Debug)]
enum BlockColumns {
    Wide(Vec<u32>),
    Narrow { base: Vec<u32>, offset: Vec<u16> },
}

/// Order of the stored block rows.
#[derive(Debug)]
enum BlockRowOrder {
    /// In the matrix's own order.
    Own,
    /// Block row of the matrix that each stored block row is.
    Blocks(Arc<[u32]>),
    /// Row of the matrix that each row of the permuted basis is.
    Rows(Vec<u32>),
}

impl<T: Scalar> BhllLayout<T> {
    fn new(csr: CsrRef<'_, T>, blocks: &Blocks, plan: &BlockPlan) -> Result<Self, Refusal> {
        let blocks = Analysis::new(blocks.pattern());
        let b = plan.b;
        let block_order = (plan.sort != Sort::None).then(|| blocks.order(plan.sort));
        let offsets = blocks.slice_offsets(HACK, plan.sort);
        let hack_ptr: Vec<usize> = offsets.iter().map(|&slots| slots as usize / HACK).collect();
        let n_slots = hack_ptr[hack_ptr.len() - 1];
        fill_marker::check("its blocks", (n_slots * HACK * b * b) as u128, csr.nnz())?;
        let new = match (plan.basis, &block_order) {
            (Basis::Permuted, Some(order)) => Some(inverse(order)),
            _ => None,
        };
        let relabel = |old: u32| new.as_ref().map_or(old, |new| new[old as usize]);
        let stored = |i: usize| block_order.as_ref().map_or(i, |order| order[i] as usize);
        let bounds: Vec<usize> = hack_ptr.iter().map(|slots| slots * HACK * b * b).collect();
        let step = if plan.sort == Sort::None { 1 } else { 512 / HACK };
        let parts = par::split(&bounds, step, par::GRAIN);

        let mut columns = match plan.narrow {
            false => BlockColumns::Wide(vec![u32::PADDING; n_slots * HACK]),
            true => {
                let spans = plan.spans(&blocks);
                check_spans(&spans)?;
                BlockColumns::Narrow {
                    base: spans.iter().map(|span| span.start).collect(),
                    offset: vec![u16::PADDING; n_slots * HACK],
                }
            }
        };
        for h in 0..hack_ptr.len() - 1 {
            for l in 0..HACK.min(blocks.pattern().nrows() - h * HACK) {
                let row = blocks.pattern().row(stored(h * HACK + l));
                for (slot, &column) in (hack_ptr[h]..).zip(row) {
                    match &mut columns {
                        BlockColumns::Wide(list) => list[slot * HACK + l] = relabel(column),
                        BlockColumns::Narrow { base, offset } => {
                            offset[slot * HACK + l] = (relabel(column) - base[h]) as u16;
                        }
                    }
                }
            }
        }

        let mut values = vec![T::ZERO; n_slots * HACK * b * b];
        par::slices_mut(&mut values, &bounds).into_par_iter().enumerate().for_each(
            |(h, values)| {
                values.fill(fill_marker::fill());
                for l in 0..HACK.min(blocks.pattern().nrows() - h * HACK) {
                    let block_row = stored(h * HACK + l);
                    let block_columns = blocks.pattern().row(block_row);
                    for p in 0..b.min(csr.nrows() - block_row * b) {
                        let (row_columns, entries) = csr.row(block_row * b + p);
                        let mut slot = 0;
                        for (&column, &entry) in row_columns.iter().zip(entries) {
                            while block_columns[slot] != column / b as u32 {
                                slot += 1;
                            }
                            let element = p * b + column as usize % b;
                            values[(slot * b * b + element) * HACK + l] = fill_marker::entry(entry);
                        }
                    }
                }
            },
        );
        let order = match (plan.basis, block_order) {
            (_, None) => BlockRowOrder::Own,
            (Basis::Original, Some(order)) => BlockRowOrder::Blocks(order),
            (Basis::Permuted, Some(order)) => {
                let rows = order.iter().flat_map(|&i| (0..b as u32).map(move |p| i * b as u32 + p));
                BlockRowOrder::Rows(rows.collect())
            }
        };
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        Ok(BhllLayout {
            nrows,
            ncols,
            b,
            hack_ptr: Offsets::new(&hack_ptr),
            columns,
            values,
            order,
            parts,
        })
    }

    /// The block row of y that stored block row `i` contributes to.
    fn target(&self, i: usize) -> usize {
        match &self.order {
            BlockRowOrder::Blocks(order) => order[i] as usize,
            BlockRowOrder::Own | BlockRowOrder::Rows(_) => i,
        }
    }

    /// The row of the matrix that corresponds to row `row` of y.
    fn old(&self, row: usize) -> usize {
        match &self.order {
            BlockRowOrder::Rows(order) => order[row] as usize,
            BlockRowOrder::Own | BlockRowOrder::Blocks(_) => row,
        }
    }

    /// The column of the matrix that corresponds to column `column` of x.
    fn old_column(&self, column: u32) -> u32 {
        match &self.order {
            BlockRowOrder::Rows(order) => order[column as usize],
            BlockRowOrder::Own | BlockRowOrder::Blocks(_) => column,
        }
    }

    /// Block column in slot `slot` of hack `h`; `None` for padding.
    fn column(&self, h: usize, slot: usize) -> Option<u32> {
        match &self.columns {
            BlockColumns::Wide(list) => Some(list[slot]).filter(|&column| column != u32::PADDING),
            BlockColumns::Narrow { base, offset } => Some(offset[slot])
                .filter(|&offset| offset != u16::PADDING)
                .map(|offset| base[h] + u32::from(offset)),
        }
    }

    fn n_hacks(&self) -> usize {
        self.hack_ptr.len() - 1
    }

    /// Stored block rows of hack `h`.
    fn block_rows(&self, h: usize) -> Range<usize> {
        h * HACK..((h + 1) * HACK).min(self.nrows.div_ceil(self.b))
    }

    /// Column of x and value of the entries in row `p` of stored block row `i`.
    fn entries(&self, i: usize, p: usize) -> impl Iterator<Item = (u32, T)> {
        let (h, l, b) = (i / HACK, i % HACK, self.b);
        (self.hack_ptr.get(h)..self.hack_ptr.get(h + 1))
            .map_while(move |slot| Some((slot, self.column(h, slot * HACK + l)?)))
            .flat_map(move |(slot, column)| {
                (0..b).map(move |q| {
                    let value = self.values[(slot * b * b + p * b + q) * HACK + l];
                    ((column as usize * b + q) as u32, value)
                })
            })
            .filter(|(_, value)| !value.is_negative_zero())
    }

    /// Row pointers of the CSR matrix.
    fn row_ptr(&self) -> Vec<usize> {
        let mut row_ptr = vec![0; self.nrows + 1];
        for i in 0..self.nrows.div_ceil(self.b) {
            let first = self.target(i) * self.b;
            for row in first..(first + self.b).min(self.nrows) {
                row_ptr[self.old(row) + 1] = self.entries(i, row - first).count();
            }
        }
        accumulate(&mut row_ptr);
        row_ptr
    }

    /// Adds the products of hack `h` to `sums`, where element `p` of lane `l` is at `p * HACK + l`.
    #[inline(always)]
    fn add<const B: usize>(
        &self,
        h: usize,
        x: &[T],
        sums: &mut [[T; HACK]; LARGEST],
        product: impl Fn(T, T) -> T,
    ) {
        for slot in self.hack_ptr.get(h)..self.hack_ptr.get(h + 1) {
            // x of each lane; 0 where the lane has no block or the block ends past the last column.
            let mut near = [[T::ZERO; HACK]; B];
            for l in 0..HACK {
                if let Some(column) = self.column(h, slot * HACK + l) {
                    let first = column as usize * B;
                    let here = &x[first..x.len().min(first + B)];
                    for (near, &x) in near.iter_mut().zip(here) {
                        near[l] = x;
                    }
                }
            }
            let block = &self.values[slot * B * B * HACK..][..B * B * HACK];
            for (element, values) in block.chunks_exact(HACK).enumerate() {
                let (sums, near) = (&mut sums[element / B], &near[element % B]);
                for l in 0..HACK {
                    sums[l] += product(values[l], near[l]);
                }
            }
        }
    }

    fn product<const B: usize>(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let in_rows = |&hack: &usize| (hack * HACK * B).min(self.nrows);
        let bounds: Vec<usize> = self.parts.iter().map(in_rows).collect();
        par::over_parts(&bounds, y, &|part, y| {
            for h in part.start / (HACK * B)..part.end.div_ceil(HACK * B) {
                let mut sums = [[T::ZERO; HACK]; LARGEST];
                self.add::<B>(h, x, &mut sums, |value, x| value * x);
                // Fill adds nothing to a sum, except that it yields NaN where x is not finite.
                if sums.iter().flatten().any(|sum| sum.is_nan()) {
                    sums = [[T::ZERO; HACK]; LARGEST];
                    self.add::<B>(h, x, &mut sums, fill_marker::product);
                }
                for (l, i) in self.block_rows(h).enumerate() {
                    let first = self.target(i) * B - part.start;
                    for (y, sums) in y[first..].iter_mut().zip(&sums[..B]) {
                        store(y, alpha, sums[l], beta);
                    }
                }
            }
        });
    }
}

impl<T: Scalar> Layout<T> for BhllLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        match self.b {
            2 => self.product::<2>(alpha, x, beta, y),
            3 => self.product::<3>(alpha, x, beta, y),
            4 => self.product::<4>(alpha, x, beta, y),
            5 => self.product::<5>(alpha, x, beta, y),
            _ => self.product::<LARGEST>(alpha, x, beta, y),
        }
    }

    fn bytes(&self) -> u64 {
        let columns = match &self.columns {
            BlockColumns::Wide(list) => bytes_of(list),
            BlockColumns::Narrow { base, offset } => bytes_of(base) + bytes_of(offset),
        };
        let order = match &self.order {
            BlockRowOrder::Own => 0,
            BlockRowOrder::Blocks(order) => bytes_of(order),
            BlockRowOrder::Rows(order) => bytes_of(order),
        };
        self.hack_ptr.bytes() + columns + bytes_of(&self.values) + order
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.row_ptr();
        let b = self.b;
        let mut slots = std::mem::take(&mut self.values);
        let bounds: Vec<usize> =
            (0..=self.n_hacks()).map(|h| self.hack_ptr.get(h) * HACK * b * b).collect();
        let layout = &*self;
        par::slices_mut(&mut slots, &bounds).into_par_iter().enumerate().for_each(|(h, slots)| {
            for (l, i) in layout.block_rows(h).enumerate() {
                let first = layout.target(i) * b;
                for row in first..(first + b).min(layout.nrows) {
                    let mut next = row_ptr[layout.old(row)];
                    for block in slots.chunks_exact_mut(b * b * HACK) {
                        for q in 0..b {
                            let value = &mut block[((row - first) * b + q) * HACK + l];
                            if !value.is_negative_zero() {
                                *value = fill_marker::entry(values[next]);
                                next += 1;
                            }
                        }
                    }
                }
            }
        });
        self.values = slots;
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr();
        let nnz = row_ptr[self.nrows];
        let (mut columns, mut values) = (vec![0; nnz], vec![T::ZERO; nnz]);
        for i in 0..self.nrows.div_ceil(self.b) {
            let first = self.target(i) * self.b;
            for row in first..(first + self.b).min(self.nrows) {
                let at = row_ptr[self.old(row)];
                for (at, (column, value)) in (at..).zip(self.entries(i, row - first)) {
                    columns[at] = self.old_column(column);
                    values[at] = value;
                }
            }
        }
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn order(&self) -> Option<&[u32]> {
        match &self.order {
            BlockRowOrder::Rows(order) => Some(order),
            BlockRowOrder::Own | BlockRowOrder::Blocks(_) => None,
        }
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let starts = arrays.add_offsets(&self.hack_ptr);
        let scatter = match &self.order {
            BlockRowOrder::Blocks(order) => arrays.add(order),
            BlockRowOrder::Own | BlockRowOrder::Rows(_) => NULL,
        };
        let (base, columns) = match &self.columns {
            BlockColumns::Wide(list) => (NULL, arrays.add(list)),
            BlockColumns::Narrow { base, offset } => (arrays.add(base), arrays.add(offset)),
        };
        let values = arrays.add(&self.values);
        let product = SliceProduct { starts, base, scatter, columns, values: vec![values] };
        let launch =
            block_conversion::product(product, [self.nrows, self.ncols], self.b, T::PRECISION);
        Some(arrays.on_device(values, vec![launch]))
    }
}
