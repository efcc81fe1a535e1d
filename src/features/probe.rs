//! The passes over a pattern that features share.

use rayon::prelude::*;

use crate::csr::Pattern;
use crate::scalar::Precision;
use crate::structure::{Sort, Structure, Walk};

/// What the features of one matrix are computed from.
pub(super) struct Probe<'a> {
    pub structure: &'a Structure<'a>,
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    pub mean: f64,
    pub sigma: f64,
    pub gini: f64,
    pub empty: f64,
    pub n_diagonals: f64,
    pub bandwidth: f64,
    pub profile: f64,
    pub span_max: f64,
    pub span_mean: f64,
    pub span_narrow: f64,
    /// Row lengths, rising.
    lengths: Vec<u32>,
    /// Entries of each column, falling.
    columns: Vec<u32>,
    /// Rising sums over `columns`.
    covered: Vec<u64>,
}

/// PELLR, equation 1: the sum over warps of `warp` rows in `sort` order of their longest row.
///
/// Z. Wang, T. Gu, PELLR: A Permutated ELLPACK-R Format for SpMV on GPUs (2020), section 3.
pub fn n_iter(structure: &Structure<'_>, warp: usize, sort: Sort) -> u64 {
    structure.slice_offsets(warp, sort).last().copied().unwrap_or(0) / warp as u64
}

/// PELLR, equation 2: one multiplication for each entry, and one addition less in each row that
/// has any.
pub fn n_p(structure: &Structure<'_>) -> u64 {
    structure.lengths().iter().map(|&length| (2 * u64::from(length)).saturating_sub(1)).sum()
}

impl<'a> Probe<'a> {
    pub fn new(structure: &'a Structure<'a>) -> Self {
        let pattern = structure.pattern();
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let mut lengths = structure.lengths().to_vec();
        lengths.par_sort_unstable();
        let (n, nnz) = (nrows as f64, pattern.nnz() as f64);
        let mean = if nrows > 0 { nnz / n } else { 0.0 };
        let square = |&length: &u32| (f64::from(length) - mean).powi(2);
        let variance = lengths.iter().map(square).sum::<f64>() / n.max(1.0);
        let weighted: f64 =
            lengths.iter().enumerate().map(|(i, &l)| (i + 1) as f64 * f64::from(l)).sum();
        let gini = if nnz > 0.0 { 2.0 * weighted / (n * nnz) - (n + 1.0) / n } else { 0.0 };

        let reach = (0..nrows)
            .into_par_iter()
            .map(|row| reach(row, pattern.row(row)))
            .reduce(|| (0, 0), |a, b| (a.0.max(b.0), a.1 + b.1));
        let spans: Vec<u64> = (0..nrows.div_ceil(HACK))
            .into_par_iter()
            .map(|h| span(pattern, h * HACK..((h + 1) * HACK).min(nrows)))
            .collect();
        let narrow = spans.iter().filter(|&&span| span <= u64::from(u16::MAX)).count();
        let hacks = spans.len().max(1) as f64;

        let mut columns = column_counts(pattern);
        columns.par_sort_unstable_by(|a, b| b.cmp(a));
        let covered = columns.iter().scan(0, |sum, &count| {
            *sum += u64::from(count);
            Some(*sum)
        });
        Probe {
            structure,
            nrows: n,
            ncols: ncols as f64,
            nnz,
            mean,
            sigma: variance.sqrt(),
            gini: gini.max(0.0),
            empty: lengths.partition_point(|&length| length == 0) as f64,
            n_diagonals: n_diagonals(pattern) as f64,
            bandwidth: reach.0 as f64,
            profile: reach.1 as f64,
            span_max: spans.iter().copied().max().unwrap_or(0) as f64,
            span_mean: spans.iter().sum::<u64>() as f64 / hacks,
            span_narrow: if spans.is_empty() { 1.0 } else { narrow as f64 / hacks },
            covered: covered.collect(),
            lengths,
            columns,
        }
    }

    /// `a / b`, 0 where `b` is.
    pub fn over(&self, a: f64, b: f64) -> f64 {
        if b == 0.0 { 0.0 } else { a / b }
    }

    /// The length that this share of the rows does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.lengths.len().saturating_sub(1);
        self.lengths.get((share * last as f64).round() as usize).copied().map_or(0.0, f64::from)
    }

    pub fn sliced_padding(&self, slice: usize, sort: Sort) -> f64 {
        let slots = self.structure.slice_offsets(slice, sort).last().copied().unwrap_or(0);
        self.over(slots as f64, self.nnz)
    }

    pub fn hdia_padding(&self, hack: usize) -> f64 {
        let diagonals = self.structure.hack_diagonals(hack);
        let total: u64 = diagonals.iter().map(|&diagonals| u64::from(diagonals)).sum();
        self.over(total as f64 * hack as f64, self.nnz)
    }

    pub fn x_sectors(&self, precision: Precision) -> f64 {
        let walk = Walk::Rows { threads: 1, sort: Sort::None };
        self.over(self.structure.x_sectors(walk, precision), self.nnz)
    }

    /// Elements of x in the sectors that blocks of rows touch, over their entries.
    pub fn alpha(&self, precision: Precision) -> f64 {
        let pattern = self.structure.pattern();
        let per_sector = (32 / precision.bytes()) as u32;
        let blocks = pattern.nrows().div_ceil(BLOCK);
        let looked_at = blocks.min(SAMPLED_BLOCKS);
        let count = |at: usize| {
            let i = at * blocks / looked_at;
            let rows = i * BLOCK..((i + 1) * BLOCK).min(pattern.nrows());
            let at = pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end];
            let entries = at.len();
            let columns = pattern.col_idx()[at].iter();
            let mut seen: Vec<u32> = columns.map(|&column| column / per_sector).collect();
            seen.sort_unstable();
            seen.dedup();
            (entries, seen.len())
        };
        let counts = (0..looked_at).into_par_iter().map(count);
        let (entries, sectors) = counts.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        self.over(f64::from(per_sector) * sectors as f64, entries as f64)
    }

    /// Share of the entries in the `most` fullest columns.
    pub fn hub_share(&self, most: usize) -> f64 {
        let last = most.min(self.covered.len()).checked_sub(1);
        self.over(last.map_or(0.0, |last| self.covered[last] as f64), self.nnz)
    }

    pub fn fullest_column(&self) -> f64 {
        self.columns.first().copied().map_or(0.0, f64::from)
    }

    /// Share of the entries whose row and column lie in the same window.
    pub fn part_share(&self, window: usize) -> f64 {
        let pattern = self.structure.pattern();
        let inside: usize = (0..pattern.nrows())
            .into_par_iter()
            .map(|row| {
                let first = (row / window * window) as u64;
                let columns = pattern.row(row);
                let before = |end: u64| columns.partition_point(|&c| u64::from(c) < end);
                before(first + window as u64) - before(first)
            })
            .sum();
        self.over(inside as f64, self.nnz)
    }

    pub fn symmetry(&self) -> f64 {
        symmetry(self.structure.pattern(), SAMPLED_ENTRIES)
    }
}

/// Rows of a hack whose columns are looked at together.
const HACK: usize = 32;

/// Rows that share a nearest cache.
const BLOCK: usize = 256;

/// The most blocks of rows that are looked at.
const SAMPLED_BLOCKS: usize = 64;

/// The most entries whose mirror image is searched.
const SAMPLED_ENTRIES: usize = 1 << 15;

/// The farthest entry of a row from the diagonal, and the way from its first one to the diagonal.
fn reach(row: usize, columns: &[u32]) -> (u64, u64) {
    let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { return (0, 0) };
    let (row, first, last) = (row as u64, u64::from(first), u64::from(last));
    (row.abs_diff(first).max(row.abs_diff(last)), row.saturating_sub(first))
}

/// Columns from the first to the last of some rows.
fn span(pattern: Pattern<'_>, rows: std::ops::Range<usize>) -> u64 {
    let ends = rows.filter_map(|row| {
        let columns = pattern.row(row);
        columns.first().zip(columns.last())
    });
    ends.fold(None, |all: Option<(u32, u32)>, (&first, &last)| {
        Some(all.map_or((first, last), |all| (all.0.min(first), all.1.max(last))))
    })
    .map_or(0, |(first, last)| u64::from(last) - u64::from(first) + 1)
}

/// Parts of the rows that threads take, each with a list as long as the matrix is wide.
fn parts(pattern: Pattern<'_>) -> Vec<std::ops::Range<usize>> {
    let threads = rayon::current_num_threads().clamp(1, MOST_LISTS);
    let rows = pattern.nrows().div_ceil(threads).max(1);
    (0..pattern.nrows()).step_by(rows).map(|i| i..(i + rows).min(pattern.nrows())).collect()
}

/// The most lists of that length.
const MOST_LISTS: usize = 16;

fn n_diagonals(pattern: Pattern<'_>) -> usize {
    let words = (pattern.nrows() + pattern.ncols()).div_ceil(64);
    let marks = parts(pattern).into_par_iter().map(|rows| {
        let mut marks = vec![0u64; words];
        for row in rows {
            let first = pattern.nrows() - row - 1;
            for &column in pattern.row(row) {
                let diagonal = first + column as usize;
                marks[diagonal / 64] |= 1 << (diagonal % 64);
            }
        }
        marks
    });
    let all = marks.reduce_with(|mut all, marks| {
        all.iter_mut().zip(marks).for_each(|(all, marks)| *all |= marks);
        all
    });
    all.unwrap_or_default().iter().map(|marks| marks.count_ones() as usize).sum()
}

fn column_counts(pattern: Pattern<'_>) -> Vec<u32> {
    let counts = parts(pattern).into_par_iter().map(|rows| {
        let mut counts = vec![0u32; pattern.ncols()];
        let entries = pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end];
        for &column in &pattern.col_idx()[entries] {
            counts[column as usize] += 1;
        }
        counts
    });
    let all = counts.reduce_with(|mut all, counts| {
        all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        all
    });
    all.unwrap_or_default()
}

/// Share of the entries whose mirror image is stored, of at most `most` spread evenly; 0 unless
/// the matrix is square.
pub(super) fn symmetry(pattern: Pattern<'_>, most: usize) -> f64 {
    let nnz = pattern.nnz();
    if pattern.nrows() != pattern.ncols() || nnz == 0 {
        return 0.0;
    }
    let looked_at = nnz.min(most);
    let mirrored = (0..looked_at).into_par_iter().filter(|&i| {
        let k = (i as u128 * nnz as u128 / looked_at as u128) as usize;
        let row = pattern.row_ptr().partition_point(|&start| start <= k) - 1;
        let mirror = pattern.row(pattern.col_idx()[k] as usize);
        mirror.binary_search(&(row as u32)).is_ok()
    });
    mirrored.count() as f64 / looked_at as f64
}
