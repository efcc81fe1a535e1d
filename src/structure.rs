//! A pattern together with what is known of it, computed once and shared by all formats.

mod blocks;
mod columns;
mod diagonals;
mod histogram;
mod memo;
mod near;
mod rows;
mod sample;
mod sectors;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::csr::{CsrRef, Pattern};
use crate::fingerprint::Fingerprint;
pub use crate::permutation::inverse;
use crate::refusal::Refusal;
pub use crate::scalar::ValuesOf;
use crate::scalar::{Precision, Scalar};
pub use blocks::Blocks;
#[cfg(feature = "cuda")]
pub(crate) use blocks::fill;
pub(crate) use columns::Classes;
pub use columns::{ColumnSample, column_counts};
pub(crate) use columns::{RowParts, count_pairs};
#[cfg(feature = "cuda")]
pub(crate) use diagonals::all_diagonals;
pub use histogram::Histogram;
pub(crate) use memo::probes;
pub use memo::{Memo, Probe};
pub(crate) use sample::{Detail, Sample, over_all, spread};
pub use sample::{EachPrecision, SAMPLED_ENTRIES, SAMPLED_MIRRORS, SAMPLED_WARPS, WHOLE};
pub(crate) use sectors::{REACH, REACH_OF};

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
///
/// ```
/// use ellect::Csr;
/// use ellect::structure::Structure;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(3, 3, [(0, 0, 1.0), (0, 2, 2.0), (2, 1, 3.0)])?;
/// let structure = Structure::of(&csr);
/// assert_eq!(structure.row_lengths().len(), 3);
/// assert_eq!(structure.value_count(), Some(3));
/// # Ok(())
/// # }
/// ```
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

/// Columns of each slice, from the first to one past the last.
type Spans = Arc<[Range<u32>]>;

probes! {
    /// The fingerprint of the pattern.
    PatternHash() -> Fingerprint;
    /// Entries of each column.
    ColumnCounts() -> Arc<Vec<u32>>;
    /// How full columns are, from a sample of the rows.
    SampledColumns() -> Arc<ColumnSample>;
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
    pub fn of<T: Scalar>(csr: impl Into<CsrRef<'a, T>>) -> Self {
        let csr = csr.into();
        Structure { values: Some(T::values_of(csr.values())), ..Structure::new(csr.pattern()) }
    }

    /// The same, for estimates: of a matrix of more than [`WHOLE`] entries, they look at samples of
    /// its rows, evenly spread and always the same. Lengths of rows are known exactly even so, and
    /// so is all that layouts are made from.
    pub fn sampled<T: Scalar>(csr: impl Into<CsrRef<'a, T>>) -> Self {
        let csr = csr.into();
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

    /// The values, if they are known.
    pub(crate) fn values(&self) -> Option<ValuesOf<'a>> {
        self.values
    }

    /// How closely estimates look at the entries.
    pub(crate) fn detail(&self) -> Detail {
        self.detail
    }

    /// Whether estimates look at all entries.
    pub(crate) fn is_whole(&self) -> bool {
        self.detail == Detail::Whole
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

    /// The pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }

    /// The pattern's fingerprint. One pass.
    pub fn fingerprint(&self) -> Fingerprint {
        self.memo.get(PatternHash(), || Fingerprint::of(self.pattern))
    }

    /// Entries of each column of the whole pattern; one pass, kept.
    pub(crate) fn column_counts(&self) -> Arc<Vec<u32>> {
        self.memo.get(ColumnCounts(), || Arc::new(column_counts(self.pattern)))
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
pub(crate) fn once<V>(cell: &OnceLock<V>, compute: impl FnOnce() -> V) -> &V {
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
