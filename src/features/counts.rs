//! The counts that features are computed from: whole numbers and samples, counted on the host or on
//! a GPU.

use rayon::prelude::*;

use crate::analysis::{Analysis, Classes, EachPrecision, Histogram, Sample, Sort, Walk, over_all};
use crate::csr::Pattern;
use crate::par;
use crate::scalar::Precision;

/// Rows of a hack (and of a warp) whose columns are analysed together.
pub(crate) const HACK: usize = 32;

/// Rows per slice, with rows in their own order, for the padding features.
pub(crate) const SLICES: [usize; 4] = [32, 64, 128, 256];

/// Rows per window within which rows are sorted before they are cut into hacks.
pub(crate) const SORTED: [usize; 2] = [512, 4096];

/// Rows per hack for the diagonal counts.
pub(crate) const DIAGONAL_HACKS: [usize; 2] = [32, 256];

/// Rows and columns of the diagonal blocks whose entries are counted.
pub(crate) const PARTS: [usize; 2] = [4096, 16_384];

/// Side lengths of the dense blocks whose fill is counted.
pub(crate) const SIDES: [usize; 5] = [2, 3, 4, 5, 6];

/// The counts that the features of one matrix are computed from.
#[derive(Clone, Debug)]
pub(crate) struct FeatureCounts {
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    /// Histogram of row lengths.
    pub rows: Histogram,
    /// Entries per column.
    pub columns: ColumnFill,
    /// Sum of the longest rows of all slices, for each slice size of [`SLICES`].
    pub longest: [u64; 4],
    /// Sum of the longest rows of all hacks of [`HACK`] rows, for each window size of [`SORTED`].
    pub sorted_longest: [u64; 2],
    /// Counts over the columns of hacks.
    pub hacks: HackCounts,
    /// Number of diagonals of the whole matrix.
    pub diagonals: u64,
    /// Number of diagonals per hack, summed over all hacks, for each size of [`DIAGONAL_HACKS`].
    pub hack_diagonals: [u64; 2],
    /// Sectors of x that one product requests with one row per lane.
    pub sectors: EachPrecision,
    /// Loads of x per nonzero.
    pub loads: EachPrecision,
    /// Entries per slot of nonempty dense blocks, for each side length of [`SIDES`].
    pub block_fill: [f64; 5],
    /// Share of entries whose mirror image is stored, too.
    pub symmetry: f64,
}

/// Returns the warp iterations of PELLR, equation 1: the sum over warps of `warp` rows, in `sort`
/// order, of their longest row.
///
/// Z. Wang, T. Gu, PELLR: A Permutated ELLPACK-R Format for SpMV on GPUs (2020), section 3.
pub fn n_iter(analysis: &Analysis<'_>, warp: usize, sort: Sort) -> u64 {
    analysis.n_iter(warp, 1, sort)
}

/// Returns the operations of PELLR, equation 2: one multiplication per entry, and one addition less
/// than that in each nonempty row.
pub fn n_p(analysis: &Analysis<'_>) -> u64 {
    operations(analysis.pattern().nnz() as u64, analysis.row_lengths())
}

fn operations(nnz: u64, lengths: &Histogram) -> u64 {
    2 * nnz - (lengths.len() - lengths.times(0))
}

/// The size and the row lengths of a matrix: input of the features that need no entries.
pub(crate) struct RowFigures<'a> {
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    lengths: LengthSource<'a>,
}

/// Source of the row lengths.
enum LengthSource<'a> {
    Counted(&'a Histogram),
    /// Counted by the analysis at the first query.
    Of(&'a Analysis<'a>),
}

impl<'a> RowFigures<'a> {
    /// Creates the statistics of an analysis; reads nothing yet.
    pub fn of(analysis: &'a Analysis<'a>) -> Self {
        let pattern = analysis.pattern();
        RowFigures {
            nrows: pattern.nrows() as f64,
            ncols: pattern.ncols() as f64,
            nnz: pattern.nnz() as f64,
            lengths: LengthSource::Of(analysis),
        }
    }

    /// Creates the statistics of a matrix of size `[nrows, ncols, nnz]`; only numbers that need no
    /// row lengths may be queried.
    pub fn at_size([nrows, ncols, nnz]: [usize; 3], uncounted: &'a Histogram) -> Self {
        let [nrows, ncols, nnz] = [nrows, ncols, nnz].map(|number| number as f64);
        RowFigures { nrows, ncols, nnz, lengths: LengthSource::Counted(uncounted) }
    }

    fn histogram(&self) -> &Histogram {
        match self.lengths {
            LengthSource::Counted(histogram) => histogram,
            LengthSource::Of(analysis) => analysis.row_lengths(),
        }
    }

    pub fn mean(&self) -> f64 {
        over(self.nnz, self.nrows)
    }

    /// Iterates over row lengths in rising order, with the number of rows of each.
    fn lengths(&self) -> impl Iterator<Item = (f64, f64)> {
        self.histogram().iter().map(|(length, times)| (f64::from(length), times as f64))
    }

    pub fn sigma(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.lengths().map(|(l, times)| times * (l - mean).powi(2)).sum();
        over(squares, self.nrows).sqrt()
    }

    /// Returns the quantile of the row lengths at `share` (0 to 1).
    pub fn quantile(&self, share: f64) -> f64 {
        let last = (self.nrows - 1.0).max(0.0);
        f64::from(self.histogram().at((share * last).round() as u64))
    }

    /// Returns the number of rows without entries.
    pub fn empty_rows(&self) -> f64 {
        self.histogram().times(0) as f64
    }

    /// Returns the Gini coefficient of the row lengths.
    pub fn gini(&self) -> f64 {
        let mut passed = 0.0;
        let weighted = self.lengths().map(|(length, times)| {
            // The sum of the ranks of these rows, counted from 1.
            let ranks = times * (passed + (times + 1.0) / 2.0);
            passed += times;
            ranks * length
        });
        let weighted: f64 = weighted.sum();
        let nrows = self.nrows;
        (over(2.0 * weighted, nrows * self.nnz) - over(nrows + 1.0, nrows)).max(0.0)
    }
}

impl FeatureCounts {
    /// Counts everything. A few passes over the pattern.
    pub fn of(analysis: &Analysis<'_>) -> Self {
        let pattern = analysis.pattern();
        let longest = |slice, sort| analysis.slots(slice, sort) / slice as u64;
        // These counts dominate the time, so they run side by side.
        let (hacks, columns) = par::join(
            || HackCounts::of(analysis),
            || {
                let fill = || SIDES.map(|b| analysis.block_fill(b));
                par::join(|| ColumnFill::of(analysis), fill).0
            },
        );
        FeatureCounts {
            nrows: pattern.nrows() as f64,
            ncols: pattern.ncols() as f64,
            nnz: pattern.nnz() as f64,
            rows: analysis.row_lengths().clone(),
            columns,
            longest: SLICES.map(|slice| longest(slice, Sort::None)),
            sorted_longest: SORTED.map(|window| longest(HACK, Sort::Window(window))),
            hacks,
            diagonals: analysis.n_diagonals(usize::MAX),
            hack_diagonals: DIAGONAL_HACKS.map(|hack| analysis.n_diagonals(hack)),
            sectors: analysis.sectors(Walk::Rows { threads: 1, sort: Sort::None }),
            loads: analysis.x_loads(),
            block_fill: SIDES.map(|b| analysis.block_fill(b)),
            symmetry: analysis.symmetry(analysis.detail().mirrors()),
        }
    }

    /// Returns the size and the row lengths.
    pub fn of_rows(&self) -> RowFigures<'_> {
        let FeatureCounts { nrows, ncols, nnz, .. } = *self;
        RowFigures { nrows, ncols, nnz, lengths: LengthSource::Counted(&self.rows) }
    }

    /// Returns slots per entry of slices of `slice` rows whose longest rows sum up to `longest`.
    fn padding(&self, longest: u64, slice: usize) -> f64 {
        over((longest * slice as u64) as f64, self.nnz)
    }

    /// Returns the padding of slices of `SLICES[i]` rows.
    pub fn sliced_padding(&self, i: usize) -> f64 {
        self.padding(self.longest[i], SLICES[i])
    }

    /// Returns the padding of hacks if rows are sorted within windows of `SORTED[i]` rows.
    pub fn window_padding(&self, i: usize) -> f64 {
        self.padding(self.sorted_longest[i], HACK)
    }

    /// Returns the sum of the longest rows of all hacks if all rows are sorted by length.
    pub fn all_sorted_longest(&self) -> u64 {
        self.rows.sum_of_every(HACK as u64)
    }

    /// Returns the padding of hacks if all rows are sorted by length.
    pub fn all_sorted_padding(&self) -> f64 {
        self.padding(self.all_sorted_longest(), HACK)
    }

    /// Returns the operations of one product, as [`n_p`].
    pub fn operations(&self) -> u64 {
        operations(self.nnz as u64, &self.rows)
    }

    fn n_hacks(&self, rows: usize) -> f64 {
        (self.nrows / rows as f64).ceil()
    }

    pub fn span_mean(&self) -> f64 {
        over(self.hacks.span_sum as f64, self.n_hacks(HACK))
    }

    pub fn span_narrow(&self) -> f64 {
        match self.n_hacks(HACK) {
            0.0 => 1.0,
            n_hacks => self.hacks.spans_narrow as f64 / n_hacks,
        }
    }

    /// Returns the mean number of diagonals of a hack of `DIAGONAL_HACKS[i]` rows.
    pub fn hack_diagonals(&self, i: usize) -> f64 {
        over(self.hack_diagonals[i] as f64, self.n_hacks(DIAGONAL_HACKS[i]))
    }

    pub fn hdia_padding(&self, i: usize) -> f64 {
        over(self.hack_diagonals[i] as f64 * DIAGONAL_HACKS[i] as f64, self.nnz)
    }

    pub fn x_sectors(&self, precision: Precision) -> f64 {
        over(self.sectors.of(precision), self.nnz)
    }

    pub fn alpha(&self, precision: Precision) -> f64 {
        self.loads.of(precision)
    }

    /// Returns the share of entries in the `most` fullest columns.
    pub fn hub_share(&self, most: usize) -> f64 {
        over(self.columns.in_fullest(most as u64), self.nnz)
    }

    pub fn fullest_column(&self) -> f64 {
        self.columns.fullest()
    }

    /// Returns the share of entries inside the diagonal blocks of `PARTS[i]` rows and columns.
    pub fn part_share(&self, i: usize) -> f64 {
        over(self.hacks.inside[i] as f64, self.nnz)
    }
}

/// Returns `a / b`, or 0 if `b` is 0.
pub(super) fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// Minimum number of hacks per thread.
const FEWEST_HACKS: usize = 64;

/// Sums and maxima over hacks of [`HACK`] rows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HackCounts {
    /// Distance from each row's first entry to the diagonal, summed over rows.
    pub profile: u64,
    /// Column spans, summed over hacks.
    pub span_sum: u64,
    /// Number of hacks whose column span fits in 16 bits.
    pub spans_narrow: u64,
    /// Entries inside the diagonal blocks, for each size of [`PARTS`].
    pub inside: [u64; 2],
    /// Number of analysed entries.
    pub entries: u64,
    /// Largest distance of an entry from the diagonal.
    pub bandwidth: u64,
    /// Largest column span of a hack.
    pub span_max: u64,
}

impl HackCounts {
    /// Counts all hacks, or a sample of them for estimates.
    fn of(analysis: &Analysis<'_>) -> Self {
        let sample = analysis.groups_of(HACK);
        let of_one = |at: usize| HackCounts::of_one(analysis, sample.pick(at));
        let none = HackCounts::default;
        let sums = par::reduce(sample.sampled, FEWEST_HACKS, none, of_one, HackCounts::with);
        sums.over_all(sample, analysis.pattern().nnz())
    }

    /// Extrapolates the sums over this sample to all hacks of a matrix of `nnz` entries.
    pub fn over_all(self, sample: Sample, nnz: usize) -> Self {
        HackCounts {
            profile: sample.scale(self.profile),
            span_sum: sample.scale(self.span_sum),
            spans_narrow: sample.scale(self.spans_narrow),
            inside: self.inside.map(|inside| over_all(inside, self.entries, nnz)),
            ..self
        }
    }

    fn of_one(analysis: &Analysis<'_>, h: usize) -> Self {
        let pattern = analysis.pattern();
        let rows = h * HACK..((h + 1) * HACK).min(pattern.nrows());
        let span = analysis.span(rows.clone());
        let span = u64::from(span.end) - u64::from(span.start);
        let columns =
            &pattern.col_idx()[pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end]];
        let mut one = HackCounts {
            span_sum: span,
            spans_narrow: u64::from(span <= u64::from(u16::MAX)),
            inside: PARTS.map(|window| {
                let first = (rows.start / window * window) as u32;
                let near = |&&column: &&u32| column.wrapping_sub(first) < window as u32;
                columns.iter().filter(near).count() as u64
            }),
            entries: columns.len() as u64,
            span_max: span,
            ..HackCounts::default()
        };
        for row in rows {
            let columns = pattern.row(row);
            let (Some(&first), Some(&last)) = (columns.first(), columns.last()) else { continue };
            let (row, first, last) = (row as u64, u64::from(first), u64::from(last));
            one.bandwidth = one.bandwidth.max(row.abs_diff(first)).max(row.abs_diff(last));
            one.profile += row.saturating_sub(first);
        }
        one
    }

    fn with(self, other: HackCounts) -> HackCounts {
        HackCounts {
            profile: self.profile + other.profile,
            span_sum: self.span_sum + other.span_sum,
            spans_narrow: self.spans_narrow + other.spans_narrow,
            inside: [0, 1].map(|i| self.inside[i] + other.inside[i]),
            entries: self.entries + other.entries,
            bandwidth: self.bandwidth.max(other.bandwidth),
            span_max: self.span_max.max(other.span_max),
        }
    }
}

/// Entries per column: exact, or estimated.
#[derive(Clone, Debug)]
pub(crate) enum ColumnFill {
    /// Histogram of the entries of each column.
    Counted(Histogram),
    /// Estimate from a sample of the rows.
    Sampled(Classes),
}

impl ColumnFill {
    fn of(analysis: &Analysis<'_>) -> Self {
        match analysis.column_sample() {
            Some(sample) => ColumnFill::Sampled(sample.classes().clone()),
            None => ColumnFill::Counted(column_counts(analysis.pattern())),
        }
    }

    /// Returns the entries in the `most` fullest columns.
    fn in_fullest(&self, most: u64) -> f64 {
        match self {
            ColumnFill::Counted(counts) => counts.sum_of_largest(most) as f64,
            ColumnFill::Sampled(classes) => classes.in_fullest(most),
        }
    }

    /// Returns the entries of the fullest column.
    fn fullest(&self) -> f64 {
        match self {
            ColumnFill::Counted(counts) => f64::from(counts.max()),
            ColumnFill::Sampled(classes) => classes.fullest(),
        }
    }
}

/// Returns the histogram of entries per column.
fn column_counts(pattern: Pattern<'_>) -> Histogram {
    let (ncols, columns) = (pattern.ncols(), pattern.col_idx());
    if ncols / 64 > columns.len() {
        // Nearly empty matrix: a counter for every column would cost more than the entries.
        let mut columns = columns.to_vec();
        columns.par_sort_unstable();
        let counts: Vec<u32> = columns.chunk_by(u32::eq).map(|run| run.len() as u32).collect();
        return Histogram::of(&counts).with_zeros((ncols - counts.len()) as u64);
    }
    Histogram::of(&crate::analysis::column_counts(pattern))
}
