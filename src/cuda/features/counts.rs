//! The counts that the kernels leave, and the summary of the matrix that follows from them.

use ellect_kernels::shared;

use super::plan::{BINS, COUNTS, CountPlan};
use crate::analysis::{Classes, Detail, EachPrecision, Histogram, all_diagonals, over_all};
use crate::features::{ColumnFill, DIAGONAL_HACKS, FeatureCounts, HackCounts, SIDES};
use crate::format::{Matrix, block_fill};

impl CountPlan {
    /// Tells whether the second read is needed: the last column class in `found` is not empty.
    pub fn has_more(found: &[u64]) -> bool {
        matches!(found, [.., reached, _] if *reached > 0)
    }

    /// Computes the counts behind the features; `None` if an array was too small.
    pub fn summary(&self, found: &[u64]) -> Option<FeatureCounts> {
        let counts = Counts::of(found);
        let CountPlan { matrix, samples, .. } = self;
        let Matrix { nrows, ncols, nnz, .. } = *matrix;
        let [of_32, of_256, [entries, sectors], sides @ ..] = counts.groups;
        let hacks = HackCounts { entries: of_32[0], ..counts.hacks };
        let diagonals = match samples.detail {
            Detail::Whole => counts.met[0],
            Detail::Sampled => all_diagonals(nrows + ncols, counts.met),
        };
        let hack_diagonals = |i: usize, [entries, distinct]: [u64; 2]| {
            // A single hack spans the whole matrix.
            if nrows <= DIAGONAL_HACKS[i] { diagonals } else { over_all(distinct, entries, nnz) }
        };
        let blocks = |i: usize| block_fill(SIDES[i], sides[i]);
        let summary = || FeatureCounts {
            nrows: nrows as f64,
            ncols: ncols as f64,
            nnz: nnz as f64,
            rows: self.row_lengths(found, counts.long_rows),
            columns: self.columns(found),
            longest: counts.longest,
            sorted_longest: counts.sorted_longest,
            hacks: hacks.over_all(samples.hacks[0], nnz),
            diagonals,
            hack_diagonals: [hack_diagonals(0, of_32), hack_diagonals(1, of_256)],
            sectors: samples.detail.sectors(samples.warps, nnz, counts.sectors, counts.of_warps),
            loads: EachPrecision::of_loads([counts.pairs, sectors, entries]),
            block_fill: [0, 1, 2, 3, 4].map(blocks),
            symmetry: samples.mirrors.share(counts.mirrored),
        };
        (counts.full == 0).then(summary)
    }

    fn row_lengths(&self, found: &[u64], long: u64) -> Histogram {
        let words: &[u32] = bytemuck::cast_slice(found);
        let list = |at: u64, len: u64| &words[at as usize / 4..][..len as usize];
        let longer = list(self.places.longer, long).to_vec();
        Histogram::of_bins(list(8 * COUNTS, BINS), longer)
    }

    fn columns(&self, found: &[u64]) -> ColumnFill {
        let classes = found[self.places.classes as usize / 8..].chunks_exact(2);
        let reached = classes.clone().skip(1).map(|class| class[0]).take_while(|&n| n > 0);
        let reached: Vec<u64> = std::iter::once(self.matrix.ncols as u64).chain(reached).collect();
        match self.samples.detail {
            Detail::Whole => {
                let more = reached.iter().skip(1).chain([&0]);
                let bins = reached.iter().zip(more).map(|(reached, more)| (reached - more) as u32);
                ColumnFill::Counted(Histogram::of_bins(&bins.collect::<Vec<_>>(), Vec::new()))
            }
            Detail::Sampled => {
                let entries: Vec<u64> = classes.take(reached.len()).map(|class| class[1]).collect();
                ColumnFill::Sampled(Classes::of(self.matrix.nnz, &reached, &entries))
            }
        }
    }
}

/// Counts of the kernels, each from its position in `layout.cuh`.
struct Counts {
    longest: [u64; 4],
    sorted_longest: [u64; 2],
    long_rows: u64,
    mirrored: u64,
    sectors: [u64; 2],
    of_warps: u64,
    /// For each of `CountSamples::groups`: entries, and distinct keys among them.
    groups: [[u64; 2]; 8],
    pairs: u64,
    met: [u64; 3],
    /// All fields except `entries`.
    hacks: HackCounts,
    full: u64,
}

impl Counts {
    fn of(found: &[u64]) -> Self {
        let one = |at: u64| found[at as usize];
        let [f32_sectors, f64_sectors, of_warps] = several(found, const { shared("sectors_at") });
        let groups: [u64; 16] = several(found, const { shared("groups_at") });
        let [near, nearer] = several(found, const { shared("near_at") });
        Counts {
            longest: several(found, const { shared("longest_at") }),
            sorted_longest: several(found, const { shared("sorted_at") }),
            long_rows: one(const { shared("long_rows_at") }),
            mirrored: one(const { shared("mirrored_at") }),
            sectors: [f32_sectors, f64_sectors],
            of_warps,
            groups: std::array::from_fn(|kind| [groups[2 * kind], groups[2 * kind + 1]]),
            pairs: one(const { shared("pairs_at") }),
            met: several(found, const { shared("met_at") }),
            hacks: HackCounts {
                profile: one(const { shared("profile_at") }),
                span_sum: one(const { shared("span_sum_at") }),
                spans_narrow: one(const { shared("narrow_at") }),
                inside: [nearer, near],
                entries: 0,
                bandwidth: one(const { shared("bandwidth_at") }),
                span_max: one(const { shared("span_max_at") }),
            },
            full: one(const { shared("full_at") }),
        }
    }
}

/// Returns `N` counts from position `at` on.
fn several<const N: usize>(found: &[u64], at: u64) -> [u64; N] {
    std::array::from_fn(|i| found[at as usize + i])
}
