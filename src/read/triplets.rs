//! Entries as they appear in a file, and their assembly into CSR.
//!
//! ```text
//!  row  col  value        count rows      row_ptr = [0, 2, 3, 5]
//!   2    0     a          then scatter    col_idx = [1, 0, 2, 0, 1]   two passes, columns first:
//!   0    1     b     ->   in file order:  values  = [b, d, e, a, c]   the columns of the file are
//!   2    1     c                                                      freed before the values of
//!   0    0     d          then sort each row and sum repeats          the matrix are allocated
//!   1    2     e
//! ```
//!
//! Both passes run in parallel over disjoint ranges of rows: each thread walks all entries and
//! keeps those of its rows. Therefore the result does not depend on the number of threads. The peak
//! memory is 24 bytes per entry in f64 and 16 in f32, twice the size of the CSR matrix. If the
//! entries are already sorted by row, their arrays are used directly.

use std::ops::Range;

use super::Limits;
use crate::csr::{Csr, accumulate};
use crate::error::{At, Error, Result};
use crate::par;
use crate::scalar::Scalar;

/// The relation between an entry and its mirror image across the diagonal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Symmetry {
    /// None.
    General,
    /// Both are equal.
    Symmetric,
    /// They are each other's negative.
    Skew,
    /// They are each other's negative, as the imaginary parts of a hermitian matrix are, and the file
    /// lists the diagonal.
    Hermitian,
}

/// Entries in file order, with indices counted from 0 and checked against the dimensions.
pub(super) struct Triplets<T> {
    pub rows: Vec<u32>,
    pub cols: Vec<u32>,
    /// Values of the entries; `None` if every value is 1.
    pub values: Option<Vec<T>>,
}

/// The stored entry, or its mirror image.
#[derive(Clone, Copy)]
enum Side {
    Stored,
    Mirrored,
}

impl<T: Scalar> Triplets<T> {
    /// Checks that a symmetric matrix lists one triangle, and a skew-symmetric one no diagonal.
    ///
    /// # Errors
    /// [`Error::Input`] with the entry of the fault.
    pub fn check(&self, symmetry: Symmetry) -> Result<()> {
        if symmetry == Symmetry::General {
            return Ok(());
        }
        let places = || self.rows.iter().zip(&self.cols);
        let above = places().position(|(row, col)| row < col);
        let below = places().position(|(row, col)| row > col);
        if let (Some(above), Some(below)) = (above, below) {
            return Err(Error::input(format!(
                "the file is symmetric, but lists entries both above and below the diagonal (entries \
                 {} and {}); list one triangle, or declare the file general",
                above + 1,
                below + 1
            )));
        }
        if symmetry == Symmetry::Skew {
            let is_zero = |k: usize| self.values.as_ref().is_some_and(|v| v[k] == T::ZERO);
            let fault = places().enumerate().find(|&(k, (row, col))| row == col && !is_zero(k));
            if let Some((_, (row, _))) = fault {
                return Err(Error::input(format!(
                    "the diagonal entry of row {} is not zero; a skew-symmetric matrix has a zero \
                     diagonal",
                    u64::from(*row) + 1
                )));
            }
        }
        Ok(())
    }

    /// Assembles the matrix: mirrors and sorts entries, and sums repeated ones.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] if the dimensions are too large for the number of entries, or if
    /// there are too many entries after mirroring.
    pub fn into_csr(
        self,
        nrows: usize,
        ncols: usize,
        symmetry: Symmetry,
        limits: &Limits,
    ) -> Result<Csr<T>> {
        let Triplets { rows, mut cols, values } = self;
        limits.borne_out(nrows, ncols, rows.len())?;
        let row_ptr = row_pointers(nrows, &rows, &cols, symmetry);
        let nnz = row_ptr[nrows];
        limits.entries(At::Whole, nnz as u64)?;

        if symmetry == Symmetry::General && rows.is_sorted() {
            drop(rows);
            cols.shrink_to_fit();
            let mut values = values.unwrap_or_else(|| vec![T::ONE; nnz]);
            values.shrink_to_fit();
            return Csr::from_unsorted(nrows, ncols, row_ptr, cols, values);
        }

        let col_idx = scatter(&row_ptr, &rows, &cols, symmetry, |k, side| match side {
            Side::Stored => cols[k],
            Side::Mirrored => rows[k],
        });
        if symmetry == Symmetry::General {
            cols = Vec::new();
        }
        let values = match values {
            None => vec![T::ONE; nnz],
            Some(values) => {
                scatter(&row_ptr, &rows, &cols, symmetry, |k, side| match (side, symmetry) {
                    (Side::Mirrored, Symmetry::Skew | Symmetry::Hermitian) => T::ZERO - values[k],
                    _ => values[k],
                })
            }
        };
        drop((rows, cols));
        Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)
    }
}

/// Walks all entries and calls `f(entry, row - range.start, side)` for the entries whose row is in
/// `range`.
fn visit(
    range: Range<usize>,
    rows: &[u32],
    cols: &[u32],
    symmetry: Symmetry,
    mut f: impl FnMut(usize, usize, Side),
) {
    let (first, len) = (range.start as u32, range.len() as u32);
    let mut offer = |k: usize, row: u32, side: Side| {
        let local = row.wrapping_sub(first);
        if local < len {
            f(k, local as usize, side);
        }
    };
    if symmetry == Symmetry::General {
        for (k, &row) in rows.iter().enumerate() {
            offer(k, row, Side::Stored);
        }
    } else {
        for (k, (&row, &col)) in rows.iter().zip(cols).enumerate() {
            offer(k, row, Side::Stored);
            if row != col {
                offer(k, col, Side::Mirrored);
            }
        }
    }
}

fn row_pointers(nrows: usize, rows: &[u32], cols: &[u32], symmetry: Symmetry) -> Vec<usize> {
    let mut row_ptr = vec![0; nrows + 1];
    let parts = (rows.len() / par::GRAIN).clamp(1, rayon::current_num_threads());
    let bounds: Vec<usize> = (0..=parts).map(|part| nrows * part / parts).collect();
    par::over_parts(&bounds, &mut row_ptr[1..], &|range, counts| {
        visit(range, rows, cols, symmetry, |_, row, _| counts[row] += 1);
    });
    accumulate(&mut row_ptr);
    row_ptr
}

/// Collects `item(entry, side)` of all entries by row, in file order within a row.
fn scatter<U: Copy + Default + Send>(
    row_ptr: &[usize],
    rows: &[u32],
    cols: &[u32],
    symmetry: Symmetry,
    item: impl Fn(usize, Side) -> U + Sync,
) -> Vec<U> {
    let nrows = row_ptr.len() - 1;
    let grain = (row_ptr[nrows] + nrows) / rayon::current_num_threads();
    let bounds = par::split(row_ptr, 1, grain.max(par::GRAIN));
    let mut out = vec![U::default(); row_ptr[nrows]];
    let cuts: Vec<usize> = bounds.iter().map(|&row| row_ptr[row]).collect();
    par::for_each(&mut par::slices_mut(&mut out, &cuts), 1, |part, out| {
        let range = bounds[part]..bounds[part + 1];
        let first = row_ptr[range.start];
        let mut next: Vec<usize> =
            row_ptr[range.clone()].iter().map(|&start| start - first).collect();
        visit(range, rows, cols, symmetry, |k, row, side| {
            out[next[row]] = item(k, side);
            next[row] += 1;
        });
    });
    out
}
