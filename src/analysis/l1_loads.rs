//! Simulation of a GPU's L1 caches: the x sectors that they load when one processor works on rows
//! that are far apart.

use std::sync::{Arc, Mutex, PoisonError};

use super::sampling::{Sample, sums};
use super::{Analysis, Walk, probes};
use crate::device::Kind;
use crate::scalar::Precision;
use crate::target::Target;

/// Threads per block, and blocks that one processor runs at a time.
const BLOCK: usize = 256;
const BLOCKS: usize = 8;

/// Entries that a block processes at a time if it walks the entries in CSR order.
const ENTRIES_PER_BLOCK: usize = 4 * BLOCK;

/// Approximate upper limit of simulated entries.
const MOST_ENTRIES: usize = 1 << 16;

/// The simulated caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct L1Caches {
    /// Processors of the GPU.
    processors: usize,
    /// Sectors that the L1 cache of each processor holds.
    room: usize,
    /// Binary logarithm of the elements of x per sector.
    sector_bits: u32,
}

probes! {
    /// Loaded sectors per nonzero, by threads per row (`None`: entry by entry).
    LoadsANonzero(Option<usize>, L1Caches) -> f64;
    /// Simulated caches that hold this number of sectors and are not in use.
    IdleCaches(usize) -> Arc<Mutex<Vec<L1Sim>>>;
}

impl Analysis<'_> {
    /// Returns the number of 32-byte x sectors that the L1 caches of a GPU load in one product;
    /// `None` on hosts, which process one row after another.
    ///
    /// A GPU processor runs several blocks that are far apart in the matrix, and all their threads
    /// advance step by step: a sector that neighbouring rows need in about the same step is loaded
    /// once. Rows are processed in the matrix's own order. The result is simulated for a sample of
    /// the sets of blocks that run together; kept.
    ///
    /// For sorted tiles it is the number of requested lines instead, each of which loads its
    /// sectors at once: concurrent tiles start at different times and are too far apart to share
    /// lines (tests/results/tried.md).
    pub fn x_loaded(&self, walk: Walk, target: &Target<'_>) -> Option<f64> {
        let device = target.device;
        if device.kind == Kind::Host {
            return None;
        }
        let threads = match walk {
            Walk::Sorted { .. } => return Some(self.lines(walk, target.precision)),
            Walk::Rows { threads, .. } => Some(threads),
            Walk::Entries => None,
        };
        let near = L1Caches {
            processors: (device.processors as usize).max(1),
            room: (device.near_bytes as usize / 32).max(1),
            sector_bits: (32 / target.precision.bytes()).ilog2(),
        };
        let a_nonzero =
            self.memo.get(LoadsANonzero(threads, near), || self.loads_a_nonzero(threads, near));
        Some(a_nonzero * self.pattern.nnz() as f64)
    }

    /// Estimates the 128-byte x lines that a walk requests by extrapolation from its sectors: the
    /// ratio between groups of 8 columns (a sector of f32) and of 4 (a sector of f64) is assumed to
    /// hold up to the 16 or 32 columns of a line.
    fn lines(&self, walk: Walk, precision: Precision) -> f64 {
        let sectors = self.sectors(walk);
        let (of_four, of_eight) = (sectors.of(Precision::F64), sectors.of(Precision::F32));
        let share = (of_eight / of_four.max(f64::MIN_POSITIVE)).clamp(0.5, 1.0);
        match precision {
            Precision::F64 => of_eight * share,
            Precision::F32 => of_eight * share * share,
        }
    }

    /// Simulates sectors loaded per nonzero, with `threads` threads per row, or entry by entry if
    /// `None`.
    fn loads_a_nonzero(&self, threads: Option<usize>, near: L1Caches) -> f64 {
        let (nrows, nnz) = (self.pattern.nrows(), self.pattern.nnz());
        let blocks = match threads {
            Some(threads) => nrows.div_ceil((BLOCK / threads).max(1)),
            None => nnz.div_ceil(ENTRIES_PER_BLOCK),
        };
        if nnz == 0 {
            return 0.0;
        }
        // Blocks are assigned to the processors round-robin.
        let processors = near.processors.min(blocks);
        let sets = processors * blocks.div_ceil(processors * BLOCKS);
        // Empty rows cost time, too.
        let affordable = MOST_ENTRIES as u128 * sets as u128 / nnz.max(nrows / 4) as u128;
        let sample = Sample { groups: sets, sampled: sets.min((affordable as usize).max(FEWEST)) };
        let count = |cache: &mut L1Sim, set: usize| {
            let first = set / processors * processors * BLOCKS + set % processors;
            let blocks_of_set = (0..BLOCKS).map(|i| first + i * processors).filter(|&b| b < blocks);
            cache.empty();
            let lists = blocks_of_set.flat_map(|block| self.lists(threads, block)).collect();
            let step = threads.unwrap_or(BLOCK);
            let visited = walk_side_by_side(lists, step, |c| cache.request(c >> near.sector_bits));
            [cache.loads(), visited]
        };
        // Filling a new cache takes longer than simulating a small matrix.
        let idle = self.memo.get(IdleCaches(near.room), Arc::default);
        let cache = || Borrowed::of(&idle, near.room);
        let count = |cache: &mut Borrowed<'_>, at: usize| count(&mut cache.cache, sample.pick(at));
        let [loads, visited] = sums(sample.sampled, 1, cache, count);
        loads as f64 / visited.max(1) as f64
    }

    /// Returns the columns that the threads of a block walk side by side, one list per row.
    fn lists(&self, threads: Option<usize>, block: usize) -> Vec<&[u32]> {
        let pattern = self.pattern;
        match threads {
            Some(threads) => {
                let rows = (BLOCK / threads).max(1);
                let rows = block * rows..((block + 1) * rows).min(pattern.nrows());
                rows.map(|row| pattern.row(row)).collect()
            }
            None => {
                let columns = pattern.col_idx();
                vec![
                    &columns[block * ENTRIES_PER_BLOCK
                        ..columns.len().min((block + 1) * ENTRIES_PER_BLOCK)],
                ]
            }
        }
    }
}

/// Minimum number of samples, however many entries they hold.
const FEWEST: usize = 2;

/// Walks all lists side by side, `step` columns of each at a time, until all have ended or
/// [`MOST_ENTRIES`] columns were visited; returns the number visited.
fn walk_side_by_side(mut left: Vec<&[u32]>, step: usize, mut meet: impl FnMut(u32)) -> u64 {
    left.retain(|list| !list.is_empty());
    let (mut met, mut from) = (0, 0);
    while !left.is_empty() && met < MOST_ENTRIES {
        let to = from + step;
        let mut ended = false;
        for list in &left {
            let now = &list[from..to.min(list.len())];
            now.iter().for_each(|&column| meet(column));
            met += now.len();
            ended |= list.len() <= to;
        }
        if ended {
            left.retain(|list| list.len() > to);
        }
        from = to;
    }
    met as u64
}

/// A simulated cache: a sector is evicted if it was not requested during the last `room` loads.
struct L1Sim {
    room: u32,
    /// Sectors with the time of their last request, counted in loads; each sector has two possible
    /// places, computed from its number.
    places: Vec<(u32, u32)>,
    now: u32,
    start: u32,
    /// The sector of the last request; no sector has this number after the cache was emptied.
    last: u32,
}

/// A cache that returns to the idle ones when it is dropped.
struct Borrowed<'a> {
    cache: L1Sim,
    idle: &'a Mutex<Vec<L1Sim>>,
}

impl<'a> Borrowed<'a> {
    fn of(idle: &'a Mutex<Vec<L1Sim>>, room: usize) -> Self {
        let known = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let fresh = known.filter(|cache| cache.now < u32::MAX / 2);
        Borrowed { cache: fresh.unwrap_or_else(|| L1Sim::new(room)), idle }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let places = std::mem::take(&mut self.cache.places);
        let cache = L1Sim { places, ..self.cache };
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    }
}

impl L1Sim {
    fn new(room: usize) -> Self {
        // With eight times as many places as sectors in the cache, few places hold a sector that is
        // still cached.
        let places = vec![(u32::MAX, 0); (8 * room).next_power_of_two()];
        L1Sim { room: room as u32, places, now: room as u32, start: room as u32, last: u32::MAX }
    }

    fn empty(&mut self) {
        self.now += self.room;
        self.start = self.now;
        self.last = u32::MAX;
    }

    fn request(&mut self, sector: u32) {
        // Neighbouring entries are often in the same sector.
        if std::mem::replace(&mut self.last, sector) == sector {
            return;
        }
        let mixed = u64::from(sector).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = mixed as usize & (self.places.len() - 1) & !1;
        let pair = &mut self.places[at..at + 2];
        let found = pair.iter().position(|&(other, _)| other == sector);
        let place = &mut pair[found.unwrap_or(usize::from(pair[1].1 < pair[0].1))];
        if found.is_none() || self.now - place.1 >= self.room {
            self.now += 1;
        }
        *place = (sector, self.now);
    }

    fn loads(&self) -> u64 {
        u64::from(self.now - self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Sort;
    use crate::csr::Pattern;
    use crate::device::Device;
    use crate::generate;
    use crate::workload::Workload;

    #[test]
    fn a_cache_loses_what_was_asked_for_longest_ago() {
        let mut cache = L1Sim::new(4);
        cache.empty();
        (0..4).for_each(|sector| cache.request(sector));
        (0..4).for_each(|sector| cache.request(sector));
        assert_eq!(cache.loads(), 4);
        (4..7).for_each(|sector| cache.request(sector));
        cache.request(3);
        assert_eq!(cache.loads(), 7, "3 was asked for 3 loads ago");
        cache.request(8);
        cache.request(0);
        assert_eq!(cache.loads(), 9, "0 is lost");
        cache.empty();
        cache.request(3);
        assert_eq!(cache.loads(), 1);
    }

    #[test]
    fn lists_are_walked_side_by_side() {
        let lists: Vec<&[u32]> = vec![&[1, 2, 3], &[4], &[5, 6, 7, 8, 9]];
        let mut met = Vec::new();
        assert_eq!(walk_side_by_side(lists, 2, |column| met.push(column)), 9);
        assert_eq!(met, [1, 2, 4, 5, 6, 3, 7, 8, 9]);
    }

    #[test]
    fn rows_side_by_side_load_once_what_a_row_after_the_other_loads_again() {
        let devices = Device::shipped();
        let gpu = devices.iter().find(|device| device.kind == Kind::Gpu).expect("ships");
        // Rows of 64 entries anywhere in an x that is much larger than an L1 cache.
        let csr = generate::uniform(100_000, 64, 1);
        let analysis = Analysis::of(&csr);
        let target = Workload::default().target(gpu, Precision::F64);
        let loaded = |threads| {
            let walk = Walk::Rows { threads, sort: Sort::None };
            analysis.x_loaded(walk, &target).expect("a GPU") / csr.nnz() as f64
        };
        assert!(loaded(1) < 0.75 * loaded(32), "{} {}", loaded(1), loaded(32));
        assert!(loaded(32) > 0.9 && loaded(32) <= 1.0);
        // A dense row is loaded once, one sector per four entries.
        let (row_ptr, col_idx) = ([0, 4096], (0..4096).collect::<Vec<u32>>());
        let analysis = Analysis::new(Pattern::of(1, 4096, &row_ptr, &col_idx));
        let walks = [Walk::Rows { threads: 32, sort: Sort::All }, Walk::Entries];
        assert_eq!(walks.map(|walk| analysis.x_loaded(walk, &target)), [Some(1024.0); 2]);
        // Sorted tiles load lines.
        let lines = |precision| {
            let target = Target { precision, ..target };
            analysis.x_loaded(Walk::Sorted { tile: 1024 }, &target)
        };
        assert_eq!([Precision::F64, Precision::F32].map(lines), [Some(256.0), Some(128.0)]);
        let host = devices.iter().find(|device| device.kind == Kind::Host).expect("ships");
        let target = Workload::default().target(host, Precision::F64);
        assert_eq!(analysis.x_loaded(Walk::Entries, &target), None);
    }
}
