//! Sectors of x that the nearest caches of a GPU load, where rows that are far from each other are
//! walked side by side.

use rayon::prelude::*;

use super::sample::Sample;
use super::{Structure, Walk, probes};
use crate::device::Kind;
use crate::scalar::Precision;
use crate::target::Target;

/// Threads of a block, and blocks that a processor works on at a time.
const BLOCK: usize = 256;
const BLOCKS: usize = 8;

/// Entries that a block has in hand where they are walked one after the other.
const IN_HAND: usize = 4 * BLOCK;

/// About the most entries that are looked at.
const LOOKED_AT: usize = 1 << 16;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Near {
    /// Processors of the GPU.
    processors: usize,
    /// Sectors that the nearest cache of each holds.
    room: usize,
    /// Elements of x in a sector.
    per_sector: u32,
}

probes! {
    /// Sectors loaded for each nonzero, by threads a row (none: entry by entry).
    LoadsANonzero(Option<usize>, Near) -> f64;
}

impl Structure<'_> {
    /// 32-byte sectors of x that the nearest caches of a GPU load in one product; `None` on hosts,
    /// which walk a row after the other. A processor works on several blocks of threads, far from
    /// each other in the matrix, and all their threads go on step by step: what rows side by side
    /// ask for in about the same step is loaded once. Rows are taken in the matrix's own order.
    /// Simulated for a sample of what processors have in hand at a time; kept. Of sorted tiles it is
    /// the lines that they ask for, each of which brings its sectors at once: tiles side by side begin
    /// at different times, and are too far apart to share them (tests/results/tried.md).
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
        let near = Near {
            processors: (device.processors as usize).max(1),
            room: (device.near_bytes as usize / 32).max(1),
            per_sector: 32 / target.precision.bytes() as u32,
        };
        let a_nonzero =
            self.memo.get(LoadsANonzero(threads, near), || self.loads_a_nonzero(threads, near));
        Some(a_nonzero * self.pattern.nnz() as f64)
    }

    /// 128-byte lines of x that a walk asks for, reckoned from its sectors: as their number falls from
    /// 4 columns to 8 (a sector of f64 and one of f32), it goes on to fall to a line's 16 or 32.
    fn lines(&self, walk: Walk, precision: Precision) -> f64 {
        let sectors = self.sectors(walk);
        let (of_four, of_eight) = (sectors.of(Precision::F64), sectors.of(Precision::F32));
        let share = (of_eight / of_four.max(f64::MIN_POSITIVE)).clamp(0.5, 1.0);
        match precision {
            Precision::F64 => of_eight * share,
            Precision::F32 => of_eight * share * share,
        }
    }

    /// With so many threads a row; without, entry by entry.
    fn loads_a_nonzero(&self, threads: Option<usize>, near: Near) -> f64 {
        let (nrows, nnz) = (self.pattern.nrows(), self.pattern.nnz());
        let blocks = match threads {
            Some(threads) => nrows.div_ceil((BLOCK / threads).max(1)),
            None => nnz.div_ceil(IN_HAND),
        };
        if nnz == 0 {
            return 0.0;
        }
        // Blocks go to the processors in turn.
        let processors = near.processors.min(blocks);
        let hands = processors * blocks.div_ceil(processors * BLOCKS);
        // Empty rows take their time too.
        let affordable = LOOKED_AT as u128 * hands as u128 / nnz.max(nrows / 4) as u128;
        let sample =
            Sample { groups: hands, looked_at: hands.min((affordable as usize).max(FEWEST)) };
        let count = |cache: &mut Cache, hand: usize| {
            let first = hand / processors * processors * BLOCKS + hand % processors;
            let in_hand = (0..BLOCKS).map(|i| first + i * processors).filter(|&b| b < blocks);
            cache.empty();
            let lists = in_hand.flat_map(|block| self.lists(threads, block)).collect();
            let step = threads.unwrap_or(BLOCK);
            let looked_at = abreast(lists, step, |c| cache.ask(c / near.per_sector));
            [cache.loads(), looked_at]
        };
        let [loads, looked_at] = sample
            .par_picks()
            .with_min_len(sample.looked_at.div_ceil(rayon::current_num_threads()))
            .map_init(|| Cache::new(near.room), count)
            .reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        loads as f64 / looked_at.max(1) as f64
    }

    /// The columns that the threads of a block walk over side by side.
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
                vec![&columns[block * IN_HAND..columns.len().min((block + 1) * IN_HAND)]]
            }
        }
    }
}

/// The fewest samples, however many entries they hold.
const FEWEST: usize = 2;

/// Goes through all lists side by side, so many columns of each at a time, until all have ended or
/// [`LOOKED_AT`] were met; tells how many.
fn abreast(mut left: Vec<&[u32]>, step: usize, mut meet: impl FnMut(u32)) -> u64 {
    let mut met = 0;
    while !left.is_empty() && met < LOOKED_AT {
        for list in &mut left {
            let (now, rest) = list.split_at(step.min(list.len()));
            now.iter().for_each(|&column| meet(column));
            met += now.len();
            *list = rest;
        }
        left.retain(|list| !list.is_empty());
    }
    met as u64
}

/// A cache of sectors that loses what was not asked for during as many loads as it has room for.
struct Cache {
    room: u32,
    /// Sectors and when each was last asked for, in loads, each at one of two places that its
    /// number says.
    places: Vec<(u32, u32)>,
    now: u32,
    start: u32,
}

impl Cache {
    fn new(room: usize) -> Self {
        // Few of so many places hold what is not lost yet.
        let places = vec![(u32::MAX, 0); (8 * room).next_power_of_two()];
        Cache { room: room as u32, places, now: room as u32, start: room as u32 }
    }

    fn empty(&mut self) {
        self.now += self.room;
        self.start = self.now;
    }

    fn ask(&mut self, sector: u32) {
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
    use crate::csr::Pattern;
    use crate::device::Device;
    use crate::generate;
    use crate::structure::Sort;
    use crate::workload::Workload;

    #[test]
    fn a_cache_loses_what_was_asked_for_longest_ago() {
        let mut cache = Cache::new(4);
        cache.empty();
        (0..4).for_each(|sector| cache.ask(sector));
        (0..4).for_each(|sector| cache.ask(sector));
        assert_eq!(cache.loads(), 4);
        (4..7).for_each(|sector| cache.ask(sector));
        cache.ask(3);
        assert_eq!(cache.loads(), 7, "3 was asked for 3 loads ago");
        cache.ask(8);
        cache.ask(0);
        assert_eq!(cache.loads(), 9, "0 is lost");
        cache.empty();
        cache.ask(3);
        assert_eq!(cache.loads(), 1);
    }

    #[test]
    fn lists_are_walked_side_by_side() {
        let lists: Vec<&[u32]> = vec![&[1, 2, 3], &[4], &[5, 6, 7, 8, 9]];
        let mut met = Vec::new();
        assert_eq!(abreast(lists, 2, |column| met.push(column)), 9);
        assert_eq!(met, [1, 2, 4, 5, 6, 3, 7, 8, 9]);
    }

    #[test]
    fn rows_side_by_side_load_once_what_a_row_after_the_other_loads_again() {
        let devices = Device::shipped();
        let gpu = devices.iter().find(|device| device.kind == Kind::Gpu).expect("ships");
        // Rows of 64 entries all over an x much larger than a nearest cache.
        let csr = generate::uniform(100_000, 64, 1);
        let structure = Structure::of(&csr);
        let target = Workload::default().target(gpu);
        let loaded = |threads| {
            let walk = Walk::Rows { threads, sort: Sort::None };
            structure.x_loaded(walk, &target).expect("a GPU") / csr.nnz() as f64
        };
        assert!(loaded(1) < 0.75 * loaded(32), "{} {}", loaded(1), loaded(32));
        assert!(loaded(32) > 0.9 && loaded(32) <= 1.0);
        // A dense row is loaded once, a sector of four.
        let (row_ptr, col_idx) = ([0, 4096], (0..4096).collect::<Vec<u32>>());
        let structure = Structure::new(Pattern::of(1, 4096, &row_ptr, &col_idx));
        let walks = [Walk::Rows { threads: 32, sort: Sort::All }, Walk::Entries];
        assert_eq!(walks.map(|walk| structure.x_loaded(walk, &target)), [Some(1024.0); 2]);
        // Sorted tiles load lines.
        let lines = |precision| {
            let target = Target { precision, ..target };
            structure.x_loaded(Walk::Sorted { tile: 1024 }, &target)
        };
        assert_eq!([Precision::F64, Precision::F32].map(lines), [Some(256.0), Some(128.0)]);
        let host = devices.iter().find(|device| device.kind == Kind::Host).expect("ships");
        let target = Workload::default().target(host);
        assert_eq!(structure.x_loaded(Walk::Entries, &target), None);
    }
}
