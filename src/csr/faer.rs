//! Conversions from and to the matrices of the crate `faer`, with the cargo feature `faer`.
//!
//! In `faer`, offsets and columns have the same type, so a view always needs a copy of one of the
//! two arrays. For a matrix with `u32` indices, use [`RowPtr`](super::RowPtr) and
//! [`CsrRef`](super::CsrRef), which copy only the offsets.

use ::faer::sparse::{SparseRowMat, SparseRowMatRef, SymbolicSparseRowMat};

use super::{Csr, check_dimensions};
use crate::error::{Error, Result};
use crate::scalar::Scalar;

macro_rules! from_index {
    ($($index:ty)*) => {$(
        /// Converts a `faer` matrix: moves its values and copies its indices; sorts unsorted
        /// columns.
        ///
        /// # Errors
        /// [`Error::Input`] if there are more than 2^32 - 1 rows or columns.
        impl<T: Scalar> TryFrom<SparseRowMat<$index, T>> for Csr<T> {
            type Error = Error;

            fn try_from(matrix: SparseRowMat<$index, T>) -> Result<Self> {
                if matrix.symbolic().row_nnz().is_some() {
                    return Csr::try_from(matrix.as_ref());
                }
                let (symbolic, values) = matrix.into_parts();
                let (nrows, ncols, row_ptr, _, col_idx) = symbolic.into_parts();
                check_dimensions(nrows, ncols)?;
                let row_ptr = row_ptr.into_iter().map(|offset| offset as usize).collect();
                let col_idx = col_idx.into_iter().map(|column| column as u32).collect();
                Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)
            }
        }

        /// Copies a view of a `faer` matrix; sorts unsorted columns.
        ///
        /// # Errors
        /// [`Error::Input`] if there are more than 2^32 - 1 rows or columns.
        impl<T: Scalar> TryFrom<SparseRowMatRef<'_, $index, T>> for Csr<T> {
            type Error = Error;

            fn try_from(matrix: SparseRowMatRef<'_, $index, T>) -> Result<Self> {
                let symbolic = matrix.symbolic();
                let (nrows, ncols) = (symbolic.nrows(), symbolic.ncols());
                check_dimensions(nrows, ncols)?;
                let mut row_ptr = Vec::with_capacity(nrows + 1);
                let (mut col_idx, mut values) = (Vec::new(), Vec::new());
                row_ptr.push(0);
                for row in 0..nrows {
                    let columns = symbolic.col_idx_of_row_raw(row);
                    col_idx.extend(columns.iter().map(|&column| column as u32));
                    values.extend_from_slice(matrix.val_of_row(row));
                    row_ptr.push(col_idx.len());
                }
                Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)
            }
        }
    )*};
}

from_index!(u32 u64 usize);

/// Moves values and offsets into a `faer` matrix, and widens columns to 8 bytes each.
///
/// ```
/// use ellect::Csr;
/// use faer::sparse::{SparseRowMat, Triplet};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let entries = [Triplet::new(0usize, 2usize, 1.0), Triplet::new(1, 1, 5.0)];
/// let theirs = SparseRowMat::try_new_from_triplets(2, 3, &entries).map_err(|e| format!("{e:?}"))?;
/// let csr = Csr::try_from(theirs)?;
/// assert_eq!(csr.get(0, 2), Some(1.0));
/// let back = SparseRowMat::<usize, f64>::from(csr);
/// assert_eq!(back.get(1, 1), Some(&5.0));
/// # Ok(())
/// # }
/// ```
impl<T: Scalar> From<Csr<T>> for SparseRowMat<usize, T> {
    fn from(csr: Csr<T>) -> Self {
        let (nrows, ncols) = (csr.nrows(), csr.ncols());
        let (row_ptr, col_idx, values) = csr.into_arrays();
        let col_idx = col_idx.into_iter().map(|column| column as usize).collect();
        let symbolic = SymbolicSparseRowMat::new_checked(nrows, ncols, row_ptr, None, col_idx);
        SparseRowMat::new(symbolic, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::{CsrRef, RowPtr};
    use crate::generate;

    #[test]
    fn matrices_come_back_as_they_went() {
        for csr in [
            generate::by_name("circuit", 500, 1).expect("a class"),
            generate::linear_program(300, 1),
            Csr::from_triplets(0, 3, []).expect("no rows"),
        ] {
            let theirs = SparseRowMat::<usize, f64>::from(csr.clone());
            assert_eq!((theirs.nrows(), theirs.ncols()), (csr.nrows(), csr.ncols()));
            for (row, column, value) in csr.iter() {
                assert_eq!(theirs.get(row, column), Some(&value));
            }
            assert_eq!(Csr::try_from(theirs.as_ref()).expect("small"), csr);
            assert_eq!(Csr::try_from(theirs).expect("small"), csr);
        }
    }

    #[test]
    fn unsorted_rows_and_rows_with_room_are_read() {
        // Two rows with room for three entries each, of which two are used.
        let (row_ptr, lengths) = (vec![0u32, 3, 6], vec![2u32, 2]);
        let symbolic = SymbolicSparseRowMat::new_unsorted_checked(
            2,
            4,
            row_ptr,
            Some(lengths),
            vec![3u32, 0, 0, 1, 2, 0],
        );
        let theirs = SparseRowMat::new(symbolic, vec![1.0, 2.0, 9.0, 3.0, 4.0, 9.0]);
        let csr = Csr::try_from(theirs).expect("small");
        assert!(csr.iter().eq([(0, 0, 2.0), (0, 3, 1.0), (1, 1, 3.0), (1, 2, 4.0)]));
    }

    #[test]
    fn entries_of_a_matrix_with_u32_indices_are_borrowed() {
        let csr = generate::by_name("heat", 200, 1).expect("a class");
        let row_ptr = csr.row_ptr().iter().map(|&offset| offset as u32).collect();
        let col_idx = csr.col_idx().to_vec();
        let symbolic =
            SymbolicSparseRowMat::new_checked(csr.nrows(), csr.ncols(), row_ptr, None, col_idx);
        let theirs = SparseRowMat::new(symbolic, csr.values().to_vec());
        let of = theirs.symbolic();
        let row_ptr = RowPtr::new(of.row_ptr()).expect("offsets");
        let view = CsrRef::new(of.nrows(), of.ncols(), &row_ptr, of.col_idx(), theirs.val());
        let view = view.expect("valid");
        assert_eq!(view, csr.as_ref());
        assert_eq!(view.values().as_ptr(), theirs.val().as_ptr());
    }
}
