//! Simulation of a GPU's L1 caches: the x sectors that they load when one processor works on rows
//! that are far apart.

use std::ops::Range;
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
    /// True if these caches keep all sectors of x.
    KeepsAll(L1Caches) -> bool;
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
        let blocks_of_set = |at: usize| {
            let set = sample.pick(at);
            let first = set / processors * processors * BLOCKS + set % processors;
            (0..BLOCKS).map(move |i| first + i * processors).filter(move |&b| b < blocks)
        };
        let entries_of = |at| blocks_of_set(at).map(|block| self.entries_of(threads, block));
        let all_visited = || {
            let visited = |at| entries_of(at).map(|entries| entries.len()).sum::<usize>();
            (0..sample.sampled).all(|at| visited(at) <= MOST_ENTRIES)
        };
        let [loads, visited] = if self.keeps_all(near) && all_visited() {
            // Every distinct sector is loaded once.
            let places = || Distinct::of(self.pattern.ncols(), near.sector_bits);
            sums(sample.sampled, 1, places, |distinct, at| {
                distinct.count(entries_of(at).map(|entries| &self.pattern.col_idx()[entries]))
            })
        } else {
            self.simulate(sample.sampled, near, |at, cache| {
                let lists = blocks_of_set(at).flat_map(|block| self.lists(threads, block));
                let step = threads.unwrap_or(BLOCK);
                let request = |column| cache.request(column >> near.sector_bits);
                walk_side_by_side(lists.collect(), step, request)
            })
        };
        loads as f64 / visited.max(1) as f64
    }

    /// Tells whether these caches hold every sector of x at the same time, whatever the order of
    /// requests: no three sectors share their two places.
    fn keeps_all(&self, near: L1Caches) -> bool {
        let sectors = self.pattern.ncols().div_ceil(1 << near.sector_bits);
        let find = || {
            let mut sharing = vec![0u8; places(near.room) / 2];
            (0..sectors as u32).all(|sector| {
                let sharing = &mut sharing[place_of(sector, places(near.room)) / 2];
                *sharing += 1;
                *sharing <= 2
            })
        };
        sectors <= near.room && self.memo.get(KeepsAll(near), find)
    }

    /// Sums the loads of simulated caches and the entries that `walk` visits, over `sets` sets of
    /// blocks.
    fn simulate(
        &self,
        sets: usize,
        near: L1Caches,
        walk: impl Fn(usize, &mut L1Sim) -> u64 + Sync,
    ) -> [u64; 2] {
        // Filling a new cache takes longer than simulating a small matrix.
        let idle = self.memo.get(IdleCaches(near.room), Arc::default);
        let cache = || Borrowed::of(&idle, near.room);
        sums(sets, 1, cache, |Borrowed { cache, .. }, at| {
            cache.empty();
            let visited = walk(at, cache);
            [cache.loads(), visited]
        })
    }

    /// Returns the entries that a block processes.
    fn entries_of(&self, threads: Option<usize>, block: usize) -> Range<usize> {
        let nrows = self.pattern.nrows();
        match threads {
            Some(threads) => {
                let rows = (BLOCK / threads).max(1);
                let row_ptr = self.pattern.row_ptr();
                row_ptr[block * rows]..row_ptr[((block + 1) * rows).min(nrows)]
            }
            None => {
                let end = self.pattern.nnz().min((block + 1) * ENTRIES_PER_BLOCK);
                block * ENTRIES_PER_BLOCK..end
            }
        }
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
            None => vec![&pattern.col_idx()[self.entries_of(threads, block)]],
        }
    }
}

/// Counts the distinct sectors of several sets of columns.
struct Distinct {
    /// The last set that has each sector.
    last: Vec<u32>,
    sector_bits: u32,
    /// Number of sets so far.
    sets: u32,
}

impl Distinct {
    fn of(ncols: usize, sector_bits: u32) -> Self {
        Distinct { last: vec![0; ncols.div_ceil(1 << sector_bits)], sector_bits, sets: 0 }
    }

    /// Counts the distinct sectors of the next set, and its columns.
    fn count<'a>(&mut self, columns: impl Iterator<Item = &'a [u32]>) -> [u64; 2] {
        self.sets += 1;
        let (set, last) = (self.sets, self.last.as_mut_slice());
        let (mut distinct, mut visited) = (0u32, 0);
        for columns in columns {
            for column in columns {
                let last = &mut last[(column >> self.sector_bits) as usize];
                distinct += u32::from(*last != set);
                *last = set;
            }
            visited += columns.len() as u64;
        }
        [u64::from(distinct), visited]
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

/// Returns the number of places for `room` sectors: with eight times as many, few places hold a sector
/// that is still cached.
fn places(room: usize) -> usize {
    (8 * room).next_power_of_two()
}

/// Returns the first of the two places of a sector among `places`, a power of two.
fn place_of(sector: u32, places: usize) -> usize {
    let mixed = u64::from(sector).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    mixed as usize & (places - 1) & !1
}

impl L1Sim {
    fn new(room: usize) -> Self {
        let places = vec![(u32::MAX, 0); places(room)];
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
        let at = place_of(sector, self.places.len());
        let start = self.start;
        let pair = &mut self.places[at..at + 2];
        // Places whose time is not after the start are empty.
        let found = pair.iter().position(|&(other, time)| other == sector && time > start);
        let older = || usize::from(pair[1].1.max(start) < pair[0].1.max(start));
        let place = &mut pair[found.unwrap_or_else(older)];
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
    fn a_used_cache_behaves_as_a_new_one() {
        for room in [1, 4, 16] {
            let mut used = L1Sim::new(room);
            let places = used.places.len();
            // Sectors that share their two places.
            let sharing: Vec<u32> =
                (0..).filter(|&sector| place_of(sector, places) == 0).take(5).collect();
            for seed in 0..40 {
                let random = |i: u64| sharing[crate::check::mix(1000 * seed + i) as usize % 5];
                let stream: Vec<u32> = (0..200).map(random).collect();
                let loads = |cache: &mut L1Sim| -> Vec<u64> {
                    cache.empty();
                    let load = |&sector: &u32| {
                        cache.request(sector);
                        cache.loads()
                    };
                    stream.iter().map(load).collect()
                };
                assert_eq!(loads(&mut used), loads(&mut L1Sim::new(room)), "room {room}, {seed}");
            }
        }
    }

    #[test]
    fn caches_that_keep_all_sectors_load_each_of_them_once() {
        for (class, rows) in [("heat", 3000), ("circuit", 20_000), ("rmat", 3000), ("p2", 500)] {
            let csr = generate::by_name(class, rows, 1).expect("a class");
            let analysis = Analysis::of(&csr);
            for (processors, room, sector_bits) in [(132, 8192, 2), (3, 5000, 3), (500, 8192, 3)] {
                let near = L1Caches { processors, room, sector_bits };
                assert!(analysis.keeps_all(near), "{class}");
                for threads in [Some(1), Some(4), Some(32), None] {
                    let counted = analysis.loads_a_nonzero(threads, near);
                    let simulated = Analysis::of(&csr);
                    simulated.memo.get(KeepsAll(near), || false);
                    let expected = simulated.loads_a_nonzero(threads, near);
                    assert_eq!(counted, expected, "{class}, {threads:?}, {near:?}");
                }
            }
        }
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
