//! The pattern of a CSR matrix, without its values.

use std::ops::Range;

/// The sparsity pattern of a [`Csr`](super::Csr), borrowed: the input of features, costs and
/// fingerprints.
///
/// ```
/// use ellect::Csr;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 3, [(0, 0, 4.0), (0, 2, 1.0), (1, 1, 5.0)])?;
/// let pattern = csr.pattern();
/// assert_eq!((pattern.row_nnz(0), pattern.row(0)), (2, &[0, 2][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a> {
    nrows: usize,
    ncols: usize,
    row_ptr: &'a [usize],
    col_idx: &'a [u32],
}

impl<'a> Pattern<'a> {
    /// Creates a pattern from arrays that are known to satisfy the invariants of
    /// [`Csr`](super::Csr).
    pub(crate) fn of(nrows: usize, ncols: usize, row_ptr: &'a [usize], col_idx: &'a [u32]) -> Self {
        Pattern { nrows, ncols, row_ptr, col_idx }
    }

    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the number of stored entries.
    pub fn nnz(&self) -> usize {
        self.col_idx.len()
    }

    /// Returns the `nrows + 1` offsets into the columns.
    pub fn row_ptr(&self) -> &'a [usize] {
        self.row_ptr
    }

    /// Returns the column of each entry.
    pub fn col_idx(&self) -> &'a [u32] {
        self.col_idx
    }

    /// Returns the entries of row `row`, as positions in [`Pattern::col_idx`].
    pub fn row_range(&self, row: usize) -> Range<usize> {
        self.row_ptr[row]..self.row_ptr[row + 1]
    }

    /// Returns the columns of row `row`.
    pub fn row(&self, row: usize) -> &'a [u32] {
        &self.col_idx[self.row_range(row)]
    }

    /// Returns the number of entries of row `row`.
    pub fn row_nnz(&self, row: usize) -> usize {
        self.row_ptr[row + 1] - self.row_ptr[row]
    }
}
