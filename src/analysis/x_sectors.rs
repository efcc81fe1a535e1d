//! Sectors of x that a product requests, for each order in which formats walk the entries.

use super::row_lengths::longest_first;
use super::sampling::{EachPrecision, Sample, sums};
use super::steps::{StampedSteps, Steps, distinct, distinct_of_sorted};
use super::{Analysis, Detail, Sort, Walk, inverse, probes};
use crate::csr::Pattern;
use crate::par;
use crate::scalar::Precision;

probes! {
    /// Sectors of x that a walk requests, for this precision or for both.
    Sectors(Walk, Option<Precision>) -> EachPrecision;
    /// Sectors of x per nonzero, from a few entries.
    QuickSectors() -> EachPrecision;
}

impl Analysis<'_> {
    /// Returns the 32-byte sectors of x that one product requests: distinct sectors within a warp
    /// step, summed over all steps. Samples at most
    /// [`SAMPLED_WARPS`](super::sampling::SAMPLED_WARPS) warps, evenly spread, and fewer if they hold
    /// more than [`SAMPLED_ENTRIES`](super::sampling::SAMPLED_ENTRIES) entries; kept.
    pub fn x_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        let suits = StampedSteps::suit(self.pattern.ncols(), self.pattern.nnz());
        let alone = self.is_whole() && suits && !matches!(walk, Walk::Sorted { .. });
        self.sectors_of(walk, alone.then_some(precision)).of(precision)
    }

    /// As [`Analysis::x_sectors`], for both precisions.
    pub(crate) fn sectors(&self, walk: Walk) -> EachPrecision {
        let of = |precision| self.x_sectors(walk, precision);
        EachPrecision::new([of(Precision::F32), of(Precision::F64)])
    }

    fn sectors_of(&self, walk: Walk, only: Option<Precision>) -> EachPrecision {
        self.memo.get(Sectors(walk, only), || self.count_sectors(walk, only))
    }

    fn count_sectors(&self, walk: Walk, only: Option<Precision>) -> EachPrecision {
        let columns = self.pattern.col_idx();
        match walk {
            Walk::Entries => {
                let sample = self.sample(columns.len().div_ceil(32));
                self.sum(sample, only, |warp, i| {
                    let step = &columns[32 * i..columns.len().min(32 * i + 32)];
                    warp.requested(|warp| {
                        warp.steps.add(step.iter().copied());
                        step.len() as u64
                    })
                })
            }
            Walk::Sorted { tile } => self.sorted(tile).sectors,
            Walk::Rows { threads, sort } => match (self.detail, sort) {
                (Detail::Sampled, Sort::Window(window)) => self.sectors_of_windows(threads, window),
                (Detail::Sampled, Sort::All) => self.sectors_of_ranks(threads),
                _ => self.sectors_of_rows(threads, sort, only),
            },
        }
    }

    /// Estimates [`Analysis::x_sectors`] per nonzero, with one row per lane, within microseconds:
    /// from at most 8 steps of each of at most 16 warps, evenly spread; kept.
    pub fn x_sectors_at_sight(&self, precision: Precision) -> f64 {
        self.memo.get(QuickSectors(), || self.sample_few_sectors()).of(precision)
    }

    fn sample_few_sectors(&self) -> EachPrecision {
        let nrows = self.pattern.nrows();
        let warps = nrows.div_ceil(32);
        let sample = Sample { groups: warps, sampled: warps.min(QUICK_WARPS) };
        let of_warp = |warp: usize| {
            let rows = 32 * warp..nrows.min(32 * warp + 32);
            let lanes: Vec<&[u32]> = rows.map(|row| self.pattern.row(row)).collect();
            // Neighbouring steps share cache lines; each warp samples a different position.
            let longest = lanes.iter().map(|lane| lane.len()).max().unwrap_or(0);
            let first = (warp * QUICK_STEPS).checked_rem(longest).unwrap_or(0);
            let met = (first..longest.min(first + QUICK_STEPS)).map(|step| {
                let asked = || lanes.iter().filter_map(|lane| lane.get(step).copied());
                RequestedSectors { sectors: distinct(asked()), entries: asked().count() as u64 }
            });
            met.fold(RequestedSectors::default(), RequestedSectors::with)
        };
        let met =
            sample.picks().map(of_warp).fold(RequestedSectors::default(), RequestedSectors::with);
        let entries = met.entries.max(1) as f64;
        EachPrecision::new(met.sectors.map(|sectors| sectors as f64 / entries))
    }

    fn sectors_of_rows(
        &self,
        threads: usize,
        sort: Sort,
        only: Option<Precision>,
    ) -> EachPrecision {
        let rows = (32 / threads).max(1);
        let plainer = self.plainer_order(sort, rows);
        if plainer != sort {
            return self.sectors_of(Walk::Rows { threads, sort: plainer }, only);
        }
        let order = (sort != Sort::None).then(|| self.order(sort));
        // Only this order moves columns: in the permuted basis, neighbours have near numbers.
        let new = order.as_ref().filter(|_| sort == Sort::Rcm).map(|order| inverse(order));
        let row = |i: usize| order.as_ref().map_or(i, |order| order[i] as usize);
        let nrows = self.pattern.nrows();
        self.sum(self.sample(nrows.div_ceil(rows)), only, |warp, at| {
            let rows = at * rows..((at + 1) * rows).min(nrows);
            warp.walk(rows.map(row), threads, new.as_deref())
        })
    }

    /// Counts sectors of warps in a sample of the windows of sorted rows.
    fn sectors_of_windows(&self, threads: usize, window: usize) -> EachPrecision {
        let rows = (32 / threads).max(1);
        let warps = self.sample(self.pattern.nrows().div_ceil(rows)).sampled;
        let of_warp = |rows: &[u32]| self.sectors_of_warp(rows, threads);
        let (windows, met) =
            self.over_windows(rows, warps, window, of_warp, RequestedSectors::with);
        self.of_all(windows, met)
    }

    /// Sums `count` over slices of `rows` rows in a sample of the windows of sorted rows, about
    /// `slices` slices in total; returns the sample of windows, too.
    pub(crate) fn over_windows<R: Default + Send>(
        &self,
        rows: usize,
        slices: usize,
        window: usize,
        count: impl Fn(&[u32]) -> R + Sync,
        sum: impl Fn(R, R) -> R + Sync,
    ) -> (Sample, R) {
        let (lengths, nrows) = (self.lengths(), self.pattern.nrows());
        let groups = nrows.div_ceil(window);
        let sampled = (slices * rows / window).max(SAMPLED_WINDOWS);
        let windows = Sample { groups, sampled: groups.min(sampled) };
        let of_window = |at: usize| {
            let first = windows.pick(at) * window;
            let mut order: Vec<u32> = (first as u32..nrows.min(first + window) as u32).collect();
            longest_first(lengths, &mut order);
            let groups = order.len().div_ceil(rows);
            let sampled = groups.min(slices.div_ceil(windows.sampled));
            let within = Sample { groups, sampled };
            let slice = |at: usize| &order[at * rows..order.len().min((at + 1) * rows)];
            within.picks().map(|at| count(slice(at))).fold(R::default(), &sum)
        };
        (windows, par::reduce(windows.sampled, 1, R::default, of_window, &sum))
    }

    /// Counts sectors of a sample of the warps if all rows are sorted by length.
    fn sectors_of_ranks(&self, threads: usize) -> EachPrecision {
        let rows = (32 / threads).max(1);
        let nrows = self.pattern.nrows();
        let sample = self.sample(nrows.div_ceil(rows));
        let ranks = sample.picks().flat_map(|warp| warp * rows..((warp + 1) * rows).min(nrows));
        let lanes = self.rows_of_ranks(ranks);
        let of_warp = |warp: usize| {
            let lanes = &lanes[warp * rows..lanes.len().min((warp + 1) * rows)];
            self.sectors_of_warp(lanes, threads)
        };
        let warps = lanes.len().div_ceil(rows);
        let none = RequestedSectors::default;
        self.of_all(sample, par::reduce(warps, 32, none, of_warp, RequestedSectors::with))
    }

    /// Returns the rows at these rising positions of [`Analysis::order`] for [`Sort::All`]. One
    /// pass over the lengths.
    fn rows_of_ranks(&self, ranks: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut ranks = ranks.peekable();
        // For each rank, the position of its row among the rows of equal length.
        let mut numbers: Vec<u32> = Vec::new();
        let most = self.max_length() + 1;
        let mut next = vec![0u32; most];
        let mut wanted = vec![0..0; most];
        let mut passed = 0;
        for (length, times) in self.row_lengths().iter().rev() {
            let begin = numbers.len();
            let end = passed + times as usize;
            while let Some(rank) = ranks.next_if(|&rank| rank < end) {
                numbers.push((rank - passed) as u32);
            }
            wanted[length as usize] = begin..numbers.len();
            passed = end;
        }
        let mut rows = vec![0u32; numbers.len()];
        for (row, &length) in self.lengths().iter().enumerate() {
            let (number, wanted) = (&mut next[length as usize], &mut wanted[length as usize]);
            if wanted.start < wanted.end && numbers[wanted.start] == *number {
                rows[wanted.start] = row as u32;
                wanted.start += 1;
            }
            *number += 1;
        }
        rows
    }

    fn sectors_of_warp(&self, rows: &[u32], threads: usize) -> RequestedSectors {
        let mut warp = Warp { pattern: self.pattern, steps: Steps::few(), lanes: Vec::new() };
        warp.walk(rows.iter().map(|&row| row as usize), threads, None)
    }

    /// Sums `count(warp, group)` over a sample of groups.
    fn sum(
        &self,
        sample: Sample,
        only: Option<Precision>,
        count: impl Fn(&mut Warp<'_>, usize) -> RequestedSectors + Sync,
    ) -> EachPrecision {
        let pattern = self.pattern;
        let warp = || {
            let steps = Steps::of(pattern.ncols(), only);
            Warp { pattern, steps, lanes: Vec::new() }
        };
        let count = |warp: &mut Warp<'_>, at: usize| {
            let RequestedSectors { sectors: [f32, f64], entries } = count(warp, sample.pick(at));
            [f32, f64, entries]
        };
        let [f32, f64, entries] = sums(sample.sampled, FEWEST_GROUPS, warp, count);
        self.of_all(sample, RequestedSectors { sectors: [f32, f64], entries })
    }

    fn of_all(&self, sample: Sample, met: RequestedSectors) -> EachPrecision {
        self.detail.sectors(sample, self.pattern.nnz(), met.sectors, met.entries)
    }
}

impl Detail {
    /// Extrapolates the sectors that `entries` entries of this sample request to all `nnz` entries.
    pub fn sectors(
        self,
        sample: Sample,
        nnz: usize,
        sectors: [u64; 2],
        entries: u64,
    ) -> EachPrecision {
        match self {
            Detail::Whole => sample.scaled(sectors),
            // Scale by entries, not by groups: one long row more or less in a small sample says
            // little.
            Detail::Sampled => {
                let share = nnz as f64 / entries.max(1) as f64;
                EachPrecision::new(sectors.map(|sectors| share * sectors as f64))
            }
        }
    }
}

/// Requested sectors of f32 and of f64, and the entries that requested them.
#[derive(Clone, Copy, Default)]
struct RequestedSectors {
    sectors: [u64; 2],
    entries: u64,
}

impl RequestedSectors {
    fn with(self, other: RequestedSectors) -> RequestedSectors {
        RequestedSectors {
            sectors: add(self.sectors, other.sectors),
            entries: self.entries + other.entries,
        }
    }
}

/// The walks of a warp.
struct Warp<'a> {
    pattern: Pattern<'a>,
    steps: Steps,
    /// Rows that have not ended; the memory is reused.
    lanes: Vec<&'a [u32]>,
}

impl Warp<'_> {
    /// Returns the sectors that `walk` requests, and the entries that it returns.
    fn requested(&mut self, walk: impl FnOnce(&mut Self) -> u64) -> RequestedSectors {
        let before = self.steps.sectors();
        let entries = walk(self);
        let after = self.steps.sectors();
        RequestedSectors { sectors: [0, 1].map(|i| after[i] - before[i]), entries }
    }

    /// Walks these rows side by side, `threads` entries of each in a step; `new[old]` gives the new
    /// number of each column, if they have any.
    fn walk(
        &mut self,
        rows: impl Iterator<Item = usize>,
        threads: usize,
        new: Option<&[u32]>,
    ) -> RequestedSectors {
        let pattern = self.pattern;
        self.lanes.clear();
        self.lanes.extend(rows.map(|row| pattern.row(row)).filter(|row| !row.is_empty()));
        let mut alone = [0; 2];
        let mut met = self.requested(|warp| {
            let entries = warp.lanes.iter().map(|lane| lane.len() as u64).sum();
            alone = match new {
                None => warp.step_together(threads, true, |c| c),
                Some(new) => warp.step_together(threads, false, |c| new[c as usize]),
            };
            entries
        });
        met.sectors = add(met.sectors, alone);
        met
    }

    /// Steps through the lanes; returns the sectors of the longest one after all others have ended,
    /// where they can be counted without a table. `rising` tells whether the columns of a row rise.
    fn step_together(
        &mut self,
        threads: usize,
        rising: bool,
        column: impl Fn(u32) -> u32,
    ) -> [u64; 2] {
        let (steps, lanes) = (&mut self.steps, &mut self.lanes);
        let mut from = 0;
        while let Some(least) = lanes.iter().map(|lane| lane.len()).min() {
            match lanes.as_slice() {
                // A step of one entry requests one sector.
                [lane] if threads == 1 => return [(lane.len() - from) as u64; 2],
                [lane] if rising => {
                    let alone = lane[from..].chunks(threads).map(distinct_of_sorted);
                    return alone.fold([0; 2], add);
                }
                _ => {}
            }
            while from < least {
                let to = from + threads;
                match threads {
                    1 => steps.add(lanes.iter().map(|lane| column(lane[from]))),
                    _ => {
                        let step = lanes.iter().flat_map(|lane| &lane[from..lane.len().min(to)]);
                        steps.add(step.map(|&c| column(c)));
                    }
                }
                from = to;
            }
            lanes.retain(|lane| lane.len() > from);
        }
        [0; 2]
    }
}

/// Minimum number of sampled groups per thread.
const FEWEST_GROUPS: usize = 16;

/// Maximum number of warps that [`Analysis::x_sectors_at_sight`] samples, and of steps of each.
const QUICK_WARPS: usize = 16;
const QUICK_STEPS: usize = 8;

/// Maximum number of sampled windows of sorted rows.
const SAMPLED_WINDOWS: usize = 32;

fn add(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn rows_are_found_by_their_rank() {
        let csr = generate::by_name("power_law", 2000, 1).expect("a class");
        let analysis = Analysis::of(&csr);
        let order = analysis.order(Sort::All);
        let ranks = [0, 1, 2, 700, 701, 1500, 1998, 1999];
        assert_eq!(analysis.rows_of_ranks(ranks.into_iter()), ranks.map(|rank| order[rank]));
    }
}
