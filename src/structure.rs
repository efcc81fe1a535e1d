//! A pattern together with what is known of it, computed once and shared by all formats.

mod blocks;
mod columns;
mod constants;
mod deltas;
mod diagonals;
mod few;
mod histogram;
mod memo;
mod near;
mod rows;
mod sample;
mod sectors;
mod tiles;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::csr::{Csr, Pattern};
use crate::fingerprint::Fingerprint;
use crate::partition::{self, Partition};
pub use crate::permutation::inverse;
use crate::refusal::Refusal;
pub use crate::scalar::ValuesOf;
use crate::scalar::{Precision, Scalar};
pub use blocks::Blocks;
#[cfg(feature = "cuda")]
pub(crate) use blocks::fill;
pub(crate) use columns::Classes;
pub use columns::{ColumnSample, HubColumns, RowParts, column_counts};
pub(crate) use constants::MostPieces;
pub use constants::{ConstantCounts, Constants};
pub(crate) use deltas::{HACK, RUN, Slots, padding};
#[cfg(feature = "cuda")]
pub(crate) use diagonals::all_diagonals;
pub use few::{FEW, FewValues};
pub use histogram::Histogram;
pub(crate) use memo::probes;
pub use memo::{Memo, Probe};
pub(crate) use sample::{Detail, Sample, over_all};
pub use sample::{EachPrecision, SAMPLED_ENTRIES, SAMPLED_MIRRORS, SAMPLED_WARPS, WHOLE};
pub(crate) use sectors::{REACH, REACH_OF};
pub(crate) use tiles::Tiles;

/// How rows are ordered before they are cut into slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The matrix's own order.
    None,
    /// Longest first within windows of this many rows.
    Window(usize),
    /// Longest first over the whole matrix.
    All,
    /// Reverse Cuthill-McKee, so that neighbours in the graph of a square pattern are near.
    Rcm,
}

/// Which entries the 32 lanes of a warp read x for in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// Consecutive entries of the CSR arrays.
    Entries,
    /// Entries of neighbouring columns: those of every so many consecutive entries of the CSR
    /// arrays, sorted by column.
    Sorted {
        /// Entries that are sorted together.
        tile: usize,
    },
    /// One entry of each of `32 / threads` neighbouring rows (in the order of `sort`), `threads`
    /// consecutive entries a row.
    Rows {
        /// Lanes that share a row: 1, 2, 4, ... 32.
        threads: usize,
        /// The order that the rows are taken in.
        sort: Sort,
    },
}

/// A pattern and its lazily computed properties.
///
/// Formats ask it in their `work` and `convert`; what was computed once is kept.
#[derive(Debug)]
pub struct Structure<'a> {
    pattern: Pattern<'a>,
    values: Option<ValuesOf<'a>>,
    lengths: OnceLock<Vec<u32>>,
    row_lengths: OnceLock<Histogram>,
    memo: Memo,
    patience: Patience,
    detail: Detail,
}

/// Lengths of rows, or of the longest rows of slices.
type Lengths = Arc<Vec<u32>>;

/// How often rows have so many entries in hubs, and so many others.
type HubRows = Arc<[(RowParts, u64)]>;

/// Columns of each slice, from the first to one past the last.
type Spans = Arc<[Range<u32>]>;

/// A partition, or why there is none.
type PartitionResult = Result<Arc<Partition>, Refusal>;

probes! {
    /// The fingerprint of the pattern.
    PatternHash() -> Fingerprint;
    /// Tiles of at most so many entries and rows.
    AllTiles(usize) -> Arc<Tiles>;
    /// Mean and most steps of a tile, by entries of a tile and threads of a block.
    TileSteps(usize, usize) -> (f64, f64);
    /// Pieces of diagonals with one value, by rows of a hack.
    ConstantPieces(usize) -> Option<Arc<Constants>>;
    /// Numbers of such pieces, by rows of a hack.
    PieceCounts(usize) -> Option<ConstantCounts>;
    /// The distinct values, if few.
    DistinctValues() -> Option<Arc<FewValues>>;
    /// The number of distinct values, if few.
    ValueCount() -> Option<usize>;
    /// A partition by METIS, by parts and rows of a part at most.
    MetisPartition(usize, usize) -> PartitionResult;
    /// Entries of each column.
    ColumnCounts() -> Arc<Vec<u32>>;
    /// How full columns are, from a sample of the rows.
    SampledColumns() -> Arc<ColumnSample>;
    /// The fullest columns, at most so many.
    Hubs(u16) -> Arc<HubColumns>;
    /// How often rows have so many entries in that many fullest columns.
    HubRowCounts(u16) -> HubRows;
    /// Columns that each slice spans, by rows of a slice and order.
    SliceSpans(usize, Sort) -> Spans;
    /// The most columns that a slice spans, by rows of a slice and order.
    WidestSpan(usize, Sort) -> u64;
}

/// How much a question may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// A few passes over the pattern.
    Passes,
    /// As long as partitioning its graph takes.
    Partitioning,
}

impl<'a> Structure<'a> {
    /// Looks at nothing yet.
    pub fn new(pattern: Pattern<'a>) -> Self {
        Structure {
            pattern,
            values: None,
            lengths: OnceLock::new(),
            row_lengths: OnceLock::new(),
            memo: Memo::default(),
            patience: Patience::Passes,
            detail: Detail::Whole,
        }
    }

    /// The pattern of a matrix, with its values for what depends on them.
    pub fn of<T: Scalar>(csr: &'a Csr<T>) -> Self {
        Structure { values: Some(T::values_of(csr.values())), ..Structure::new(csr.pattern()) }
    }

    /// The same, for estimates: of a matrix of more than [`WHOLE`] entries, they look at samples of
    /// its rows, evenly spread and always the same. Lengths of rows are known exactly even so, and
    /// so is all that layouts are made from.
    pub fn sampled<T: Scalar>(csr: &'a Csr<T>) -> Self {
        Structure { detail: Detail::of(csr.nnz()), ..Structure::of(csr) }
    }

    /// The same of a pattern alone.
    #[cfg(feature = "cuda")]
    pub(crate) fn sampled_pattern(pattern: Pattern<'a>) -> Self {
        Structure { detail: Detail::of(pattern.nnz()), ..Structure::new(pattern) }
    }

    /// Answers that are kept for whoever asks again.
    pub(crate) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// How closely estimates look at the entries.
    pub(crate) fn detail(&self) -> Detail {
        self.detail
    }

    /// Whether estimates look at all entries.
    pub(crate) fn is_whole(&self) -> bool {
        self.detail == Detail::Whole
    }

    /// Tiles of at most `most` entries and rows; kept.
    pub(crate) fn tiles(&self, most: usize) -> Arc<Tiles> {
        self.memo.get(AllTiles(most), || Arc::new(Tiles::of(self.pattern, most)))
    }

    /// Steps that a block of so many threads takes for one of them, as [`Tiles::steps`] counts them;
    /// kept.
    pub(crate) fn tile_steps(&self, most: usize, threads: usize) -> (f64, f64) {
        let steps = || self.tiles(most).steps(self.pattern, threads);
        self.memo.get(TileSteps(most, threads), steps)
    }

    /// The pieces of one value of the diagonals of hacks of `hack` rows; `None` where values are
    /// unknown or not constant. A sample of the hacks, and one pass where it is.
    pub fn constants(&self, hack: usize) -> Option<Arc<Constants>> {
        let values = self.values?;
        self.memo.get(ConstantPieces(hack), || {
            let diagonals = self.exact_diagonals(hack);
            Constants::of(self.pattern, values, hack, diagonals).map(Arc::new)
        })
    }

    /// How many pieces [`Structure::constants`] has.
    pub fn constant_counts(&self, hack: usize) -> Option<ConstantCounts> {
        let values = self.values?;
        self.memo.get(PieceCounts(hack), || match self.detail {
            Detail::Whole => self.constants(hack).map(|constants| ConstantCounts {
                hacks: constants.ptr.len() - 1,
                pieces: constants.offsets.len() as u64,
                most: constants.ptr.windows(2).map(|hack| hack[1] - hack[0]).max().unwrap_or(0),
            }),
            Detail::Sampled => {
                let hacks = self.groups_of(hack);
                let diagonals = self.n_diagonals(hack);
                ConstantCounts::of(self.pattern, values, hack, diagonals, hacks)
            }
        })
    }

    /// The distinct values, where they are few; `None` where they are not, or unknown. One pass over
    /// the values, or less where they are many.
    pub fn few_values(&self) -> Option<Arc<FewValues>> {
        let values = self.values?;
        let find = || FewValues::of(values, self.pattern.nnz()).map(Arc::new);
        self.memo.get(DistinctValues(), find)
    }

    /// How many values [`Structure::few_values`] are; of a large matrix, where this structure is for
    /// estimates, those of a sample of the entries.
    pub fn value_count(&self) -> Option<usize> {
        let values = self.values?;
        self.memo.get(ValueCount(), || match self.detail {
            Detail::Whole => self.few_values().map(|few| few.bits.len()),
            Detail::Sampled => FewValues::count_sampled(values, self.pattern.nnz()),
        })
    }

    /// The same structure, which may be partitioned by METIS: that takes as long as hundreds of
    /// products or more, so estimates do without it.
    pub fn with_partitioning(self) -> Self {
        Structure { patience: Patience::Partitioning, ..self }
    }

    /// Whether METIS may partition the graph of the pattern; see [`Structure::with_partitioning`].
    pub(crate) fn may_partition(&self) -> bool {
        self.patience == Patience::Partitioning
    }

    /// Whether the graph of the pattern may be partitioned or reordered.
    ///
    /// # Errors
    /// [`Refusal`] of an estimate.
    pub fn check_patience(&self) -> Result<(), Refusal> {
        match self.patience {
            Patience::Partitioning => Ok(()),
            Patience::Passes => Err(Refusal::untried(
                "an estimate does not reorder the graph; effort exhaustive does, and so does asking \
                 for the candidate by name",
            )),
        }
    }

    /// A partition of the graph of the square pattern by METIS, into `parts` parts of at most
    /// `most` rows; kept.
    ///
    /// # Errors
    /// [`Refusal`] where the graph does not suit METIS, and of an estimate.
    pub fn partition(&self, parts: usize, most: usize) -> PartitionResult {
        self.check_patience()?;
        self.memo.get(MetisPartition(parts, most), || {
            partition::metis(self.pattern, parts, most).map(Arc::new)
        })
    }

    /// The pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }

    /// The pattern's fingerprint. One pass.
    pub fn fingerprint(&self) -> Fingerprint {
        self.memo.get(PatternHash(), || Fingerprint::of(self.pattern))
    }

    /// The fullest columns, at most `most` of them and none with a single entry; none of a matrix
    /// with far more columns than entries. One pass, kept.
    pub fn hubs(&self, most: u16) -> Arc<HubColumns> {
        if self.pattern.ncols() / 64 > self.pattern.nnz() {
            return Arc::new(HubColumns::of(&[], most));
        }
        let counts = self.column_counts();
        self.memo.get(Hubs(most), || Arc::new(HubColumns::of(&counts, most)))
    }

    /// How many columns [`Structure::hubs`] are, and their entries; from a sample of the rows where
    /// this structure is for estimates.
    pub fn hub_entries(&self, most: u16) -> (usize, u64) {
        match self.column_sample() {
            Some(sample) => {
                let columns = usize::from(most).min(self.pattern.ncols());
                (columns, sample.classes().in_fullest(u64::from(most)) as u64)
            }
            None => {
                let hubs = self.hubs(most);
                (hubs.columns.len(), hubs.covered)
            }
        }
    }

    /// Entries of each column of the whole pattern; one pass, kept.
    fn column_counts(&self) -> Arc<Vec<u32>> {
        self.memo.get(ColumnCounts(), || Arc::new(column_counts(self.pattern)))
    }

    /// How often rows have so many entries in [`Structure::hubs`] and so many others, in no order;
    /// from a sample as there, and kept.
    pub fn hub_rows(&self, most: u16) -> HubRows {
        self.memo.get(HubRowCounts(most), || match self.column_sample() {
            Some(sample) => sample.rows(self.pattern, most).into(),
            None => self.hubs(most).rows(self.pattern).as_slice().into(),
        })
    }

    /// How full columns are, from a sample of the rows, where this structure is for estimates; kept.
    pub(crate) fn column_sample(&self) -> Option<Arc<ColumnSample>> {
        let half = || self.detail.half(self.pattern.nrows(), self.pattern.nnz());
        let of_sample = || Arc::new(ColumnSample::of(self.pattern, half()));
        (self.detail == Detail::Sampled).then(|| self.memo.get(SampledColumns(), of_sample))
    }

    /// Sectors of x that `parts` parts of the rows, drawn by chance, ask for, each of them once; from
    /// a sample of the rows where this structure is for estimates.
    pub(crate) fn swept_sectors(&self, parts: usize, precision: Precision) -> f64 {
        let columns = 32 / precision.bytes();
        if let Some(sample) = self.column_sample() {
            return sample.classes().swept_sectors(parts, columns);
        }
        if self.pattern.ncols() / 64 > self.pattern.nnz() {
            return self.pattern.nnz() as f64;
        }
        columns::swept_sectors(&self.column_counts(), parts, columns)
    }

    /// First and one past the last column of each slice of `slice` rows in `sort` order; 0 to 0
    /// where a slice is empty. `new` gives the new column of each old one where the basis is
    /// permuted; without, one pass over the rows, kept.
    pub fn spans(&self, slice: usize, sort: Sort, new: Option<&[u32]>) -> Spans {
        match new {
            None => self.memo.get(SliceSpans(slice, sort), || self.find_spans(slice, sort, None)),
            Some(_) => self.find_spans(slice, sort, new),
        }
    }

    /// The most columns that a slice of `slice` rows in `sort` order spans, and `new` as
    /// [`Structure::spans`] has it. Where this structure is for estimates, a sample of the slices is
    /// looked at, or of windows that are sorted, in the order of old columns.
    pub fn widest_span(&self, slice: usize, sort: Sort, new: Option<&[u32]>) -> u64 {
        let width = |span: &Range<u32>| u64::from(span.end - span.start);
        if self.detail == Detail::Whole || matches!(sort, Sort::All | Sort::Rcm) {
            return self.spans(slice, sort, new).iter().map(width).max().unwrap_or(0);
        }
        let (nrows, lengths) = (self.pattern.nrows(), self.lengths());
        let window = if let Sort::Window(window) = sort { window } else { slice };
        let widest = |w: usize| {
            let mut rows: Vec<u32> =
                (w * window..nrows.min((w + 1) * window)).map(|row| row as u32).collect();
            if window > slice {
                rows::longest_first(lengths, &mut rows);
            }
            let spans =
                rows.chunks(slice).map(|rows| self.span(rows.iter().map(|&row| row as usize)));
            spans.map(|span| width(&span)).max().unwrap_or(0)
        };
        self.memo.get(WidestSpan(slice, sort), || {
            self.groups_of(window).par_picks().map(widest).max().unwrap_or(0)
        })
    }

    /// First and one past the last column of these rows.
    pub(crate) fn span(&self, rows: impl Iterator<Item = usize>) -> Range<u32> {
        let ends = rows.filter_map(|row| {
            let columns = self.pattern.row(row);
            columns.first().copied().zip(columns.last().copied())
        });
        ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
            .map_or(0..0, |(first, last)| first..last + 1)
    }

    fn find_spans(&self, slice: usize, sort: Sort, new: Option<&[u32]>) -> Spans {
        let order = (sort != Sort::None).then(|| self.order(sort));
        let span_of_row = |i: usize| {
            let columns = self.pattern.row(order.as_ref().map_or(i, |order| order[i] as usize));
            match new {
                None => columns.first().copied().zip(columns.last().copied()),
                Some(new) => {
                    let new = columns.iter().map(|&old| new[old as usize]);
                    new.clone().min().zip(new.max())
                }
            }
        };
        let nrows = self.pattern.nrows();
        let spans = (0..nrows.div_ceil(slice)).into_par_iter();
        let spans: Vec<_> = spans
            .map(|s| {
                (s * slice..((s + 1) * slice).min(nrows))
                    .filter_map(span_of_row)
                    .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                    .map_or(0..0, |(first, last)| first..last + 1)
            })
            .collect();
        spans.into()
    }
}

/// What the cell holds, or what `compute` makes now; as in [`Memo::get`], not locked meanwhile.
fn once<V>(cell: &OnceLock<V>, compute: impl FnOnce() -> V) -> &V {
    match cell.get() {
        Some(known) => known,
        None => {
            let value = compute();
            cell.get_or_init(|| value)
        }
    }
}

#[cfg(test)]
mod tests;
