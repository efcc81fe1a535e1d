//! Diagonals of a pattern and of its hacks.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::sampling::sums;
use super::{Analysis, Detail, over_all, probes};
use crate::csr::Pattern;
use crate::par;

/// Numbers of diagonals with an entry.
#[derive(Debug)]
pub(super) struct DiagonalCounts {
    /// Diagonals of the whole matrix.
    all: u64,
    /// `apart[d]`: number of entries whose row and the preceding row on the same diagonal differ in
    /// bit `d - 1` and in no higher bit. They start a diagonal in every hack size below `2^d` rows.
    apart: [u64; BITS + 1],
}

/// Bits of a row number.
const BITS: usize = u32::BITS as usize;

/// The largest power-of-two hack size that the common pass counts.
const LARGEST_HACK: usize = 4096;

/// Rows that are sampled together if the diagonals of the whole matrix are estimated.
const WARP: usize = 32;

/// Maximum number of parts, each with a list of all diagonals. The rows of a part are a multiple of
/// every hack size.
const MOST_LISTS: usize = 16;

probes! {
    /// Exact numbers of diagonals of the whole pattern.
    AllDiagonals() -> Arc<DiagonalCounts>;
    /// Diagonals summed over all hacks of this many rows, estimated from a sample of the hacks.
    SampledDiagonals(usize) -> u64;
}

impl Analysis<'_> {
    /// Returns the number of distinct diagonals with an entry in each hack of `hack` rows, summed
    /// over all hacks.
    ///
    /// One pass over the pattern counts all powers of two up to 4096 and the whole matrix, and is
    /// kept; every other hack size takes one more pass. If this analysis is for estimates, the
    /// number is estimated from a sample of the hacks.
    pub fn n_diagonals(&self, hack: usize) -> u64 {
        if self.detail == Detail::Sampled {
            let hack = hack.min(self.pattern.nrows());
            return self.memo.get(SampledDiagonals(hack), || self.estimate_diagonals(hack));
        }
        self.exact_diagonals(hack)
    }

    /// As [`Analysis::n_diagonals`], but always exact.
    pub(crate) fn exact_diagonals(&self, hack: usize) -> u64 {
        let find = || Arc::new(DiagonalCounts::of(self.pattern));
        let known = || self.memo.get(AllDiagonals(), find);
        if hack >= self.pattern.nrows() {
            known().all
        } else if hack.is_power_of_two() && hack <= LARGEST_HACK {
            known().apart[hack.ilog2() as usize + 1..].iter().sum()
        } else {
            self.diagonals_of(hack, |diagonals| diagonals.len() as u64).iter().sum()
        }
    }

    /// Estimates [`Analysis::n_diagonals`] from a sample of the hacks.
    fn estimate_diagonals(&self, hack: usize) -> u64 {
        let pattern = self.pattern;
        let nrows = pattern.nrows();
        let keys = nrows + pattern.ncols();
        let all = hack == nrows;
        let rows = if all { WARP } else { hack };
        let entries = |h: usize| {
            let of_row = move |row: usize| {
                pattern.row(row).iter().map(move |&column| nrows - 1 - row + column as usize)
            };
            (h * rows..nrows.min((h + 1) * rows)).flat_map(of_row)
        };
        let sample = self.groups_of(rows);
        if all {
            let mut times = vec![0u8; keys];
            let mut met = [0u64; 3];
            for key in sample.picks().flat_map(entries) {
                let times = &mut times[key];
                if let Some(met) = met.get_mut(usize::from(*times)) {
                    *met += 1;
                    *times += 1;
                }
            }
            return all_diagonals(keys, met);
        }
        let scratch = || (vec![0u64; keys / 64 + 1], Vec::new());
        let count = |(marks, touched): &mut (Vec<u64>, Vec<usize>), h: usize| {
            let mut distinct = 0u64;
            for key in entries(h) {
                let marks = &mut marks[key / 64];
                distinct += !*marks >> (key % 64) & 1;
                *marks |= 1 << (key % 64);
                touched.push(key / 64);
            }
            let entries = touched.len() as u64;
            touched.drain(..).for_each(|word| marks[word] = 0);
            [distinct, entries]
        };
        let [distinct, met] =
            sums(sample.sampled, 1, scratch, |scratch, at| count(scratch, sample.pick(at)));
        over_all(distinct, met, pattern.nnz())
    }

    /// Returns the distinct diagonals with an entry in each hack of `hack` rows, as offsets `j - i`
    /// in rising order.
    ///
    /// One pass over the pattern.
    pub fn hack_offsets(&self, hack: usize) -> Vec<Vec<i64>> {
        let nrows = self.pattern.nrows() as i64;
        self.diagonals_of(hack, |diagonals| {
            let mut offsets: Vec<i64> = diagonals.iter().map(|&d| d as i64 - nrows).collect();
            offsets.sort_unstable();
            offsets
        })
    }

    /// Calls `finish` with the distinct diagonals of each hack, numbered from the lower left
    /// corner, and collects the results.
    fn diagonals_of<R: Clone + Default + Send>(
        &self,
        hack: usize,
        finish: impl Fn(&[usize]) -> R + Sync,
    ) -> Vec<R> {
        let pattern = self.pattern;
        let keys = pattern.nrows() + pattern.ncols();
        // Nearly empty matrix: a list of all diagonals would cost more than the entries.
        let listed = if keys / 64 > pattern.nnz() { 0 } else { keys };
        let n_hacks = pattern.nrows().div_ceil(hack);
        let mut results = vec![R::default(); n_hacks];
        let hacks_each = n_hacks.div_ceil(rayon::current_num_threads()).max(1);
        let mut parts: Vec<&mut [R]> = results.chunks_mut(hacks_each).collect();
        par::for_each(&mut parts, 1, |part, results| {
            let mut distinct = DistinctKeys { last: vec![0; listed], group: 0, keys: Vec::new() };
            for (i, result) in results.iter_mut().enumerate() {
                let first = (part * hacks_each + i) * hack;
                distinct.group = i as u32 + 1;
                distinct.keys.clear();
                for row in first..(first + hack).min(pattern.nrows()) {
                    let at_left = pattern.nrows() - row;
                    for &column in pattern.row(row) {
                        distinct.see(at_left + column as usize);
                    }
                }
                if listed == 0 {
                    distinct.keys.sort_unstable();
                    distinct.keys.dedup();
                }
                *result = finish(&distinct.keys);
            }
        });
        results
    }
}

/// Estimates the number of distinct diagonals of a matrix of `keys` rows and columns in total from
/// a sample: `met[k]` diagonals hold at least `k + 1` sampled entries.
///
/// A. Chao, Nonparametric Estimation of the Number of Classes in a Population (1984).
pub(crate) fn all_diagonals(keys: usize, met: [u64; 3]) -> u64 {
    let (once, twice) = (met[0] - met[1], met[1] - met[2]);
    let unseen = once * once.saturating_sub(1) / (2 * (twice + 1));
    (met[0] + unseen).min(keys as u64 - 1)
}

/// The distinct keys of a group, in order of first occurrence.
struct DistinctKeys {
    /// For each key, the last group (counted from 1) in which it occurred; empty if repeated keys
    /// are removed later.
    last: Vec<u32>,
    group: u32,
    keys: Vec<usize>,
}

impl DistinctKeys {
    #[inline(always)]
    fn see(&mut self, key: usize) {
        match self.last.get_mut(key) {
            Some(last) if *last == self.group => return,
            Some(last) => *last = self.group,
            None => {}
        }
        self.keys.push(key);
    }
}

impl DiagonalCounts {
    fn of(pattern: Pattern<'_>) -> Self {
        let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
        let keys = nrows + ncols;
        if keys / 64 > pattern.nnz() {
            // Nearly empty matrix: a list of all diagonals would cost more than the entries.
            let mut last = HashMap::new();
            let apart = walk(pattern, 0..nrows, |key, row| last.insert(key, row).unwrap_or(0));
            return DiagonalCounts { all: last.len() as u64, apart };
        }
        let lists = rayon::current_num_threads().clamp(1, MOST_LISTS);
        let rows = nrows.div_ceil(lists).max(1).next_multiple_of(LARGEST_HACK);
        let parts = par::map(nrows.div_ceil(rows), 1, |part| {
            let first = part * rows;
            let mut last = vec![0u32; keys];
            let mut marks = vec![0u64; keys.div_ceil(64)];
            let apart = walk(pattern, first..nrows.min(first + rows), |key, row| {
                let before = std::mem::replace(&mut last[key], row);
                if before == 0 {
                    marks[key / 64] |= 1 << (key % 64);
                }
                before
            });
            Some((apart, marks))
        });
        let (apart, marks) = parts
            .into_iter()
            .flatten()
            .reduce(|(mut apart, mut marks), (more_apart, more_marks)| {
                apart.iter_mut().zip(more_apart).for_each(|(all, more)| *all += more);
                marks.iter_mut().zip(more_marks).for_each(|(all, more)| *all |= more);
                (apart, marks)
            })
            .unwrap_or(([0; BITS + 1], Vec::new()));
        let all = marks.iter().map(|marks| u64::from(marks.count_ones())).sum();
        DiagonalCounts { all, apart }
    }
}

/// Counts the entries of some rows as [`DiagonalCounts::apart`] describes. `replace(diagonal, row)`
/// stores the last row of each diagonal, counted from 1, and returns the previous one, or 0 if
/// there is none.
fn walk(
    pattern: Pattern<'_>,
    rows: Range<usize>,
    mut replace: impl FnMut(usize, u32) -> u32,
) -> [u64; BITS + 1] {
    let mut apart = [0; BITS + 1];
    for row in rows {
        let first = pattern.nrows() - 1 - row;
        let row = row as u32;
        for &column in pattern.row(row as usize) {
            let before = replace(first + column as usize, row + 1);
            let differing = match before {
                0 => u32::MAX,
                _ => (before - 1) ^ row,
            };
            apart[(u32::BITS - differing.leading_zeros()) as usize] += 1;
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;

    /// About 9000 rows of irregular diagonals: more than one part on two threads.
    fn irregular(nrows: usize) -> Csr<f64> {
        let entries = (0..nrows).flat_map(|i| {
            let near = [i, i + 1 + i / 700, i + 7, i * i % 131].into_iter();
            near.filter(move |&j| j < nrows).map(move |j| (i, j, 1.0))
        });
        Csr::from_triplets(nrows, nrows, entries).expect("indices are in range")
    }

    #[test]
    fn one_pass_counts_what_the_lists_hold() {
        let csr = irregular(9001);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("a pool");
        pool.install(|| {
            let analysis = Analysis::new(csr.pattern());
            for hack in [1, 2, 32, 33, 256, 1024, 4096, 8192, 9001, 10_000] {
                let lists = analysis.hack_offsets(hack);
                let listed: u64 = lists.iter().map(|list| list.len() as u64).sum();
                assert_eq!(analysis.n_diagonals(hack), listed, "hacks of {hack} rows");
            }
        });
    }

    #[test]
    fn a_next_to_empty_matrix_is_counted_alike() {
        let entries = [(0, 5, 1.0), (40, 45, 1.0), (41, 46, 1.0), (4_000, 3, 1.0)];
        let csr = Csr::from_triplets(5_000, 100_000, entries).expect("indices are in range");
        let analysis = Analysis::new(csr.pattern());
        assert_eq!(analysis.n_diagonals(5_000), 2);
        assert_eq!(analysis.n_diagonals(32), 3);
        assert_eq!(analysis.n_diagonals(1), 4);
        assert_eq!(analysis.n_diagonals(64), 2);
        assert_eq!(analysis.hack_offsets(64).concat(), [5, -3997]);
    }
}
