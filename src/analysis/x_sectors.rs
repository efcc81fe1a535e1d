//! Sectors of x that a product requests, for each order in which formats walk the entries.

use super::row_lengths::longest_first;
use super::sampling::{EachPrecision, SAMPLED_TILES, Sample};
use super::steps::{Steps, distinct, distinct_of_sorted, sorted};
use super::{Analysis, Detail, Sort, Walk, inverse, probes};
use crate::par;
use crate::scalar::Precision;

probes! {
    /// Sectors of x that a walk requests.
    Sectors(Walk) -> EachPrecision;
    /// Sectors of x per nonzero, from a few entries.
    QuickSectors() -> EachPrecision;
    /// Sectors and column spans of sorted tiles of this many entries.
    SortedSectors(usize) -> TileStatistics;
}

impl Analysis<'_> {
    /// Returns the 32-byte sectors of x that one product requests: distinct sectors within a warp
    /// step, summed over all steps. Samples at most
    /// [`SAMPLED_WARPS`](super::sampling::SAMPLED_WARPS) warps, evenly spread, and fewer if they hold
    /// more than [`SAMPLED_ENTRIES`](super::sampling::SAMPLED_ENTRIES) entries; kept.
    pub fn x_sectors(&self, walk: Walk, precision: Precision) -> f64 {
        self.sectors(walk).of(precision)
    }

    /// As [`Analysis::x_sectors`], for both precisions.
    pub(crate) fn sectors(&self, walk: Walk) -> EachPrecision {
        self.memo.get(Sectors(walk), || self.count_sectors(walk))
    }

    fn count_sectors(&self, walk: Walk) -> EachPrecision {
        let columns = self.pattern.col_idx();
        match walk {
            Walk::Entries => self.sum(self.sample(columns.len().div_ceil(32)), |i| {
                let step = &columns[32 * i..columns.len().min(32 * i + 32)];
                RequestedSectors {
                    sectors: distinct(step.iter().copied()),
                    entries: step.len() as u64,
                }
            }),
            Walk::Sorted { tile } => self.sorted(tile).sectors,
            Walk::Rows { threads, sort } => match (self.detail, sort) {
                (Detail::Sampled, Sort::Window(window)) => self.sectors_of_windows(threads, window),
                (Detail::Sampled, Sort::All) => self.sectors_of_ranks(threads),
                _ => self.sectors_of_rows(threads, sort),
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

    /// Returns a histogram of column spans in sorted tiles of `tile` entries: for b in 0..=32, the
    /// number of groups of [`REACH_OF`] sorted entries whose widest span of [`REACH`] entries needs
    /// b bits. Sampled as in [`Analysis::x_sectors`]; kept.
    pub(crate) fn sorted_spans(&self, tile: usize) -> [u64; 33] {
        self.sorted(tile).spans
    }

    fn sorted(&self, tile: usize) -> TileStatistics {
        self.memo.get(SortedSectors(tile), || self.count_sorted(tile))
    }

    fn count_sorted(&self, size: usize) -> TileStatistics {
        let columns = self.pattern.col_idx();
        let groups = columns.len().div_ceil(size);
        let most = match self.detail {
            Detail::Whole => SAMPLED_TILES,
            Detail::Sampled => SAMPLED_TILES * 512 / size,
        };
        let sample = Sample { groups, sampled: groups.min(most) };
        let of_tile = |at: usize| {
            let i = sample.pick(at);
            let tile = sorted(&columns[size * i..columns.len().min(size * (i + 1))]);
            let sectors = tile.chunks(32).map(distinct_of_sorted).fold([0; 2], add);
            let met = RequestedSectors { sectors, entries: tile.len() as u64 };
            (met, spans(&tile, 0))
        };
        let sum = |a: SpanBits, b: SpanBits| std::array::from_fn(|i| a[i] + b[i]);
        let none = || (RequestedSectors::default(), [0; 33]);
        let (met, mut spans_met) =
            par::reduce(sample.sampled, FEWEST_GROUPS, none, of_tile, |a, b| {
                (a.0.with(b.0), sum(a.1, b.1))
            });
        if self.detail == Detail::Whole {
            // Formats compute the size of their layout from these spans, so they must be exact.
            let tiles = self.tiles(size);
            let of_tile = |t: usize| {
                let columns = &columns[tiles.entries[t]..tiles.entries[t + 1]];
                spans(&sorted(columns), size / REACH_OF)
            };
            let count = tiles.entries.len() - 1;
            spans_met = par::reduce(count, FEWEST_GROUPS, || [0; 33], of_tile, sum);
        }
        TileStatistics { sectors: self.of_all(sample, met), spans: spans_met }
    }

    fn sectors_of_rows(&self, threads: usize, sort: Sort) -> EachPrecision {
        let rows = (32 / threads).max(1);
        let order = (sort != Sort::None).then(|| self.order(sort));
        // Only this order moves columns: in the permuted basis, neighbours have near numbers.
        let new = order.as_ref().filter(|_| sort == Sort::Rcm).map(|order| inverse(order));
        let column = |c: u32| new.as_ref().map_or(c, |new| new[c as usize]);
        let row = |i: usize| order.as_ref().map_or(i, |order| order[i] as usize);
        let nrows = self.pattern.nrows();
        self.sum(self.sample(nrows.div_ceil(rows)), |warp| {
            let lanes = warp * rows..((warp + 1) * rows).min(nrows);
            self.sectors_of_warp(lanes.map(row), threads, column)
        })
    }

    /// Counts sectors of warps in a sample of the windows of sorted rows.
    fn sectors_of_windows(&self, threads: usize, window: usize) -> EachPrecision {
        let rows = (32 / threads).max(1);
        let warps = self.sample(self.pattern.nrows().div_ceil(rows)).sampled;
        let of_warp = |lanes: &[u32]| {
            self.sectors_of_warp(lanes.iter().map(|&row| row as usize), threads, |c| c)
        };
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
            self.sectors_of_warp(lanes.iter().map(|&row| row as usize), threads, |c| c)
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

    fn sectors_of_warp(
        &self,
        rows: impl Iterator<Item = usize>,
        threads: usize,
        column: impl Fn(u32) -> u32,
    ) -> RequestedSectors {
        let lanes = rows.map(|row| self.pattern.row(row)).filter(|row| !row.is_empty());
        let mut lanes: Vec<&[u32]> = lanes.collect();
        let entries = lanes.iter().map(|lane| lane.len() as u64).sum();
        let shortest = |lanes: &[&[u32]]| lanes.iter().map(|lane| lane.len()).min().unwrap_or(0);
        let mut steps = Steps::default();
        let (mut alone, mut from, mut least) = (0, 0, shortest(&lanes));
        while !lanes.is_empty() {
            if let ([lane], 1) = (lanes.as_slice(), threads) {
                // A lane that is alone requests one sector per entry.
                alone = (lane.len() - from) as u64;
                break;
            }
            let to = from + threads;
            match threads {
                1 => steps.add(lanes.iter().map(|lane| column(lane[from]))),
                _ => {
                    let step = lanes.iter().flat_map(|lane| &lane[from..lane.len().min(to)]);
                    steps.add(step.map(|&c| column(c)));
                }
            }
            if least <= to {
                lanes.retain(|lane| lane.len() > to);
                least = shortest(&lanes);
            }
            from = to;
        }
        RequestedSectors { sectors: steps.sectors.map(|met| met + alone), entries }
    }

    fn sum(
        &self,
        sample: Sample,
        count: impl Fn(usize) -> RequestedSectors + Sync + Send,
    ) -> EachPrecision {
        let none = RequestedSectors::default;
        let count = |at: usize| count(sample.pick(at));
        let met = par::reduce(sample.sampled, FEWEST_GROUPS, none, count, RequestedSectors::with);
        self.of_all(sample, met)
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

/// Sectors and column spans of sorted tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileStatistics {
    sectors: EachPrecision,
    spans: SpanBits,
}

/// Histogram of column spans by the number of bits that they need.
type SpanBits = [u64; 33];

/// Computes the histogram of spans of these sorted columns; pads it with empty groups up to
/// `fewest` groups of [`REACH_OF`] entries.
fn spans(sorted: &[u32], fewest: usize) -> SpanBits {
    let mut times = [0; 33];
    for many in sorted.chunks(REACH_OF) {
        let reach = many.chunks(REACH).map(|some| some[some.len() - 1] - some[0]).max();
        times[(u32::BITS - reach.unwrap_or(0).leading_zeros()) as usize] += 1;
    }
    times[0] += fewest.saturating_sub(sorted.len().div_ceil(REACH_OF)) as u64;
    times
}

/// Sorted entries whose columns share one base column, and sorted entries per group.
pub(crate) const REACH: usize = 64;
pub(crate) const REACH_OF: usize = 4 * REACH;

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
