//! Entries per column: exact counts, and estimates from a sample of the rows.

use rayon::prelude::*;

use crate::check;
use crate::csr::Pattern;

/// Maximum number of lists with a counter for every column.
const MOST_LISTS: usize = 16;

/// Minimum number of columns that a thread sums.
const FEWEST: usize = 1 << 16;

/// Returns the number of entries of each column. One pass; each thread allocates a counter per
/// column.
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

/// Entries of one row in the fullest columns, and its other entries.
pub(crate) type RowParts = [u32; 2];

/// Entries per column, estimated from a sample of the rows.
///
/// The first half of the sample counts the entries of each column. The second half, drawn
/// independently, measures how many entries columns with a given count really have: a column is not
/// fuller merely because the first half happened to hit it often.
#[derive(Debug)]
pub struct ColumnSample {
    /// Entries of each column in the first half of the sample.
    counts: Vec<u32>,
    classes: Classes,
    /// Rows of the second half of the sample.
    rows: Vec<u32>,
}

/// Columns grouped by their count in the first half of a sample, with their entries in the second
/// half.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    /// Fullest columns first.
    classes: Vec<ColumnClass>,
    /// Entries of the matrix divided by entries of the second half.
    scale: f64,
}

/// Columns with the same count in the first half of a sample.
#[derive(Clone, Copy, Debug)]
struct ColumnClass {
    count: u32,
    columns: u64,
    /// Entries of these columns in the second half.
    entries: u64,
}

/// Minimum number of sampled rows per thread.
const FEWEST_ROWS: usize = 256;

/// Minimum number of entries from which the fullest column is estimated; with fewer, chance
/// dominates.
const FEW_ENTRIES: u64 = 32;

impl ColumnSample {
    /// Draws a sample with `half` rows in each half.
    pub(super) fn of(pattern: Pattern<'_>, half: usize) -> Self {
        let mut counts = vec![0u32; pattern.ncols()];
        // Rows of both halves are drawn independently: if they were evenly spaced, neighbouring
        // rows that share columns would never be drawn together.
        let draw = |i: usize| {
            let random = check::mix(i as u64);
            ((u128::from(random) * pattern.nrows() as u128) >> 64) as u32
        };
        let [rows, others] =
            [0, half].map(|first| -> Vec<u32> { (first..first + half).map(draw).collect() });
        // `reached[k]`: number of columns with at least `k` sampled entries.
        let mut reached = vec![pattern.ncols() as u64];
        let columns = |rows: &[u32]| -> Vec<u32> {
            let rows = rows.par_iter().with_min_len(FEWEST_ROWS);
            rows.flat_map_iter(|&row| pattern.row(row as usize)).copied().collect()
        };
        for column in columns(&rows) {
            let count = &mut counts[column as usize];
            *count += 1;
            match reached.get_mut(*count as usize) {
                Some(reached) => *reached += 1,
                None => reached.push(1),
            }
        }
        let mut entries = vec![0u64; reached.len()];
        for column in columns(&others) {
            entries[counts[column as usize] as usize] += 1;
        }
        let classes = Classes::of(pattern.nnz(), &reached, &entries);
        ColumnSample { counts, classes, rows: others }
    }

    /// Returns the columns grouped by their sampled count.
    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Estimates how many rows have a given pair of entries in the `most` fullest columns and
    /// entries elsewhere; unsorted.
    pub(crate) fn rows(&self, pattern: Pattern<'_>, most: u16) -> Vec<(RowParts, u64)> {
        let mut left = u64::from(most);
        let last = self.classes.classes.iter().find(|class| {
            let all = class.columns <= left;
            left -= if all { class.columns } else { 0 };
            !all
        });
        // If the last class fits only in part, an evenly spread share of its columns counts.
        let (least, taken) =
            last.map_or((0, u64::MAX), |class| (class.count, (left << 32) / class.columns));
        let in_hubs = |&&column: &&u32| {
            let count = self.counts[column as usize];
            count > least || count == least && u64::from(column.wrapping_mul(0x9e37_79b9)) < taken
        };
        let parts = self.rows.iter().map(|&row| {
            let columns = pattern.row(row as usize);
            let near = columns.iter().filter(in_hubs).count();
            [near, columns.len() - near].map(|n| n as u32)
        });
        let mut rows = count_pairs(parts);
        let scale = pattern.nrows() as f64 / self.rows.len().max(1) as f64;
        rows.iter_mut().for_each(|(_, times)| *times = (*times as f64 * scale).round() as u64);
        rows
    }
}

impl Classes {
    /// Groups the columns of a matrix of `nnz` entries: `reached[k]` columns have at least `k`
    /// entries in the first half, and the columns with exactly `k` entries have `entries[k]` in the
    /// second half.
    pub fn of(nnz: usize, reached: &[u64], entries: &[u64]) -> Self {
        let more = reached.iter().skip(1).chain([&0]);
        let classes = reached.iter().zip(more).zip(entries).zip(0..);
        let classes = classes.map(|(((reached, more), &entries), count)| ColumnClass {
            count,
            columns: reached - more,
            entries,
        });
        let mut classes: Vec<ColumnClass> = classes.filter(|class| class.columns > 0).collect();
        classes.reverse();
        let all: u64 = classes.iter().map(|class| class.entries).sum();
        Classes { classes, scale: nnz as f64 / all.max(1) as f64 }
    }

    /// Estimates the entries in the `most` fullest columns.
    pub fn in_fullest(&self, most: u64) -> f64 {
        let mut left = most;
        let taken = self.classes.iter().map(|class| {
            let taken = left.min(class.columns);
            left -= taken;
            class.entries as f64 * taken as f64 / class.columns as f64
        });
        self.scale * taken.sum::<f64>()
    }

    /// Estimates [`swept_sectors`], assuming that columns of a class are neighbours.
    pub fn swept_sectors(&self, parts: usize, columns: usize) -> f64 {
        let of_class = |class: &ColumnClass| {
            let sectors = class.columns as f64 / columns as f64;
            let entries = self.scale * class.entries as f64;
            sectors * parts_with_one(entries / sectors, parts)
        };
        self.classes.iter().map(of_class).sum()
    }

    /// Estimates the entries of the fullest column.
    pub fn fullest(&self) -> f64 {
        let (mut columns, mut entries, mut fullest) = (0, 0, 0.0f64);
        for class in &self.classes {
            columns += class.columns;
            entries += class.entries;
            if entries >= FEW_ENTRIES {
                fullest = fullest.max(entries as f64 / columns as f64);
            }
        }
        self.scale * fullest
    }
}

/// Returns the expected number of parts that hold at least one of a sector's `entries` entries, if
/// entries are assigned to `parts` parts at random.
fn parts_with_one(entries: f64, parts: usize) -> f64 {
    let parts = parts as f64;
    if parts > 1.0 {
        parts * -(entries * (-1.0 / parts).ln_1p()).exp_m1()
    } else {
        entries.min(1.0)
    }
}

/// Returns the expected number of sectors of `columns` columns that are loaded if entries are
/// assigned to `parts` parts at random and each part loads each sector that it needs once.
pub(super) fn swept_sectors(counts: &[u32], parts: usize, columns: usize) -> f64 {
    let of_sector =
        |counts: &[u32]| parts_with_one(counts.iter().map(|&count| f64::from(count)).sum(), parts);
    // The order of summation does not depend on the number of threads.
    let pieces = counts.par_chunks(FEWEST);
    let sums = pieces.map(|counts| counts.chunks(columns).map(of_sector).sum());
    sums.collect::<Vec<f64>>().iter().sum()
}

/// Pairs with both numbers below this are counted without sorting.
const SMALL: usize = 256;

/// Counts the occurrences of each pair; the result is unsorted.
pub(crate) fn count_pairs(pairs: impl Iterator<Item = RowParts>) -> Vec<(RowParts, u64)> {
    let mut small = vec![0u64; SMALL * SMALL];
    let mut large = Vec::new();
    for pair in pairs {
        match pair.map(|n| n as usize) {
            [near, far] if near < SMALL && far < SMALL => small[near * SMALL + far] += 1,
            _ => large.push(pair),
        }
    }
    large.sort_unstable();
    let small = small.into_iter().enumerate().filter(|(_, times)| *times > 0);
    let small = small.map(|(key, times)| ([key / SMALL, key % SMALL].map(|n| n as u32), times));
    let runs = large.chunk_by(|a, b| a == b);
    small.chain(runs.map(|run| (run[0], run.len() as u64))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_rows_are_counted_whatever_their_size() {
        let mut counted = count_pairs([[1, 0], [300, 2], [1, 0], [2, 300], [300, 2]].into_iter());
        counted.sort_unstable();
        assert_eq!(counted, [([1, 0], 2), ([2, 300], 1), ([300, 2], 2)]);
    }
}
