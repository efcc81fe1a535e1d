//! How full columns are.

use std::cmp::Reverse;

use rayon::prelude::*;

use crate::csr::Pattern;

/// The most lists with a place for every column.
const MOST_LISTS: usize = 16;

/// The fewest columns that a thread adds up.
const FEWEST: usize = 1 << 16;

/// Entries of each column. One pass, and a list of all columns for each thread.
pub fn column_counts(pattern: Pattern<'_>) -> Vec<u32> {
    let (ncols, columns) = (pattern.ncols(), pattern.col_idx());
    let lists = rayon::current_num_threads().clamp(1, MOST_LISTS);
    let counts = columns.par_chunks(columns.len().div_ceil(lists).max(1)).map(|columns| {
        let mut counts = vec![0u32; ncols];
        columns.iter().for_each(|&column| counts[column as usize] += 1);
        counts
    });
    let counts = counts.reduce_with(|mut all, counts| {
        all.par_iter_mut().with_min_len(FEWEST).zip(counts).for_each(|(all, c)| *all += c);
        all
    });
    counts.unwrap_or_else(|| vec![0; ncols])
}

/// The fullest columns, at most `most` of them and none with a single entry, the fullest first, and
/// the number of their entries.
pub(super) fn fullest(counts: &[u32], most: usize) -> (Vec<u32>, u64) {
    let count = |column: u32| counts[column as usize];
    let mut columns: Vec<u32> =
        (0..counts.len() as u32).filter(|&column| count(column) > 1).collect();
    let key = |&column: &u32| (Reverse(count(column)), column);
    if most < columns.len() {
        columns.select_nth_unstable_by_key(most, key);
        columns.truncate(most);
    }
    columns.sort_unstable_by_key(key);
    let entries = columns.iter().map(|&column| u64::from(count(column))).sum();
    (columns, entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_columns_come_first_and_single_entries_never() {
        let row_ptr = [0, 3, 5, 7];
        let col_idx = [0, 2, 3, 2, 3, 2, 4];
        let counts = column_counts(Pattern::of(3, 6, &row_ptr, &col_idx));
        assert_eq!(counts, [1, 0, 3, 2, 1, 0]);
        assert_eq!(fullest(&counts, 9), (vec![2, 3], 5));
        assert_eq!(fullest(&counts, 1), (vec![2], 3));
    }
}
