//! Histograms of row lengths and of entries per column.

use crate::par;
use rayon::prelude::*;

/// The distinct values of a list in rising order, each with its number of occurrences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram(Vec<(u32, u64)>);

/// Minimum number of values per thread.
const FEWEST: usize = 1 << 16;

/// The smallest row length without a bin of its own.
const BINS: usize = 1024;

/// Counters per bin, used in turn: consecutive rows of the same length need not wait for each
/// other's increment.
const COUNTERS: usize = 4;

impl Histogram {
    /// Counts the values. One pass, or a sort if some value exceeds the length of the list per
    /// thread.
    pub fn of(values: &[u32]) -> Self {
        let max = values.par_iter().with_min_len(FEWEST).copied().max().unwrap_or(0) as usize;
        let threads = rayon::current_num_threads().max(1);
        let chunk = values.len().div_ceil(threads).max(FEWEST);
        if max > chunk {
            let mut sorted = values.to_vec();
            sorted.par_sort_unstable();
            let runs = sorted.chunk_by(|a, b| a == b);
            return Histogram(runs.map(|run| (run[0], run.len() as u64)).collect());
        }
        let counts = par::map_ranges(values.len(), chunk, |range| {
            let mut counts = vec![0u64; max + 1];
            values[range].iter().for_each(|&value| counts[value as usize] += 1);
            counts
        });
        let counts = counts.into_iter().reduce(|mut all, counts| {
            all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
            all
        });
        let counts = counts.unwrap_or_default().into_iter().enumerate();
        Histogram(counts.filter(|c| c.1 > 0).map(|(value, count)| (value as u32, count)).collect())
    }

    /// Counts the lengths of the rows that these offsets delimit. One pass, and a sort of the
    /// lengths of 1,024 or more.
    pub fn of_rows(row_ptr: &[usize]) -> Self {
        let rows = row_ptr.len().saturating_sub(1);
        let chunk = rows.div_ceil(rayon::current_num_threads().max(1)).max(FEWEST);
        if rows <= chunk {
            // For this little work it does not pay to wake the thread pool.
            let (bins, longer) = count(row_ptr);
            return Histogram::of_bins(&bins, longer);
        }
        let counted = par::map_ranges(rows, chunk, |rows| count(&row_ptr[rows.start..=rows.end]));
        let counted = counted.into_iter().reduce(|(mut bins, mut longer), (more, others)| {
            bins.iter_mut().zip(more).for_each(|(bin, more)| *bin += more);
            longer.extend(others);
            (bins, longer)
        });
        let (bins, longer) = counted.unwrap_or_default();
        Histogram::of_bins(&bins, longer)
    }

    /// Builds a histogram in which value `i` occurs `bins[i]` times; `longer` lists the values past
    /// the end of `bins`.
    pub(crate) fn of_bins(bins: &[u32], mut longer: Vec<u32>) -> Self {
        longer.sort_unstable();
        let bins = bins.iter().enumerate().filter(|(_, times)| **times > 0);
        let bins = bins.map(|(value, &times)| (value as u32, u64::from(times)));
        let runs = longer.chunk_by(|a, b| a == b).map(|run| (run[0], run.len() as u64));
        Histogram(bins.chain(runs).collect())
    }

    /// Adds `zeros` occurrences of 0.
    pub fn with_zeros(mut self, zeros: u64) -> Self {
        match self.0.first_mut() {
            Some((0, times)) => *times += zeros,
            _ if zeros > 0 => self.0.insert(0, (0, zeros)),
            _ => {}
        }
        self
    }

    /// Iterates over the values in rising order, each with its number of occurrences.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, u64)> + Clone + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of values, repeated ones included.
    pub fn len(&self) -> u64 {
        self.iter().map(|(_, times)| times).sum()
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of occurrences of this value.
    pub fn times(&self, value: u32) -> u64 {
        self.0.binary_search_by_key(&value, |&(value, _)| value).map_or(0, |at| self.0[at].1)
    }

    /// Returns the value at position `before` (counted from 0) of the sorted list; the largest
    /// value if the list is shorter, 0 if it is empty.
    pub fn at(&self, before: u64) -> u32 {
        let mut passed = 0;
        let found = self.iter().find(|(_, times)| {
            passed += times;
            passed > before
        });
        found.map_or(self.max(), |(value, _)| value)
    }

    /// Returns the largest value, or 0 if there is none.
    pub fn max(&self) -> u32 {
        self.0.last().map_or(0, |&(value, _)| value)
    }

    /// Returns the sum of the `most` largest values.
    pub fn sum_of_largest(&self, most: u64) -> u64 {
        let mut left = most;
        let taken = self.iter().rev().map(|(value, times)| {
            let taken = times.min(left);
            left -= taken;
            taken * u64::from(value)
        });
        taken.sum()
    }

    /// Samples every `step`-th value in falling order, starting with the largest; yields each value
    /// with its number of sampled occurrences.
    pub fn every(&self, step: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let mut passed = 0u64;
        self.iter().rev().map(move |(value, times)| {
            let taken = (passed + times).div_ceil(step) - passed.div_ceil(step);
            passed += times;
            (value, taken)
        })
    }

    /// Returns the sum of every `step`-th value in falling order, starting with the largest.
    pub fn sum_of_every(&self, step: u64) -> u64 {
        self.every(step).map(|(value, taken)| taken * u64::from(value)).sum()
    }
}

/// Counts lengths below [`BINS`] in bins and lists the others. There must be fewer than 2^32 rows.
fn count(row_ptr: &[usize]) -> (Vec<u32>, Vec<u32>) {
    let mut bins = vec![[0u32; COUNTERS]; BINS];
    let mut longer = Vec::new();
    for (i, ends) in row_ptr.windows(2).enumerate() {
        let length = ends[1] - ends[0];
        match bins.get_mut(length) {
            Some(bin) => bin[i % COUNTERS] += 1,
            None => longer.push(length as u32),
        }
    }
    (bins.iter().map(|bin| bin.iter().sum()).collect(), longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_rising_order() {
        let few = Histogram::of(&[3, 1, 3, 0, 7]);
        assert_eq!(few.iter().collect::<Vec<_>>(), [(0, 1), (1, 1), (3, 2), (7, 1)]);
        assert_eq!((few.len(), few.max(), few.times(3), few.times(2)), (5, 7, 2, 0));
        assert_eq!([0, 1, 2, 3, 4, 9].map(|before| few.at(before)), [0, 1, 3, 3, 7, 7]);
        assert_eq!(few.clone().with_zeros(2).times(0), 3);
        assert_eq!(Histogram::of(&[5]).with_zeros(2).at(1), 0);
    }

    #[test]
    fn large_values_are_counted_alike() {
        let large = Histogram::of(&[u32::MAX, 2, u32::MAX]);
        assert_eq!(large.iter().collect::<Vec<_>>(), [(2, 1), (u32::MAX, 2)]);
    }

    #[test]
    fn sums_take_the_largest_first() {
        let values = Histogram::of(&[9, 4, 4, 3, 1, 1]);
        assert_eq!([0, 1, 2, 4, 99].map(|most| values.sum_of_largest(most)), [0, 9, 13, 20, 22]);
        // 9 4 | 4 3 | 1 1
        assert_eq!(values.sum_of_every(2), 9 + 4 + 1);
        assert_eq!(values.sum_of_every(1), 22);
        assert_eq!(values.sum_of_every(64), 9);
    }

    #[test]
    fn nothing_has_no_values() {
        let none = Histogram::of(&[]);
        assert!(none.is_empty());
        assert_eq!((none.len(), none.max(), none.at(0), none.sum_of_every(32)), (0, 0, 0, 0));
    }

    #[test]
    fn lengths_of_rows_are_counted_between_their_ends() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        for count in [0, 1, 7, 100_000] {
            // A few rows are too long for the bins.
            let length = |i: u32| if i % 1000 == 6 { 1020 + i % 7 } else { i % 9 };
            let lengths: Vec<u32> = (0..count).map(length).collect();
            let ends = lengths.iter().scan(0, |end, &length| {
                *end += length as usize;
                Some(*end)
            });
            let row_ptr: Vec<usize> = std::iter::once(0).chain(ends).collect();
            let counted = pool.install(|| Histogram::of_rows(&row_ptr));
            assert_eq!(counted, Histogram::of(&lengths), "{count} rows");
        }
    }

    #[test]
    fn threads_count_together() {
        let values: Vec<u32> = (0..300_000).map(|i| i % 1000).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("a pool");
        let histogram = pool.install(|| Histogram::of(&values));
        assert!(histogram.iter().eq((0..1000).map(|value| (value, 300))));
    }
}
