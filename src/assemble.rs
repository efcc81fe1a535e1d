//! Parallel construction of a CSR matrix from a function that generates one row.
//!
//! Threads generate batches of rows, which are then concatenated: one pass over the entries to
//! generate them and one to copy them. The result does not depend on the number of threads.

use crate::csr::{Csr, offsets};
use crate::par;
use crate::scalar::Scalar;

/// Rows (or block rows) per batch.
const ROWS_AT_ONCE: usize = 512;

/// Builds a matrix: `row(i, entries)` pushes the entries `(column, value)` of row `i`.
///
/// Entries may be pushed in any order; repeated ones are summed. `row` is called once per row, from
/// several threads.
///
/// # Panics
/// If a column is at or past `ncols`, or a dimension past
/// [`MAX_DIMENSION`](crate::csr::MAX_DIMENSION).
pub fn by_rows<T: Scalar>(
    nrows: usize,
    ncols: usize,
    row: impl Fn(usize, &mut Vec<(u32, T)>) + Sync,
) -> Csr<T> {
    let parts = in_parts(nrows, |rows, part: &mut RowBatch<T>| {
        let mut entries = Vec::new();
        for i in rows {
            entries.clear();
            row(i, &mut entries);
            sort_and_sum(&mut entries, |sum, &value| *sum += value);
            part.push_row(entries.iter().copied());
        }
    });
    join(ncols, parts)
}

/// Builds a matrix of dense `B` x `B` blocks: `row(i, blocks)` pushes `(block column, block)` for
/// block row `i`, in any order; repeated blocks are summed. Every entry of a block is stored.
///
/// # Panics
/// As [`by_rows`].
pub fn by_block_rows<T: Scalar, const B: usize>(
    nrows: usize,
    ncols: usize,
    row: impl Fn(usize, &mut Vec<(u32, [[T; B]; B])>) + Sync,
) -> Csr<T> {
    let parts = in_parts(nrows, |rows, part: &mut RowBatch<T>| {
        let mut blocks = Vec::new();
        for i in rows {
            blocks.clear();
            row(i, &mut blocks);
            sort_and_sum(&mut blocks, |sum, block| {
                for (sum, value) in sum.as_flattened_mut().iter_mut().zip(block.as_flattened()) {
                    *sum += *value;
                }
            });
            for r in 0..B {
                part.push_row(blocks.iter().flat_map(|&(column, ref block)| {
                    (column * B as u32..).zip(block[r].iter().copied())
                }));
            }
        }
    });
    join(ncols * B, parts)
}

/// Rows that one thread generated.
#[derive(Default)]
struct RowBatch<T> {
    lengths: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<T>,
}

impl<T: Copy> RowBatch<T> {
    fn push_row(&mut self, entries: impl Iterator<Item = (u32, T)>) {
        let before = self.columns.len();
        for (column, value) in entries {
            self.columns.push(column);
            self.values.push(value);
        }
        self.lengths.push(self.columns.len() - before);
    }
}

fn in_parts<T: Scalar>(
    items: usize,
    make: impl Fn(std::ops::Range<usize>, &mut RowBatch<T>) + Sync,
) -> Vec<RowBatch<T>> {
    let mut parts = Vec::new();
    parts.resize_with(items.div_ceil(ROWS_AT_ONCE), RowBatch::default);
    par::for_each(&mut parts, 1, |p, part| {
        make(p * ROWS_AT_ONCE..((p + 1) * ROWS_AT_ONCE).min(items), part);
    });
    parts
}

fn sort_and_sum<V>(entries: &mut Vec<(u32, V)>, add: impl Fn(&mut V, &V)) {
    if entries.windows(2).all(|w| w[0].0 < w[1].0) {
        return;
    }
    entries.sort_by_key(|entry| entry.0);
    entries.dedup_by(|entry, kept| {
        let repeated = entry.0 == kept.0;
        if repeated {
            add(&mut kept.1, &entry.1);
        }
        repeated
    });
}

fn join<T: Scalar>(ncols: usize, parts: Vec<RowBatch<T>>) -> Csr<T> {
    let row_ptr = offsets(parts.iter().flat_map(|part| part.lengths.iter().copied()));
    let nnz = row_ptr[row_ptr.len() - 1];
    let (mut col_idx, mut values) = (vec![0; nnz], vec![T::ZERO; nnz]);
    let (mut columns_left, mut values_left) = (&mut col_idx[..], &mut values[..]);
    let mut copies = Vec::with_capacity(parts.len());
    for part in parts {
        let (columns, rest) = columns_left.split_at_mut(part.columns.len());
        columns_left = rest;
        let (values, rest) = values_left.split_at_mut(part.values.len());
        values_left = rest;
        copies.push((part, columns, values));
    }
    par::for_each(&mut copies, 1, |_, (part, columns, values)| {
        columns.copy_from_slice(&part.columns);
        values.copy_from_slice(&part.values);
    });
    Csr::new(row_ptr.len() - 1, ncols, row_ptr, col_idx, values)
        .unwrap_or_else(|error| panic!("a row function broke its contract: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_repeated_entries_summed() {
        let csr = by_rows(3, 4, |i, row| {
            if i != 1 {
                row.extend([(3, 1.0), (i as u32, 2.0), (3, 4.0)]);
            }
        });
        assert_eq!(csr.row_ptr(), [0, 2, 2, 4]);
        assert_eq!(csr.col_idx(), [0, 3, 2, 3]);
        assert_eq!(csr.values(), [2.0, 5.0, 2.0, 5.0]);
    }

    #[test]
    fn blocks_are_stored_whole() {
        let csr = by_block_rows(2, 2, |i, row: &mut Vec<(u32, [[f64; 2]; 2])>| {
            row.push((1, [[1.0, 2.0], [3.0, 0.0]]));
            row.push((i as u32, [[10.0, 0.0], [0.0, 10.0]]));
        });
        assert_eq!(csr.row_ptr(), [0, 4, 8, 10, 12]);
        assert_eq!(csr.row(1), (&[0, 1, 2, 3][..], &[0.0, 10.0, 3.0, 0.0][..]));
        assert_eq!(csr.row(2), (&[2, 3][..], &[11.0, 2.0][..]));
    }

    #[test]
    fn many_parts_join_in_order() {
        let n = 3 * ROWS_AT_ONCE + 7;
        let csr =
            by_rows(n, n, |i, row| row.extend((0..i % 3).map(|k| ((i - k) as u32, i as f64))));
        assert!((0..n).all(|i| csr.row(i).1.iter().all(|&value| value == i as f64)));
        assert_eq!(csr.nnz(), (0..n).map(|i| i % 3).sum::<usize>());
    }
}
