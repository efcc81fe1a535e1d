//! Samples of rows and entries, and what is estimated from them: loads of x, symmetry.

use super::{Analysis, probes};
use crate::par;
use crate::scalar::Precision;

/// Maximum number of warps that [`Analysis::x_sectors`] samples, and of block rows that
/// [`Analysis::block_fill`] samples.
pub const SAMPLED_WARPS: usize = 2048;

/// Approximate maximum of entries that either samples if rows are long.
pub const SAMPLED_ENTRIES: usize = 1 << 20;

/// Minimum number of warps or block rows that either samples, however long the rows are.
const FEWEST_WARPS: usize = 128;

/// Sampling rate of estimates: one entry in 32 if the matrix has more than [`WHOLE`] entries.
const QUICK_RATE: usize = 32;

/// Minimum and maximum number of entries that an estimate samples.
pub(crate) const QUICK_ENTRIES: [usize; 2] = [1 << 15, 1 << 17];

/// Minimum number of sampled groups, however long the rows are: for groups of up to [`BLOCK_ROWS`]
/// rows (which GPUs count, too), and for larger groups.
const FEWEST: [usize; 2] = [2, 8];

/// Maximum number of entries of a matrix that estimates analyse completely.
pub const WHOLE: usize = 1 << 18;

/// Maximum number of tiles of sorted entries that [`Analysis::x_sectors`] samples.
pub(super) const SAMPLED_TILES: usize = 128;

/// Rows that share an L1 cache: the rows of one thread block.
const BLOCK_ROWS: usize = 256;

/// Maximum number of blocks of rows that [`Analysis::x_loads`] samples.
const SAMPLED_BLOCKS: usize = 64;

/// Maximum number of entries whose mirror image [`Analysis::symmetry`] searches.
pub const SAMPLED_MIRRORS: usize = 1 << 14;

probes! {
    /// Loaded x sectors per nonzero, by capacity of the cache in sectors.
    LoadedSectors(usize, Precision) -> f64;
}

impl Analysis<'_> {
    /// Returns the elements of x in the distinct sectors that blocks of 256 neighbouring rows need,
    /// divided by their entries: the re-use factor alpha of the pJDS code balance if each block
    /// loads x once. For scattered entries it approaches the elements per sector; for rows that
    /// share columns it is far below 1. Samples at most 64 blocks, evenly spread; 0 if there are no
    /// entries.
    pub fn x_loads(&self) -> EachPrecision {
        let pattern = self.pattern;
        let Sample { groups: blocks, sampled } = self.sample_of_blocks();
        let words = pattern.ncols() / PER_SECTOR as usize / 64 + 1;
        let count = |(marks, touched): &mut (Vec<u64>, Vec<u32>), at: usize| {
            let i = spread(at, sampled, blocks);
            let rows = i * BLOCK_ROWS..((i + 1) * BLOCK_ROWS).min(pattern.nrows());
            let entries = pattern.row_ptr()[rows.start]..pattern.row_ptr()[rows.end];
            let mut sectors = [0u64; 2];
            for &column in &pattern.col_idx()[entries.clone()] {
                let sector = column / PER_SECTOR;
                let marks = &mut marks[sector as usize / 64];
                if *marks >> (sector % 64) & 1 == 0 {
                    // A sector of f32 values covers two sectors of f64 values.
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
        EachPrecision::of_loads(sums(sampled, 1, scratch, count))
    }

    /// Returns the x sectors per nonzero that blocks of 256 neighbouring rows load, each into an L1
    /// cache of its own that holds `room` sectors and is emptied whenever it is full. Sampled as in
    /// [`Analysis::x_loads`]; kept.
    pub(crate) fn loaded_sectors(&self, room: usize, precision: Precision) -> f64 {
        self.memo.get(LoadedSectors(room, precision), || self.load_sectors(room, precision))
    }

    fn load_sectors(&self, room: usize, precision: Precision) -> f64 {
        let pattern = self.pattern;
        let Sample { groups: blocks, sampled } = self.sample_of_blocks();
        let per_sector = 32 / precision.bytes() as u32;
        let words = pattern.ncols() / per_sector as usize / 64 + 1;
        let count = |(marks, near): &mut (Vec<u64>, Vec<u32>), at: usize| {
            let first = spread(at, sampled, blocks) * BLOCK_ROWS;
            let end = (first + BLOCK_ROWS).min(pattern.nrows());
            let columns = &pattern.col_idx()[pattern.row_ptr()[first]..pattern.row_ptr()[end]];
            let mut loaded = 0;
            for &column in columns {
                let sector = column / per_sector;
                let (word, bit) = (sector as usize / 64, 1 << (sector % 64));
                if near.len() == room {
                    near.drain(..).for_each(|sector| marks[sector as usize / 64] = 0);
                }
                if marks[word] & bit == 0 {
                    marks[word] |= bit;
                    near.push(sector);
                    loaded += 1;
                }
            }
            near.drain(..).for_each(|sector| marks[sector as usize / 64] = 0);
            [loaded, columns.len() as u64]
        };
        let scratch = || (vec![0u64; words], Vec::new());
        let [loaded, nnz] = sums(sampled, 1, scratch, count);
        loaded as f64 / nnz.max(1) as f64
    }

    /// Returns the share of entries whose mirror image is stored, too; diagonal entries count as
    /// mirrored. 0 unless the matrix is square and has entries. Tests at most `most` evenly spread
    /// entries ([`SAMPLED_MIRRORS`], for instance), so the result is exact for matrices of up to
    /// `most` entries.
    pub fn symmetry(&self, most: usize) -> f64 {
        let pattern = self.pattern;
        let sample = Sample::of_mirrors(pattern.nrows(), pattern.ncols(), pattern.nnz(), most);
        let Sample { groups: nnz, sampled } = sample;
        let mirrored = |row: &mut usize, at: usize| {
            let k = spread(at, sampled, nnz);
            *row = row_from(pattern.row_ptr(), *row, k);
            let mirror = pattern.row(pattern.col_idx()[k] as usize);
            mirror.binary_search(&(*row as u32)).is_ok()
        };
        let [found] = sums(sampled, 1, || 0, |row, at| [u64::from(mirrored(row, at))]);
        sample.share(found)
    }

    /// Samples this pattern with [`Detail::sample`].
    pub(crate) fn sample(&self, groups: usize) -> Sample {
        self.detail.sample(groups, self.pattern.nnz())
    }

    /// Selects groups of this pattern with [`Detail::groups`].
    pub(crate) fn groups(&self, groups: usize) -> Sample {
        self.detail.groups(groups, self.pattern.nnz())
    }

    /// Selects groups of `rows` rows: all of them, or a sample for estimates.
    pub(crate) fn groups_of(&self, rows: usize) -> Sample {
        let Sample { groups, sampled } = self.groups(self.pattern.nrows().div_ceil(rows));
        let fewest = FEWEST[usize::from(rows > BLOCK_ROWS)];
        Sample { groups, sampled: sampled.max(groups.min(fewest)) }
    }

    /// Selects the blocks of rows that [`Analysis::x_loads`] samples.
    pub(crate) fn sample_of_blocks(&self) -> Sample {
        self.detail.blocks(self.pattern.nrows(), self.pattern.nnz())
    }
}

/// Returns the row of entry `k`, which is `row` or a later one; looks at near rows first.
fn row_from(row_ptr: &[usize], mut row: usize, k: usize) -> usize {
    let mut ahead = 1;
    while row_ptr.get(row + ahead).is_some_and(|&start| start <= k) {
        row += ahead;
        ahead *= 2;
    }
    let end = row_ptr.len().min(row + ahead);
    row + row_ptr[row..end].partition_point(|&start| start <= k) - 1
}

/// The share of the entries that estimates analyse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// All entries.
    Whole,
    /// The entries of a sample of the rows.
    Sampled,
}

impl Detail {
    /// Returns the level of detail for a matrix of `nnz` entries.
    pub fn of(nnz: usize) -> Self {
        if nnz > WHOLE { Detail::Sampled } else { Detail::Whole }
    }

    /// Samples `groups` groups of rows or entries that make up a matrix of `nnz` entries; for
    /// properties that are never counted exactly.
    pub fn sample(self, groups: usize, nnz: usize) -> Sample {
        match self {
            Detail::Whole => Sample::of_groups(groups, nnz),
            Detail::Sampled => {
                let Sample { sampled, .. } = Sample::quick(groups, nnz);
                let most = (sampled / 2).max(FEWEST_WARPS).min(sampled);
                Sample { groups, sampled: most.min(SAMPLED_WARPS / 4) }
            }
        }
    }

    /// Selects all of these groups, or a sample of them for estimates.
    pub fn groups(self, groups: usize, nnz: usize) -> Sample {
        match self {
            Detail::Whole => Sample { groups, sampled: groups },
            Detail::Sampled => Sample::quick(groups, nnz),
        }
    }

    /// Selects the blocks of rows that [`Analysis::x_loads`] samples.
    pub fn blocks(self, nrows: usize, nnz: usize) -> Sample {
        let groups = nrows.div_ceil(BLOCK_ROWS);
        let most = self.groups(groups, nnz).sampled;
        Sample { groups, sampled: most.min(SAMPLED_BLOCKS) }
    }

    /// Returns the rows in each half of a [`ColumnSample`](super::ColumnSample).
    pub fn half(self, nrows: usize, nnz: usize) -> usize {
        self.groups(nrows, nnz).sampled.div_ceil(2)
    }

    /// Returns the maximum number of entries whose mirror image the symmetry feature searches.
    pub fn mirrors(self) -> usize {
        match self {
            Detail::Whole => SAMPLED_MIRRORS,
            Detail::Sampled => SAMPLED_MIRRORS / 8,
        }
    }
}

/// One number for each precision of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EachPrecision {
    f32: f64,
    f64: f64,
}

impl EachPrecision {
    /// Creates the pair from the numbers for f32 and f64.
    pub(crate) fn new([f32, f64]: [f64; 2]) -> Self {
        EachPrecision { f32, f64 }
    }

    /// Computes elements of x per entry from sectors of f32, sectors of f64, and entries.
    pub(crate) fn of_loads([f32, f64, entries]: [u64; 3]) -> Self {
        let loads = |sectors, size| f64::from(size) * sectors as f64 / entries.max(1) as f64;
        EachPrecision { f32: loads(f32, 2 * PER_SECTOR), f64: loads(f64, PER_SECTOR) }
    }

    /// Returns the number for this precision.
    pub fn of(self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.f32,
            Precision::F64 => self.f64,
        }
    }
}

/// Elements of f64 in a 32-byte sector of x; f32 has twice as many.
pub(super) const PER_SECTOR: u32 = 4;

/// A selection of evenly spread groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Number of all groups.
    pub groups: usize,
    /// Number of sampled groups; [`spread`] selects them.
    pub sampled: usize,
}

impl Sample {
    /// Samples `groups` groups of rows or entries that make up a matrix of `nnz` entries.
    pub fn of_groups(groups: usize, nnz: usize) -> Self {
        let affordable = SAMPLED_ENTRIES as u128 * groups as u128 / nnz.max(1) as u128;
        let most = (affordable as usize).clamp(FEWEST_WARPS, SAMPLED_WARPS);
        Sample { groups, sampled: groups.min(most) }
    }

    /// Samples fewer groups than [`Sample::of_groups`], for a quick estimate.
    fn quick(groups: usize, nnz: usize) -> Self {
        let [fewest, most] = QUICK_ENTRIES;
        let entries = (nnz / QUICK_RATE).clamp(fewest, most);
        let affordable = entries as u128 * groups as u128 / nnz.max(1) as u128;
        Sample { groups, sampled: groups.min((affordable as usize).max(FEWEST[0])) }
    }

    /// Iterates over the sampled groups in rising order.
    pub fn picks(self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.sampled).map(move |at| self.pick(at))
    }

    /// Returns the `at`-th sampled group.
    pub fn pick(self, at: usize) -> usize {
        spread(at, self.sampled, self.groups)
    }

    /// Extrapolates a count over the sampled groups to all groups.
    pub fn scale(self, count: u64) -> u64 {
        let scaled = u128::from(count) * self.groups as u128 / self.sampled.max(1) as u128;
        scaled as u64
    }

    /// Samples the entries whose mirror image [`Analysis::symmetry`] searches: at most `most`.
    pub fn of_mirrors(nrows: usize, ncols: usize, nnz: usize, most: usize) -> Self {
        Sample { groups: nnz, sampled: if nrows == ncols { nnz.min(most) } else { 0 } }
    }

    /// Returns `found` as a share of the sampled groups.
    pub fn share(&self, found: u64) -> f64 {
        found as f64 / self.sampled.max(1) as f64
    }

    /// Extrapolates sums over the sampled groups to all groups.
    pub fn scaled(&self, totals: [u64; 2]) -> EachPrecision {
        let scale = self.groups as f64 / self.sampled.max(1) as f64;
        EachPrecision::new(totals.map(|total| total as f64 * scale))
    }
}

/// Sums `count(scratch, i)` over `0..n` in parallel; each thread makes its own scratch memory and
/// takes at least `fewest` of the numbers.
pub(crate) fn sums<S, const N: usize>(
    n: usize,
    fewest: usize,
    scratch: impl Fn() -> S + Sync,
    count: impl Fn(&mut S, usize) -> [u64; N] + Sync,
) -> [u64; N] {
    let add = |a: [u64; N], b: [u64; N]| std::array::from_fn(|i| a[i] + b[i]);
    let parts = par::map_ranges(n, fewest, |range| {
        let mut scratch = scratch();
        range.map(|i| count(&mut scratch, i)).fold([0; N], add)
    });
    parts.into_iter().fold([0; N], add)
}

/// Extrapolates a count over `met` entries to all `nnz` entries.
pub(crate) fn over_all(count: u64, met: u64, nnz: usize) -> u64 {
    (u128::from(count) * nnz as u128 / u128::from(met.max(1))) as u64
}

/// Returns the `at`-th of `sampled` samples of `0..n`: one from each of `sampled` equal parts,
/// at a position that varies so that samples do not resonate with a regular grid. The very first
/// element, which may be exceptional, is avoided. If `sampled` is `n`, each of `0..n` is returned
/// once.
pub(crate) fn spread(at: usize, sampled: usize, n: usize) -> usize {
    if sampled == n {
        return at;
    }
    let start = |at: usize| match at.checked_mul(n) {
        Some(product) => product / sampled,
        None => (at as u128 * n as u128 / sampled as u128) as usize,
    };
    let (first, end) = (start(at), start(at + 1));
    // Multiples of the golden ratio, in units of 2^-32.
    let share = (at as u32).wrapping_add(1).wrapping_mul(0x9e37_79b9);
    first + (((end - first) as u128 * u128::from(share)) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_from_earlier_ones_on() {
        let row_ptr = [0, 0, 2, 2, 2, 3, 9, 9];
        for k in 0..9 {
            let expected = row_ptr.partition_point(|&start| start <= k) - 1;
            assert!((0..=expected).all(|row| row_from(&row_ptr, row, k) == expected), "entry {k}");
        }
    }

    #[test]
    fn samples_lie_in_parts_of_their_own() {
        let all: Vec<usize> = (0..1000).map(|at| spread(at, 1000, 1000)).collect();
        assert!(all.into_iter().eq(0..1000));
        let some: Vec<usize> = (0..10).map(|at| spread(at, 10, 1005)).collect();
        assert!(some.iter().enumerate().all(|(at, &i)| i * 10 / 1005 == at), "{some:?}");
        assert!(some[0] > 0, "the first of all is in every sample");
        assert!(spread(1 << 14, (1 << 14) + 1, usize::MAX) < usize::MAX);
    }
}
