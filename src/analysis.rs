//! Analysis of a sparsity pattern: each property is computed once and shared by all formats.

pub(crate) mod columns;
mod diagonals;
pub(crate) mod histogram;
mod l1_loads;
pub(crate) mod memo;
mod row_lengths;
pub(crate) mod sampling;
mod steps;
mod tile_columns;
mod x_sectors;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::csr::{CsrRef, Pattern};
use crate::fingerprint::Fingerprint;
use crate::par;
pub(crate) use crate::permutation::inverse;
use crate::refusal::Refusal;
use crate::scalar::Scalar;
pub(crate) use crate::scalar::ValuesOf;
pub(crate) use columns::{Classes, ColumnSample, column_counts};
#[cfg(feature = "cuda")]
pub(crate) use diagonals::all_diagonals;
pub(crate) use histogram::Histogram;
pub(crate) use memo::{Memo, Probe, probes};
pub(crate) use row_lengths::longest_first;
#[cfg(test)]
pub(crate) use sampling::WHOLE;
pub(crate) use sampling::{Detail, EachPrecision, Sample, over_all, spread};
pub(crate) use tile_columns::{REACH, REACH_OF};

/// The order of rows before they are cut into slices.
///
/// ```
/// use ellect::Csr;
/// use ellect::analysis::{Analysis, Sort};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 1.0), (1, 0, 2.0), (1, 1, 3.0)])?;
/// let analysis = Analysis::of(&csr);
/// assert_eq!(analysis.widest_span(1, Sort::None, None), 2, "row 1 spans columns 0 and 1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The matrix's own order.
    None,
    /// Sorted by falling length within windows of this many rows.
    Window(usize),
    /// All rows sorted by falling length.
    All,
    /// Reverse Cuthill-McKee: neighbours in the graph of a square pattern get near numbers.
    Rcm,
}

/// The entries for which the 32 lanes of a warp read x in one step.
///
/// ```
/// use ellect::analysis::{Sort, Walk};
///
/// # fn main() -> ellect::Result<()> {
/// let warp = Walk::Rows { threads: 1, sort: Sort::None };
/// assert_ne!(warp, Walk::Entries);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Walk {
    /// Consecutive entries of the CSR arrays.
    Entries,
    /// Entries of neighbouring columns: every `tile` consecutive entries of the CSR arrays are
    /// sorted by column.
    Sorted {
        /// Number of entries that are sorted together.
        tile: usize,
    },
    /// One entry of each of `32 / threads` neighbouring rows (in the order of `sort`), `threads`
    /// consecutive entries of each row.
    Rows {
        /// Lanes that share a row: a power of two from 1 to 32.
        threads: usize,
        /// The order in which warps visit the rows.
        sort: Sort,
    },
}

/// A pattern and its lazily computed properties.
///
/// Formats query it in their `work` and `convert`; each property is computed at the first query and
/// kept.
///
/// ```
/// use ellect::Csr;
/// use ellect::analysis::Analysis;
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(3, 3, [(0, 0, 1.0), (0, 2, 2.0), (2, 1, 3.0)])?;
/// let analysis = Analysis::of(&csr);
/// assert_eq!(analysis.row_lengths().len(), 3);
/// assert_eq!(analysis.value_count(), Some(3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Analysis<'a> {
    pattern: Pattern<'a>,
    values: Option<ValuesOf<'a>>,
    lengths: OnceLock<Vec<u32>>,
    row_lengths: OnceLock<Histogram>,
    memo: Memo,
    patience: Patience,
    detail: Detail,
}

/// Row lengths, or the longest row of each slice.
type SharedLengths = Arc<Vec<u32>>;

/// Column range of each slice: its first column, and one past its last.
type Spans = Arc<[Range<u32>]>;

probes! {
    /// Fingerprint of the pattern.
    PatternHash() -> Fingerprint;
    /// Number of entries of each column.
    ColumnCounts() -> Arc<Vec<u32>>;
    /// Entries per column, estimated from a sample of the rows.
    SampledColumns() -> Arc<ColumnSample>;
    /// Column range of each slice, by rows per slice and row order.
    SliceSpans(usize, Sort) -> Spans;
    /// Largest number of columns that a slice spans, by rows per slice and row order.
    WidestSpan(usize, Sort) -> u64;
    /// Largest number of columns that a slice spans if columns are numbered as the rows are sorted, by
    /// rows per slice and row order.
    WidestPermutedSpan(usize, Sort) -> u64;
}

/// The most expensive analysis that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Analyses that make a few passes over the pattern.
    Passes,
    /// Analyses that partition or reorder the graph of the pattern, too.
    Partitioning,
}

impl<'a> Analysis<'a> {
    /// Creates an analysis of a pattern without values; computes nothing yet.
    pub fn new(pattern: Pattern<'a>) -> Self {
        Analysis {
            pattern,
            values: None,
            lengths: OnceLock::new(),
            row_lengths: OnceLock::new(),
            memo: Memo::default(),
            patience: Patience::Passes,
            detail: Detail::Whole,
        }
    }

    /// Creates an analysis of a matrix: its pattern, and its values for the properties that depend
    /// on them.
    pub fn of<T: Scalar>(csr: impl Into<CsrRef<'a, T>>) -> Self {
        let csr = csr.into();
        Analysis { values: Some(T::values_of(csr.values())), ..Analysis::new(csr.pattern()) }
    }

    /// Creates an analysis for estimates. If the matrix has more than [`WHOLE`](sampling::WHOLE)
    /// entries, estimates use samples of its rows, evenly spread and always the same ones. Row
    /// lengths, and everything that layouts are made from, are exact nevertheless.
    pub fn sampled<T: Scalar>(csr: impl Into<CsrRef<'a, T>>) -> Self {
        let csr = csr.into();
        let values = Some(T::values_of(csr.values()));
        Analysis { values, ..Analysis::sampled_pattern(csr.pattern()) }
    }

    /// Creates an analysis for estimates that samples a matrix of any size, for callers in a hurry.
    pub(crate) fn hurried<T: Scalar>(csr: CsrRef<'a, T>) -> Self {
        Analysis { detail: Detail::Sampled, ..Analysis::of(csr) }
    }

    /// Creates an analysis for estimates from a pattern without values; see [`Analysis::sampled`].
    pub(crate) fn sampled_pattern(pattern: Pattern<'a>) -> Self {
        Analysis { detail: Detail::of(pattern.nnz()), ..Analysis::new(pattern) }
    }

    /// Returns the cache of computed properties.
    pub(crate) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// Returns the values, or `None` if the analysis was made from a pattern alone.
    pub(crate) fn values(&self) -> Option<ValuesOf<'a>> {
        self.values
    }

    /// Tells whether estimates use all entries or a sample.
    pub(crate) fn detail(&self) -> Detail {
        self.detail
    }

    /// Returns true if estimates use all entries.
    pub(crate) fn is_whole(&self) -> bool {
        self.detail == Detail::Whole
    }

    /// Allows this analysis to partition the graph with METIS. Estimates must not: partitioning
    /// takes as long as hundreds of products or more.
    pub fn with_partitioning(self) -> Self {
        Analysis { patience: Patience::Partitioning, ..self }
    }

    /// Returns true if METIS may partition the graph of the pattern; see
    /// [`Analysis::with_partitioning`].
    pub(crate) fn may_partition(&self) -> bool {
        self.patience == Patience::Partitioning
    }

    /// Checks that the graph of the pattern may be partitioned or reordered.
    ///
    /// # Errors
    /// [`Refusal`] if this analysis is for estimates; see [`Analysis::with_partitioning`].
    pub fn check_patience(&self) -> Result<(), Refusal> {
        match self.patience {
            Patience::Partitioning => Ok(()),
            Patience::Passes => Err(Refusal::untried(
                "an estimate does not reorder the graph; use effort exhaustive, or ask for the \
                 candidate by name",
            )),
        }
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }

    /// Returns the fingerprint of the pattern. One pass; kept.
    pub fn fingerprint(&self) -> Fingerprint {
        self.memo.get(PatternHash(), || Fingerprint::of(self.pattern))
    }

    /// Returns the number of entries of each column of the whole pattern. One pass; kept.
    pub(crate) fn column_counts(&self) -> Arc<Vec<u32>> {
        self.memo.get(ColumnCounts(), || Arc::new(column_counts(self.pattern)))
    }

    /// Returns entries per column, estimated from a sample of the rows, if this analysis is for
    /// estimates; kept.
    pub(crate) fn column_sample(&self) -> Option<Arc<ColumnSample>> {
        let half = || self.detail.half(self.pattern.nrows(), self.pattern.nnz());
        let of_sample = || Arc::new(ColumnSample::of(self.pattern, half()));
        (self.detail == Detail::Sampled).then(|| self.memo.get(SampledColumns(), of_sample))
    }

    /// Returns the column range (first column, and one past the last) of each slice of `slice` rows
    /// in `sort` order; `0..0` for an empty slice. `new[old]` gives the new number of each column
    /// if the basis is permuted. Without `new`, the result is kept. One pass over the rows.
    pub fn spans(&self, slice: usize, sort: Sort, new: Option<&[u32]>) -> Spans {
        match new {
            None => self.memo.get(SliceSpans(slice, sort), || self.find_spans(slice, sort, None)),
            Some(_) => self.find_spans(slice, sort, new),
        }
    }

    /// Returns the largest number of columns that a slice of `slice` rows in `sort` order spans;
    /// `new` is as for [`Analysis::spans`]. If this analysis is for estimates and rows are
    /// unsorted or sorted within windows, only a sample of the slices or windows is searched, with
    /// the old column numbers.
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
                longest_first(lengths, &mut rows);
            }
            let spans =
                rows.chunks(slice).map(|rows| self.span(rows.iter().map(|&row| row as usize)));
            spans.map(|span| width(&span)).max().unwrap_or(0)
        };
        self.memo.get(WidestSpan(slice, sort), || {
            let sample = self.groups_of(window);
            par::reduce(sample.sampled, 1, || 0, |at| widest(sample.pick(at)), u64::max)
        })
    }

    /// As [`Analysis::widest_span`], with columns numbered as the rows are sorted; kept.
    pub(crate) fn widest_permuted_span(&self, slice: usize, sort: Sort) -> u64 {
        let find = || self.widest_span(slice, sort, Some(&inverse(&self.order(sort))));
        self.memo.get(WidestPermutedSpan(slice, sort), find)
    }

    /// Returns the column range of these rows: the first column, and one past the last.
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
                    let ends = columns.iter().fold((u32::MAX, 0), |(first, last), &old| {
                        let column = new[old as usize];
                        (column.min(first), column.max(last))
                    });
                    (!columns.is_empty()).then_some(ends)
                }
            }
        };
        let nrows = self.pattern.nrows();
        let spans = par::map(nrows.div_ceil(slice), 1, |s| {
            (s * slice..((s + 1) * slice).min(nrows))
                .filter_map(span_of_row)
                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                .map_or(0..0, |(first, last)| first..last + 1)
        });
        spans.into()
    }
}

/// Returns the content of `cell`, or computes it now. As in [`Memo::get`], nothing is locked while
/// `compute` runs.
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
