//! A pattern together with what is known of it, computed once and shared by all formats.

mod blocks;
mod columns;
mod constants;
mod diagonals;
mod histogram;
mod sample;

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use crate::csr::{Csr, Pattern};
use crate::fingerprint::Fingerprint;
use crate::format::Refusal;
use crate::partition::{self, Partition};
use crate::reorder;
use crate::scalar::Scalar;
pub use blocks::Blocks;
#[cfg(feature = "cuda")]
pub(crate) use blocks::fill;
pub use columns::{HubColumns, RowParts, column_counts};
pub use constants::Constants;
pub(crate) use constants::MostPieces;
pub use histogram::Histogram;
#[cfg(feature = "cuda")]
pub(crate) use sample::Sample;
pub use sample::{EachPrecision, SAMPLED_ENTRIES, SAMPLED_MIRRORS, SAMPLED_WARPS};

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

/// The values of a matrix, where only their equality matters.
#[derive(Clone, Copy, Debug)]
pub enum ValuesOf<'a> {
    /// Of 4 bytes.
    F32(&'a [f32]),
    /// Of 8 bytes.
    F64(&'a [f64]),
}

impl ValuesOf<'_> {
    /// The bits of value `k`.
    ///
    /// # Panics
    /// Past the end.
    #[inline(always)]
    pub fn bits(&self, k: usize) -> u64 {
        match self {
            ValuesOf::F32(values) => u64::from(values[k].to_bits()),
            ValuesOf::F64(values) => values[k].to_bits(),
        }
    }
}

/// A pattern and its lazily computed properties.
///
/// Formats ask it in their `work` and `convert`; what was computed once is kept.
#[derive(Debug)]
pub struct Structure<'a> {
    pattern: Pattern<'a>,
    values: Option<ValuesOf<'a>>,
    lengths: OnceLock<Vec<u32>>,
    hash: OnceLock<Fingerprint>,
    row_lengths: OnceLock<Histogram>,
    orders: Mutex<HashMap<Sort, Arc<[u32]>>>,
    sectors: Mutex<HashMap<Walk, EachPrecision>>,
    spans: Mutex<HashMap<(usize, Sort), Spans>>,
    diagonals: OnceLock<diagonals::Diagonals>,
    column_counts: OnceLock<Vec<u32>>,
    hubs: Mutex<HashMap<u16, Arc<HubColumns>>>,
    constants: Mutex<HashMap<usize, Option<Arc<Constants>>>>,
    blocks: Mutex<HashMap<usize, Arc<Blocks>>>,
    partitions: Mutex<HashMap<(usize, usize), PartitionResult>>,
    patience: Patience,
}

/// Columns of each slice, from the first to one past the last.
type Spans = Arc<[Range<u32>]>;

/// A partition, or why there is none.
type PartitionResult = Result<Arc<Partition>, Refusal>;

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
            hash: OnceLock::new(),
            row_lengths: OnceLock::new(),
            orders: Mutex::default(),
            sectors: Mutex::default(),
            spans: Mutex::default(),
            diagonals: OnceLock::new(),
            column_counts: OnceLock::new(),
            hubs: Mutex::default(),
            constants: Mutex::default(),
            blocks: Mutex::default(),
            partitions: Mutex::default(),
            patience: Patience::Passes,
        }
    }

    /// The pattern of a matrix, with its values for what depends on them.
    pub fn of<T: Scalar>(csr: &'a Csr<T>) -> Self {
        Structure { values: Some(T::values_of(csr.values())), ..Structure::new(csr.pattern()) }
    }

    /// The pieces of one value of the diagonals of hacks of `hack` rows; `None` where values are
    /// unknown or not constant. A sample of the hacks, and one pass where it is.
    pub fn constants(&self, hack: usize) -> Option<Arc<Constants>> {
        let values = self.values?;
        cached(&self.constants, hack, || {
            let diagonals = self.n_diagonals(hack);
            Constants::of(self.pattern, values, hack, diagonals).map(Arc::new)
        })
    }

    /// The same structure, which may be partitioned by METIS: that takes as long as hundreds of
    /// products or more, so estimates do without it.
    pub fn with_partitioning(self) -> Self {
        Structure { patience: Patience::Partitioning, ..self }
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
        cached(&self.partitions, (parts, most), || {
            partition::metis(self.pattern, parts, most).map(Arc::new)
        })
    }

    /// The pattern.
    pub fn pattern(&self) -> Pattern<'a> {
        self.pattern
    }

    /// The pattern's fingerprint. One pass.
    pub fn fingerprint(&self) -> Fingerprint {
        *once(&self.hash, || Fingerprint::of(self.pattern))
    }

    /// The fullest columns, at most `most` of them and none with a single entry; none of a matrix
    /// with far more columns than entries. One pass, kept.
    pub fn hubs(&self, most: u16) -> Arc<HubColumns> {
        if self.pattern.ncols() / 64 > self.pattern.nnz() {
            return Arc::new(HubColumns::of(&[], most));
        }
        let counts = once(&self.column_counts, || column_counts(self.pattern));
        cached(&self.hubs, most, || Arc::new(HubColumns::of(counts, most)))
    }

    /// Number of entries of each row; one pass over the row pointers, kept.
    pub fn lengths(&self) -> &[u32] {
        let count = || -> Vec<u32> {
            let lengths = self.pattern.row_ptr().par_windows(2).with_min_len(FEWEST_ROWS);
            lengths.map(|w| (w[1] - w[0]) as u32).collect()
        };
        once(&self.lengths, count).as_slice()
    }

    /// How often each row length occurs; one pass over the lengths, kept.
    pub fn row_lengths(&self) -> &Histogram {
        once(&self.row_lengths, || Histogram::of(self.lengths()))
    }

    /// Entries of the longest row.
    pub fn max_length(&self) -> usize {
        self.row_lengths().max() as usize
    }

    /// Row order: `order[new] = old`, stable, longest row first within each window.
    ///
    /// One counting sort, or a search of the graph; kept for the next caller.
    ///
    /// # Panics
    /// For [`Sort::Rcm`] unless the pattern is square.
    pub fn order(&self, sort: Sort) -> Arc<[u32]> {
        cached(&self.orders, sort, || match sort {
            Sort::Rcm => reorder::rcm(self.pattern).into(),
            _ => order(self.lengths(), sort).into(),
        })
    }

    /// Entries of each slice of `slice` rows in `sort` order when padded to its longest row,
    /// as a running sum of `ceil(nrows / slice) + 1` offsets. The last slice counts as full.
    pub fn slice_offsets(&self, slice: usize, sort: Sort) -> Vec<u64> {
        let lengths = self.lengths();
        let mut offsets = vec![0u64];
        let mut total = 0;
        let mut push = |longest: u32| {
            total += u64::from(longest) * slice as u64;
            offsets.push(total);
        };
        if sort == Sort::None {
            for rows in lengths.chunks(slice) {
                push(rows.iter().copied().max().unwrap_or(0));
            }
        } else {
            for rows in self.order(sort).chunks(slice) {
                push(rows.iter().map(|&row| lengths[row as usize]).max().unwrap_or(0));
            }
        }
        offsets
    }

    /// Slots of all slices of `slice` rows in `sort` order, each padded to its longest row; the last
    /// slice counts as full.
    pub fn slots(&self, slice: usize, sort: Sort) -> u64 {
        let lengths = self.lengths();
        let length = |&row: &u32| lengths[row as usize];
        let longest = match sort {
            Sort::All => self.row_lengths().sum_of_every(slice as u64),
            Sort::None => sum_of_longest(lengths, slice, u32::clone),
            Sort::Window(_) | Sort::Rcm => sum_of_longest(&self.order(sort), slice, length),
        };
        longest * slice as u64
    }

    /// PELLR, equation 1: warp iterations, the sum over warps of their longest row. Here `threads`
    /// lanes may share a row, so that a warp of `warp` lanes holds `warp / threads` rows.
    pub fn n_iter(&self, warp: usize, threads: usize, sort: Sort) -> u64 {
        let rows = warp / threads;
        if threads == 1 {
            return self.slots(rows, sort) / rows as u64;
        }
        let offsets = self.slice_offsets(rows, sort);
        offsets.windows(2).map(|w| ((w[1] - w[0]) / rows as u64).div_ceil(threads as u64)).sum()
    }

    /// First and one past the last column of each slice of `slice` rows in `sort` order; 0 to 0
    /// where a slice is empty. `new` gives the new column of each old one where the basis is
    /// permuted; without, one pass over the rows, kept.
    pub fn spans(&self, slice: usize, sort: Sort, new: Option<&[u32]>) -> Spans {
        match new {
            None => cached(&self.spans, (slice, sort), || self.find_spans(slice, sort, None)),
            Some(_) => self.find_spans(slice, sort, new),
        }
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

/// The fewest rows that a thread takes where a row is little work.
const FEWEST_ROWS: usize = 1 << 14;

fn sum_of_longest<R: Sync>(rows: &[R], slice: usize, length: impl Fn(&R) -> u32 + Sync) -> u64 {
    let slices = rows.par_chunks(slice).with_min_len((FEWEST_ROWS / slice).max(1));
    slices.map(|rows| u64::from(rows.iter().map(&length).max().unwrap_or(0))).sum()
}

/// What the cache holds under `key`, or what `compute` makes now.
///
/// The lock is not held meanwhile: `compute` may run in parallel, and its thread may take up other
/// work that asks this cache.
fn cached<K: Copy + Eq + Hash, V: Clone>(
    cache: &Mutex<HashMap<K, V>>,
    key: K,
    compute: impl FnOnce() -> V,
) -> V {
    let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return known.clone();
    }
    let value = compute();
    lock().insert(key, value.clone());
    value
}

/// What the cell holds, or what `compute` makes now; as [`cached`], not locked meanwhile.
fn once<V>(cell: &OnceLock<V>, compute: impl FnOnce() -> V) -> &V {
    match cell.get() {
        Some(known) => known,
        None => {
            let value = compute();
            cell.get_or_init(|| value)
        }
    }
}

fn order(lengths: &[u32], sort: Sort) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    let longest_first = |rows: &mut [u32]| longest_first(lengths, rows);
    match sort {
        Sort::None => {}
        Sort::Window(rows) => {
            order.par_chunks_mut(rows.max(1)).for_each(longest_first);
        }
        Sort::All => longest_first(&mut order),
        Sort::Rcm => unreachable!("the order of a graph is not one of lengths"),
    }
    order
}

/// Sorts rows by falling length; rows of the same length keep their order.
fn longest_first(lengths: &[u32], rows: &mut [u32]) {
    let length = |row: u32| lengths[row as usize] as usize;
    let most = rows.iter().map(|&row| length(row)).max().unwrap_or(0);
    if most > 2 * rows.len() {
        rows.sort_by_key(|&row| std::cmp::Reverse(length(row)));
        return;
    }
    // A counting sort: where the rows of each length start, longest first.
    let mut next = vec![0; most + 2];
    for &row in &*rows {
        next[most + 1 - length(row)] += 1;
    }
    for i in 1..next.len() {
        next[i] += next[i - 1];
    }
    let unsorted = rows.to_vec();
    for &row in &unsorted {
        let at = &mut next[most - length(row)];
        rows[*at] = row;
        *at += 1;
    }
}

/// The inverse of a permutation: `inverse[order[i]] = i`.
///
/// # Panics
/// If `order` holds an index at or past its length.
pub fn inverse(order: &[u32]) -> Vec<u32> {
    let mut inverse = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        inverse[old as usize] = new as u32;
    }
    inverse
}
