//! A pattern together with what is known of it, computed once and shared by all formats.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::csr::Pattern;
use crate::format::Refusal;
use crate::partition::{self, Partition};
use crate::reorder;
use crate::scalar::Precision;

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
    lengths: Vec<u32>,
    orders: Mutex<HashMap<Sort, Arc<[u32]>>>,
    sectors: Mutex<HashMap<(Walk, Precision), f64>>,
    diagonals: Mutex<HashMap<usize, Arc<[u32]>>>,
    blocks: Mutex<HashMap<usize, Arc<Blocks>>>,
    partitions: Mutex<HashMap<(usize, usize), PartitionResult>>,
    patience: Patience,
}

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
    /// One pass over the row pointers.
    pub fn new(pattern: Pattern<'a>) -> Self {
        let lengths = pattern.row_ptr().windows(2).map(|w| (w[1] - w[0]) as u32).collect();
        Structure {
            pattern,
            lengths,
            orders: Mutex::default(),
            sectors: Mutex::default(),
            diagonals: Mutex::default(),
            blocks: Mutex::default(),
            partitions: Mutex::default(),
            patience: Patience::Passes,
        }
    }

    /// The same structure, which may be partitioned by METIS however large it is: that takes as
    /// long as hundreds of products or more, so estimates do without it.
    pub fn with_partitioning(self) -> Self {
        Structure { patience: Patience::Partitioning, ..self }
    }

    /// Whether the graph of the pattern may be partitioned or reordered.
    ///
    /// # Errors
    /// [`Refusal`] where it is too large for an estimate.
    pub fn check_patience(&self) -> Result<(), Refusal> {
        let nnz = self.pattern.nnz();
        if self.patience == Patience::Partitioning || nnz <= MOST_PARTITIONED {
            return Ok(());
        }
        Err(Refusal::new(format!(
            "an estimate does not reorder the graph of {nnz} entries, but of {MOST_PARTITIONED}; \
             effort exhaustive does, and so does asking for the candidate by name"
        )))
    }

    /// A partition of the graph of the square pattern by METIS, into `parts` parts of at most
    /// `most` rows; kept.
    ///
    /// # Errors
    /// [`Refusal`] where the graph does not suit METIS, or is too large for an estimate.
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

    /// Number of entries of each row.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// Entries of the longest row.
    pub fn max_length(&self) -> usize {
        self.lengths.iter().copied().max().unwrap_or(0) as usize
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
            _ => order(&self.lengths, sort).into(),
        })
    }

    /// Entries of each slice of `slice` rows in `sort` order when padded to its longest row,
    /// as a running sum of `ceil(nrows / slice) + 1` offsets. The last slice counts as full.
    pub fn slice_offsets(&self, slice: usize, sort: Sort) -> Vec<u64> {
        let mut offsets = vec![0u64];
        let mut total = 0;
        let mut push = |longest: u32| {
            total += u64::from(longest) * slice as u64;
            offsets.push(total);
        };
        if sort == Sort::None {
            for rows in self.lengths.chunks(slice) {
                push(rows.iter().copied().max().unwrap_or(0));
            }
        } else {
            for rows in self.order(sort).chunks(slice) {
                push(rows.iter().map(|&row| self.lengths[row as usize]).max().unwrap_or(0));
            }
        }
        offsets
    }

    /// Number of distinct diagonals with an entry in each hack of `hack` rows.
    ///
    /// One pass over the pattern; kept.
    pub fn hack_diagonals(&self, hack: usize) -> Arc<[u32]> {
        cached(&self.diagonals, hack, || {
            self.diagonals_of(hack, |diagonals| diagonals.len() as u32).into()
        })
    }

    /// The distinct diagonals with an entry in each hack of `hack` rows: offsets `j - i`, rising.
    ///
    /// One pass over the pattern.
    pub fn hack_offsets(&self, hack: usize) -> Vec<Vec<i64>> {
        let nrows = self.pattern.nrows() as i64;
        self.diagonals_of(hack, |diagonals| {
            let mut offsets: Vec<i64> = diagonals.iter().map(|&d| d as i64 - nrows).collect();
            offsets.sort_unstable();
            offsets
        })
    }

    fn diagonals_of<R: Clone + Default + Send>(
        &self,
        hack: usize,
        finish: impl Fn(&[usize]) -> R + Sync,
    ) -> Vec<R> {
        let nrows = self.pattern.nrows();
        let show = |h: usize, distinct: &mut Distinct| {
            for row in h * hack..((h + 1) * hack).min(nrows) {
                // Diagonals are counted from the one at the lower left.
                let first = nrows - row;
                for &column in self.pattern.row(row) {
                    distinct.see(first + column as usize);
                }
            }
        };
        distinct_keys(nrows.div_ceil(hack), nrows + self.pattern.ncols(), show, finish)
    }

    /// The dense `b` x `b` blocks with an entry, as a pattern of blocks.
    ///
    /// One pass over the pattern; kept.
    pub fn blocks(&self, b: usize) -> Arc<Blocks> {
        cached(&self.blocks, b, || Arc::new(self.find_blocks(b)))
    }

    fn find_blocks(&self, b: usize) -> Blocks {
        let nrows = self.pattern.nrows();
        let show = |i: usize, distinct: &mut Distinct| {
            for row in i * b..((i + 1) * b).min(nrows) {
                for &column in self.pattern.row(row) {
                    distinct.see(column as usize / b);
                }
            }
        };
        let ncols = self.pattern.ncols().div_ceil(b);
        let rows = distinct_keys(nrows.div_ceil(b), ncols, show, |blocks| {
            let mut columns: Vec<u32> = blocks.iter().map(|&column| column as u32).collect();
            columns.sort_unstable();
            columns
        });
        let mut row_ptr = vec![0];
        for row in &rows {
            row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len());
        }
        Blocks { ncols, row_ptr, col_idx: rows.concat() }
    }

    /// Entries over the slots of the dense `b` x `b` blocks that hold them, on at most
    /// [`SAMPLED_WARPS`] block rows spread evenly; 1 where there are no entries.
    pub fn block_fill(&self, b: usize) -> f64 {
        let nrows = self.pattern.nrows();
        let block_rows = nrows.div_ceil(b);
        let looked_at = block_rows.min(SAMPLED_WARPS);
        use rayon::prelude::*;
        let count = |at: usize| {
            let i = at * block_rows / looked_at;
            let rows = i * b..((i + 1) * b).min(nrows);
            let columns = rows.flat_map(|row| self.pattern.row(row));
            let mut seen: Vec<u32> = columns.map(|&column| column / b as u32).collect();
            let entries = seen.len();
            seen.sort_unstable();
            seen.dedup();
            (entries, seen.len())
        };
        let counts = (0..looked_at).into_par_iter().with_min_len(64).map(count);
        let (entries, blocks) = counts.reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        if blocks == 0 { 1.0 } else { entries as f64 / (blocks * b * b) as f64 }
    }

    /// 32-byte sectors of x that one product asks for: distinct ones within a warp step, summed
    /// over all steps. Sampled on at most [`SAMPLED_WARPS`] warps spread evenly; kept.
    pub fn x_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        cached(&self.sectors, (walk, precision), || self.count_sectors(walk, precision))
    }

    fn count_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        let per_sector = (32 / precision.bytes()) as u32;
        match walk {
            Walk::Entries => {
                let columns = self.pattern.col_idx();
                sampled(columns.len().div_ceil(32), |i| {
                    let step = &columns[32 * i..columns.len().min(32 * i + 32)];
                    distinct(step.iter().map(|c| c / per_sector))
                })
            }
            Walk::Rows { threads, sort } => {
                let rows = (32 / threads).max(1);
                let order = (sort != Sort::None).then(|| self.order(sort));
                // Only this order moves columns far: neighbours are near in the permuted basis.
                let new = order.as_ref().filter(|_| sort == Sort::Rcm).map(|order| inverse(order));
                let sector = |&c: &u32| new.as_ref().map_or(c, |new| new[c as usize]) / per_sector;
                let row = |i: usize| order.as_ref().map_or(i, |order| order[i] as usize);
                let nrows = self.pattern.nrows();
                sampled(nrows.div_ceil(rows), |warp| {
                    let lanes = warp * rows..((warp + 1) * rows).min(nrows);
                    let lanes: Vec<&[u32]> = lanes.map(|i| self.pattern.row(row(i))).collect();
                    let longest = lanes.iter().map(|lane| lane.len()).max().unwrap_or(0);
                    (0..longest)
                        .step_by(threads)
                        .map(|step| {
                            distinct(lanes.iter().flat_map(|lane| {
                                let end = (step + threads).min(lane.len());
                                lane[step.min(end)..end].iter().map(&sector)
                            }))
                        })
                        .sum()
                })
            }
        }
    }
}

/// Which dense blocks of a matrix hold an entry: a pattern of block rows and block columns.
#[derive(Debug)]
pub struct Blocks {
    ncols: usize,
    row_ptr: Vec<usize>,
    col_idx: Vec<u32>,
}

impl Blocks {
    /// One row a block row, one column a block column.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::of(self.row_ptr.len() - 1, self.ncols, &self.row_ptr, &self.col_idx)
    }
}

/// The most entries that METIS partitions for an estimate: some 20 ms of one core.
const MOST_PARTITIONED: usize = 100_000;

/// The most warps that [`Structure::x_sectors`] looks at.
pub const SAMPLED_WARPS: usize = 2048;

/// The distinct keys that a group has shown, in the order in which they first came.
struct Distinct {
    /// The last group (counted from 1) that showed each key.
    last: Vec<u32>,
    group: u32,
    keys: Vec<usize>,
}

impl Distinct {
    #[inline(always)]
    fn see(&mut self, key: usize) {
        if self.last[key] != self.group {
            self.last[key] = self.group;
            self.keys.push(key);
        }
    }
}

/// What `finish` makes of the distinct keys below `keys` that each of `groups` groups shows.
fn distinct_keys<R: Clone + Default + Send>(
    groups: usize,
    keys: usize,
    show: impl Fn(usize, &mut Distinct) + Sync,
    finish: impl Fn(&[usize]) -> R + Sync,
) -> Vec<R> {
    use rayon::prelude::*;
    let mut results = vec![R::default(); groups];
    let groups_each = groups.div_ceil(rayon::current_num_threads()).max(1);
    results.par_chunks_mut(groups_each).enumerate().for_each(|(part, results)| {
        let mut distinct = Distinct { last: vec![0; keys], group: 0, keys: Vec::new() };
        for (i, result) in results.iter_mut().enumerate() {
            distinct.group = i as u32 + 1;
            distinct.keys.clear();
            show(part * groups_each + i, &mut distinct);
            *result = finish(&distinct.keys);
        }
    });
    results
}

fn sampled(warps: usize, count: impl Fn(usize) -> usize + Sync) -> f64 {
    use rayon::prelude::*;
    let looked_at = warps.min(SAMPLED_WARPS);
    let at = (0..looked_at).into_par_iter().with_min_len(64);
    let total: usize = at.map(|i| count(i * warps / looked_at)).sum();
    total as f64 * warps as f64 / looked_at.max(1) as f64
}

fn distinct(sectors: impl Iterator<Item = u32>) -> usize {
    let mut seen = [0; 32];
    let mut len = 0;
    for sector in sectors {
        seen[len] = sector;
        len += 1;
    }
    let seen = &mut seen[..len];
    seen.sort_unstable();
    usize::from(len > 0) + seen.windows(2).filter(|w| w[0] != w[1]).count()
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

fn order(lengths: &[u32], sort: Sort) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    let longest_first = |rows: &mut [u32]| longest_first(lengths, rows);
    match sort {
        Sort::None => {}
        Sort::Window(rows) => {
            use rayon::prelude::*;
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
