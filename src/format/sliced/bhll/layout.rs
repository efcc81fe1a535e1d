//! The arrays of BHLL and BHLL-F32, and their product on a host.

use std::ops::Range;
use std::sync::Arc;

use super::blocks::Blocks;
use super::stored::{BlockColumns, StoredBlocks};
use super::{BlockPlan, HACK, gpu};
use crate::analysis::{Analysis, Sort};
use crate::csr::{Csr, CsrRef, accumulate};
use crate::dense::{DenseMut, DenseRef};
use crate::format::gpu::launch::{Arrays, NULL};
use crate::format::many::{self, BlockProduct, XBlock, YBlock};
use crate::format::narrow::{self, AsGiven, Keep, StoredValue};
use crate::format::row_order::Column;
use crate::format::sliced::SliceProduct;
use crate::format::{Basis, Layout, Offsets, OnDevice, Refusal, bytes_of, fill_marker, store};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// The largest block.
const LARGEST: usize = 6;

/// The blocks of a matrix, stored hack by hack.
#[derive(Debug)]
pub struct BhllLayout<T: Scalar, K: Keep = AsGiven> {
    nrows: usize,
    ncols: usize,
    b: usize,
    /// First slot of each hack, and the end; a slot holds one block of each lane.
    hack_ptr: Offsets,
    columns: BlockColumns,
    /// Element `e` of the block of lane `l` in slot `s` is at `(s * b * b + e) * HACK + l`.
    values: Vec<K::Of<T>>,
    keep: K,
    /// The image and the kernel of a product, without block, columns and precision.
    kernel: &'static str,
    order: BlockRowOrder,
    /// Bounds, in hacks, of the parts that threads process.
    parts: Vec<usize>,
    /// Blocks of x in products with several vectors.
    scratch: Scratch<T>,
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

impl BlockRowOrder {
    fn of(order: Option<Arc<[u32]>>, plan: &BlockPlan) -> Self {
        let b = plan.b as u32;
        match (plan.basis, order) {
            (_, None) => BlockRowOrder::Own,
            (Basis::Original, Some(order)) => BlockRowOrder::Blocks(order),
            (Basis::Permuted, Some(order)) => {
                let rows = order.iter().flat_map(|&i| (0..b).map(move |p| i * b + p));
                BlockRowOrder::Rows(rows.collect())
            }
        }
    }
}

impl<T: Scalar, K: Keep> BhllLayout<T, K> {
    pub(super) fn new(
        csr: CsrRef<'_, T>,
        blocks: &Blocks,
        plan: &BlockPlan,
        (kernel, keep): (&'static str, K),
    ) -> Result<Self, Refusal> {
        let blocks = Analysis::new(blocks.pattern());
        let b = plan.b;
        let order = (plan.sort != Sort::None).then(|| blocks.order(plan.sort));
        let offsets = blocks.slice_offsets(HACK, plan.sort);
        let hack_ptr: Vec<usize> = offsets.iter().map(|&slots| slots as usize / HACK).collect();
        let n_slots = hack_ptr[hack_ptr.len() - 1];
        fill_marker::check("its blocks", (n_slots * HACK * b * b) as u128, csr.nnz())?;
        let bounds: Vec<usize> = hack_ptr.iter().map(|slots| slots * HACK * b * b).collect();
        let step = if plan.sort == Sort::None { 1 } else { 512 / HACK };
        let parts = par::split(&bounds, step, par::GRAIN);
        let stored = StoredBlocks { blocks: &blocks, order: order.as_deref(), hack_ptr: &hack_ptr };
        Ok(BhllLayout {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            b,
            columns: stored.columns(plan)?,
            values: stored.values::<T, K>(csr, b, &bounds),
            keep,
            kernel,
            order: BlockRowOrder::of(order.clone(), plan),
            hack_ptr: Offsets::new(&hack_ptr),
            parts,
            scratch: Scratch::default(),
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
                    let value = K::load::<T>(self.values[(slot * b * b + p * b + q) * HACK + l]);
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
                    sums[l] += product(K::load(values[l]), near[l]);
                }
            }
        }
    }

    /// Bounds of the parts, in rows.
    fn row_parts(&self) -> Vec<usize> {
        self.parts.iter().map(|&hack| (hack * HACK * self.b).min(self.nrows)).collect()
    }

    /// As [`BhllLayout::add`], for `C` columns of x; `sums` holds the rows of each lane's block.
    #[inline(always)]
    fn add_block<const B: usize, const C: usize>(
        &self,
        h: usize,
        x: XBlock<'_, T>,
        sums: &mut [[[T; C]; B]; HACK],
        product: impl Fn(T, T) -> T,
    ) {
        for slot in self.hack_ptr.get(h)..self.hack_ptr.get(h + 1) {
            let block = &self.values[slot * B * B * HACK..][..B * B * HACK];
            for (l, sums) in sums.iter_mut().enumerate() {
                let Some(column) = self.column(h, slot * HACK + l) else { continue };
                for q in 0..B {
                    // The block may end past the last column.
                    let Some(x) = x.row(column as usize * B + q) else { break };
                    for (p, sums) in sums.iter_mut().enumerate() {
                        let value = K::load(block[(p * B + q) * HACK + l]);
                        many::add(sums, x, |x| product(value, x));
                    }
                }
            }
        }
    }

    fn multiply_block<const B: usize, const C: usize>(
        &self,
        x: XBlock<'_, T>,
        (alpha, beta): (T, T),
        y: YBlock<'_, T, C>,
    ) {
        y.over_parts(&self.row_parts(), &|part, mut y| {
            for h in part.start / (HACK * B)..part.end.div_ceil(HACK * B) {
                let mut sums = [[[T::ZERO; C]; B]; HACK];
                self.add_block(h, x, &mut sums, |value, x| value * x);
                // Fill adds nothing to a sum, except that it yields NaN where x is not finite.
                if sums.as_flattened().as_flattened().iter().any(|sum| sum.is_nan()) {
                    sums = [[[T::ZERO; C]; B]; HACK];
                    self.add_block(h, x, &mut sums, fill_marker::product);
                }
                for (i, sums) in self.block_rows(h).zip(&sums) {
                    let first = self.target(i) * B;
                    for (row, sums) in (first..self.nrows).zip(sums) {
                        y.put(row - part.start, alpha, sums, beta);
                    }
                }
            }
        });
    }

    fn product<const B: usize>(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.row_parts(), y, &|part, y| {
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

impl<T: Scalar, K: Keep> BlockProduct<T> for BhllLayout<T, K> {
    fn block<const C: usize>(&self, x: XBlock<'_, T>, factors: (T, T), y: YBlock<'_, T, C>) {
        match self.b {
            2 => self.multiply_block::<2, C>(x, factors, y),
            3 => self.multiply_block::<3, C>(x, factors, y),
            4 => self.multiply_block::<4, C>(x, factors, y),
            5 => self.multiply_block::<5, C>(x, factors, y),
            _ => self.multiply_block::<LARGEST, C>(x, factors, y),
        }
    }
}

impl<T: Scalar, K: Keep> Layout<T> for BhllLayout<T, K> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        match self.b {
            2 => self.product::<2>(alpha, x, beta, y),
            3 => self.product::<3>(alpha, x, beta, y),
            4 => self.product::<4>(alpha, x, beta, y),
            5 => self.product::<5>(alpha, x, beta, y),
            _ => self.product::<LARGEST>(alpha, x, beta, y),
        }
    }

    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        many::in_blocks(self, &self.scratch, (alpha, beta), x, y);
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
        par::for_each(&mut par::slices_mut(&mut slots, &bounds), 1, |h, slots| {
            for (l, i) in layout.block_rows(h).enumerate() {
                let first = layout.target(i) * b;
                for row in first..(first + b).min(layout.nrows) {
                    let mut next = row_ptr[layout.old(row)];
                    for block in slots.chunks_exact_mut(b * b * HACK) {
                        for q in 0..b {
                            let value = &mut block[((row - first) * b + q) * HACK + l];
                            if !value.is_negative_zero() {
                                *value = K::store(fill_marker::entry(values[next]));
                                next += 1;
                            }
                        }
                    }
                }
            }
        });
        self.values = slots;
    }

    fn limits_values(&self) -> bool {
        self.keep.limits()
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.keep.check(values, |k| narrow::row_of(&self.row_ptr(), k))
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
        let of_starts = "first slot of each hack, and the end; a slot holds a block of each lane";
        let starts = arrays.add_offsets("hack_ptr", of_starts, &self.hack_ptr);
        let scatter = match &self.order {
            BlockRowOrder::Blocks(order) => {
                arrays.add("block_order", "block row of y of each stored block row", order)
            }
            BlockRowOrder::Own | BlockRowOrder::Rows(_) => NULL,
        };
        let (base, columns) = match &self.columns {
            BlockColumns::Wide(list) => {
                let meaning = "block column of each lane of each slot; 2^32 - 1 for padding";
                (NULL, arrays.add("col_idx", meaning, list))
            }
            BlockColumns::Narrow { base, offset } => {
                let base = arrays.add("base", "first block column of each hack", base);
                let meaning =
                    "block column of each lane of each slot, less base; 2^16 - 1 for padding";
                (base, arrays.add("col_offset", meaning, offset))
            }
        };
        let of_values = "elements of the blocks, 32 lanes side by side; -0.0 for fill";
        let values = arrays.add_values("values", of_values, &self.values);
        arrays.number("b", "rows and columns of a block", self.b);
        let product = SliceProduct { starts, base, scatter, columns, values: vec![values] };
        let kernel = (self.kernel, T::PRECISION);
        let launch = gpu::product(product, [self.nrows, self.ncols], self.b, kernel);
        Some(arrays.on_device(values, vec![launch]))
    }
}
