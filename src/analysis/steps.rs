//! Distinct sectors of x in the steps of warps, and columns in rising order.

use super::sampling::PER_SECTOR;

/// Places of the table of [`Steps`].
const PLACES: usize = 128;

/// Counts the distinct sectors of x that each of several steps requests.
pub(super) struct Steps {
    /// Sectors of f32, each with the last step that requested it and the sectors of f64 that this step
    /// requested of it: `step << 31 | sector << 2 | halves`.
    places: [u64; PLACES],
    /// Number of steps so far.
    step: u64,
    /// Sectors of f64 that the last step requested, in its order, without repetitions in a row; and a
    /// place beyond the last one.
    met: [u32; 33],
    /// Sectors in f32 and in f64, summed over all steps.
    pub sectors: [u64; 2],
}

impl Default for Steps {
    fn default() -> Self {
        Steps { places: [0; PLACES], step: 0, met: [0; 33], sectors: [0; 2] }
    }
}

impl Steps {
    /// Adds a step that requests these at most 32 columns.
    pub fn add(&mut self, columns: impl Iterator<Item = u32>) {
        // Neighbours are often in the same sector.
        let (mut len, mut last) = (0, u32::MAX);
        columns.for_each(|column| {
            let sector = column / PER_SECTOR;
            self.met[len] = sector;
            len += usize::from(sector != last);
            last = sector;
        });
        self.step += 1;
        for sector in &self.met[..len] {
            // A sector of f32 values covers two sectors of f64 values.
            let (pair, half) = (u64::from(sector / 2), 1 << (sector % 2));
            let own = (self.step << 31) | (pair << 2);
            let mut at = (pair ^ (pair >> 7)) as usize % PLACES;
            // Places of earlier steps are free.
            while (self.places[at] ^ own > 3) & (self.places[at] >> 31 == self.step) {
                at = (at + 1) % PLACES;
            }
            let known = self.places[at];
            let known = if known ^ own > 3 { own } else { known };
            self.sectors[0] += u64::from(known & 3 == 0);
            self.sectors[1] += u64::from(known & half == 0);
            self.places[at] = known | half;
        }
    }
}

/// Counts the distinct sectors of x, in f32 and in f64, that contain these at most 32 columns.
pub(super) fn distinct(columns: impl Iterator<Item = u32>) -> [u64; 2] {
    let mut steps = Steps::default();
    steps.add(columns);
    steps.sectors
}

/// As [`distinct`], for columns in rising order.
pub(super) fn distinct_of_sorted(columns: &[u32]) -> [u64; 2] {
    [2 * PER_SECTOR, PER_SECTOR].map(|columns_each| {
        let changes =
            columns.windows(2).filter(|two| two[0] / columns_each != two[1] / columns_each);
        changes.count() as u64 + u64::from(!columns.is_empty())
    })
}

/// Columns that are sorted by counting how often each occurs span at most this many times their
/// number.
const MOST_SPAN: usize = 8;

/// Returns these columns in rising order.
pub(super) fn sorted(columns: &[u32]) -> Vec<u32> {
    let ends = columns.iter().fold((u32::MAX, 0), |(a, b), &column| (a.min(column), b.max(column)));
    let (first, span) = (ends.0, ends.1.saturating_sub(ends.0) as usize + 1);
    let mut sorted = columns.to_vec();
    if span > MOST_SPAN * columns.len() {
        sorted.sort_unstable();
        return sorted;
    }
    // `next[i + 1]`: first the number of columns `first + i`, then the place of the next one after them.
    let mut next = vec![0u32; span + 1];
    columns.iter().for_each(|&column| next[(column - first) as usize + 1] += 1);
    let mut passed = 0;
    for next in &mut next {
        passed += *next;
        *next = passed;
    }
    for &column in columns {
        let next = &mut next[(column - first) as usize];
        sorted[*next as usize] = column;
        *next += 1;
    }
    sorted
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn sectors_are_of_4_or_8_columns() {
        assert_eq!(distinct([0, 3, 4, 7, 8, 100].into_iter()), [3, 4]);
        assert_eq!(distinct(std::iter::empty()), [0, 0]);
        assert_eq!(distinct(std::iter::repeat_n(5, 32)), [1, 1]);
        assert_eq!(distinct((0..32).rev().map(|i| 8 * i)), [32, 32]);
        assert_eq!(distinct([u32::MAX, 0, u32::MAX - 4, 4].into_iter()), [2, 4]);
        assert_eq!(distinct_of_sorted(&[0, 3, 4, 7, 8, 100]), [3, 4]);
        assert_eq!([distinct_of_sorted(&[]), distinct_of_sorted(&[5; 32])], [[0, 0], [1, 1]]);
    }

    #[test]
    fn steps_count_apart_whatever_places_their_sectors_share() {
        let mut steps = Steps::default();
        for far in [1, 8, 1024, 8 * 128 * 129, 1 << 26] {
            let columns = |i: u32| i.wrapping_mul(far);
            let before = steps.sectors;
            steps.add((0..32).map(columns));
            let expected = [8, 4].map(|each| {
                let met: BTreeSet<u32> = (0..32).map(|i| columns(i) / each).collect();
                met.len() as u64
            });
            assert_eq!(
                steps.sectors,
                [before[0] + expected[0], before[1] + expected[1]],
                "columns {far} apart"
            );
        }
    }

    #[test]
    fn columns_are_sorted_however_far_apart_they_are() {
        for most in [1, 10, 1000, u64::from(u32::MAX)] {
            let random = |i: u64| (crate::check::mix(i) % most) as u32;
            let columns: Vec<u32> = (0..100).map(random).collect();
            let mut expected = columns.clone();
            expected.sort_unstable();
            assert_eq!(sorted(&columns), expected);
        }
        assert!(sorted(&[]).is_empty());
    }
}
