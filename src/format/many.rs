//! Products with several vectors on a host: blocks of 8, 4, 2 and 1 columns, for each of which the
//! matrix is read once.
//!
//! A block of `B` columns of x is read row by row, so that one entry of the matrix meets `B`
//! consecutive elements. Column-major vectors are copied into that order first. Every column is
//! summed in the order of the entries, whatever the block, so that its result does not depend on
//! the columns beside it.

use std::ops::Range;

use super::store;
use crate::dense::{DenseMut, DenseRef, Order};
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// Columns of the largest block.
pub(super) const LARGEST_BLOCK: usize = 8;

/// A layout that multiplies blocks of columns.
pub(super) trait BlockProduct<T: Scalar> {
    /// Computes y = alpha A x + beta y for `B` columns; y is read only if `beta` is not 0.
    fn block<const B: usize>(&self, x: XBlock<'_, T>, factors: (T, T), y: YBlock<'_, T, B>);
}

/// Multiplies all columns in blocks. `scratch` holds a block of x if that is column-major.
pub(super) fn in_blocks<T: Scalar>(
    layout: &impl BlockProduct<T>,
    scratch: &Scratch<T>,
    factors: (T, T),
    x: DenseRef<'_, T>,
    mut y: DenseMut<'_, T>,
) {
    if y.nrows() == 0 {
        return;
    }
    let mut first = 0;
    while first < y.ncols() {
        first += match y.ncols() - first {
            8.. => one::<T, 8>(layout, scratch, factors, &x, first, &mut y),
            4.. => one::<T, 4>(layout, scratch, factors, &x, first, &mut y),
            2.. => one::<T, 2>(layout, scratch, factors, &x, first, &mut y),
            _ => one::<T, 1>(layout, scratch, factors, &x, first, &mut y),
        };
    }
}

/// Multiplies the columns from `first` on; returns their number.
fn one<T: Scalar, const B: usize>(
    layout: &impl BlockProduct<T>,
    scratch: &Scratch<T>,
    factors: (T, T),
    x: &DenseRef<'_, T>,
    first: usize,
    y: &mut DenseMut<'_, T>,
) -> usize {
    let y = YBlock::<T, B>::of(y, first);
    // A larger distance, times the column that marks padding, may not fit an index.
    if x.order() == Order::RowMajor && x.leading() < u32::MAX as usize {
        let data = x.data().get(first..).unwrap_or_default();
        layout.block(XBlock { x: data, stride: x.leading() }, factors, y);
    } else {
        scratch.with(x.nrows() * B, |packed| {
            pack(x, first, packed.as_chunks_mut::<B>().0);
            layout.block(XBlock { x: packed, stride: B }, factors, y);
        });
    }
    B
}

/// Rows that one thread copies at least.
const FEWEST: usize = 4096;

/// Copies the columns from `first` on, row by row.
fn pack<T: Scalar, const B: usize>(x: &DenseRef<'_, T>, first: usize, packed: &mut [[T; B]]) {
    let (data, leading) = (x.data(), x.leading());
    let [down, across] = match x.order() {
        Order::ColumnMajor => [1, leading],
        Order::RowMajor => [leading, 1],
    };
    par::for_each(packed, FEWEST, |row, packed| {
        for (c, packed) in packed.iter_mut().enumerate() {
            *packed = data[row * down + (first + c) * across];
        }
    });
}

/// A block of columns of x, row by row.
#[derive(Clone, Copy)]
pub(super) struct XBlock<'a, T> {
    x: &'a [T],
    /// Elements from one row to the next.
    stride: usize,
}

impl<'a, T: Scalar> XBlock<'a, T> {
    /// Elements of row `j`; `None` past the end, where padding points.
    #[inline(always)]
    pub fn row<const B: usize>(&self, j: usize) -> Option<&'a [T; B]> {
        self.x.get(j * self.stride..)?.first_chunk()
    }

    /// The rows from `first` on, `count` at most.
    #[inline(always)]
    pub fn from(&self, first: usize, count: usize) -> Self {
        let end = self.x.len().min((first + count) * self.stride);
        XBlock { x: self.x.get(first * self.stride..end).unwrap_or_default(), ..*self }
    }

    /// Sums of `values[k] * x[columns[k]]`, in the order of `k`.
    #[inline(always)]
    pub fn dot<const B: usize>(&self, values: &[T], columns: &[u32]) -> [T; B] {
        let mut sums = [T::ZERO; B];
        for (&value, &column) in values.iter().zip(columns) {
            if let Some(x) = self.row(column as usize) {
                add(&mut sums, x, |x| value * x);
            }
        }
        sums
    }
}

/// `sums[c] += product(x[c])`.
#[inline(always)]
pub(super) fn add<T: Scalar, const B: usize>(
    sums: &mut [T; B],
    x: &[T; B],
    product: impl Fn(T) -> T,
) {
    for (sum, &x) in sums.iter_mut().zip(x) {
        *sum += product(x);
    }
}

/// A block of columns of y, or of some of its rows.
pub(super) enum YBlock<'a, T, const B: usize> {
    /// Element `c` of row `i` is at `i * stride + c`.
    Rows {
        y: &'a mut [T],
        /// Elements from one row to the next.
        stride: usize,
    },
    /// The columns, each contiguous.
    Columns([&'a mut [T]; B]),
}

impl<'a, T: Scalar, const B: usize> YBlock<'a, T, B> {
    /// The columns of y from `first` on; y has rows.
    fn of(y: &'a mut DenseMut<'_, T>, first: usize) -> Self {
        let (nrows, stride, order) = (y.nrows(), y.leading(), y.order());
        match order {
            Order::RowMajor => YBlock::Rows { y: &mut y.data_mut()[first..], stride },
            Order::ColumnMajor => {
                let mut columns = y.data_mut()[first * stride..].chunks_mut(stride);
                YBlock::Columns(std::array::from_fn(|_| {
                    &mut columns.next().expect("y has this column")[..nrows]
                }))
            }
        }
    }

    /// All rows, for a shorter time.
    pub fn reborrow(&mut self) -> YBlock<'_, T, B> {
        match self {
            YBlock::Rows { y, stride } => YBlock::Rows { y, stride: *stride },
            YBlock::Columns(columns) => YBlock::Columns(columns.each_mut().map(|y| &mut **y)),
        }
    }

    /// The rows before `row`, and the rest.
    fn split_at(self, row: usize) -> (Self, Self) {
        match self {
            YBlock::Rows { y, stride } => {
                let (low, high) = y.split_at_mut(y.len().min(row * stride));
                (YBlock::Rows { y: low, stride }, YBlock::Rows { y: high, stride })
            }
            YBlock::Columns(columns) => {
                let mut lows: [&mut [T]; B] = std::array::from_fn(|_| Default::default());
                let mut highs: [&mut [T]; B] = std::array::from_fn(|_| Default::default());
                for ((column, low), high) in columns.into_iter().zip(&mut lows).zip(&mut highs) {
                    (*low, *high) = column.split_at_mut(row);
                }
                (YBlock::Columns(lows), YBlock::Columns(highs))
            }
        }
    }

    /// Runs `work` on each part of the rows, in parallel if there are several: as
    /// [`par::over_parts`].
    pub fn over_parts(
        self,
        bounds: &[usize],
        work: &(dyn Fn(Range<usize>, YBlock<'_, T, B>) + Sync + '_),
    ) {
        match bounds {
            [] | [_] => {}
            [start, end] => work(*start..*end, self),
            _ => {
                let middle = bounds.len() / 2;
                let (low, high) = self.split_at(bounds[middle] - bounds[0]);
                par::join(
                    || low.over_parts(&bounds[..=middle], work),
                    || high.over_parts(&bounds[middle..], work),
                );
            }
        }
    }

    /// Stores `y = alpha * sums + beta * y` in row `row`.
    #[inline(always)]
    pub fn put(&mut self, row: usize, alpha: T, sums: &[T; B], beta: T) {
        match self {
            YBlock::Rows { y, stride } => {
                for (y, &sum) in y[row * *stride..].iter_mut().zip(sums) {
                    store(y, alpha, sum, beta);
                }
            }
            YBlock::Columns(columns) => {
                for (y, &sum) in columns.iter_mut().zip(sums) {
                    store(&mut y[row], alpha, sum, beta);
                }
            }
        }
    }
}
