//! A CSR matrix that borrows the caller's arrays.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use super::{Csr, Pattern, check_arrays};
use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// A valid CSR matrix that borrows the caller's arrays: a few pointers, cheap to copy.
///
/// [`Tuner::prepare`](crate::Tuner::prepare) and every function that only reads a matrix take
/// either this type or `&Csr`. Columns of `i32` are reinterpreted as `u32`; [`RowPtr`] widens
/// offsets of less than 8 bytes. Therefore the arrays of SciPy (`int32` offsets and columns) can be
/// used without copying the entries:
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::csr::{CsrRef, RowPtr};
/// use ellect::{Tuner, device};
///
/// # fn main() -> ellect::Result<()> {
/// let (indptr, indices) = ([0i32, 2, 3], [0i32, 2, 1]);
/// let data = [4.0, 1.0, 5.0];
///
/// let row_ptr = RowPtr::new(&indptr)?;
/// let csr = CsrRef::new(2, 3, &row_ptr, &indices, &data)?;
/// let operator = Tuner::without_models(device::find("cpu")?).prepare(csr, &Workload::default())?;
///
/// let mut y = [0.0; 2];
/// operator.apply(1.0, &[1.0, 2.0, 3.0], 0.0, &mut y)?;
/// assert_eq!(y, [7.0, 10.0]);
/// # Ok(())
/// # }
/// ```
///
/// The invariants are those of [`Csr`] and are always checked.
#[derive(Debug, PartialEq)]
pub struct CsrRef<'a, T> {
    pattern: Pattern<'a>,
    values: &'a [T],
}

impl<T> Clone for CsrRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for CsrRef<'_, T> {}

impl<'a, T: Scalar> CsrRef<'a, T> {
    /// Checks and borrows the arrays: `nrows + 1` offsets, and one column and one value per entry.
    ///
    /// One pass over `row_ptr` and `col_idx`; no copy.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Input`] if an invariant of [`Csr`] does not hold.
    /// [`Csr::from_unsorted`] accepts unsorted and repeated columns.
    pub fn new<I: ColumnIndex>(
        nrows: usize,
        ncols: usize,
        row_ptr: &'a [usize],
        col_idx: &'a [I],
        values: &'a [T],
    ) -> Result<Self> {
        check_arrays(nrows, ncols, row_ptr, col_idx, values.len())?;
        // No column is negative, so both types have the same bits.
        let col_idx = bytemuck::cast_slice(col_idx);
        Ok(CsrRef { pattern: Pattern::of(nrows, ncols, row_ptr, col_idx), values })
    }

    /// Reinterprets the matrix as one with values of type `U`, which must be `T`.
    ///
    /// # Panics
    /// Unless `U` is `T`.
    pub(crate) fn cast<U: Scalar>(self) -> CsrRef<'a, U> {
        assert_eq!(T::PRECISION, U::PRECISION, "a cast keeps the type of values");
        CsrRef::of(self.pattern(), bytemuck::cast_slice(self.values()))
    }

    /// Creates a matrix from arrays that are known to satisfy the invariants.
    pub(crate) fn of(pattern: Pattern<'a>, values: &'a [T]) -> Self {
        CsrRef { pattern, values }
    }

    /// Returns the values, in the order of [`CsrRef::col_idx`].
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Returns row `row` as `(columns, values)`.
    ///
    /// # Panics
    /// If `row >= nrows`.
    pub fn row(&self, row: usize) -> (&'a [u32], &'a [T]) {
        let range = self.pattern.row_range(row);
        (self.pattern.row(row), &self.values[range])
    }

    /// Iterates over the entries as `(row, column, value)`, row by row, with rising columns.
    pub fn iter(self) -> impl Iterator<Item = (usize, usize, T)> + 'a {
        (0..self.nrows()).flat_map(move |row| {
            let (columns, values) = self.row(row);
            columns.iter().zip(values).map(move |(&column, &value)| (row, column as usize, value))
        })
    }

    /// Returns the value at this place; `None` if no entry is stored there. Binary search in the
    /// row.
    pub fn get(&self, row: usize, column: usize) -> Option<T> {
        if row >= self.nrows() {
            return None;
        }
        let (columns, values) = self.row(row);
        let column = u32::try_from(column).ok()?;
        columns.binary_search(&column).ok().map(|at| values[at])
    }

    /// Copies the arrays into an owned matrix.
    pub fn to_csr(&self) -> Csr<T> {
        Csr {
            nrows: self.nrows(),
            ncols: self.ncols(),
            row_ptr: self.row_ptr().to_vec(),
            col_idx: self.col_idx().to_vec(),
            values: self.values.to_vec(),
        }
    }

    /// Copies the pattern and computes new values.
    pub fn map_values<U: Scalar>(&self, f: impl Fn(T) -> U + Sync) -> Csr<U> {
        Csr {
            nrows: self.nrows(),
            ncols: self.ncols(),
            row_ptr: self.row_ptr().to_vec(),
            col_idx: self.col_idx().to_vec(),
            values: par::map(self.nnz(), par::GRAIN, |k| f(self.values[k])),
        }
    }

    /// Returns sizes and addresses of the arrays; equal only for two views of the same memory.
    pub(crate) fn identity(&self) -> [usize; 6] {
        let (row_ptr, col_idx) = (self.row_ptr().as_ptr(), self.col_idx().as_ptr());
        let [nrows, ncols, nnz] = [self.nrows(), self.ncols(), self.nnz()];
        [nrows, ncols, nnz, row_ptr.addr(), col_idx.addr(), self.values.as_ptr().addr()]
    }

    /// Returns the size of the three arrays in bytes, with 8-byte offsets.
    pub fn bytes(&self) -> u64 {
        (self.row_ptr().len() * 8 + self.nnz() * (4 + size_of::<T>())) as u64
    }
}

impl<'a, T> CsrRef<'a, T> {
    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.pattern.nrows()
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.pattern.ncols()
    }

    /// Returns the number of stored entries, including explicit zeros.
    pub fn nnz(&self) -> usize {
        self.pattern.nnz()
    }

    /// Returns the `nrows + 1` offsets into [`CsrRef::col_idx`].
    pub fn row_ptr(&self) -> &'a [usize] {
        self.pattern.row_ptr()
    }

    /// Returns the column of each entry.
    pub fn col_idx(&self) -> &'a [u32] {
        self.pattern.col_idx()
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }
}

impl<'a, T: Scalar> From<&'a Csr<T>> for CsrRef<'a, T> {
    fn from(csr: &'a Csr<T>) -> Self {
        csr.as_ref()
    }
}

impl<'a, T: Scalar> From<&'a Arc<Csr<T>>> for CsrRef<'a, T> {
    fn from(csr: &'a Arc<Csr<T>>) -> Self {
        csr.as_ref().as_ref()
    }
}

impl<'a, T> From<&CsrRef<'a, T>> for CsrRef<'a, T> {
    fn from(csr: &CsrRef<'a, T>) -> Self {
        *csr
    }
}

/// Row offsets as `usize`: borrowed if they have the 8 bytes of a `usize`, otherwise converted
/// once.
///
/// ```
/// use ellect::csr::RowPtr;
///
/// assert_eq!(*RowPtr::new(&[0i32, 2, 3]).expect("offsets"), [0, 2, 3]);
/// assert!(RowPtr::new(&[0i64, -2, 3]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPtr<'a>(Cow<'a, [usize]>);

impl<'a> RowPtr<'a> {
    /// Accepts offsets of type `u32`, `i32`, `u64`, `i64` or `usize`.
    ///
    /// Allocates `8 * (nrows + 1)` bytes for offsets of 4 bytes, nothing for offsets of 8 bytes.
    ///
    /// # Errors
    /// [`Error::Input`] for a negative offset, or one larger than memory.
    pub fn new<I: Offset>(row_ptr: &'a [I]) -> Result<Self> {
        let widened = |(row, &offset): (usize, &I)| {
            usize::try_from(offset.to_i128()).map_err(|_| {
                Error::input(format!(
                    "row_ptr is {offset} at row {row}; offsets must be from 0 to {}",
                    usize::MAX
                ))
            })
        };
        if size_of::<I>() != size_of::<usize>() {
            return Ok(RowPtr(row_ptr.iter().enumerate().map(widened).collect::<Result<_>>()?));
        }
        // A type of the same size differs only in the interpretation of the sign bit.
        let negative = |(_, offset): &(usize, &I)| offset.to_i128() < 0;
        row_ptr.iter().enumerate().find(negative).map_or(Ok(0), widened)?;
        Ok(RowPtr(Cow::Borrowed(bytemuck::cast_slice(row_ptr))))
    }

    /// Returns true if the offsets are the caller's own array, not a copy.
    pub fn is_borrowed(&self) -> bool {
        matches!(self.0, Cow::Borrowed(_))
    }
}

impl Deref for RowPtr<'_> {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

/// An offset type that [`RowPtr`] accepts: `u32`, `i32`, `u64`, `i64` or `usize`.
///
/// ```
/// use ellect::csr::{Offset, RowPtr};
///
/// # fn main() -> ellect::Result<()> {
/// fn nnz<O: Offset>(offsets: &[O]) -> ellect::Result<usize> {
///     Ok(RowPtr::new(offsets)?.last().copied().unwrap_or(0))
/// }
/// assert_eq!((nnz(&[0i32, 2, 3])?, nnz(&[0u64, 2, 3])?), (3, 3));
/// # Ok(())
/// # }
/// ```
pub trait Offset: sealed::Number {}

/// A column index type that [`CsrRef`] accepts: `u32` or `i32`.
///
/// ```
/// use ellect::csr::{ColumnIndex, CsrRef, RowPtr};
///
/// # fn main() -> ellect::Result<()> {
/// fn first<C: ColumnIndex>(columns: &[C]) -> ellect::Result<u32> {
///     let row_ptr = RowPtr::new(&[0usize, 1])?;
///     Ok(CsrRef::new(1, 3, &row_ptr, columns, &[1.0])?.col_idx()[0])
/// }
/// assert_eq!((first(&[2i32])?, first(&[2u32])?), (2, 2));
/// # Ok(())
/// # }
/// ```
pub trait ColumnIndex: sealed::Number {}

impl Offset for u32 {}
impl Offset for i32 {}
impl Offset for u64 {}
impl Offset for i64 {}
impl Offset for usize {}
impl ColumnIndex for u32 {}
impl ColumnIndex for i32 {}

mod sealed {
    /// An integer type that can be printed and compared.
    pub trait Number: bytemuck::Pod + Ord + super::Display + Send + Sync {
        /// Converts without loss.
        fn to_i128(self) -> i128;
    }

    macro_rules! number {
        ($($of:ty)*) => {$(
            impl Number for $of {
                #[inline(always)]
                fn to_i128(self) -> i128 {
                    self as i128
                }
            }
        )*};
    }
    number!(u32 i32 u64 i64 usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Csr<f64> {
        Csr::new(3, 4, vec![0, 2, 2, 3], vec![0, 3, 1], vec![1.0, 2.0, 3.0]).expect("valid")
    }

    fn check<R: Offset + TryFrom<usize>, C: ColumnIndex + TryFrom<u32>>(borrowed: bool) {
        let csr = example();
        let row_ptr = csr.row_ptr().iter().map(|&offset| R::try_from(offset).ok());
        let row_ptr: Vec<R> = row_ptr.collect::<Option<_>>().expect("small");
        let col_idx = csr.col_idx().iter().map(|&column| C::try_from(column).ok());
        let col_idx: Vec<C> = col_idx.collect::<Option<_>>().expect("small");
        let offsets = RowPtr::new(&row_ptr).expect("offsets");
        assert_eq!(offsets.is_borrowed(), borrowed);
        let view = CsrRef::new(3, 4, &offsets, &col_idx, csr.values()).expect("valid");
        assert_eq!(view, csr.as_ref());
        assert_eq!(view.to_csr(), csr);
        // The entries were not copied.
        assert_eq!(view.col_idx().as_ptr().addr(), col_idx.as_ptr().addr());
        assert_eq!(view.values().as_ptr().addr(), csr.values().as_ptr().addr());
    }

    #[test]
    fn offsets_and_columns_of_every_type_are_read_in_place() {
        let wide = size_of::<usize>() == 8;
        check::<u32, u32>(!wide);
        check::<i32, i32>(!wide);
        check::<u64, u32>(wide);
        check::<i64, i32>(wide);
        check::<usize, u32>(true);
    }

    #[test]
    fn negative_numbers_are_named() {
        for error in [RowPtr::new(&[0i32, -7]).err(), RowPtr::new(&[0i64, -7]).err()] {
            let message = error.expect("negative").to_string();
            assert!(message.contains("row_ptr is -7 at row 1"), "{message}");
        }
        let of = |ncols: usize, columns: [i32; 2]| {
            CsrRef::new(1, ncols, &[0, 2], &columns, &[1.0, 2.0]).map(|csr| csr.nnz())
        };
        assert_eq!(of(3, [0, 2]).expect("valid"), 2);
        // Interpreted as `u32`, -1 would be a valid column of a matrix that is wide enough.
        for (ncols, columns, stated) in [
            (super::super::MAX_DIMENSION, [-2, -1], "column -2"),
            (super::super::MAX_DIMENSION, [0, -1], "column 0 before column -1"),
            (2, [0, 2], "column 2, but the matrix has 2 columns"),
            (3, [1, 1], "strictly increase"),
        ] {
            let message = of(ncols, columns).expect_err(stated).to_string();
            assert!(message.contains(stated), "{message}");
        }
    }

    #[test]
    fn arrays_of_wrong_lengths_are_refused() {
        let of = |row_ptr: &[usize], values: &[f64]| {
            CsrRef::new(2, 2, row_ptr, &[0u32, 1], values).map(|csr| csr.nnz())
        };
        assert_eq!(of(&[0, 1, 2], &[1.0; 2]).expect("valid"), 2);
        assert!(matches!(of(&[0, 2], &[1.0; 2]), Err(Error::Shape { what: "row_ptr", .. })));
        assert!(matches!(of(&[0, 1, 2], &[1.0; 3]), Err(Error::Shape { what: "values", .. })));
        assert!(of(&[0, 1, 1], &[1.0; 2]).is_err(), "an end before the entries'");
        assert!(of(&[0, 3, 2], &[1.0; 2]).is_err(), "falling offsets");
    }
}
