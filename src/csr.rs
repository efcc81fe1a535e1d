//! The validated CSR matrix that all formats are made from, owned or borrowed, and its pattern.

mod borrowed;
mod bsr;
pub(crate) mod complex;
#[cfg(feature = "faer")]
mod faer;
mod pattern;
#[cfg(feature = "sprs")]
mod sprs;
mod transpose;

use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;
pub use borrowed::{ColumnIndex, CsrRef, Offset, RowPtr};
pub use complex::ComplexCsr;
pub use num_complex::Complex;
pub use pattern::Pattern;
pub(crate) use transpose::{EntryOrder, equal, transposed};

/// A sparse matrix in compressed sparse rows, always valid.
///
/// ```text
///     | 4 . 1 . |      row_ptr = [0, 2, 3, 3, 5]
///     | . 5 . . |      col_idx = [0, 2, 1, 0, 3]
///     | . . . . |      values  = [4, 1, 5, 2, 6]
///     | 2 . . 6 |
/// ```
///
/// # Invariants (always checked)
/// - `row_ptr` has `nrows + 1` entries, starts at 0, never falls and ends at `nnz`;
/// - columns are below `ncols` and strictly increase within a row (so no entry is stored twice);
/// - `nrows` and `ncols` are at most 2^32 - 1, so that `u32` holds every index and row length.
///
/// Explicit zeros are part of the pattern and are kept.
///
/// ```
/// use ellect::Csr;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::new(2, 3, vec![0, 2, 3], vec![0, 2, 1], vec![4.0, 1.0, 5.0])?;
/// assert_eq!(csr.get(0, 2), Some(1.0));
/// assert_eq!(csr.iter().nth(2), Some((1, 1, 5.0)));
/// assert_eq!(csr.transpose().row(2), (&[0][..], &[1.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Csr<T> {
    nrows: usize,
    ncols: usize,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
    values: Vec<T>,
}

/// Maximum number of rows and of columns.
pub const MAX_DIMENSION: usize = u32::MAX as usize;

impl<T: Scalar> Csr<T> {
    /// Checks the arrays and takes ownership of them.
    ///
    /// One pass over `row_ptr` and `col_idx`.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Input`] if an invariant does not hold. This includes unsorted
    /// or repeated columns; [`Csr::from_unsorted`] sorts and sums them.
    pub fn new(
        nrows: usize,
        ncols: usize,
        row_ptr: Vec<usize>,
        col_idx: Vec<u32>,
        values: Vec<T>,
    ) -> Result<Self> {
        check_arrays(nrows, ncols, &row_ptr, &col_idx, values.len())?;
        Ok(Csr { nrows, ncols, row_ptr, col_idx, values })
    }

    /// As [`Csr::new`], but sorts the columns of each row and sums entries stored twice.
    ///
    /// # Errors
    /// As [`Csr::new`], except for the order of columns.
    pub fn from_unsorted(
        nrows: usize,
        ncols: usize,
        mut row_ptr: Vec<usize>,
        mut col_idx: Vec<u32>,
        mut values: Vec<T>,
    ) -> Result<Self> {
        check_lengths(nrows, ncols, &row_ptr, col_idx.len(), values.len())?;
        let shortened = sort_rows(&row_ptr, &mut col_idx, &mut values);
        if shortened.is_empty() {
            return Csr::new(nrows, ncols, row_ptr, col_idx, values);
        }
        let mut shortened = shortened.into_iter().peekable();
        let mut filled = 0;
        for row in 0..nrows {
            let start = row_ptr[row];
            let len = match shortened.next_if(|&(short, _)| short == row) {
                Some((_, len)) => len,
                None => row_ptr[row + 1] - start,
            };
            row_ptr[row] = filled;
            col_idx.copy_within(start..start + len, filled);
            values.copy_within(start..start + len, filled);
            filled += len;
        }
        row_ptr[nrows] = filled;
        col_idx.truncate(filled);
        values.truncate(filled);
        Csr::new(nrows, ncols, row_ptr, col_idx, values)
    }

    /// Builds a matrix from `(row, column, value)` triplets in any order; repeated entries are
    /// summed.
    ///
    /// # Errors
    /// [`Error::Input`] for an index outside the matrix.
    pub fn from_triplets(
        nrows: usize,
        ncols: usize,
        triplets: impl IntoIterator<Item = (usize, usize, T)>,
    ) -> Result<Self> {
        check_dimensions(nrows, ncols)?;
        let mut triplets: Vec<(u32, u32, T)> = triplets
            .into_iter()
            .map(|(row, column, value)| {
                if row < nrows && column < ncols {
                    Ok((row as u32, column as u32, value))
                } else {
                    Err(Error::input(format!(
                        "entry ({row}, {column}) is outside a matrix of {nrows} x {ncols}"
                    )))
                }
            })
            .collect::<Result<_>>()?;
        triplets.sort_by_key(|&(row, column, _)| (row, column));
        let mut row_ptr = vec![0; nrows + 1];
        for &(row, ..) in &triplets {
            row_ptr[row as usize + 1] += 1;
        }
        accumulate(&mut row_ptr);
        let col_idx = triplets.iter().map(|t| t.1).collect();
        let values = triplets.iter().map(|t| t.2).collect();
        Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, values)
    }

    /// Returns the values, in the order of [`Csr::col_idx`].
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns the values for changes in place; the pattern stays.
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Converts every value to another type, for instance `f64` to `f32`.
    pub fn cast<U: Scalar>(&self) -> Csr<U> {
        self.map_values(|value| U::from_f64(value.to_f64()))
    }

    /// Copies the pattern and computes new values.
    pub fn map_values<U: Scalar>(&self, f: impl Fn(T) -> U + Sync) -> Csr<U> {
        self.as_ref().map_values(f)
    }

    /// Borrows the matrix.
    pub fn as_ref(&self) -> CsrRef<'_, T> {
        CsrRef::of(self.pattern(), &self.values)
    }

    /// Iterates over the entries as `(row, column, value)`, row by row, with rising columns.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize, T)> + '_ {
        self.as_ref().iter()
    }

    /// Returns the value at this place; `None` if no entry is stored there. Binary search in the
    /// row.
    pub fn get(&self, row: usize, column: usize) -> Option<T> {
        self.as_ref().get(row, column)
    }

    /// Returns the transposed matrix, in parallel; see [`CsrRef::transpose`].
    pub fn transpose(&self) -> Csr<T> {
        self.as_ref().transpose()
    }

    /// Returns row `row` as `(columns, values)`.
    ///
    /// # Panics
    /// If `row >= nrows`.
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        self.as_ref().row(row)
    }

    /// Returns the arrays, in the order `(row_ptr, col_idx, values)`.
    pub fn into_arrays(self) -> (Vec<usize>, Vec<u32>, Vec<T>) {
        (self.row_ptr, self.col_idx, self.values)
    }

    /// Returns the size of the three arrays in bytes, with 8-byte row pointers.
    pub fn bytes(&self) -> u64 {
        self.as_ref().bytes()
    }
}

impl<T> Csr<T> {
    /// Returns the number of rows.
    pub fn nrows(&self) -> usize {
        self.nrows
    }

    /// Returns the number of columns.
    pub fn ncols(&self) -> usize {
        self.ncols
    }

    /// Returns the number of stored entries, including explicit zeros.
    pub fn nnz(&self) -> usize {
        self.col_idx.len()
    }

    /// Returns the `nrows + 1` offsets into [`Csr::col_idx`].
    pub fn row_ptr(&self) -> &[usize] {
        &self.row_ptr
    }

    /// Returns the column of each entry.
    pub fn col_idx(&self) -> &[u32] {
        &self.col_idx
    }

    /// Borrows the pattern.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::of(self.nrows, self.ncols, &self.row_ptr, &self.col_idx)
    }
}

/// Checks every invariant of [`Csr`]. One pass over `row_ptr` and `col_idx`, on rayon's threads.
fn check_arrays<I: ColumnIndex>(
    nrows: usize,
    ncols: usize,
    row_ptr: &[usize],
    col_idx: &[I],
    values: usize,
) -> Result<()> {
    check_lengths(nrows, ncols, row_ptr, col_idx.len(), values)?;
    let bounds = par::split(row_ptr, 1, par::GRAIN);
    let faults = par::map(bounds.len() - 1, 1, |part| {
        (bounds[part]..bounds[part + 1]).find_map(|row| {
            let columns = &col_idx[row_ptr[row]..row_ptr[row + 1]];
            column_fault(row, columns, ncols)
        })
    });
    faults.into_iter().flatten().next().map_or(Ok(()), |what| Err(Error::input(what)))
}

/// Describes the fault in the columns of a row; `None` if there is none.
fn column_fault<I: ColumnIndex>(row: usize, columns: &[I], ncols: usize) -> Option<String> {
    if let Some(w) = columns.windows(2).find(|w| w[0] >= w[1]) {
        return Some(format!(
            "row {row} stores column {} before column {}; columns must strictly increase within a \
             row (Csr::from_unsorted sorts them and sums repeated entries)",
            w[0], w[1]
        ));
    }
    let outside = |column: &&I| !(0..ncols as i128).contains(&column.to_i128());
    let outside = columns.first().filter(outside).or_else(|| columns.last().filter(outside));
    outside.map(|column| {
        format!("row {row} stores column {column}, but the matrix has {ncols} columns")
    })
}

/// Sorts the columns of each row and sums repeated ones, on rayon's current threads.
///
/// Returns the rows that became shorter, in order, with their new lengths. The entries of such a
/// row stay at the start of its old range.
fn sort_rows<T: Scalar>(
    row_ptr: &[usize],
    col_idx: &mut [u32],
    values: &mut [T],
) -> Vec<(usize, usize)> {
    let bounds = par::split(row_ptr, 1, par::GRAIN);
    let cuts: Vec<usize> = bounds.iter().map(|&row| row_ptr[row]).collect();
    let columns = par::slices_mut(col_idx, &cuts).into_iter();
    let mut parts: Vec<_> =
        columns.zip(par::slices_mut(values, &cuts)).map(|part| (part, Vec::new())).collect();
    par::for_each(&mut parts, 1, |part, ((columns, values), shortened)| {
        let first = row_ptr[bounds[part]];
        let mut entries = Vec::new();
        for row in bounds[part]..bounds[part + 1] {
            let range = row_ptr[row] - first..row_ptr[row + 1] - first;
            let (columns, values) = (&mut columns[range.clone()], &mut values[range]);
            let len = sort_row(columns, values, &mut entries);
            if len < columns.len() {
                shortened.push((row, len));
            }
        }
    });
    parts.into_iter().flat_map(|(_, shortened)| shortened).collect()
}

/// Sorts and sums one row and returns its new length; `entries` is scratch memory.
fn sort_row<T: Scalar>(
    columns: &mut [u32],
    values: &mut [T],
    entries: &mut Vec<(u32, T)>,
) -> usize {
    if columns.windows(2).all(|w| w[0] < w[1]) {
        return columns.len();
    }
    entries.clear();
    entries.extend(columns.iter().copied().zip(values.iter().copied()));
    // The sort is stable, so sums depend only on the order of the entries.
    entries.sort_by_key(|&(column, _)| column);
    let mut len = 0;
    for &(column, value) in &*entries {
        if len > 0 && columns[len - 1] == column {
            values[len - 1] += value;
        } else {
            columns[len] = column;
            values[len] = value;
            len += 1;
        }
    }
    len
}

/// Describes a number of rows or columns over [`MAX_DIMENSION`], with the remedy.
pub(crate) fn over_dimension(what: &str, got: u64) -> String {
    format!(
        "{what} is {got}; at most {MAX_DIMENSION} fit the 32-bit indices: divide the matrix, and \
         multiply by each part of its rows, or add the products of the parts of its columns"
    )
}

/// Checks numbers of rows and columns, before arrays of wide indices are narrowed for instance.
///
/// # Errors
/// [`Error::Input`] for more than [`MAX_DIMENSION`].
pub fn check_dimensions(nrows: usize, ncols: usize) -> Result<()> {
    for (what, got) in [("number of rows", nrows), ("number of columns", ncols)] {
        if got > MAX_DIMENSION {
            return Err(Error::input(over_dimension(what, got as u64)));
        }
    }
    Ok(())
}

fn check_lengths(
    nrows: usize,
    ncols: usize,
    row_ptr: &[usize],
    nnz: usize,
    values: usize,
) -> Result<()> {
    check_dimensions(nrows, ncols)?;
    if row_ptr.len() != nrows + 1 {
        return Err(Error::Shape { what: "row_ptr", got: row_ptr.len(), needed: nrows + 1 });
    }
    if row_ptr[0] != 0 || row_ptr[nrows] != nnz {
        return Err(Error::input(format!(
            "row_ptr runs from {} to {}; it must run from 0 to nnz = {nnz}",
            row_ptr[0], row_ptr[nrows]
        )));
    }
    if let Some(row) = row_ptr.windows(2).position(|w| w[0] > w[1]) {
        return Err(Error::input(format!(
            "row_ptr falls from {} to {} at row {row}; it must never fall",
            row_ptr[row],
            row_ptr[row + 1]
        )));
    }
    if values != nnz {
        return Err(Error::Shape { what: "values", got: values, needed: nnz });
    }
    Ok(())
}

/// Returns the running sum of counts with a leading 0: `counts[i]` items start at offset `i`.
pub(crate) fn offsets(counts: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut offsets: Vec<usize> = std::iter::once(0).chain(counts).collect();
    accumulate(&mut offsets);
    offsets
}

/// Replaces each number by the sum of all numbers up to it: turns a leading 0 and counts into
/// [`offsets`], in place.
pub(crate) fn accumulate(counts: &mut [usize]) {
    let mut total = 0usize;
    for count in counts {
        total += *count;
        *count = total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_entries_are_summed_and_rows_sorted() {
        let csr = Csr::from_unsorted(
            3,
            4,
            vec![0, 3, 3, 6],
            vec![2, 0, 2, 3, 1, 0],
            vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        )
        .expect("valid");
        assert_eq!(csr.row_ptr(), [0, 2, 2, 5]);
        assert_eq!(csr.col_idx(), [0, 2, 0, 1, 3]);
        assert_eq!(csr.values(), [2.0, 4.0, 6.0, 5.0, 4.0]);
    }

    #[test]
    fn broken_arrays_are_refused() {
        let new = |ptr: &[usize], col: &[u32]| {
            Csr::<f64>::new(2, 2, ptr.to_vec(), col.to_vec(), vec![1.0; col.len()])
        };
        assert!(new(&[0, 1, 2], &[0, 1]).is_ok());
        assert!(new(&[0, 2], &[0, 1]).is_err(), "too few pointers");
        assert!(new(&[0, 2, 1], &[0]).is_err(), "falling pointers");
        assert!(new(&[0, 1, 2], &[0, 2]).is_err(), "column outside");
        assert!(new(&[0, 2, 2], &[1, 0]).is_err(), "unsorted columns");
        assert!(new(&[0, 2, 2], &[1, 1]).is_err(), "repeated column");
        assert!(new(&[1, 2, 2], &[0, 1]).is_err(), "first pointer not 0");
    }

    #[test]
    fn entries_are_walked_found_and_transposed() {
        let entries = [(0, 3, 1.0), (0, 1, 2.0), (2, 0, 3.0), (2, 3, 4.0), (2, 4, 0.0)];
        let csr = Csr::from_triplets(3, 5, entries).expect("inside");
        let mut sorted = entries;
        sorted.sort_by_key(|&(row, column, _)| (row, column));
        assert!(csr.iter().eq(sorted));
        for row in 0..4 {
            for column in 0..6 {
                let stored = entries.iter().find(|entry| (entry.0, entry.1) == (row, column));
                assert_eq!(csr.get(row, column), stored.map(|entry| entry.2), "{row}, {column}");
            }
        }
        assert_eq!(csr.get(2, 1 << 40), None);
        let turned = entries.map(|(row, column, value)| (column, row, value));
        let turned = Csr::from_triplets(5, 3, turned).expect("inside");
        assert_eq!(csr.transpose(), turned);
        assert_eq!(turned.transpose(), csr);
        let empty = Csr::<f32>::from_triplets(0, 4, []).expect("no rows");
        assert_eq!((empty.iter().count(), empty.transpose().nrows()), (0, 4));
    }

    #[test]
    fn counts_become_offsets() {
        assert_eq!(offsets([2, 0, 3]), [0, 2, 2, 5]);
        assert_eq!(offsets([]), [0]);
        let mut counts = [0, 2, 0, 3];
        accumulate(&mut counts);
        assert_eq!(counts, [0, 2, 2, 5]);
    }
}
