//! A pattern together with what is known of it, computed once and shared by all formats.

mod blocks;
mod columns;
mod constants;
mod deltas;
mod diagonals;
mod few;
mod histogram;
mod near;
mod rows;
mod sample;
mod sectors;

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;

use crate::csr::{CsrRef, Pattern};
use crate::device::Device;
use crate::features::Features;
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, Candidate, Refusal, Target, Tiles, Work};
use crate::partition::{self, Partition};
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
pub(crate) use sample::{Detail, Sample, over_all};
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

    /// As many ones as a value has bits.
    fn ones(&self) -> u64 {
        match self {
            ValuesOf::F32(_) => u64::from(u32::MAX),
            ValuesOf::F64(_) => u64::MAX,
        }
    }
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
    hash: OnceLock<Fingerprint>,
    row_lengths: OnceLock<Histogram>,
    sectors_at_sight: OnceLock<EachPrecision>,
    changes: OnceLock<usize>,
    orders: Mutex<HashMap<Sort, Arc<[u32]>>>,
    sorted_lengths: Mutex<HashMap<Sort, Lengths>>,
    longest: Mutex<HashMap<(usize, Sort), Lengths>>,
    steps: Mutex<HashMap<(usize, usize, Sort), u64>>,
    sectors: Mutex<HashMap<Walk, EachPrecision>>,
    sorted_tiles: Mutex<HashMap<usize, sectors::Sorted>>,
    loaded: Mutex<HashMap<(usize, Precision), f64>>,
    near: Mutex<HashMap<(Option<usize>, near::Near), f64>>,
    spans: Mutex<HashMap<(usize, Sort), Spans>>,
    widest: Mutex<HashMap<(usize, Sort), u64>>,
    delta_units: Mutex<HashMap<Sort, u64>>,
    diagonals: OnceLock<diagonals::Diagonals>,
    some_diagonals: Mutex<HashMap<usize, u64>>,
    column_counts: OnceLock<Vec<u32>>,
    column_sample: OnceLock<Arc<ColumnSample>>,
    hubs: Mutex<HashMap<u16, Arc<HubColumns>>>,
    hub_rows: Mutex<HashMap<u16, HubRows>>,
    tiles: Mutex<HashMap<usize, Arc<Tiles>>>,
    tile_steps: Mutex<HashMap<(usize, usize), (f64, f64)>>,
    constants: Mutex<HashMap<usize, Option<Arc<Constants>>>>,
    constant_counts: Mutex<HashMap<usize, Option<ConstantCounts>>>,
    few_values: OnceLock<Option<Arc<FewValues>>>,
    value_count: OnceLock<Option<usize>>,
    blocks: Mutex<HashMap<usize, Arc<Blocks>>>,
    some_blocks: Mutex<HashMap<usize, Arc<Blocks>>>,
    block_fill: Mutex<HashMap<usize, f64>>,
    partitions: Mutex<HashMap<(usize, usize), PartitionResult>>,
    works: Mutex<Vec<(Aim, Works)>>,
    features: OnceLock<Features>,
    patience: Patience,
    detail: Detail,
}

/// What candidates are made for: device, precision, basis and memory limit.
type Aim = (Device, Precision, Basis, u64);

/// Every candidate with its work, or why it does not suit.
pub(crate) type Works = Arc<[(Candidate, Result<Work, Refusal>)]>;

/// Lengths of rows, or of the longest rows of slices.
type Lengths = Arc<Vec<u32>>;

/// How often rows have so many entries in hubs, and so many others.
type HubRows = Arc<[(RowParts, u64)]>;

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
            sectors_at_sight: OnceLock::new(),
            changes: OnceLock::new(),
            orders: Mutex::default(),
            sorted_lengths: Mutex::default(),
            longest: Mutex::default(),
            steps: Mutex::default(),
            sectors: Mutex::default(),
            sorted_tiles: Mutex::default(),
            loaded: Mutex::default(),
            near: Mutex::default(),
            spans: Mutex::default(),
            widest: Mutex::default(),
            delta_units: Mutex::default(),
            diagonals: OnceLock::new(),
            some_diagonals: Mutex::default(),
            column_counts: OnceLock::new(),
            column_sample: OnceLock::new(),
            hubs: Mutex::default(),
            hub_rows: Mutex::default(),
            tiles: Mutex::default(),
            tile_steps: Mutex::default(),
            constants: Mutex::default(),
            constant_counts: Mutex::default(),
            few_values: OnceLock::new(),
            value_count: OnceLock::new(),
            blocks: Mutex::default(),
            some_blocks: Mutex::default(),
            block_fill: Mutex::default(),
            partitions: Mutex::default(),
            works: Mutex::default(),
            features: OnceLock::new(),
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

    /// What `find` says of all candidates for this target; kept.
    pub(crate) fn works(&self, target: &Target<'_>, find: impl FnOnce() -> Works) -> Works {
        let Target { device, precision, basis, memory_limit } = *target;
        let aim = (device.clone(), precision, basis, memory_limit);
        let lock = || self.works.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().iter().find(|(known, _)| *known == aim) {
            return known.clone();
        }
        let works = find();
        lock().push((aim, works.clone()));
        works
    }

    /// What `find` says of its features; kept.
    pub(crate) fn features(&self, find: impl FnOnce() -> Features) -> &Features {
        once(&self.features, find)
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
        cached(&self.tiles, most, || Arc::new(Tiles::of(self.pattern, most)))
    }

    /// Steps that a block of so many threads takes for one of them, as [`Tiles::steps`] counts them;
    /// kept.
    pub(crate) fn tile_steps(&self, most: usize, threads: usize) -> (f64, f64) {
        let steps = || self.tiles(most).steps(self.pattern, threads);
        cached(&self.tile_steps, (most, threads), steps)
    }

    /// The pieces of one value of the diagonals of hacks of `hack` rows; `None` where values are
    /// unknown or not constant. A sample of the hacks, and one pass where it is.
    pub fn constants(&self, hack: usize) -> Option<Arc<Constants>> {
        let values = self.values?;
        cached(&self.constants, hack, || {
            let diagonals = self.exact_diagonals(hack);
            Constants::of(self.pattern, values, hack, diagonals).map(Arc::new)
        })
    }

    /// How many pieces [`Structure::constants`] has.
    pub fn constant_counts(&self, hack: usize) -> Option<ConstantCounts> {
        let values = self.values?;
        cached(&self.constant_counts, hack, || match self.detail {
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
        once(&self.few_values, find).clone()
    }

    /// How many values [`Structure::few_values`] are; of a large matrix, where this structure is for
    /// estimates, those of a sample of the entries.
    pub fn value_count(&self) -> Option<usize> {
        let values = self.values?;
        *once(&self.value_count, || match self.detail {
            Detail::Whole => self.few_values().map(|few| few.bits.len()),
            Detail::Sampled => FewValues::count_sampled(values, self.pattern.nnz()),
        })
    }

    /// The same structure, which may be partitioned by METIS: that takes as long as hundreds of
    /// products or more, so estimates do without it.
    pub fn with_partitioning(self) -> Self {
        Structure { patience: Patience::Partitioning, works: Mutex::default(), ..self }
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

    /// How often rows have so many entries in [`Structure::hubs`] and so many others, in no order;
    /// from a sample as there, and kept.
    pub fn hub_rows(&self, most: u16) -> HubRows {
        cached(&self.hub_rows, most, || match self.column_sample() {
            Some(sample) => sample.rows(self.pattern, most).into(),
            None => self.hubs(most).rows(self.pattern).as_slice().into(),
        })
    }

    /// How full columns are, from a sample of the rows, where this structure is for estimates; kept.
    pub(crate) fn column_sample(&self) -> Option<Arc<ColumnSample>> {
        let half = || self.detail.half(self.pattern.nrows(), self.pattern.nnz());
        let of_sample = || Arc::new(ColumnSample::of(self.pattern, half()));
        (self.detail == Detail::Sampled).then(|| once(&self.column_sample, of_sample).clone())
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
        let counts = once(&self.column_counts, || column_counts(self.pattern));
        columns::swept_sectors(counts, parts, columns)
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
        cached(&self.widest, (slice, sort), || {
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

#[cfg(test)]
mod tests;
