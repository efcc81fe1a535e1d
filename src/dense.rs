//! Dense matrices whose columns are the vectors of a product with several right-hand sides.
//!
//! A matrix borrows its elements from a slice. The leading dimension is the distance in elements
//! between two columns in column-major order, or between two rows in row-major order; elements
//! between the end of one and the start of the next are never read or written.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Order of the elements of a dense matrix.
///
/// ```
/// use ellect::dense::Order;
///
/// assert_eq!(Order::RowMajor.to_string(), "row-major");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Column after column, as in Fortran: each vector is contiguous.
    ColumnMajor,
    /// Row after row, as in C: the elements of all vectors for one row are contiguous.
    RowMajor,
}

impl Order {
    /// Both orders.
    pub const ALL: [Order; 2] = [Order::ColumnMajor, Order::RowMajor];

    /// Returns `"column-major"` or `"row-major"`.
    pub const fn name(self) -> &'static str {
        match self {
            Order::ColumnMajor => "column-major",
            Order::RowMajor => "row-major",
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Size and order of a dense matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub nrows: usize,
    pub ncols: usize,
    pub order: Order,
    pub leading: usize,
}

impl Shape {
    /// Checks a shape against a slice of `len` elements; returns it and the number of elements that
    /// it needs.
    pub fn checked(
        order: Order,
        [nrows, ncols]: [usize; 2],
        leading: usize,
        len: usize,
    ) -> Result<(Self, usize)> {
        let (lines, line, what) = match order {
            Order::ColumnMajor => (ncols, nrows, "columns"),
            Order::RowMajor => (nrows, ncols, "rows"),
        };
        if lines == 0 || line == 0 {
            return Ok((Shape { nrows, ncols, order, leading: line.max(1) }, 0));
        }
        if lines == 1 {
            // There is no second line whose distance would count.
            let shape = Shape { nrows, ncols, order, leading: line };
            return shape.fitting(line as u128, len);
        }
        if leading < line {
            return Err(Error::argument(format!(
                "the leading dimension of a {order} matrix of {nrows} rows and {ncols} columns is \
                 {leading}; it must be at least {line}: pass the distance between two {what}, in \
                 elements"
            )));
        }
        let needed = (lines as u128 - 1) * leading as u128 + line as u128;
        Shape { nrows, ncols, order, leading }.fitting(needed, len)
    }

    /// Checks that a slice of `len` elements holds `needed` elements.
    fn fitting(self, needed: u128, len: usize) -> Result<(Self, usize)> {
        let Shape { nrows, ncols, order, leading } = self;
        match usize::try_from(needed) {
            Ok(needed) if needed <= len => Ok((self, needed)),
            _ => Err(Error::argument(format!(
                "a {order} matrix of {nrows} rows and {ncols} columns with leading dimension \
                 {leading} needs {needed} elements; the slice has {len}: pass a longer slice, or \
                 the numbers of rows and columns that it holds"
            ))),
        }
    }

    /// Elements of column `c`, where columns are contiguous.
    fn column(&self, c: usize) -> Option<Range<usize>> {
        let start = match self.order {
            Order::ColumnMajor if c < self.ncols && self.nrows > 0 => c * self.leading,
            Order::ColumnMajor if c < self.ncols => 0,
            _ => return None,
        };
        Some(start..start + self.nrows)
    }

    /// Place of element (`row`, `column`).
    fn at(&self, row: usize, column: usize) -> Option<usize> {
        let inside = row < self.nrows && column < self.ncols;
        inside.then(|| match self.order {
            Order::ColumnMajor => column * self.leading + row,
            Order::RowMajor => row * self.leading + column,
        })
    }
}

/// A dense matrix to read: the vectors x of a product, one per column.
///
/// ```
/// use ellect::dense::{DenseRef, Order};
///
/// # fn main() -> ellect::Result<()> {
/// // Two vectors of three elements, in both orders.
/// let x = DenseRef::columns(3, 2, &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0])?;
/// let same = DenseRef::rows(3, 2, &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0])?;
/// assert_eq!((x.get(2, 1), same.get(2, 1)), (Some(30.0), Some(30.0)));
///
/// // The first two rows of each column of a larger matrix.
/// let part = DenseRef::new(Order::ColumnMajor, [2, 2], 3, x.data())?;
/// assert_eq!(part.get(1, 1), Some(20.0));
/// let error = DenseRef::columns(3, 3, x.data()).expect_err("the slice is too short");
/// assert!(error.to_string().contains("needs 9 elements; the slice has 6"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DenseRef<'a, T> {
    shape: Shape,
    data: &'a [T],
}

impl<'a, T: Copy> DenseRef<'a, T> {
    /// Borrows a matrix of `[nrows, ncols]` with this leading dimension; `data` may be longer.
    ///
    /// # Errors
    /// [`Error::Argument`] if the leading dimension is less than a column (column-major) or a row
    /// (row-major), or if `data` is too short.
    pub fn new(
        order: Order,
        [nrows, ncols]: [usize; 2],
        leading: usize,
        data: &'a [T],
    ) -> Result<Self> {
        let (shape, needed) = Shape::checked(order, [nrows, ncols], leading, data.len())?;
        Ok(DenseRef { shape, data: &data[..needed] })
    }

    /// Borrows a column-major matrix without gaps.
    ///
    /// # Errors
    /// [`Error::Argument`] if `data` is too short.
    pub fn columns(nrows: usize, ncols: usize, data: &'a [T]) -> Result<Self> {
        DenseRef::new(Order::ColumnMajor, [nrows, ncols], nrows, data)
    }

    /// Borrows a row-major matrix without gaps.
    ///
    /// # Errors
    /// [`Error::Argument`] if `data` is too short.
    pub fn rows(nrows: usize, ncols: usize, data: &'a [T]) -> Result<Self> {
        DenseRef::new(Order::RowMajor, [nrows, ncols], ncols, data)
    }

    /// Returns the number of rows: elements of each vector.
    pub fn nrows(&self) -> usize {
        self.shape.nrows
    }

    /// Returns the number of columns: vectors.
    pub fn ncols(&self) -> usize {
        self.shape.ncols
    }

    /// Returns the order of the elements.
    pub fn order(&self) -> Order {
        self.shape.order
    }

    /// Returns the leading dimension, in elements; that of a single column or row is its length.
    pub fn leading(&self) -> usize {
        self.shape.leading
    }

    /// Returns the elements, from the first to the last one, with the gaps between.
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// Returns a column of a column-major matrix; `None` past the end and in row-major order.
    pub fn column(&self, c: usize) -> Option<&'a [T]> {
        self.data.get(self.shape.column(c)?)
    }

    /// Returns an element; `None` outside the matrix.
    pub fn get(&self, row: usize, column: usize) -> Option<T> {
        self.data.get(self.shape.at(row, column)?).copied()
    }

    /// Copies some columns to `into`, one after the other.
    fn gather(&self, columns: Range<usize>, into: &mut [T]) {
        let Shape { nrows, leading, .. } = self.shape;
        for (into, c) in into.chunks_exact_mut(nrows.max(1)).zip(columns) {
            match self.column(c) {
                Some(column) => into.copy_from_slice(column),
                None => {
                    for (into, row) in into.iter_mut().zip(self.data.chunks(leading)) {
                        *into = row[c];
                    }
                }
            }
        }
    }
}

/// A dense matrix to write, and to read if the product adds to it: the vectors y, one per column.
///
/// ```
/// use ellect::dense::{DenseMut, DenseRef};
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
/// let operator = Tuner::open("cpu")?.prepare(&csr, &Workload::default())?;
/// let x = [1.0, 2.0, 3.0, 10.0, 20.0, 30.0];
/// let mut y = [f64::NAN; 4];
/// let (x, y_all) = (DenseRef::columns(3, 2, &x)?, DenseMut::rows(2, 2, &mut y)?);
/// operator.apply_many(1.0, x, 0.0, y_all)?;
/// assert_eq!(y, [7.0, 70.0, 10.0, 100.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DenseMut<'a, T> {
    shape: Shape,
    data: &'a mut [T],
}

impl<'a, T: Copy> DenseMut<'a, T> {
    /// Borrows a matrix like [`DenseRef::new`].
    ///
    /// # Errors
    /// As [`DenseRef::new`].
    pub fn new(
        order: Order,
        [nrows, ncols]: [usize; 2],
        leading: usize,
        data: &'a mut [T],
    ) -> Result<Self> {
        let (shape, needed) = Shape::checked(order, [nrows, ncols], leading, data.len())?;
        Ok(DenseMut { shape, data: &mut data[..needed] })
    }

    /// Borrows a column-major matrix without gaps.
    ///
    /// # Errors
    /// [`Error::Argument`] if `data` is too short.
    pub fn columns(nrows: usize, ncols: usize, data: &'a mut [T]) -> Result<Self> {
        DenseMut::new(Order::ColumnMajor, [nrows, ncols], nrows, data)
    }

    /// Borrows a row-major matrix without gaps.
    ///
    /// # Errors
    /// [`Error::Argument`] if `data` is too short.
    pub fn rows(nrows: usize, ncols: usize, data: &'a mut [T]) -> Result<Self> {
        DenseMut::new(Order::RowMajor, [nrows, ncols], ncols, data)
    }

    /// Returns the number of rows: elements of each vector.
    pub fn nrows(&self) -> usize {
        self.shape.nrows
    }

    /// Returns the number of columns: vectors.
    pub fn ncols(&self) -> usize {
        self.shape.ncols
    }

    /// Returns the order of the elements.
    pub fn order(&self) -> Order {
        self.shape.order
    }

    /// Returns the leading dimension, in elements; that of a single column or row is its length.
    pub fn leading(&self) -> usize {
        self.shape.leading
    }

    /// Returns the elements, from the first to the last one, with the gaps between.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// Returns the matrix to read.
    pub fn as_ref(&self) -> DenseRef<'_, T> {
        DenseRef { shape: self.shape, data: self.data }
    }

    /// Returns the matrix for a shorter time.
    pub fn reborrow(&mut self) -> DenseMut<'_, T> {
        DenseMut { shape: self.shape, data: self.data }
    }

    /// Returns a column of a column-major matrix; `None` past the end and in row-major order.
    pub fn column_mut(&mut self, c: usize) -> Option<&mut [T]> {
        self.data.get_mut(self.shape.column(c)?)
    }

    /// Copies columns that lie one after the other in `from` to some columns.
    fn scatter(&mut self, columns: Range<usize>, from: &[T]) {
        let Shape { nrows, leading, .. } = self.shape;
        for (from, c) in from.chunks_exact(nrows.max(1)).zip(columns) {
            for (row, &value) in self.data.chunks_mut(leading).zip(from) {
                row[c] = value;
            }
        }
    }
}

/// Checks that x and y fit a matrix of `[nrows, ncols]` and have equally many columns.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Argument`] with the sizes.
pub(crate) fn check<T: Copy>(
    matrix: [usize; 2],
    x: &DenseRef<'_, T>,
    y: &DenseMut<'_, T>,
) -> Result<()> {
    check_shapes(matrix, [[x.nrows(), x.ncols()], [y.nrows(), y.ncols()]])
}

/// Checks like [`check`], from the numbers of rows and columns of x and y.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_shapes([nrows, ncols]: [usize; 2], [x, y]: [[usize; 2]; 2]) -> Result<()> {
    if x[0] != ncols {
        return Err(Error::Shape { what: "a column of x", got: x[0], needed: ncols });
    }
    if y[0] != nrows {
        return Err(Error::Shape { what: "a column of y", got: y[0], needed: nrows });
    }
    if x[1] != y[1] {
        return Err(Error::argument(format!(
            "x has {} columns and y has {}; give both as many columns as there are vectors",
            x[1], y[1]
        )));
    }
    Ok(())
}

/// Columns that are copied at a time: a row of this many values of 8 bytes is a cache line.
const BLOCK: usize = 8;

/// A product of one vector.
type Product<'p, T, E> = dyn FnMut(&[T], &mut [T]) -> std::result::Result<(), E> + 'p;

/// Calls `product` for each column of x and y.
///
/// Columns of a row-major matrix are copied in blocks. Those of y are read only if `reads_y`.
///
/// # Errors
/// The first error of `product`; the columns after it are unchanged.
pub(crate) fn by_columns<T: Scalar, E>(
    x: DenseRef<'_, T>,
    mut y: DenseMut<'_, T>,
    reads_y: bool,
    product: &mut Product<'_, T, E>,
) -> std::result::Result<(), E> {
    let (x_rows, y_rows) = (x.nrows(), y.nrows());
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for first in (0..y.ncols()).step_by(BLOCK) {
        let block = first..y.ncols().min(first + BLOCK);
        if x.order() == Order::RowMajor {
            xs.resize(block.len() * x_rows, T::ZERO);
            x.gather(block.clone(), &mut xs);
        }
        if y.order() == Order::RowMajor {
            ys.resize(block.len() * y_rows, T::ZERO);
            if reads_y {
                y.as_ref().gather(block.clone(), &mut ys);
            }
        }
        for c in block.clone() {
            let at = c - first;
            let x = x.column(c).unwrap_or_else(|| &xs[at * x_rows..][..x_rows]);
            match y.column_mut(c) {
                Some(y) => product(x, y)?,
                None => product(x, &mut ys[at * y_rows..][..y_rows])?,
            }
        }
        if y.order() == Order::RowMajor {
            y.scatter(block, &ys);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_do_not_fit_are_refused_with_figures() {
        let data = [0.0f64; 12];
        let error = |order, shape, leading| {
            DenseRef::new(order, shape, leading, &data).expect_err("it is refused").to_string()
        };
        let short = error(Order::ColumnMajor, [3, 5], 3);
        assert!(short.contains("needs 15 elements; the slice has 12"), "{short}");
        let gaps = error(Order::RowMajor, [3, 4], 5);
        assert!(gaps.contains("leading dimension 5 needs 14 elements"), "{gaps}");
        let leading = error(Order::ColumnMajor, [3, 4], 2);
        assert!(leading.contains("is 2; it must be at least 3"), "{leading}");
        let leading = error(Order::RowMajor, [3, 4], 3);
        assert!(leading.contains("distance between two rows"), "{leading}");
        for huge in [[usize::MAX, usize::MAX], [usize::MAX, 2], [2, usize::MAX]] {
            for order in Order::ALL {
                assert!(error(order, huge, usize::MAX).contains("the slice has 12"));
            }
        }
    }

    #[test]
    fn empty_matrices_and_single_lines_need_no_leading_dimension() {
        let data = [1.0f64, 2.0];
        for order in Order::ALL {
            for shape in [[0, 5], [5, 0], [0, 0]] {
                let empty = DenseRef::new(order, shape, 0, &data[..0]).expect("no elements");
                assert_eq!((empty.nrows(), empty.ncols()), (shape[0], shape[1]));
                assert_eq!(empty.get(0, 0), None);
            }
            let [lines, line] = match order {
                Order::ColumnMajor => [[2, 1], [0, 1]],
                Order::RowMajor => [[1, 2], [1, 0]],
            };
            let single = DenseRef::new(order, lines, usize::MAX, &data).expect("one line");
            assert_eq!(single.leading(), 2);
            assert!(DenseRef::new(order, line, 0, &data).is_ok());
        }
    }

    #[test]
    fn columns_are_copied_from_and_to_rows_without_the_gaps() {
        let (n, k) = (3, 11);
        let value = |row: usize, c: usize| (100 * c + row) as f64;
        let mut x = vec![f64::NAN; n * (k + 2)];
        for (row, line) in x.chunks_mut(k + 2).enumerate() {
            (0..k).for_each(|c| line[c] = value(row, c));
        }
        let x = DenseRef::new(Order::RowMajor, [n, k], k + 2, &x).expect("it fits");
        for order in Order::ALL {
            let leading = if order == Order::RowMajor { k + 1 } else { n + 1 };
            let mut data = vec![-1.0; (n + 1) * (k + 1)];
            let y = DenseMut::new(order, [n, k], leading, &mut data).expect("it fits");
            let mut seen = 0;
            by_columns(x, y, true, &mut |x, y| {
                assert!((0..n).all(|row| x[row] == value(row, seen) && y[row] == -1.0));
                y.copy_from_slice(x);
                seen += 1;
                Ok::<(), Error>(())
            })
            .expect("no product fails");
            assert_eq!(seen, k);
            let y = DenseRef::new(order, [n, k], leading, &data).expect("it fits");
            for (row, c) in (0..n).flat_map(|row| (0..k).map(move |c| (row, c))) {
                assert_eq!(y.get(row, c), Some(value(row, c)));
            }
            assert_eq!(data.iter().filter(|value| **value == -1.0).count(), data.len() - n * k);
        }
    }
}
