//! The density of a pattern on a grid: data of a picture of the matrix.

use serde::Serialize;

use crate::csr::Pattern;
use crate::error::{Error, Result};
use crate::par;

/// Maximum number of cells of a grid.
pub const MAX_CELLS: usize = 1 << 26;

/// Number of entries in each cell of a grid over a pattern.
///
/// Cell `(i, j)` of a grid of `rows` x `columns` cells holds the entries `(r, c)` with
/// `r * rows / nrows == i` and `c * columns / ncols == j`, rounded down. A cell is empty if the grid
/// is finer than the matrix and no row or column belongs to it.
///
/// ```
/// use ellect::Csr;
/// use ellect::density::Density;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(4, 4, [(0, 0, 1.0), (1, 1, 1.0), (2, 3, 1.0), (3, 3, 1.0)])?;
/// let density = Density::of(csr.pattern(), 2, 2)?;
/// assert_eq!(density.counts(), [2, 0, 0, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Density {
    rows: usize,
    columns: usize,
    counts: Vec<u64>,
}

impl Density {
    /// Counts the entries in each cell. One pass over the columns of the pattern, in parallel.
    ///
    /// # Errors
    /// [`Error::Argument`] if the grid has no rows or columns, or more than [`MAX_CELLS`] cells.
    pub fn of(pattern: Pattern<'_>, rows: usize, columns: usize) -> Result<Self> {
        let cells = rows.saturating_mul(columns);
        if cells == 0 || cells > MAX_CELLS {
            return Err(Error::argument(format!(
                "the grid has {rows} rows and {columns} columns; both must be 1 or more, and together \
                 at most {MAX_CELLS} cells"
            )));
        }
        let mut counts = vec![0; cells];
        let bounds = Bounds::of(pattern.ncols(), columns);
        let mut lines: Vec<&mut [u64]> = counts.chunks_mut(columns).collect();
        par::for_each(&mut lines, 1, |i, line| {
            for row in first(i, pattern.nrows(), rows)..first(i + 1, pattern.nrows(), rows) {
                for &column in pattern.row(row) {
                    line[bounds.cell(column)] += 1;
                }
            }
        });
        Ok(Density { rows, columns, counts })
    }

    /// Returns the number of rows of the grid.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns of the grid.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the number of entries in each cell, row by row.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

/// Returns the first of `n` items that belongs to part `part` of `parts`.
fn first(part: usize, n: usize, parts: usize) -> usize {
    (part as u128 * n as u128).div_ceil(parts as u128) as usize
}

/// The first column of each cell, and of one behind the last.
struct Bounds {
    first: Vec<u64>,
    cells_per_column: f64,
}

impl Bounds {
    fn of(ncols: usize, columns: usize) -> Self {
        let first = (0..=columns).map(|j| first(j, ncols, columns) as u64).collect();
        Bounds { first, cells_per_column: columns as f64 / ncols.max(1) as f64 }
    }

    /// Returns the cell of a column. The product may round to a neighbour, which the bounds correct.
    fn cell(&self, column: u32) -> usize {
        let last = self.first.len() - 2;
        let mut cell = ((f64::from(column) * self.cells_per_column) as usize).min(last);
        while u64::from(column) < self.first[cell] {
            cell -= 1;
        }
        while u64::from(column) >= self.first[cell + 1] {
            cell += 1;
        }
        cell
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::csr::Csr;

    proptest! {
        #[test]
        fn every_entry_counts_in_its_own_cell(
            entries in prop::collection::btree_set((0..40usize, 0..60usize), 0..200),
            rows in 1..90usize,
            columns in 1..90usize,
        ) {
            let triplets = entries.iter().map(|&(row, column)| (row, column, 1.0f64));
            let csr = Csr::from_triplets(40, 60, triplets).expect("inside");
            let density = Density::of(csr.pattern(), rows, columns).expect("a legal grid");
            let mut wanted = vec![0; rows * columns];
            for (row, column) in entries {
                wanted[row * rows / 40 * columns + column * columns / 60] += 1;
            }
            prop_assert_eq!(density.counts(), wanted);
        }
    }

    #[test]
    fn columns_at_the_bounds_of_cells_are_exact() {
        for ncols in [1, 2, 3, 1000, 65_537, (1 << 31) + 11, u32::MAX as usize] {
            for columns in [1, 3, 7, 255, 4096] {
                let bounds = Bounds::of(ncols, columns);
                let near = bounds.first.iter().flat_map(|&at| [at.saturating_sub(1), at, at + 1]);
                for column in near.filter(|&column| column < ncols as u64) {
                    let wanted = (u128::from(column) * columns as u128 / ncols as u128) as usize;
                    assert_eq!(
                        bounds.cell(column as u32),
                        wanted,
                        "{column} of {ncols}, {columns}"
                    );
                }
            }
        }
    }

    #[test]
    fn empty_matrices_have_empty_cells_and_wrong_grids_are_named() {
        for (nrows, ncols) in [(0, 0), (0, 5), (5, 0)] {
            let csr = Csr::<f64>::from_triplets(nrows, ncols, []).expect("legal");
            assert_eq!(Density::of(csr.pattern(), 2, 3).expect("a grid").counts(), [0; 6]);
        }
        let csr = Csr::from_triplets(1, 1, [(0, 0, 1.0)]).expect("legal");
        for (rows, columns) in [(0, 4), (4, 0), (1 << 14, 1 << 14), (usize::MAX, 2)] {
            let error = Density::of(csr.pattern(), rows, columns).expect_err("no grid");
            assert!(error.to_string().contains(&format!("{rows} rows")), "{error}");
        }
    }
}
