//! Entries per column: exact counts, and estimates from a sample of the rows.

use rayon::prelude::*;

use crate::check;
use crate::csr::Pattern;
use crate::par;

/// Maximum number of lists with a counter for every column.
const MOST_LISTS: usize = 16;

/// Minimum number of columns that a thread sums.
const FEWEST: usize = 1 << 16;

/// Returns the number of entries of each column. One pass; each thread allocates a counter per
/// column.
pub fn column_counts(pattern: Pattern<'_>) -> Vec<u32> {
    let (ncols, columns) = (pattern.ncols(), pattern.col_idx());
    let lists = rayon::current_num_threads().clamp(1, MOST_LISTS);
    let each = columns.len().div_ceil(lists).max(1);
    let counts = par::map_ranges(columns.len(), each, |range| {
        let mut counts = vec![0u32; ncols];
        columns[range].iter().for_each(|&column| counts[column as usize] += 1);
        counts
    });
    let mut all = vec![0u32; ncols];
    par::for_each(&mut all, FEWEST, |column, all| {
        *all = counts.iter().map(|counts| counts[column]).sum();
    });
    all
}

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

    /// Returns the rows of the second half of the sample.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns a function that tells whether a column is among the `most` fullest, as far as the
    /// sample shows.
    pub(crate) fn fullest(&self, most: u16) -> impl Fn(u32) -> bool {
        let mut left = u64::from(most);
        let last = self.classes.classes.iter().find(|class| {
            let all = class.columns <= left;
            left -= if all { class.columns } else { 0 };
            !all
        });
        // If the last class fits only in part, an evenly spread share of its columns counts.
        let (least, taken) =
            last.map_or((0, u64::MAX), |class| (class.count, (left << 32) / class.columns));
        move |column| {
            let count = self.counts[column as usize];
            count > least || count == least && u64::from(column.wrapping_mul(0x9e37_79b9)) < taken
        }
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

    /// Iterates over the classes, fullest columns first: the number of columns, and an estimate of
    /// their entries.
    pub fn iter(&self) -> impl Iterator<Item = (u64, f64)> {
        self.classes.iter().map(|class| (class.columns, self.scale * class.entries as f64))
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
