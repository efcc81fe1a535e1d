//! The arrays of CHLL, and its product on a host.

use std::ops::Range;

use super::structure::other_values;
use super::{HACK, gpu};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef, complex};
use crate::dense::{DenseMut, DenseRef};
use crate::format::bhll::{BlockPlan, Blocks};
use crate::format::gpu::launch::{Arrays, NULL};
use crate::format::many::{self, BlockProduct, XBlock, YBlock};
use crate::format::row_order::Column;
use crate::format::sliced::{ColumnWidth, Indices, SliceProduct, SliceShape, Sliced};
use crate::format::{Layout, Offsets, OnDevice, Refusal, Target, bytes_of, store};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// Hacks of block rows, stored column by column.
#[derive(Debug)]
struct BlockHacks {
    /// First column of each hack, and the end; a column holds one block of each lane.
    hack_ptr: Offsets,
}

impl SliceShape for BlockHacks {
    fn rows(&self) -> usize {
        HACK
    }

    fn start(&self, s: usize) -> usize {
        HACK * self.hack_ptr.get(s)
    }

    fn slots(&self, s: usize, r: usize) -> impl Iterator<Item = usize> {
        (r..self.range(s).len()).step_by(HACK)
    }

    fn offsets(&self) -> &Offsets {
        &self.hack_ptr
    }
}

/// The blocks of a matrix, stored hack by hack.
#[derive(Debug)]
pub struct ChllLayout<T> {
    /// Pattern of block rows and block columns.
    blocks: Sliced<BlockHacks>,
    /// Real and imaginary part of each slot.
    values: Vec<[T; 2]>,
    /// Row of the matrix that each row of the permuted basis is.
    order: Option<Vec<u32>>,
    /// Bounds of the parts that threads process, in rows.
    parts: Vec<usize>,
    /// Blocks of x in products with several vectors.
    scratch: Scratch<T>,
}

impl<T: Scalar> ChllLayout<T> {
    /// Converts with one pass over block columns and two over values.
    ///
    /// # Errors
    /// [`Refusal`] where 16 bits do not hold the block columns of a hack.
    pub(super) fn new(
        csr: CsrRef<'_, T>,
        blocks: &Blocks,
        plan: &BlockPlan,
        target: &Target<'_>,
    ) -> Result<Self, Refusal> {
        let pattern = blocks.pattern();
        let analysis = Analysis::new(pattern);
        let offsets = analysis.slice_offsets(HACK, plan.sort);
        let hack_ptr: Vec<usize> = offsets.iter().map(|&slots| slots as usize / HACK).collect();
        let shape = BlockHacks { hack_ptr: Offsets::new(&hack_ptr) };
        let width = if plan.narrow { ColumnWidth::Narrow } else { ColumnWidth::Wide };
        let target = Target { basis: plan.basis, ..*target };
        let blocks = Sliced::new(pattern, &analysis, &target, plan.sort, shape, width)?;
        let pair = |i: &u32| [2 * i, 2 * i + 1];
        let order =
            blocks.rows.basis_order().map(|order| order.iter().flat_map(pair).collect::<Vec<_>>());
        let parts = blocks.rows.parts().iter().map(|bound| 2 * bound).collect();
        let mut values = vec![[T::ZERO; 2]; blocks.slots()];
        let pairs = numbers(pattern.row_ptr(), csr.values());
        blocks.fill(pattern.row_ptr(), &pairs, &mut values, |_, pair| pair);
        Ok(ChllLayout { blocks, values, order, parts, scratch: Scratch::default() })
    }

    /// The block row of y that stored block row `i` contributes to.
    #[inline(always)]
    fn target(&self, i: usize) -> usize {
        self.blocks.rows.scatter().map_or(i, |order| order[i] as usize)
    }

    /// The stored block rows of hack `h`.
    fn block_rows(&self, h: usize) -> Range<usize> {
        h * HACK..((h + 1) * HACK).min(self.blocks.rows.nrows())
    }

    /// Adds the products of all columns of a hack to `sums`: real and imaginary part of each lane.
    #[inline(always)]
    fn add<C: Column>(columns: &[C], values: &[[T; 2]], x: &[[T; 2]], sums: &mut [[T; 2]; HACK]) {
        let columns = columns.as_chunks::<HACK>().0;
        for (columns, values) in columns.iter().zip(values.as_chunks::<HACK>().0) {
            // x of each lane; 0 where the lane has no block.
            let near = columns.map(|column| x.get(column.index()).copied().unwrap_or_default());
            for ((sum, value), near) in sums.iter_mut().zip(values).zip(&near) {
                *sum = added(*sum, *value, *near);
            }
        }
    }

    /// The parts of rows, each with its hacks.
    fn hacks(part: &Range<usize>) -> Range<usize> {
        part.start / (2 * HACK)..part.end.div_ceil(2 * HACK)
    }
}

/// `sum + value * x` of complex numbers.
#[inline(always)]
fn added<T: Scalar>([real, imaginary]: [T; 2], [a, b]: [T; 2], [x, y]: [T; 2]) -> [T; 2] {
    [real + (a * x - b * y), imaginary + (b * x + a * y)]
}

/// The complex number of each block, from the values of a matrix in the order of its CSR arrays;
/// `row_ptr` counts blocks.
fn numbers<T: Scalar>(row_ptr: &[usize], values: &[T]) -> Vec<[T; 2]> {
    let mut numbers = vec![[T::ZERO; 2]; row_ptr[row_ptr.len() - 1]];
    over_block_rows(row_ptr, &mut numbers, &|i, numbers| {
        let [above, below] = rows_of(row_ptr, i, values);
        for (number, (above, below)) in numbers.iter_mut().zip(above.iter().zip(below)) {
            *number = [above[0], below[0]];
        }
    });
    numbers
}

/// Calls `work` with each block row and its elements of `numbers`, in parallel.
fn over_block_rows<E: Send>(
    row_ptr: &[usize],
    numbers: &mut [E],
    work: &(impl Fn(usize, &mut [E]) + Sync),
) {
    let bounds = par::split(row_ptr, 1, par::GRAIN);
    let cuts: Vec<usize> = bounds.iter().map(|&row| row_ptr[row]).collect();
    par::for_each(&mut par::slices_mut(numbers, &cuts), 1, |part, numbers| {
        let mut rest = &mut **numbers;
        for i in bounds[part]..bounds[part + 1] {
            let (own, after) = rest.split_at_mut(row_ptr[i + 1] - row_ptr[i]);
            rest = after;
            work(i, own);
        }
    });
}

/// The upper and the lower halves of the blocks of block row `i`.
fn rows_of<'a, T>(row_ptr: &[usize], i: usize, values: &'a [T]) -> [&'a [[T; 2]]; 2] {
    let [start, end] = [2 * row_ptr[i], 2 * row_ptr[i + 1]];
    let (pairs, _) = values.as_chunks::<2>();
    let middle = start + (end - start) / 2;
    [&pairs[start..middle], &pairs[middle..end]]
}

impl<T: Scalar> BlockProduct<T> for ChllLayout<T> {
    fn block<const C: usize>(&self, x: XBlock<'_, T>, (alpha, beta): (T, T), y: YBlock<'_, T, C>) {
        y.over_parts(&self.parts, &|part, mut y| {
            for i in Self::hacks(&part).flat_map(|h| self.block_rows(h)) {
                let mut sums = [[T::ZERO; C]; 2];
                for (column, slot) in self.blocks.entries(i) {
                    let value = self.values[slot];
                    let pair = [0, 1].map(|part| x.row::<C>(2 * column as usize + part));
                    let [Some(x), Some(y)] = pair else { break };
                    for c in 0..C {
                        [sums[0][c], sums[1][c]] =
                            added([sums[0][c], sums[1][c]], value, [x[c], y[c]]);
                    }
                }
                let first = 2 * self.target(i) - part.start;
                for (row, sums) in (first..).zip(&sums) {
                    y.put(row, alpha, sums, beta);
                }
            }
        });
    }
}

impl<T: Scalar> Layout<T> for ChllLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        let (x, _) = x.as_chunks::<2>();
        par::over_parts(&self.parts, y, &|part, y| {
            for h in Self::hacks(&part) {
                let range = self.blocks.shape.range(h);
                let values = &self.values[range.clone()];
                let mut sums = [[T::ZERO; 2]; HACK];
                match &self.blocks.columns {
                    Indices::Wide(all) => Self::add(&all[range], values, x, &mut sums),
                    Indices::Narrow { base, offset } => {
                        // The slice of x ends before the offset that marks padding.
                        let base = base[h] as usize;
                        let x = &x[base..x.len().min(base + u16::PADDING.index())];
                        Self::add(&offset[range], values, x, &mut sums);
                    }
                }
                for (i, sums) in self.block_rows(h).zip(&sums) {
                    let first = 2 * self.target(i) - part.start;
                    for (y, &sum) in y[first..].iter_mut().zip(sums) {
                        store(y, alpha, sum, beta);
                    }
                }
            }
        });
    }

    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        many::in_blocks(self, &self.scratch, (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        let order = match &self.order {
            Some(order) => bytes_of(order),
            None => self.blocks.rows.bytes(),
        };
        let structure = self.blocks.bytes() - self.blocks.rows.bytes();
        structure + order + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let row_ptr = self.blocks.row_ptr();
        let pairs = numbers(&row_ptr, values);
        self.blocks.fill(&row_ptr, &pairs, &mut self.values, |_, pair| pair);
    }

    fn limits_values(&self) -> bool {
        true
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        let row_ptr = self.blocks.row_ptr();
        let differs = |i: usize| {
            let [above, below] = rows_of(&row_ptr, i, values);
            !above.iter().zip(below).all(|(above, below)| complex::is_block([*above, *below]))
        };
        let rows = row_ptr.len() - 1;
        let first = par::reduce(
            rows,
            1 << 10,
            || usize::MAX,
            |i| if differs(i) { i } else { usize::MAX },
            usize::min,
        );
        if first < rows { Err(other_values(2 * first)) } else { Ok(()) }
    }

    fn to_csr(&self) -> Csr<T> {
        let [real, imaginary] =
            [0, 1].map(|part| self.blocks.to_csr(|slot| self.values[slot][part]));
        complex::blocks(real.pattern(), |k| [real.values()[k], imaginary.values()[k]])
    }

    fn order(&self) -> Option<&[u32]> {
        self.order.as_deref()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let of_starts = "first slot of each hack, and the end; a slot holds a block of each lane";
        let starts = arrays.add_offsets("hack_ptr", of_starts, self.blocks.shape.offsets());
        let of_order = "block row of y of each stored block row";
        let scatter = arrays.add_some("block_order", of_order, self.blocks.rows.scatter());
        let (base, columns) = match &self.blocks.columns {
            Indices::Wide(list) => {
                let meaning = "block column of each lane of each slot; 2^32 - 1 for padding";
                (NULL, arrays.add("col_idx", meaning, list))
            }
            Indices::Narrow { base, offset } => {
                let base = arrays.add("base", "first block column of each hack", base);
                let meaning =
                    "block column of each lane of each slot, less base; 2^16 - 1 for padding";
                (base, arrays.add("col_offset", meaning, offset))
            }
        };
        let of_values = "real and imaginary part of each lane of each slot; 0 for padding";
        let values = arrays.add_values("values", of_values, self.values.as_flattened());
        let product = SliceProduct { starts, base, scatter, columns, values: vec![values] };
        let launch = gpu::product(product, self.blocks.rows.nrows(), T::PRECISION);
        Some(arrays.on_device(values, vec![launch]))
    }
}
