//! Distinct sectors of x in the steps of warps, and columns in rising order.

use super::sampling::PER_SECTOR;
use crate::scalar::Precision;

/// Counts the distinct sectors of x that each of several steps requests.
pub(super) enum Steps {
    Stamped(StampedSteps),
    Hashed(Box<HashedSteps>),
}

impl Steps {
    /// Creates a counter for many steps of a walk over a pattern with `ncols` columns, of one precision
    /// if that [suits](StampedSteps::suit) the pattern.
    pub fn of(ncols: usize, only: Option<Precision>) -> Self {
        match only {
            Some(precision) => Steps::Stamped(StampedSteps::of(ncols, precision)),
            None => Steps::few(),
        }
    }

    /// Creates a counter for few steps.
    pub fn few() -> Self {
        Steps::Hashed(Box::default())
    }

    /// Adds a step that requests these at most 32 columns.
    #[inline(always)]
    pub fn add(&mut self, columns: impl Iterator<Item = u32>) {
        match self {
            Steps::Stamped(steps) => steps.add(columns),
            Steps::Hashed(steps) => steps.add(columns),
        }
    }

    /// Returns the sectors in f32 and in f64, summed over all steps; 0 for a precision that is not
    /// counted.
    pub fn sectors(&self) -> [u64; 2] {
        match self {
            Steps::Stamped(StampedSteps { precision: Precision::F32, sectors, .. }) => {
                [*sectors, 0]
            }
            Steps::Stamped(StampedSteps { precision: Precision::F64, sectors, .. }) => {
                [0, *sectors]
            }
            Steps::Hashed(steps) => steps.sectors,
        }
    }
}

/// Places of the table of [`HashedSteps`].
const PLACES: usize = 128;

/// A counter with a small table, for an x of any size.
pub(super) struct HashedSteps {
    /// Sectors of f32, each with the last step that requested it and the sectors of f64 that this step
    /// requested of it: `step << 31 | sector << 2 | halves`.
    places: [u64; PLACES],
    /// Number of steps so far.
    step: u64,
    /// Sectors of f64 that the last step requested, in its order, without repetitions in a row; and a
    /// place beyond the last one.
    met: [u32; 33],
    sectors: [u64; 2],
}

impl Default for HashedSteps {
    fn default() -> Self {
        HashedSteps { places: [0; PLACES], step: 0, met: [0; 33], sectors: [0; 2] }
    }
}

impl HashedSteps {
    fn add(&mut self, columns: impl Iterator<Item = u32>) {
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

/// Maximum number of columns for which [`StampedSteps`] fits a cache.
const MOST_COLUMNS: usize = 1 << 18;

/// A counter with a place for each sector of one precision, for an x of at most [`MOST_COLUMNS`]
/// elements.
pub(super) struct StampedSteps {
    precision: Precision,
    /// The last step that requested each sector.
    last: Vec<u32>,
    /// Number of steps so far.
    step: u32,
    sectors: u64,
}

impl StampedSteps {
    /// Tells whether its places are worth their memory for `ncols` columns with `nnz` entries.
    pub fn suit(ncols: usize, nnz: usize) -> bool {
        ncols <= MOST_COLUMNS.min(2 * nnz)
    }

    /// Creates places for `ncols` columns.
    fn of(ncols: usize, precision: Precision) -> Self {
        // A sector of f32 values covers two sectors of f64 values.
        let last = vec![0; ncols / PER_SECTOR as usize + 1];
        StampedSteps { precision, last, step: 0, sectors: 0 }
    }

    #[inline(always)]
    fn add(&mut self, columns: impl Iterator<Item = u32>) {
        match self.precision {
            Precision::F32 => self.add_with::<{ 2 * PER_SECTOR }>(columns),
            Precision::F64 => self.add_with::<PER_SECTOR>(columns),
        }
    }

    /// Adds a step that requests these columns, `EACH` of which share a sector.
    #[inline(always)]
    fn add_with<const EACH: u32>(&mut self, columns: impl Iterator<Item = u32>) {
        self.step += 1;
        let (step, last) = (self.step, self.last.as_mut_slice());
        let mut met = 0u32;
        columns.for_each(|column| {
            let last = &mut last[(column / EACH) as usize];
            met += u32::from(*last != step);
            *last = step;
        });
        self.sectors += u64::from(met);
    }
}

/// Counts the distinct sectors of x, in f32 and in f64, that contain these at most 32 columns.
pub(super) fn distinct(columns: impl Iterator<Item = u32>) -> [u64; 2] {
    let mut steps = HashedSteps::default();
    steps.add(columns);
    steps.sectors
}

/// As [`distinct`], for columns in rising order.
pub(super) fn distinct_of_sorted(columns: &[u32]) -> [u64; 2] {
    let (mut sectors, mut last) = ([0; 2], u32::MAX);
    for column in columns {
        let sector = column / PER_SECTOR;
        sectors[0] += u64::from(sector / 2 != last / 2);
        sectors[1] += u64::from(sector != last);
        last = sector;
    }
    sectors
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
        let expected = |columns: &[u32]| {
            [8, 4].map(|each| columns.iter().map(|c| c / each).collect::<BTreeSet<u32>>().len())
        };
        let mut hashed = Steps::few();
        let mut stamped = Precision::ALL.map(|precision| Steps::of(1000, Some(precision)));
        let mut sums = [[0; 2]; 2];
        for far in [1, 3, 8, 1024, 8 * 128 * 129, 1 << 26] {
            let columns: Vec<u32> = (0..32u32).map(|i| i.wrapping_mul(far)).collect();
            hashed.add(columns.iter().copied());
            let near: Vec<u32> = columns.iter().map(|c| c % 1000).collect();
            stamped.iter_mut().for_each(|steps| steps.add(near.iter().copied()));
            for (sum, columns) in sums.iter_mut().zip([&columns, &near]) {
                let met = expected(columns);
                *sum = [0, 1].map(|i| sum[i] + met[i] as u64);
            }
            let [[a, b], [c, d]] = [&stamped[0], &stamped[1]].map(|steps| steps.sectors());
            assert_eq!([hashed.sectors(), [a + c, b + d]], sums, "columns {far} apart");
        }
    }
}
