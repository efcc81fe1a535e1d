//! The counts that features are computed from: whole numbers and samples, whoever counts them.

use rayon::prelude::*;

use crate::csr::Pattern;
use crate::scalar::Precision;
use crate::structure::{
    Classes, EachPrecision, Histogram, Sample, Sort, Structure, Walk, over_all,
};

/// Rows of a hack whose columns are looked at together, and of a warp.
pub(crate) const HACK: usize = 32;

/// Rows of slices that are padded as they come.
pub(crate) const SLICES: [usize; 4] = [32, 64, 128, 256];

/// Rows of windows that are sorted before they are cut into hacks.
pub(crate) const SORTED: [usize; 2] = [512, 4096];

/// Rows of hacks whose diagonals are counted.
pub(crate) const DIAGONAL_HACKS: [usize; 2] = [32, 256];

/// Rows and columns of windows that entries may lie in.
pub(crate) const PARTS: [usize; 2] = [4096, 16_384];

/// The sides of dense blocks.
pub(crate) const SIDES: [usize; 5] = [2, 3, 4, 5, 6];

/// What the features of one matrix are computed from.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    /// Entries of each row.
    pub rows: Histogram,
    /// Entries of columns.
    pub columns: Columns,
    /// Sums over [`SLICES`] of their longest rows.
    pub longest: [u64; 4],
    /// The same of hacks, where windows of [`SORTED`] rows are sorted.
    pub sorted_longest: [u64; 2],
    /// What the columns of hacks tell.
    pub hacks: Hacks,
    /// Diagonals of the whole matrix.
    pub diagonals: u64,
    /// Those of each hack, of [`DIAGONAL_HACKS`], summed over all hacks.
    pub hack_diagonals: [u64; 2],
    /// Sectors of x that a product asks for, a row a lane.
    pub sectors: EachPrecision,
    /// Loads of x a nonzero.
    pub loads: EachPrecision,
    /// Entries over slots of dense blocks of [`SIDES`].
    pub block_fill: [f64; 5],
    /// Share of the entries whose mirror image is stored.
    pub symmetry: f64,
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
    operations(structure.pattern().nnz() as u64, structure.row_lengths())
}

fn operations(nnz: u64, lengths: &Histogram) -> u64 {
    2 * nnz - (lengths.len() - lengths.times(0))
}

/// What features of the size and of the lengths of rows are computed from.
pub(crate) struct Rows<'a> {
    pub nrows: f64,
    pub ncols: f64,
    pub nnz: f64,
    lengths: Lengths<'a>,
}

/// Where the lengths of rows are from.
enum Lengths<'a> {
    Counted(&'a Histogram),
    /// They are counted when they are asked for.
    Of(&'a Structure<'a>),
}

impl<'a> Rows<'a> {
    /// Reads nothing yet.
    pub fn of(structure: &'a Structure<'a>) -> Self {
        let pattern = structure.pattern();
        Rows {
            nrows: pattern.nrows() as f64,
            ncols: pattern.ncols() as f64,
            nnz: pattern.nnz() as f64,
            lengths: Lengths::Of(structure),
        }
    }

    /// Of rows, columns and nonzeros: what asks for no length may be asked.
    pub fn at_size([nrows, ncols, nnz]: [usize; 3], uncounted: &'a Histogram) -> Self {
        let [nrows, ncols, nnz] = [nrows, ncols, nnz].map(|number| number as f64);
        Rows { nrows, ncols, nnz, lengths: Lengths::Counted(uncounted) }
    }

    fn histogram(&self) -> &Histogram {
        match self.lengths {
            Lengths::Counted(histogram) => histogram,
            Lengths::Of(structure) => structure.row_lengths(),
        }
    }

    pub fn mean(&self) -> f64 {
        over(self.nnz, self.nrows)
    }

    /// Row lengths in rising order, with the number of rows of each.
    fn lengths(&self) -> impl Iterator<Item = (f64, f64)> {
        self.histogram().iter().map(|(length, times)| (f64::from(length), times as f64))
    }

    pub fn sigma(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.lengths().map(|(l, times)| times * (l - mean).powi(2)).sum();
        over(squares, self.nrows).sqrt()
    }

    /// The length that this share of the rows does not exceed.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = (self.nrows - 1.0).max(0.0);
        f64::from(self.histogram().at((share * last).round() as u64))
    }

    /// Rows without entries.
    pub fn empty_rows(&self) -> f64 {
        self.histogram().times(0) as f64
    }

    /// Gini coefficient of row lengths.
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

impl Summary {
    /// A few passes over the pattern.
    pub fn of(structure: &Structure<'_>) -> Self {
        let pattern = structure.pattern();
        let longest = |slice, sort| structure.slots(slice, sort) / slice as u64;
        // What others wait for, side by side.
        let (hacks, columns) = rayon::join(
            || Hacks::of(structure),
            || {
                let fill = || SIDES.map(|b| structure.block_fill(b));
                rayon::join(|| Columns::of(structure), fill).0
            },
        );
        Summary {
            nrows: pattern.nrows() as f64,
            ncols: pattern.ncols() as f64,
            nnz: pattern.nnz() as f64,
            rows: structure.row_lengths().clone(),
            columns,
            longest: SLICES.map(|slice| longest(slice, Sort::None)),
            sorted_longest: SORTED.map(|window| longest(HACK, Sort::Window(window))),
            hacks,
            diagonals: structure.n_diagonals(usize::MAX),
            hack_diagonals: DIAGONAL_HACKS.map(|hack| structure.n_diagonals(hack)),
            sectors: structure.sectors(Walk::Rows { threads: 1, sort: Sort::None }),
            loads: structure.x_loads(),
            block_fill: SIDES.map(|b| structure.block_fill(b)),
            symmetry: structure.symmetry(structure.detail().mirrors()),
        }
    }

    /// What of it features of rows are computed from.
    pub fn of_rows(&self) -> Rows<'_> {
        let Summary { nrows, ncols, nnz, .. } = *self;
        Rows { nrows, ncols, nnz, lengths: Lengths::Counted(&self.rows) }
    }

    /// Slots for each entry of slices whose longest rows sum up to `longest`.
    fn padding(&self, longest: u64, slice: usize) -> f64 {
        over((longest * slice as u64) as f64, self.nnz)
    }

    /// Padding of slices of `SLICES[i]` rows.
    pub fn sliced_padding(&self, i: usize) -> f64 {
        self.padding(self.longest[i], SLICES[i])
    }

    /// Padding of hacks where windows of `SORTED[i]` rows are sorted.
    pub fn window_padding(&self, i: usize) -> f64 {
        self.padding(self.sorted_longest[i], HACK)
    }

    /// Sum over hacks of their longest rows where all rows are sorted.
    pub fn all_sorted_longest(&self) -> u64 {
        self.rows.sum_of_every(HACK as u64)
    }

    /// Padding of hacks where all rows are sorted.
    pub fn all_sorted_padding(&self) -> f64 {
        self.padding(self.all_sorted_longest(), HACK)
    }

    /// [`n_p`].
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

    /// Mean number of diagonals of a hack of `DIAGONAL_HACKS[i]` rows.
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

    /// Share of the entries in the `most` fullest columns.
    pub fn hub_share(&self, most: usize) -> f64 {
        over(self.columns.in_fullest(most as u64), self.nnz)
    }

    pub fn fullest_column(&self) -> f64 {
        self.columns.fullest()
    }

    /// Share of the entries whose row and column lie in the same window of `PARTS[i]`.
    pub fn part_share(&self, i: usize) -> f64 {
        over(self.hacks.inside[i] as f64, self.nnz)
    }
}

/// `a / b`, 0 where `b` is.
pub(super) fn over(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

/// The fewest hacks that a thread takes.
const FEWEST_HACKS: usize = 64;

/// Sums over hacks, and what is largest of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hacks {
    /// Sum over rows of the way from the first entry to the diagonal.
    pub profile: u64,
    /// Sum of the columns that hacks span.
    pub span_sum: u64,
    /// Hacks whose columns fit in 16 bits.
    pub spans_narrow: u64,
    /// Entries whose row and column lie in the same window, of [`PARTS`].
    pub inside: [u64; 2],
    /// Entries that were looked at.
    pub entries: u64,
    /// The farthest entry from the diagonal.
    pub bandwidth: u64,
    /// The most columns that a hack spans.
    pub span_max: u64,
}

impl Hacks {
    /// One pass over the entries, or over a sample of the hacks.
    fn of(structure: &Structure<'_>) -> Self {
        let sample = structure.groups_of(HACK);
        let hacks = sample.par_picks().with_min_len(FEWEST_HACKS);
        let sums = hacks.map(|h| Hacks::of_one(structure, h)).reduce(Hacks::default, Hacks::with);
        sums.over_all(sample, structure.pattern().nnz())
    }

    /// What the sums over this sample make over all hacks of a matrix of `nnz` entries.
    pub fn over_all(self, sample: Sample, nnz: usize) -> Self {
        Hacks {
            profile: sample.scale(self.profile),
            span_sum: sample.scale(self.span_sum),
            spans_narrow: sample.scale(self.spans_narrow),
            inside: self.inside.map(|inside| over_all(inside, self.entries, nnz)),
            ..self
        }
    }

    fn of_one(structure: &Structure<'_>, h: usize) -> Self {
        let pattern = structure.pattern();
        let rows = h * HACK..((h + 1) * HACK).min(pattern.nrows());
        let span = structure.span(rows.clone());
        let span = u64::from(span.end) - u64::from(span.start);
        let columns =
            &pattern.col_idx()[pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end]];
        let mut one = Hacks {
            span_sum: span,
            spans_narrow: u64::from(span <= u64::from(u16::MAX)),
            inside: PARTS.map(|window| {
                let first = (rows.start / window * window) as u32;
                let near = |&&column: &&u32| column.wrapping_sub(first) < window as u32;
                columns.iter().filter(near).count() as u64
            }),
            entries: columns.len() as u64,
            span_max: span,
            ..Hacks::default()
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

    fn with(self, other: Hacks) -> Hacks {
        Hacks {
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

/// How full columns are.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    /// Entries of each column.
    Counted(Histogram),
    /// Those of a sample of the rows.
    Sampled(Classes),
}

impl Columns {
    fn of(structure: &Structure<'_>) -> Self {
        match structure.column_sample() {
            Some(sample) => Columns::Sampled(sample.classes().clone()),
            None => Columns::Counted(column_counts(structure.pattern())),
        }
    }

    /// Entries in the `most` fullest columns.
    fn in_fullest(&self, most: u64) -> f64 {
        match self {
            Columns::Counted(counts) => counts.sum_of_largest(most) as f64,
            Columns::Sampled(classes) => classes.in_fullest(most),
        }
    }

    /// Entries of the fullest column.
    fn fullest(&self) -> f64 {
        match self {
            Columns::Counted(counts) => f64::from(counts.max()),
            Columns::Sampled(classes) => classes.fullest(),
        }
    }
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
