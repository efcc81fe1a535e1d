//! Row lengths and what follows from them: exact for matrices of any size.

use std::sync::Arc;

use rayon::prelude::*;

use super::{Analysis, Histogram, SharedLengths, Sort, once, probes};
use crate::par;
use crate::reorder;

/// Minimum number of rows per thread if each row is little work.
const FEWEST_ROWS: usize = 1 << 14;

probes! {
    /// Number of rows whose length differs from the preceding row's.
    LengthChanges() -> usize;
    /// Row order.
    RowOrder(Sort) -> Arc<[u32]>;
    /// Row lengths in a given order.
    SortedLengths(Sort) -> SharedLengths;
    /// Warp iterations, by rows per warp, lanes per row and row order.
    WarpIterations(usize, usize, Sort) -> u64;
    /// Longest row of each slice, by rows per slice and row order.
    LongestRows(usize, Sort) -> SharedLengths;
}

impl Analysis<'_> {
    /// Returns the number of entries of each row. One pass over the row pointers; kept.
    pub fn lengths(&self) -> &[u32] {
        let count = || -> Vec<u32> {
            let lengths = self.pattern.row_ptr().par_windows(2).with_min_len(FEWEST_ROWS);
            lengths.map(|w| (w[1] - w[0]) as u32).collect()
        };
        once(&self.lengths, count).as_slice()
    }

    /// Returns the histogram of row lengths. One pass over the row pointers; kept.
    pub fn row_lengths(&self) -> &Histogram {
        once(&self.row_lengths, || Histogram::of_rows(self.pattern.row_ptr()))
    }

    /// Returns the number of entries of the longest row.
    pub fn max_length(&self) -> usize {
        self.row_lengths().max() as usize
    }

    /// Returns the number of rows whose length differs from the preceding row's. One pass over the
    /// lengths; kept.
    pub fn changes(&self) -> usize {
        let changes = || {
            let pairs = self.lengths().par_windows(2).with_min_len(FEWEST_ROWS);
            pairs.filter(|pair| pair[0] != pair[1]).count()
        };
        self.memo.get(LengthChanges(), changes)
    }

    /// Returns the row order, `order[new] = old`. Sorts by length are stable, longest row first
    /// within each window.
    ///
    /// Takes one counting sort, or a search of the graph for [`Sort::Rcm`]; kept.
    ///
    /// # Panics
    /// If `sort` is [`Sort::Rcm`] and the pattern is not square.
    pub fn order(&self, sort: Sort) -> Arc<[u32]> {
        self.memo.get(RowOrder(sort), || match sort {
            Sort::Rcm => reorder::rcm(self.pattern).into(),
            _ => order(self.lengths(), sort).into(),
        })
    }

    /// Returns a plainer order of rows whose slices of `rows` rows hold the same rows, or `sort` if
    /// there is none.
    pub(crate) fn plainer_order(&self, sort: Sort, rows: usize) -> Sort {
        let (lengths, nrows) = (self.lengths(), self.pattern.nrows());
        let falls = |lengths: &[u32]| lengths.is_sorted_by(|a, b| a >= b);
        match sort {
            Sort::Window(window) if window > 0 && rows.is_multiple_of(window) => Sort::None,
            Sort::Window(window) if lengths.chunks(window.max(1)).all(falls) => Sort::None,
            Sort::Window(window) if window >= nrows => Sort::All,
            Sort::All if falls(lengths) => Sort::None,
            _ => sort,
        }
    }

    /// Returns the row lengths in `sort` order; kept.
    pub(crate) fn sorted_lengths(&self, sort: Sort) -> SharedLengths {
        self.memo.get(SortedLengths(sort), || {
            let lengths = self.lengths();
            let sorted = match sort {
                Sort::None => lengths.to_vec(),
                Sort::Window(window) => {
                    let mut sorted = lengths.to_vec();
                    let window = window.max(1);
                    let mut windows: Vec<&mut [u32]> = sorted.chunks_mut(window).collect();
                    let fewest = FEWEST_ROWS.div_ceil(window);
                    par::for_each(&mut windows, fewest, |_, window| sort_falling(window));
                    sorted
                }
                Sort::All => {
                    let mut sorted = Vec::with_capacity(lengths.len());
                    for (length, times) in self.row_lengths().iter().rev() {
                        sorted.resize(sorted.len() + times as usize, length);
                    }
                    sorted
                }
                Sort::Rcm => self.order(sort).iter().map(|&row| lengths[row as usize]).collect(),
            };
            Arc::new(sorted)
        })
    }

    /// Returns the slots of each slice of `slice` rows in `sort` order, padded to its longest row,
    /// as a running sum: `ceil(nrows / slice) + 1` offsets. The last slice counts as full.
    pub fn slice_offsets(&self, slice: usize, sort: Sort) -> Vec<u64> {
        let mut total = 0;
        let ends = self.sorted_lengths(sort);
        let ends = ends.chunks(slice).map(|rows| {
            total += u64::from(rows.iter().copied().max().unwrap_or(0)) * slice as u64;
            total
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Returns the slots of all slices of `slice` rows in `sort` order, each padded to its longest
    /// row. The last slice counts as full.
    pub fn slots(&self, slice: usize, sort: Sort) -> u64 {
        self.n_iter(slice, 1, sort) * slice as u64
    }

    /// Returns the warp iterations of PELLR, equation 1: the sum over warps of their longest row.
    /// `threads` lanes share a row, so that a warp of `warp` lanes holds `warp / threads` rows. One
    /// pass over the lengths in `sort` order; kept.
    pub fn n_iter(&self, warp: usize, threads: usize, sort: Sort) -> u64 {
        let (rows, lanes) = (warp / threads, threads as u64);
        self.memo.get(WarpIterations(rows, threads, sort), || {
            self.sum_of_longest(rows, sort, |length| u64::from(length).div_ceil(lanes))
        })
    }

    /// Returns how many times warps wait for entries, summed over warps of `warp` lanes, with rows
    /// in their own order. `threads` lanes share a row and each loads `batch` entries at a time;
    /// every warp waits once more for the rest.
    pub fn n_waits(&self, warp: usize, threads: usize, batch: usize) -> u64 {
        let at_a_time = (threads * batch) as u64;
        let waits = |length: u32| u64::from(length) / at_a_time + 1;
        self.sum_over_warps(warp, threads, waits)
    }

    /// Sums `count(longest row)` over warps of `warp` lanes, of which `threads` share a row, with
    /// rows in their own order.
    pub(crate) fn sum_over_warps(
        &self,
        warp: usize,
        threads: usize,
        count: impl Fn(u32) -> u64 + Sync,
    ) -> u64 {
        self.sum_of_longest(warp / threads, Sort::None, count)
    }

    /// Sums `count(longest row)` over slices of `rows` rows in `sort` order.
    fn sum_of_longest(&self, rows: usize, sort: Sort, count: impl Fn(u32) -> u64 + Sync) -> u64 {
        if sort == Sort::All || rows == 1 {
            let every = self.row_lengths().every(rows as u64);
            return every.map(|(length, times)| times * count(length)).sum();
        }
        let longest = self.longest(rows, sort);
        par::reduce(longest.len(), FEWEST_ROWS, || 0, |i| count(longest[i]), |a, b| a + b)
    }

    /// Returns the longest row of each slice of `rows` rows in `sort` order; kept.
    fn longest(&self, rows: usize, sort: Sort) -> SharedLengths {
        let of_chunks = |lengths: &[u32], rows: usize| -> SharedLengths {
            let slices = lengths.len().div_ceil(rows);
            let longest = par::map(slices, FEWEST_ROWS.div_ceil(rows), |s| {
                let lengths = &lengths[s * rows..lengths.len().min((s + 1) * rows)];
                lengths.iter().fold(0, |longest, &n| longest.max(n))
            });
            Arc::new(longest)
        };
        self.memo.get(LongestRows(rows, sort), || match sort {
            // A slice consists of two slices of half as many rows.
            _ if rows.is_multiple_of(2) && rows > 4 => of_chunks(&self.longest(rows / 2, sort), 2),
            Sort::None => of_chunks(self.lengths(), rows),
            Sort::Window(window) if window.is_multiple_of(rows) => {
                let lengths = self.lengths();
                let mut longest = vec![0; lengths.len().div_ceil(rows)];
                let windows = longest.chunks_mut(window / rows).zip(lengths.chunks(window));
                let mut windows: Vec<_> = windows.collect();
                let fewest = FEWEST_ROWS.div_ceil(window);
                par::for_each(&mut windows, fewest, |_, (longest, lengths)| {
                    every_nth_longest(lengths, rows, longest);
                });
                Arc::new(longest)
            }
            _ => of_chunks(&self.sorted_lengths(sort), rows),
        })
    }
}

/// Returns the rows in `sort` order.
fn order(lengths: &[u32], sort: Sort) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    let longest_first = |rows: &mut [u32]| longest_first(lengths, rows);
    match sort {
        Sort::None => {}
        Sort::Window(rows) => {
            let mut windows: Vec<&mut [u32]> = order.chunks_mut(rows.max(1)).collect();
            par::for_each(&mut windows, 1, |_, window| longest_first(window));
        }
        Sort::All => longest_first(&mut order),
        Sort::Rcm => unreachable!("the order of a graph is not one of lengths"),
    }
    order
}

/// Sorts rows by falling length; rows of equal length keep their order.
pub(crate) fn longest_first(lengths: &[u32], rows: &mut [u32]) {
    let length = |row: u32| lengths[row as usize] as usize;
    let most = rows.iter().map(|&row| length(row)).max().unwrap_or(0);
    if most > 2 * rows.len() {
        rows.sort_by_key(|&row| std::cmp::Reverse(length(row)));
        return;
    }
    // Counting sort: find where the rows of each length start, longest first.
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

/// Maximum number of lengths that are sorted by comparison if they are not short.
const FEW_LENGTHS: usize = 64;

/// Lengths below this are counted on the stack.
const SHORT_LENGTH: usize = 64;

/// Sorts lengths, longest first.
fn sort_falling(lengths: &mut [u32]) {
    let most = lengths.iter().fold(0, |most, &length| most.max(length)) as usize;
    if lengths.len() <= FEW_LENGTHS && most < SHORT_LENGTH {
        let mut times = [0u8; SHORT_LENGTH];
        lengths.iter().for_each(|&length| times[length as usize] += 1);
        place(lengths, times[..=most].iter().map(|&times| usize::from(times)));
        return;
    }
    if lengths.len() <= FEW_LENGTHS || most > 2 * lengths.len() {
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        return;
    }
    let times = times(lengths, most);
    place(lengths, times.into_iter().map(|[a, b]| (a + b) as usize));
}

/// Counts the occurrences of each length up to `most`, in two partial counts.
fn times(lengths: &[u32], most: usize) -> Vec<[u32; 2]> {
    // Neighbours of equal length use different counters, so that neither increment waits for the
    // other.
    let mut times = vec![[0u32; 2]; most + 1];
    let pairs = lengths.chunks_exact(2);
    for &length in pairs.remainder() {
        times[length as usize][0] += 1;
    }
    for pair in pairs {
        times[pair[0] as usize][0] += 1;
        times[pair[1] as usize][1] += 1;
    }
    times
}

/// Writes each length as often as `times` says, longest first.
fn place(lengths: &mut [u32], times: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator) {
    let mut rest = lengths;
    for (length, times) in times.enumerate().rev() {
        let (same, after) = rest.split_at_mut(times);
        same.fill(length as u32);
        rest = after;
    }
}

/// Returns every `rows`-th length in falling order, starting with the longest.
fn every_nth_longest(lengths: &[u32], rows: usize, longest: &mut [u32]) {
    let most = lengths.iter().fold(0, |most, &length| most.max(length)) as usize;
    if most > 2 * lengths.len() {
        let mut sorted = lengths.to_vec();
        sort_falling(&mut sorted);
        longest.iter_mut().zip(sorted.iter().step_by(rows)).for_each(|(to, &length)| *to = length);
        return;
    }
    let (mut places, mut passed) = (longest.iter_mut().zip((0..).step_by(rows)).peekable(), 0);
    for (length, [a, b]) in times(lengths, most).into_iter().enumerate().rev() {
        passed += (a + b) as usize;
        while let Some((to, _)) = places.next_if(|&(_, place)| place < passed) {
            *to = length as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    #[test]
    fn warps_wait_for_their_longest_row() {
        // Rows of 1, 9, 0 and 4 entries.
        let columns = (0..1).chain(0..9).chain(0..4).collect();
        let csr = Csr::new(4, 9, vec![0, 1, 10, 10, 14], columns, vec![1.0; 14]).expect("valid");
        let analysis = Analysis::of(&csr);
        // Two rows per warp, two lanes per row, one entry per lane at a time: 9 / 2 + 1 and 4 / 2 +
        // 1.
        assert_eq!(analysis.n_waits(4, 2, 1), 5 + 3);
        assert_eq!(analysis.n_waits(4, 2, 4), 2 + 1);
        // One row per warp: even an empty row waits once.
        assert_eq!(analysis.n_waits(4, 4, 1), 1 + 3 + 1 + 2);
    }

    #[test]
    fn a_plainer_order_has_the_same_slices() {
        // Rows of 2, 1, 3 and 3 entries.
        let columns = vec![0, 1, 0, 0, 1, 2, 0, 1, 2];
        let csr = Csr::new(4, 3, vec![0, 2, 3, 6, 9], columns, vec![1.0; 9]).expect("valid");
        let analysis = Analysis::of(&csr);
        let plainer = |sort| analysis.plainer_order(sort, 4);
        assert_eq!(plainer(Sort::Window(2)), Sort::None, "windows lie within slices");
        assert_eq!(analysis.plainer_order(Sort::Window(2), 1), Sort::None, "windows fall already");
        assert_eq!(analysis.plainer_order(Sort::Window(3), 1), Sort::Window(3));
        assert_eq!(plainer(Sort::Window(8)), Sort::All);
        assert_eq!(
            [Sort::None, Sort::All, Sort::Rcm].map(plainer),
            [Sort::None, Sort::All, Sort::Rcm]
        );
    }

    #[test]
    fn lengths_fall_and_every_few_of_them_are_known_at_once() {
        let random = |i: u64, most: u64| (crate::check::mix(i) % most) as u32;
        for (count, most) in [(0, 1), (1, 9), (32, 5), (32, 60), (32, 5000), (100, 90), (513, 3)] {
            for (count, most) in [(count, most), (count, 1000 * most)] {
                let lengths: Vec<u32> = (0..count).map(|i| random(i, most)).collect();
                let mut sorted = lengths.clone();
                sorted.sort_unstable_by(|a, b| b.cmp(a));
                let mut fallen = lengths.clone();
                sort_falling(&mut fallen);
                assert_eq!(fallen, sorted);
                for rows in [1, 3, 4] {
                    let mut longest = vec![0; lengths.len().div_ceil(rows)];
                    every_nth_longest(&lengths, rows, &mut longest);
                    assert!(sorted.iter().step_by(rows).eq(&longest), "every {rows} of {count}");
                }
            }
        }
    }
}
