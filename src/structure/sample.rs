//! What is known of a pattern from samples: sectors of x, loads of x, symmetry.

use rayon::prelude::*;

use super::{Sort, Structure, Walk, cached, inverse};
use crate::scalar::Precision;

/// The most warps that [`Structure::x_sectors`] looks at, and block rows that
/// [`Structure::block_fill`] does.
pub const SAMPLED_WARPS: usize = 2048;

/// About the most entries that both look at where rows are long.
pub const SAMPLED_ENTRIES: usize = 1 << 20;

/// The fewest warps or block rows that both look at, however long the rows are.
const FEWEST_WARPS: usize = 128;

/// The most tiles of sorted entries that [`Structure::x_sectors`] looks at.
const SAMPLED_TILES: usize = 128;

/// Rows that share a nearest cache: one block of threads.
const BLOCK_ROWS: usize = 256;

/// The most blocks of rows that [`Structure::x_loads`] looks at.
const SAMPLED_BLOCKS: usize = 64;

/// The most entries whose mirror image [`Structure::symmetry`] searches.
pub const SAMPLED_MIRRORS: usize = 1 << 14;

impl Structure<'_> {
    /// 32-byte sectors of x that one product asks for: distinct ones within a warp step, summed
    /// over all steps. Sampled on at most [`SAMPLED_WARPS`] warps spread evenly, fewer where they
    /// hold more than [`SAMPLED_ENTRIES`] entries; kept.
    pub fn x_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        self.sectors(walk).of(precision)
    }

    /// The same for each precision.
    pub(crate) fn sectors(&self, walk: Walk) -> EachPrecision {
        cached(&self.sectors, walk, || self.count_sectors(walk))
    }

    fn count_sectors(&self, walk: Walk) -> EachPrecision {
        match walk {
            Walk::Entries => {
                let columns = self.pattern.col_idx();
                self.sample(columns.len().div_ceil(32)).sum(|i| {
                    let step = &columns[32 * i..columns.len().min(32 * i + 32)];
                    distinct(step.iter().copied())
                })
            }
            Walk::Sorted { tile } => {
                let columns = self.pattern.col_idx();
                let groups = columns.len().div_ceil(tile);
                let looked_at = groups.min(SAMPLED_TILES);
                Sample { groups, looked_at }.sum(|i| {
                    let mut tile = columns[tile * i..columns.len().min(tile * (i + 1))].to_vec();
                    tile.sort_unstable();
                    let steps = tile.chunks(32).map(|step| distinct(step.iter().copied()));
                    steps.fold([0; 2], |sum, step| [sum[0] + step[0], sum[1] + step[1]])
                })
            }
            Walk::Rows { threads, sort } => {
                let rows = (32 / threads).max(1);
                let order = (sort != Sort::None).then(|| self.order(sort));
                // Only this order moves columns far: neighbours are near in the permuted basis.
                let new = order.as_ref().filter(|_| sort == Sort::Rcm).map(|order| inverse(order));
                let column = |&c: &u32| new.as_ref().map_or(c, |new| new[c as usize]);
                let row = |i: usize| order.as_ref().map_or(i, |order| order[i] as usize);
                let nrows = self.pattern.nrows();
                self.sample(nrows.div_ceil(rows)).sum(|warp| {
                    let lanes = warp * rows..((warp + 1) * rows).min(nrows);
                    let mut lanes: Vec<&[u32]> =
                        lanes.map(|i| self.pattern.row(row(i))).filter(|r| !r.is_empty()).collect();
                    let mut sectors = [0; 2];
                    while !lanes.is_empty() {
                        let step = lanes.iter_mut().flat_map(|lane| {
                            let (step, rest) = lane.split_at(threads.min(lane.len()));
                            *lane = rest;
                            step.iter().map(&column)
                        });
                        let step = distinct(step);
                        sectors = [sectors[0] + step[0], sectors[1] + step[1]];
                        lanes.retain(|lane| !lane.is_empty());
                    }
                    sectors
                })
            }
        }
    }

    /// Elements of x in the distinct sectors that blocks of 256 neighbouring rows ask for, over
    /// their entries: the re-use factor alpha of the pJDS code balance where x is loaded once a
    /// block. Where entries are scattered it is the elements of a sector, where rows share their
    /// columns far below 1. Sampled on at most 64 blocks spread evenly; 0 without entries.
    pub fn x_loads(&self) -> EachPrecision {
        let pattern = self.pattern;
        let Sample { groups: blocks, looked_at } = Sample::of_blocks(pattern.nrows());
        let words = pattern.ncols() / PER_SECTOR as usize / 64 + 1;
        let count = |(marks, touched): &mut (Vec<u64>, Vec<u32>), at: usize| {
            let i = spread(at, looked_at, blocks);
            let rows = i * BLOCK_ROWS..((i + 1) * BLOCK_ROWS).min(pattern.nrows());
            let entries = pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end];
            let mut sectors = [0u64; 2];
            for &column in &pattern.col_idx()[entries.clone()] {
                let sector = column / PER_SECTOR;
                let marks = &mut marks[sector as usize / 64];
                if *marks >> (sector % 64) & 1 == 0 {
                    // A sector of f32 is a pair of those of f64.
                    sectors[0] += u64::from(*marks >> ((sector % 64) ^ 1) & 1 == 0);
                    sectors[1] += 1;
                    *marks |= 1 << (sector % 64);
                    touched.push(sector / 64);
                }
            }
            touched.drain(..).for_each(|word| marks[word as usize] = 0);
            [sectors[0], sectors[1], entries.len() as u64]
        };
        let scratch = || (vec![0u64; words], Vec::new());
        let counts = (0..looked_at)
            .into_par_iter()
            .with_min_len(looked_at.div_ceil(rayon::current_num_threads()))
            .map_init(scratch, count)
            .reduce(|| [0; 3], |a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
        EachPrecision::of_loads(counts)
    }

    /// Share of the entries whose mirror image is stored too, those on the diagonal among them;
    /// 0 unless the matrix is square and has entries. Looks at `most` entries spread evenly,
    /// [`SAMPLED_MIRRORS`] for instance, and so is exact for that many.
    pub fn symmetry(&self, most: usize) -> f64 {
        let pattern = self.pattern;
        let sample = Sample::of_mirrors(pattern.nrows(), pattern.ncols(), pattern.nnz(), most);
        let Sample { groups: nnz, looked_at } = sample;
        let mirrored = (0..looked_at).into_par_iter().filter(|&at| {
            let k = spread(at, looked_at, nnz);
            let row = pattern.row_ptr().partition_point(|&start| start <= k) - 1;
            let mirror = pattern.row(pattern.col_idx()[k] as usize);
            mirror.binary_search(&(row as u32)).is_ok()
        });
        sample.share(mirrored.count() as u64)
    }

    /// A sample of `groups` groups of rows or entries that make up the whole matrix.
    pub(super) fn sample(&self, groups: usize) -> Sample {
        Sample::of_groups(groups, self.pattern.nnz())
    }
}

/// One figure for each precision of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EachPrecision {
    f32: f64,
    f64: f64,
}

impl EachPrecision {
    /// Elements of x in so many sectors of f32 and of f64 over so many entries.
    pub(crate) fn of_loads([f32, f64, entries]: [u64; 3]) -> Self {
        let loads = |sectors, size| f64::from(size) * sectors as f64 / entries.max(1) as f64;
        EachPrecision { f32: loads(f32, 2 * PER_SECTOR), f64: loads(f64, PER_SECTOR) }
    }

    /// The figure for this precision.
    pub fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32,
            Precision::F64 => self.f64,
        }
    }
}

/// Elements of a 32-byte sector of x in f64; twice as many in f32.
const PER_SECTOR: u32 = 4;

/// Groups to look at instead of all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// All of them.
    pub groups: usize,
    /// Those that are looked at, as [`spread`] picks them.
    pub looked_at: usize,
}

impl Sample {
    /// Of `groups` groups of rows or entries that make up a matrix of `nnz` entries.
    pub fn of_groups(groups: usize, nnz: usize) -> Self {
        let affordable = SAMPLED_ENTRIES as u128 * groups as u128 / nnz.max(1) as u128;
        let most = (affordable as usize).clamp(FEWEST_WARPS, SAMPLED_WARPS);
        Sample { groups, looked_at: groups.min(most) }
    }

    /// Of the blocks of rows that [`Structure::x_loads`] looks at.
    pub fn of_blocks(nrows: usize) -> Self {
        let groups = nrows.div_ceil(BLOCK_ROWS);
        Sample { groups, looked_at: groups.min(SAMPLED_BLOCKS) }
    }

    /// Of the entries whose mirror image [`Structure::symmetry`] searches, at most `most` of them.
    pub fn of_mirrors(nrows: usize, ncols: usize, nnz: usize, most: usize) -> Self {
        Sample { groups: nnz, looked_at: if nrows == ncols { nnz.min(most) } else { 0 } }
    }

    /// The sums of both counts over the groups that are looked at.
    pub fn total(&self, count: impl Fn(usize) -> [u64; 2] + Sync) -> [u64; 2] {
        (0..self.looked_at)
            .into_par_iter()
            .with_min_len(32)
            .map(|at| count(spread(at, self.looked_at, self.groups)))
            .reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    }

    /// The share of those that are looked at.
    pub fn share(&self, found: u64) -> f64 {
        found as f64 / self.looked_at.max(1) as f64
    }

    /// The sums over all groups, estimated: for f32, then f64.
    fn sum(&self, count: impl Fn(usize) -> [u64; 2] + Sync) -> EachPrecision {
        self.scaled(self.total(count))
    }

    /// What these sums over the groups that are looked at make over all groups.
    pub fn scaled(&self, totals: [u64; 2]) -> EachPrecision {
        let scale = self.groups as f64 / self.looked_at.max(1) as f64;
        let [f32, f64] = totals.map(|total| total as f64 * scale);
        EachPrecision { f32, f64 }
    }
}

/// The `at`-th of `looked_at` samples of `0..n`: one in each of as many equal parts, at a place in
/// it that does not fall in step with a regular grid; each of `0..n` once where all are looked at.
fn spread(at: usize, looked_at: usize, n: usize) -> usize {
    let start = |at: usize| (at as u128 * n as u128 / looked_at as u128) as usize;
    let (first, end) = (start(at), start(at + 1));
    // Multiples of the golden ratio, in units of 2^-32.
    let share = (at as u32).wrapping_mul(0x9e37_79b9);
    first + (((end - first) as u128 * u128::from(share)) >> 32) as usize
}

/// Distinct sectors of x, in f32 and in f64, that at most 32 columns lie in.
fn distinct(columns: impl Iterator<Item = u32>) -> [u64; 2] {
    let mut seen = [0; 32];
    let mut len = 0;
    for (slot, column) in seen.iter_mut().zip(columns) {
        *slot = column / PER_SECTOR;
        len += 1;
    }
    let seen = &mut seen[..len];
    seen.sort_unstable();
    let mut sectors = [u64::from(len > 0); 2];
    for pair in seen.windows(2) {
        sectors[0] += u64::from(pair[0] / 2 != pair[1] / 2);
        sectors[1] += u64::from(pair[0] != pair[1]);
    }
    sectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lie_in_parts_of_their_own() {
        let all: Vec<usize> = (0..1000).map(|at| spread(at, 1000, 1000)).collect();
        assert!(all.into_iter().eq(0..1000));
        let some: Vec<usize> = (0..10).map(|at| spread(at, 10, 1005)).collect();
        assert!(some.iter().enumerate().all(|(at, &i)| i * 10 / 1005 == at), "{some:?}");
        assert!(spread(1 << 14, (1 << 14) + 1, usize::MAX) < usize::MAX);
    }

    #[test]
    fn sectors_are_of_4_or_8_columns() {
        assert_eq!(distinct([0, 3, 4, 7, 8, 100].into_iter()), [3, 4]);
        assert_eq!(distinct(std::iter::empty()), [0, 0]);
        assert_eq!(distinct(std::iter::repeat_n(5, 32)), [1, 1]);
        assert_eq!(distinct((0..32).rev().map(|i| 8 * i)), [32, 32]);
    }
}
