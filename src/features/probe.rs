//! The passes over a pattern that features share.

use rayon::prelude::*;

use crate::csr::Pattern;
use crate::scalar::Precision;
use crate::structure::{EachPrecision, Histogram, SAMPLED_MIRRORS, Sort, Structure, Walk};

/// What the features of one matrix are computed from.
pub(super) struct Probe<'a> {
    pub structure: &'a Structure<'a>,
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    pub mean: f64,
    pub sigma: f64,
    pub gini: f64,
    pub bandwidth: f64,
    pub profile: f64,
    pub span_max: f64,
    pub span_mean: f64,
    pub span_narrow: f64,
    /// Entries of each column.
    columns: Histogram,
    /// Loads of x a nonzero.
    loads: EachPrecision,
}

/// PELLR, equation 1: the sum over warps of `warp` rows in `sort` order of their longest row.
///
/// Z. Wang, T. Gu, PELLR: A Permutated ELLPACK-R Format for SpMV on GPUs (2020), section 3.
pub fn n_iter(structure: &Structure<'_>, warp: usize, sort: Sort) -> u64 {
    structure.n_iter(warp, 1, sort)
}

/// PELLR, equation 2: one multiplication for each entry, and one addition less in each row that
/// has any.
pub fn n_p(structure: &Structure<'_>) -> u64 {
    let lengths = structure.row_lengths();
    2 * structure.pattern().nnz() as u64 - (lengths.len() - lengths.times(0))
}

impl<'a> Probe<'a> {
    pub fn new(structure: &'a Structure<'a>) -> Self {
        let pattern = structure.pattern();
        let (nrows, nnz) = (pattern.nrows() as f64, pattern.nnz() as f64);
        let mean = over(nnz, nrows);
        let lengths = structure.row_lengths().iter().map(|(l, times)| (f64::from(l), times as f64));
        let squares: f64 = lengths.clone().map(|(l, times)| times * (l - mean).powi(2)).sum();
        let (bandwidth, profile) = reach(pattern);
        let spans = structure.spans(HACK, Sort::None, None);
        let spans = spans.iter().map(|span| u64::from(span.end) - u64::from(span.start));
        let hacks = spans.len() as f64;
        let narrow = spans.clone().filter(|&span| span <= u64::from(u16::MAX)).count();
        Probe {
            structure,
            nrows,
            ncols: pattern.ncols() as f64,
            nnz,
            mean,
            sigma: over(squares, nrows).sqrt(),
            gini: gini(lengths, nrows, nnz),
            bandwidth: bandwidth as f64,
            profile: profile as f64,
            span_max: spans.clone().max().unwrap_or(0) as f64,
            span_mean: over(spans.sum::<u64>() as f64, hacks),
            span_narrow: if hacks > 0.0 { narrow as f64 / hacks } else { 1.0 },
            columns: column_counts(pattern),
            loads: structure.x_loads(),
        }
    }

    /// The length that this share of the rows does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = (self.nrows - 1.0).max(0.0);
        f64::from(self.structure.row_lengths().at((share * last).round() as u64))
    }

    /// Rows without entries.
    pub fn empty_rows(&self) -> f64 {
        self.structure.row_lengths().times(0) as f64
    }

    pub fn sliced_padding(&self, slice: usize, sort: Sort) -> f64 {
        over(self.structure.slots(slice, sort) as f64, self.nnz)
    }

    /// Diagonals of all hacks of `hack` rows.
    fn n_diagonals(&self, hack: usize) -> f64 {
        self.structure.n_diagonals(hack) as f64
    }

    /// Diagonals of the whole matrix.
    pub fn all_diagonals(&self) -> f64 {
        self.n_diagonals(usize::MAX)
    }

    /// Mean number of diagonals of a hack.
    pub fn hack_diagonals(&self, hack: usize) -> f64 {
        over(self.n_diagonals(hack), (self.nrows / hack as f64).ceil())
    }

    pub fn hdia_padding(&self, hack: usize) -> f64 {
        over(self.n_diagonals(hack) * hack as f64, self.nnz)
    }

    pub fn x_sectors(&self, precision: Precision) -> f64 {
        let walk = Walk::Rows { threads: 1, sort: Sort::None };
        over(self.structure.x_sectors(walk, precision), self.nnz)
    }

    pub fn alpha(&self, precision: Precision) -> f64 {
        self.loads.of(precision)
    }

    /// Share of the entries in the `most` fullest columns.
    pub fn hub_share(&self, most: usize) -> f64 {
        over(self.columns.sum_of_largest(most as u64) as f64, self.nnz)
    }

    pub fn fullest_column(&self) -> f64 {
        f64::from(self.columns.max())
    }

    /// Share of the entries whose row and column lie in the same window.
    pub fn part_share(&self, window: usize) -> f64 {
        let pattern = self.structure.pattern();
        let inside: usize = (0..pattern.nrows())
            .into_par_iter()
            .step_by(window)
            .map(|first| {
                let end = pattern.nrows().min(first + window);
                let columns = &pattern.col_idx()[pattern.row_ptr()[first]..pattern.row_ptr()[end]];
                let columns = columns.par_chunks(FEWEST_ENTRIES);
                let near = |&&column: &&u32| column.wrapping_sub(first as u32) < window as u32;
                columns.map(|columns| columns.iter().filter(near).count()).sum::<usize>()
            })
            .sum();
        over(inside as f64, self.nnz)
    }

    pub fn symmetry(&self) -> f64 {
        self.structure.symmetry(SAMPLED_MIRRORS)
    }
}

/// `a / b`, 0 where `b` is.
pub(super) fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// Rows of a hack whose columns are looked at together.
const HACK: usize = 32;

/// The fewest entries that a thread takes where an entry is little work.
const FEWEST_ENTRIES: usize = 1 << 16;

/// The fewest rows that a thread takes where a row is little work.
const FEWEST_ROWS: usize = 1 << 13;

/// Gini coefficient of row lengths, given in rising order with the number of rows of each.
fn gini(lengths: impl Iterator<Item = (f64, f64)>, nrows: f64, nnz: f64) -> f64 {
    let mut passed = 0.0;
    let weighted = lengths.map(|(length, times)| {
        // The sum of the ranks of these rows, counted from 1.
        let ranks = times * (passed + (times + 1.0) / 2.0);
        passed += times;
        ranks * length
    });
    let weighted: f64 = weighted.sum();
    (over(2.0 * weighted, nrows * nnz) - over(nrows + 1.0, nrows)).max(0.0)
}

/// The farthest entry from the diagonal; and the sum over rows of the way from the first entry to
/// the diagonal.
fn reach(pattern: Pattern<'_>) -> (u64, u64) {
    let of_row = |row: usize| {
        let columns = pattern.row(row);
        let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { return (0, 0) };
        let (row, first, last) = (row as u64, u64::from(first), u64::from(last));
        (row.abs_diff(first).max(row.abs_diff(last)), row.saturating_sub(first))
    };
    let rows = (0..pattern.nrows()).into_par_iter().with_min_len(FEWEST_ROWS);
    rows.map(of_row).reduce(|| (0, 0), |a, b| (a.0.max(b.0), a.1 + b.1))
}

/// Entries of each column.
fn column_counts(pattern: Pattern<'_>) -> Histogram {
    let (ncols, columns) = (pattern.ncols(), pattern.col_idx());
    if ncols / 64 > columns.len() {
        // Next to empty: a list of all columns would be longer than the work.
        let mut columns = columns.to_vec();
        columns.par_sort_unstable();
        let counts: Vec<u32> = columns.chunk_by(u32::eq).map(|run| run.len() as u32).collect();
        return Histogram::of(&counts).with_zeros((ncols - counts.len()) as u64);
    }
    Histogram::of(&crate::structure::column_counts(pattern))
}
