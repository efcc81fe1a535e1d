//! Tiles of entries in rising order of columns: the sectors of x that their steps request, and the
//! spans of their columns.
//!
//! Both depend on few of the sorted columns, so most tiles are not sorted: their entries are counted
//! for each sector or column.

use super::sampling::{EachPrecision, PER_SECTOR, SAMPLED_TILES, Sample, sums};
use super::steps::distinct_of_sorted;
use super::{Analysis, Detail, probes};

probes! {
    /// Sectors and column spans of sorted tiles of this many entries.
    SortedTiles(usize) -> TileStatistics;
}

/// Sectors and column spans of sorted tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileStatistics {
    pub sectors: EachPrecision,
    spans: SpanBits,
}

/// Histogram of column spans by the number of bits that they need.
type SpanBits = [u64; BITS];

/// Numbers of bits that a span may need: 0 to 32.
const BITS: usize = 33;

/// Sorted entries whose columns share one base column, and sorted entries per group.
pub(crate) const REACH: usize = 64;
pub(crate) const REACH_OF: usize = 4 * REACH;

/// Sorted entries that a warp processes in one step.
const STEP: usize = 32;

/// Minimum number of tiles per thread.
const FEWEST_TILES: usize = 16;

impl Analysis<'_> {
    /// Returns a histogram of column spans in sorted tiles of `tile` entries: for b in 0..=32, the
    /// number of groups of [`REACH_OF`] sorted entries whose widest span of [`REACH`] entries needs
    /// b bits. Sampled as in [`Analysis::x_sectors`]; kept.
    pub(crate) fn sorted_spans(&self, tile: usize) -> [u64; 33] {
        self.sorted(tile).spans
    }

    pub(super) fn sorted(&self, tile: usize) -> TileStatistics {
        self.memo.get(SortedTiles(tile), || self.count_sorted(tile))
    }

    fn count_sorted(&self, size: usize) -> TileStatistics {
        let columns = self.pattern.col_idx();
        let groups = columns.len().div_ceil(size);
        let most = match self.detail {
            Detail::Whole => SAMPLED_TILES,
            Detail::Sampled => SAMPLED_TILES * 512 / size,
        };
        let sample = Sample { groups, sampled: groups.min(most) };
        let count = |counts: &mut Counts, at: usize| {
            let i = sample.pick(at);
            let mut tile = &columns[size * i..columns.len().min(size * (i + 1))];
            let mut met = [0; 3 + BITS];
            let mut sorted = Vec::new();
            if self.detail == Detail::Sampled {
                // Sorted columns are quick to sort again.
                let (first, last) = reach(tile);
                if is_wide(first, last, tile.len()) {
                    sorted.extend_from_slice(tile);
                    sorted.sort_unstable();
                    tile = &sorted;
                }
                met[3..].copy_from_slice(&counts.spans(tile, 0));
            }
            met[..2].copy_from_slice(&counts.sectors(tile));
            met[2] = tile.len() as u64;
            met
        };
        let [f32, f64, met, spans @ ..] =
            sums(sample.sampled, FEWEST_TILES, Counts::default, count);
        let spans = match self.detail {
            Detail::Sampled => spans,
            Detail::Whole => {
                // Formats compute the size of their layout from these spans, so they must be exact.
                let tiles = self.tiles(size);
                sums(tiles.entries.len() - 1, FEWEST_TILES, Counts::default, |counts, t| {
                    let columns = &columns[tiles.entries[t]..tiles.entries[t + 1]];
                    counts.spans(columns, size / REACH_OF)
                })
            }
        };
        let sectors = self.detail.sectors(sample, self.pattern.nnz(), [f32, f64], met);
        TileStatistics { sectors, spans }
    }
}

/// Entries are counted if their columns span at most this many times their number.
const MOST_SPAN: usize = 32;

/// Counted columns start and end at multiples of this number: those of a sector of f32.
const ALIGNED: u32 = 2 * PER_SECTOR;

/// Numbers of entries of the sectors or columns of a tile; the memory is reused.
#[derive(Default)]
struct Counts {
    of_each: Vec<u32>,
    sorted: Vec<u32>,
}

impl Counts {
    /// Counts these columns in groups of `EACH` neighbours, from a multiple of [`ALIGNED`] on, which it
    /// returns with the counts of a multiple of [`ALIGNED`] columns; `None` if they are too far apart.
    fn count<const EACH: u32>(&mut self, columns: &[u32]) -> Option<(u32, &[u32])> {
        let (first, last) = reach(columns);
        if is_wide(first, last, columns.len()) {
            return None;
        }
        let from = first / ALIGNED * ALIGNED;
        let counted = ((last - from) / ALIGNED + 1) * (ALIGNED / EACH);
        self.of_each.clear();
        self.of_each.resize(counted as usize, 0);
        let of_each = self.of_each.as_mut_slice();
        columns.iter().for_each(|column| of_each[((column - from) / EACH) as usize] += 1);
        Some((from, of_each))
    }

    /// Returns the columns in rising order.
    fn sort(&mut self, columns: &[u32]) -> &[u32] {
        self.sorted.clear();
        self.sorted.extend_from_slice(columns);
        self.sorted.sort_unstable();
        &self.sorted
    }

    /// Counts the sectors of f32 and of f64 that the steps of a tile request if its columns rise.
    fn sectors(&mut self, columns: &[u32]) -> [u64; 2] {
        let Some((_, of_sectors)) = self.count::<PER_SECTOR>(columns) else {
            let steps = self.sort(columns).chunks(STEP).map(distinct_of_sorted);
            return steps.fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        };
        let (pairs, _) = of_sectors.as_chunks::<2>();
        let (mut sectors, mut first) = ([0; 2], 0);
        for &[one, other] in pairs {
            let (middle, end) = (first + one, first + one + other);
            sectors[0] += steps_of(first, end);
            sectors[1] += steps_of(first, middle) + steps_of(middle, end);
            first = end;
        }
        sectors.map(u64::from)
    }

    /// Computes the histogram of spans of these columns in rising order; pads it with empty groups up
    /// to `fewest` groups of [`REACH_OF`] entries.
    fn spans(&mut self, columns: &[u32], fewest: usize) -> SpanBits {
        let mut spans = Spans::default();
        match self.count::<1>(columns) {
            Some((first, of_columns)) => {
                let ranks = ends_of_reaches(columns.len());
                columns_of_ranks(first, of_columns, ranks, |column| spans.end(column));
            }
            None => {
                let sorted = self.sort(columns);
                ends_of_reaches(columns.len()).for_each(|rank| spans.end(sorted[rank]));
            }
        }
        spans.histogram(fewest)
    }
}

/// Returns the first and the last of these columns.
fn reach(columns: &[u32]) -> (u32, u32) {
    columns.iter().fold((u32::MAX, 0), |(a, b), &column| (a.min(column), b.max(column)))
}

/// Tells whether this number of columns, from `first` to `last`, are too far apart for counting, or none.
fn is_wide(first: u32, last: u32, len: usize) -> bool {
    last.saturating_sub(first) as usize >= MOST_SPAN * len
}

/// Returns the number of steps that process some of the entries `first..end`.
fn steps_of(first: u32, end: u32) -> u32 {
    let step = STEP as u32;
    if first < end { (end - 1) / step - first / step + 1 } else { 0 }
}

/// Returns the rank of the first and of the last entry of every [`REACH`] sorted entries.
fn ends_of_reaches(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(REACH).flat_map(move |first| [first, len.min(first + REACH) - 1])
}

/// Calls `found` with the column of each of these rising ranks; `of_columns` are the numbers of entries
/// of the columns from `first` on.
fn columns_of_ranks(
    first: u32,
    of_columns: &[u32],
    ranks: impl Iterator<Item = usize>,
    mut found: impl FnMut(u32),
) {
    let mut ranks = ranks.map(|rank| rank as u32).peekable();
    let mut passed = 0;
    let (many, _) = of_columns.as_chunks::<{ ALIGNED as usize }>();
    for (column, many) in (first..).step_by(ALIGNED as usize).zip(many) {
        let end = passed + many.iter().sum::<u32>();
        if ranks.peek().is_some_and(|&rank| rank < end) {
            for (column, of_column) in (column..).zip(many) {
                passed += of_column;
                while ranks.next_if(|&rank| rank < passed).is_some() {
                    found(column);
                }
            }
        }
        passed = end;
    }
}

/// Spans of a tile, from the columns at their ends.
#[derive(Default)]
struct Spans {
    /// The first column of the current span, where its last one is still to come.
    first: Option<u32>,
    /// Finished spans of the current group, and the widest of them.
    finished: usize,
    widest: u32,
    groups: usize,
    times: Times,
}

/// Number of groups for each number of bits.
struct Times(SpanBits);

impl Default for Times {
    fn default() -> Self {
        Times([0; BITS])
    }
}

impl Spans {
    /// Adds the next end of a span.
    fn end(&mut self, column: u32) {
        let Some(first) = self.first.take() else {
            self.first = Some(column);
            return;
        };
        self.widest = self.widest.max(column - first);
        self.finished += 1;
        if self.finished == REACH_OF / REACH {
            self.end_group();
        }
    }

    fn end_group(&mut self) {
        self.times.0[(u32::BITS - self.widest.leading_zeros()) as usize] += 1;
        (self.finished, self.widest) = (0, 0);
        self.groups += 1;
    }

    /// Returns the histogram, with empty groups up to `fewest`.
    fn histogram(mut self, fewest: usize) -> SpanBits {
        if self.finished > 0 {
            self.end_group();
        }
        self.times.0[0] += fewest.saturating_sub(self.groups) as u64;
        self.times.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_tells_what_sorting_would() {
        let random = |i: u64, most: u64| (crate::check::mix(i) % most) as u32;
        let mut counts = Counts::default();
        for len in [0, 1, 2, 31, 33, 63, 64, 65, 255, 300, 1024, 2048] {
            for most in [1, 9, 100, 5000, 40_000, u64::from(u32::MAX)] {
                for from in [0, 5, 1_000_003] {
                    let column = |i: u64| random(i, most).saturating_add(from);
                    let columns: Vec<u32> = (0..len).map(column).collect();
                    let mut sorted = columns.clone();
                    sorted.sort_unstable();
                    let sectors = sorted.chunks(STEP).map(distinct_of_sorted);
                    let sectors = sectors.fold([0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
                    assert_eq!(counts.sectors(&columns), sectors, "{len} below {most}");
                    let mut times = [0; BITS];
                    for many in sorted.chunks(REACH_OF) {
                        let spans = many.chunks(REACH).map(|some| some[some.len() - 1] - some[0]);
                        let widest = spans.max().expect("a chunk");
                        times[(u32::BITS - widest.leading_zeros()) as usize] += 1;
                    }
                    times[0] += 4u64.saturating_sub(len.div_ceil(REACH_OF as u64));
                    assert_eq!(counts.spans(&columns, 4), times, "{len} below {most}");
                }
            }
        }
    }
}
