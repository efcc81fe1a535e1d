//! Matrices of dense blocks of one size, as SciPy's BSR has them.

use super::{Csr, MAX_DIMENSION, check_lengths};
use crate::error::{Error, Result};
use crate::par;
use crate::scalar::Scalar;

impl<T: Scalar> Csr<T> {
    /// Builds a matrix from block compressed sparse rows (BSR): `[block_rows, block_cols]` blocks of
    /// `[r, c]` elements.
    ///
    /// Block row `i` has the blocks `block_ptr[i]..block_ptr[i + 1]`; block `k` is in block column
    /// `block_idx[k]`, and its `r * c` elements in `values` lie row by row, as in `scipy.sparse`'s
    /// `bsr_array` (`indptr`, `indices`, `data`). Blocks may come in any order within a block row;
    /// repeated ones are summed. Every element of a block becomes an entry, zeros too.
    ///
    /// ```
    /// use ellect::Csr;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// // | . . 1 2 |
    /// // | . . 3 4 |
    /// let csr = Csr::from_bsr([1, 2], [2, 2], &[0, 1], &[1], &[1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(csr.row(1), (&[2, 3][..], &[3.0, 4.0][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] if an array has a length that does not fit; [`Error::Input`] for blocks
    /// without elements, offsets that fall, a block column outside, and more than
    /// [`MAX_DIMENSION`] rows or columns.
    pub fn from_bsr(
        [block_rows, block_cols]: [usize; 2],
        [r, c]: [usize; 2],
        block_ptr: &[usize],
        block_idx: &[u32],
        values: &[T],
    ) -> Result<Self> {
        if r == 0 || c == 0 {
            return Err(Error::input(format!(
                "the blocks have {r} x {c} elements; both numbers must be at least 1"
            )));
        }
        check_lengths(block_rows, block_cols, block_ptr, block_idx.len(), block_idx.len())?;
        let [nrows, ncols] = [block_rows.saturating_mul(r), block_cols.saturating_mul(c)];
        super::check_dimensions(nrows, ncols)?;
        let needed = block_idx.len().saturating_mul(r.saturating_mul(c));
        if values.len() != needed {
            return Err(Error::Shape { what: "values", got: values.len(), needed });
        }
        let outside = |&at: &usize| block_idx[at] as usize >= block_cols;
        if let Some(at) = (0..block_idx.len()).find(outside) {
            return Err(Error::input(format!(
                "block {at} is in block column {}, but there are {block_cols} columns of blocks",
                block_idx[at]
            )));
        }
        debug_assert!(ncols <= MAX_DIMENSION, "columns fit 32 bits");
        let start = |row: usize| {
            let (block_row, within) = (row / r, row % r);
            let blocks = block_ptr.get(block_row + 1).map_or(0, |end| end - block_ptr[block_row]);
            (block_ptr[block_row] * r + within * blocks) * c
        };
        let row_ptr: Vec<usize> = par::map(nrows + 1, par::GRAIN, start);
        let (mut col_idx, mut entries) = (vec![0; needed], vec![T::ZERO; needed]);
        let bounds = par::split(block_ptr, 1, par::GRAIN.div_ceil(r * c));
        let cuts: Vec<usize> = bounds.iter().map(|&row| block_ptr[row] * r * c).collect();
        let columns = par::slices_mut(&mut col_idx, &cuts).into_iter();
        let mut parts: Vec<_> = columns.zip(par::slices_mut(&mut entries, &cuts)).collect();
        par::for_each(&mut parts, 1, |part, (columns, entries)| {
            let mut filled = 0;
            for block_row in bounds[part]..bounds[part + 1] {
                for within in 0..r {
                    let blocks = block_ptr[block_row]..block_ptr[block_row + 1];
                    for (block, &block_col) in blocks.clone().zip(&block_idx[blocks]) {
                        let first = block_col * c as u32;
                        let own = filled..filled + c;
                        let line = (block * r + within) * c;
                        entries[own.clone()].copy_from_slice(&values[line..line + c]);
                        for (column, to) in (first..).zip(&mut columns[own]) {
                            *to = column;
                        }
                        filled += c;
                    }
                }
            }
        });
        Csr::from_unsorted(nrows, ncols, row_ptr, col_idx, entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix by its triplets.
    fn by_triplets(
        [block_rows, block_cols]: [usize; 2],
        [r, c]: [usize; 2],
        block_ptr: &[usize],
        block_idx: &[u32],
        values: &[f64],
    ) -> Csr<f64> {
        let mut triplets = Vec::new();
        for block_row in 0..block_rows {
            for block in block_ptr[block_row]..block_ptr[block_row + 1] {
                for (i, &value) in values[block * r * c..][..r * c].iter().enumerate() {
                    let column = block_idx[block] as usize * c + i % c;
                    triplets.push((block_row * r + i / c, column, value));
                }
            }
        }
        Csr::from_triplets(block_rows * r, block_cols * c, triplets).expect("in range")
    }

    #[test]
    fn blocks_of_any_size_are_those_of_their_triplets() {
        for [r, c] in [[1, 1], [1, 3], [2, 3], [4, 4], [5, 2]] {
            let (rows, cols) = (2000, 70);
            let block_ptr: Vec<usize> = super::super::offsets((0..rows).map(|row| row % 4));
            // Unsorted, and repeated where a row has three blocks.
            let block =
                |row: usize, k: usize| ((row * 7 + (2 - k % 3) * 11 * (k % 2)) % cols) as u32;
            let block_idx: Vec<u32> =
                (0..rows).flat_map(|row| (0..row % 4).map(move |k| block(row, k))).collect();
            let values: Vec<f64> =
                (0..block_idx.len() * r * c).map(|k| (k % 13) as f64 - 4.0).collect();
            let made = Csr::from_bsr([rows, cols], [r, c], &block_ptr, &block_idx, &values);
            let expected = by_triplets([rows, cols], [r, c], &block_ptr, &block_idx, &values);
            assert_eq!(made.expect("valid"), expected, "{r} x {c}");
        }
        let none = Csr::<f64>::from_bsr([0, 0], [2, 2], &[0], &[], &[]).expect("valid");
        assert_eq!((none.nrows(), none.ncols(), none.nnz()), (0, 0, 0));
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        let of = |sizes, block, ptr: &[usize], idx: &[u32], values: usize| {
            let made = Csr::from_bsr(sizes, block, ptr, idx, &vec![1.0; values]);
            made.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(of([2, 2], [2, 2], &[0, 1, 2], &[0, 1], 8), "");
        for (made, stated) in [
            (of([2, 2], [2, 0], &[0, 1, 2], &[0, 1], 8), "2 x 0 elements"),
            (of([2, 2], [2, 2], &[0, 2], &[0, 1], 8), "row_ptr"),
            (of([2, 2], [2, 2], &[0, 2, 1], &[0], 4), "falls"),
            (of([2, 2], [2, 2], &[0, 1, 3], &[0, 1], 8), "run from 0 to nnz = 2"),
            (of([2, 2], [2, 2], &[0, 1, 2], &[0, 1], 7), "values"),
            (of([2, 2], [2, 2], &[0, 1, 2], &[0, 2], 8), "block column 2, but there are 2"),
            (of([2, 1 << 30], [2, 4], &[0, 1, 2], &[0, 2], 16), "number of columns is 4294967296"),
            (of([2, 2], [2, usize::MAX], &[0, 1, 2], &[0, 1], 8), "number of columns"),
        ] {
            assert!(made.contains(stated), "'{made}' does not tell '{stated}'");
        }
    }
}
