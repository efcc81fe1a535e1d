//! The hubs of a matrix: its columns with the most entries.

use std::cmp::Reverse;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::analysis::{Analysis, ColumnSample, once as kept, probes};
use crate::csr::Pattern;

/// Numbers of a row's entries in hubs and of its other entries.
pub(super) type RowParts = [u32; 2];

/// Frequency of each row shape: the numbers of entries in hubs and of other entries.
type HubRows = Arc<[(RowParts, u64)]>;

probes! {
    /// The hubs, at most this many.
    FullestColumns(u16) -> Arc<HubColumns>;
    /// Frequencies of row shapes with at most this many hubs.
    HubRowCounts(u16) -> HubRows;
}

impl Analysis<'_> {
    /// The columns with the most entries: at most `most`, and none with a single entry. Empty for a
    /// matrix with far more columns than entries. One pass, cached.
    pub fn hubs(&self, most: u16) -> Arc<HubColumns> {
        if self.pattern().ncols() / 64 > self.pattern().nnz() {
            return Arc::new(HubColumns::of(&[], most));
        }
        let (counts, most) = (self.column_counts(), self.most_hubs(most));
        self.memo().get(FullestColumns(most), || Arc::new(HubColumns::of(&counts, most)))
    }

    /// The maximum number of hubs where `most` are allowed: all limits that allow every column share
    /// their hubs.
    fn most_hubs(&self, most: u16) -> u16 {
        self.pattern().ncols().min(usize::from(most)) as u16
    }

    /// The number of columns in [`Analysis::hubs`] and the number of their entries; estimated from
    /// a sample of the rows if this analysis is for estimates.
    pub fn hub_entries(&self, most: u16) -> (usize, u64) {
        match self.column_sample() {
            Some(sample) => {
                let columns = usize::from(most).min(self.pattern().ncols());
                (columns, sample.classes().in_fullest(u64::from(most)) as u64)
            }
            None => {
                let hubs = self.hubs(most);
                (hubs.columns.len(), hubs.covered)
            }
        }
    }

    /// Frequency of each row shape, that is of each pair of the number of entries in
    /// [`Analysis::hubs`] and the number of other entries, in no particular order. Estimated from
    /// a sample as in [`Analysis::hub_entries`]; cached.
    pub fn hub_rows(&self, most: u16) -> HubRows {
        let most = self.most_hubs(most);
        self.memo().get(HubRowCounts(most), || match self.column_sample() {
            Some(sample) => rows_of_sample(&sample, self.pattern(), most).into(),
            None => self.hubs(most).rows(self.pattern()).as_slice().into(),
        })
    }
}

/// The columns of a pattern with the most entries.
#[derive(Debug)]
pub struct HubColumns {
    /// The columns, in descending order of entries.
    pub columns: Vec<u32>,
    /// The number of entries in these columns.
    pub covered: u64,
    places: OnceLock<Vec<u16>>,
    near: OnceLock<Vec<u32>>,
    rows: OnceLock<Vec<(RowParts, u64)>>,
}

impl HubColumns {
    /// Selects at most `most` columns, none of which has a single entry.
    fn of(counts: &[u32], most: u16) -> Self {
        let (columns, covered) = fullest(counts, usize::from(most));
        HubColumns {
            columns,
            covered,
            places: OnceLock::new(),
            near: OnceLock::new(),
            rows: OnceLock::new(),
        }
    }

    /// Place of each column of the pattern among the hubs; [`u16::MAX`] for other columns. Cached.
    pub fn places(&self, pattern: Pattern<'_>) -> &Vec<u16> {
        kept(&self.places, || {
            let mut places = vec![u16::MAX; pattern.ncols()];
            for (place, &column) in self.columns.iter().enumerate() {
                places[column as usize] = place as u16;
            }
            places
        })
    }

    /// Number of entries of each row of the pattern that are in hubs. One pass, cached.
    pub fn near(&self, pattern: Pattern<'_>) -> &Vec<u32> {
        let places = self.places(pattern);
        let in_hubs = |&&column: &&u32| places[column as usize] != u16::MAX;
        let near = |row| pattern.row(row).iter().filter(in_hubs).count() as u32;
        kept(&self.near, || (0..pattern.nrows()).into_par_iter().map(near).collect())
    }

    /// Frequency of each row shape: numbers of entries in hubs and of other entries, in no
    /// particular order. Cached.
    pub fn rows(&self, pattern: Pattern<'_>) -> &Vec<(RowParts, u64)> {
        let lengths = pattern.row_ptr().windows(2).map(|w| (w[1] - w[0]) as u32);
        kept(&self.rows, || {
            count_pairs(self.near(pattern).iter().zip(lengths).map(|(&near, n)| [near, n - near]))
        })
    }
}

/// The columns with the most entries, in descending order: at most `most` of them, and none with a
/// single entry. Also returns the number of their entries.
fn fullest(counts: &[u32], most: usize) -> (Vec<u32>, u64) {
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

/// Estimates from a sample how many rows have each shape, with the `most` fullest columns as hubs; in
/// no particular order.
fn rows_of_sample(sample: &ColumnSample, pattern: Pattern<'_>, most: u16) -> Vec<(RowParts, u64)> {
    let is_hub = sample.fullest(most);
    let parts = sample.rows().iter().map(|&row| {
        let columns = pattern.row(row as usize);
        let near = columns.iter().filter(|&&column| is_hub(column)).count();
        [near, columns.len() - near].map(|n| n as u32)
    });
    let parts: Vec<RowParts> = parts.collect();
    let mut rows = count_pairs(parts.iter().copied());
    let scale = pattern.nrows() as f64 / sample.rows().len().max(1) as f64;
    rows.iter_mut().for_each(|(_, times)| *times = (*times as f64 * scale).round() as u64);
    rows
}

/// Pairs with both numbers below this are counted without sorting.
const SMALL: usize = 256;

/// Counts the occurrences of each pair; the result is unsorted.
fn count_pairs(pairs: impl Iterator<Item = RowParts> + Clone) -> Vec<(RowParts, u64)> {
    // Most matrices have short rows, which a much smaller table counts.
    let most =
        pairs.clone().fold([0; 2], |most, pair| std::array::from_fn(|i| pair[i].max(most[i])));
    let [height, width] = most.map(|n| SMALL.min(n as usize + 1));
    let mut small = vec![0u64; height * width];
    let mut large = Vec::new();
    for pair in pairs {
        match pair.map(|n| n as usize) {
            [near, far] if near < height && far < width => small[near * width + far] += 1,
            _ => large.push(pair),
        }
    }
    large.sort_unstable();
    let small = small.into_iter().enumerate().filter(|(_, times)| *times > 0);
    let small = small.map(|(key, times)| ([key / width, key % width].map(|n| n as u32), times));
    let runs = large.chunk_by(|a, b| a == b);
    small.chain(runs.map(|run| (run[0], run.len() as u64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::column_counts;

    #[test]
    fn the_fullest_columns_come_first_and_single_entries_never() {
        let row_ptr = [0, 3, 5, 7];
        let col_idx = [0, 2, 3, 2, 3, 2, 4];
        let counts = column_counts(Pattern::of(3, 6, &row_ptr, &col_idx));
        assert_eq!(counts, [1, 0, 3, 2, 1, 0]);
        assert_eq!(fullest(&counts, 9), (vec![2, 3], 5));
        assert_eq!(fullest(&counts, 1), (vec![2], 3));
    }

    #[test]
    fn parts_of_rows_are_counted_whatever_their_size() {
        let mut counted = count_pairs([[1, 0], [300, 2], [1, 0], [2, 300], [300, 2]].into_iter());
        counted.sort_unstable();
        assert_eq!(counted, [([1, 0], 2), ([2, 300], 1), ([300, 2], 2)]);
    }
}
