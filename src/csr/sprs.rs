//! Conversions from and to the matrices of the crate `sprs`, with the cargo feature `sprs`.

use ::sprs::{CsMatI, CsMatViewI, SpIndex};

use super::{ColumnIndex, Csr, CsrRef, check_dimensions};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// Converts a `sprs` matrix; transposes the storage if it is stored by columns.
///
/// Moves the values; copies columns and offsets unless they are `u32` and `usize`.
///
/// ```
/// use ellect::Csr;
///
/// # fn main() -> ellect::Result<()> {
/// let theirs = sprs::CsMat::new((2, 3), vec![0, 2, 3], vec![0, 2, 1], vec![4.0, 1.0, 5.0]);
/// let csr = Csr::try_from(theirs.clone())?;
/// assert_eq!(csr.get(0, 2), Some(1.0));
/// assert_eq!(sprs::CsMat::from(csr), theirs);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Input`] if there are more than 2^32 - 1 rows or columns.
impl<T: Scalar, I: SpIndex, Iptr: SpIndex> TryFrom<CsMatI<T, I, Iptr>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: CsMatI<T, I, Iptr>) -> Result<Self> {
        let matrix = matrix.into_csr();
        let (nrows, ncols) = matrix.shape();
        check_dimensions(nrows, ncols)?;
        let (row_ptr, col_idx, values) = matrix.into_raw_storage();
        // The offsets of a slice of rows start at the end of the preceding rows.
        let start = row_ptr.first().map_or(0, |first| first.index());
        let row_ptr = row_ptr.iter().map(|offset| offset.index() - start).collect();
        let col_idx = col_idx.iter().map(|column| column.index() as u32).collect();
        Csr::new(nrows, ncols, row_ptr, col_idx, values)
    }
}

/// Copies a view of a `sprs` matrix; transposes the storage if it is stored by columns.
///
/// # Errors
/// [`Error::Input`] if there are more than 2^32 - 1 rows or columns.
impl<T: Scalar, I: SpIndex, Iptr: SpIndex> TryFrom<CsMatViewI<'_, T, I, Iptr>> for Csr<T> {
    type Error = Error;

    fn try_from(matrix: CsMatViewI<'_, T, I, Iptr>) -> Result<Self> {
        matrix.to_csr().try_into()
    }
}

/// Borrows a view of a `sprs` matrix with 4-byte columns.
///
/// # Errors
/// [`Error::Argument`] if it is stored by columns; [`Error::Input`] if it is a slice of the rows of
/// a matrix whose first offset is not 0.
impl<'a, T: Scalar, I: SpIndex + ColumnIndex> TryFrom<CsMatViewI<'a, T, I, usize>>
    for CsrRef<'a, T>
{
    type Error = Error;

    fn try_from(matrix: CsMatViewI<'a, T, I, usize>) -> Result<Self> {
        if !matrix.is_csr() {
            return Err(Error::argument(
                "the matrix is stored by columns (CSC); convert it to rows with to_csr",
            ));
        }
        let (nrows, ncols) = matrix.shape();
        let (row_ptr, col_idx, values) = matrix.into_raw_storage();
        CsrRef::new(nrows, ncols, row_ptr, col_idx, values)
    }
}

/// Moves values and offsets into a `sprs` matrix, and widens columns to 8 bytes each.
impl<T: Scalar> From<Csr<T>> for CsMatI<T, usize> {
    fn from(csr: Csr<T>) -> Self {
        let shape = (csr.nrows(), csr.ncols());
        let (row_ptr, col_idx, values) = csr.into_arrays();
        let col_idx = col_idx.into_iter().map(|column| column as usize).collect();
        CsMatI::new(shape, row_ptr, col_idx, values)
    }
}

/// Moves all arrays into a `sprs` matrix.
impl<T: Scalar> From<Csr<T>> for CsMatI<T, u32, usize> {
    fn from(csr: Csr<T>) -> Self {
        let shape = (csr.nrows(), csr.ncols());
        let (row_ptr, col_idx, values) = csr.into_arrays();
        CsMatI::new(shape, row_ptr, col_idx, values)
    }
}

/// Borrows the arrays as a `sprs` view.
impl<'a, T: Scalar> From<CsrRef<'a, T>> for CsMatViewI<'a, T, u32, usize> {
    fn from(csr: CsrRef<'a, T>) -> Self {
        let shape = (csr.nrows(), csr.ncols());
        CsMatViewI::new(shape, csr.row_ptr(), csr.col_idx(), csr.values())
    }
}

#[cfg(test)]
mod tests {
    use ::sprs::{CsMat, TriMat};

    use super::*;
    use crate::generate;

    #[test]
    fn matrices_come_back_as_they_went() {
        for csr in [
            generate::by_name("circuit", 500, 1).expect("a class"),
            generate::linear_program(300, 1),
            Csr::from_triplets(0, 3, []).expect("no rows"),
        ] {
            let theirs = CsMat::from(csr.clone());
            assert_eq!((theirs.rows(), theirs.cols()), (csr.nrows(), csr.ncols()));
            assert!(theirs.iter().map(|(&value, at)| (at.0, at.1, value)).eq(csr.iter()));
            assert_eq!(Csr::try_from(theirs.clone()).expect("small"), csr);
            assert_eq!(Csr::try_from(theirs.view()).expect("small"), csr);
            assert_eq!(Csr::try_from(theirs.to_csc()).expect("small"), csr, "by columns");
            assert_eq!(Csr::try_from(theirs.transpose_into()).expect("small"), csr.transpose());
            let narrow = CsMatI::<f64, u32, usize>::from(csr.clone());
            assert_eq!(Csr::try_from(narrow).expect("small"), csr);
            let small: CsMatI<f64, i32> = CsMat::from(csr.clone()).to_other_types();
            assert_eq!(Csr::try_from(small).expect("small"), csr);
        }
    }

    #[test]
    fn views_are_lent_both_ways() {
        let csr = generate::by_name("heat", 200, 1).expect("a class");
        let theirs = CsMatViewI::from(csr.as_ref());
        assert_eq!(theirs.data().as_ptr(), csr.values().as_ptr());
        let back = CsrRef::try_from(theirs).expect("a view of a valid matrix");
        assert_eq!(back, csr.as_ref());
        assert_eq!(back.col_idx().as_ptr(), csr.col_idx().as_ptr());

        let by_columns = CsrRef::try_from(theirs.transpose_view()).expect_err("by columns");
        assert!(by_columns.to_string().contains("to_csr"), "{by_columns}");
        let some = theirs.slice_outer(3..9);
        assert!(CsrRef::try_from(some).is_err(), "offsets that do not start at 0");
        let some = Csr::try_from(some).expect("copied");
        assert!((3..9).all(|row| some.row(row - 3) == csr.row(row)));
    }

    #[test]
    fn repeated_entries_are_summed_before_they_come_here() {
        let mut triplets = TriMat::new((2, 2));
        for (row, column, value) in [(1, 1, 2.0), (0, 1, 1.0), (1, 1, 3.0)] {
            triplets.add_triplet(row, column, value);
        }
        let csr = Csr::try_from(triplets.to_csr::<usize>()).expect("small");
        assert!(csr.iter().eq([(0, 1, 1.0), (1, 1, 5.0)]));
    }
}
