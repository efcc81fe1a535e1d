//! Distances of columns from the first column of their slot: slot j of a hack holds the j-th
//! entries of its rows.

use super::super::sliced_quads::{HACK, RUN};
use crate::analysis::{Analysis, Detail, Sort, over_all, probes};
use crate::par;

/// The first and the last column of each slot of a hack.
#[derive(Debug, Default)]
pub(crate) struct SlotSpans(Vec<[u32; 2]>);

impl SlotSpans {
    /// Collects the slots of rows with these columns.
    pub fn of<C: Iterator<Item = u32> + Clone>(rows: impl Iterator<Item = C>) -> Self {
        let mut slots = SlotSpans::default();
        for row in rows {
            let known = slots.0.len();
            for ([first, last], column) in slots.0.iter_mut().zip(row.clone()) {
                *first = column.min(*first);
                *last = column.max(*last);
            }
            slots.0.extend(row.skip(known).map(|column| [column; 2]));
        }
        slots
    }

    /// Number of runs of slots.
    pub fn runs(&self) -> usize {
        self.0.len().div_ceil(RUN)
    }

    /// The first column of each slot.
    pub fn firsts(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|&[first, _]| first)
    }

    /// Bytes per column that hold the distance of every column from the first of its slot: 1, 2 or
    /// 4. The largest number of that width marks padding and is not a distance.
    pub fn width(&self) -> usize {
        let farthest = self.0.iter().map(|[first, last]| last - first).max().unwrap_or(0);
        [1, 2].into_iter().find(|&width| farthest < padding(width)).unwrap_or(4)
    }
}

/// The largest number of `width` bytes, which marks padding.
pub(crate) fn padding(width: usize) -> u32 {
    u32::MAX >> (u32::BITS as usize - 8 * width)
}

probes! {
    /// [`Analysis::delta_units`] with columns in their original order.
    DeltaUnits(Sort) -> u64;
}

impl Analysis<'_> {
    /// Sum over hacks of 32 rows in `sort` order: runs of four slots, times the bytes per column
    /// that the hack needs for distances from the first column of a slot. `new` gives the new
    /// column of each old column where the basis is permuted. One pass over the entries, cached
    /// where columns keep their original order; an analysis for estimates samples the hacks.
    pub(crate) fn delta_units(&self, sort: Sort, new: Option<&[u32]>) -> u64 {
        match new {
            None => self.memo().get(DeltaUnits(sort), || self.count_delta_units(sort, None)),
            Some(_) => self.count_delta_units(sort, new),
        }
    }

    fn count_delta_units(&self, sort: Sort, new: Option<&[u32]>) -> u64 {
        let plainer = self.plainer_order(sort, HACK);
        if new.is_none() && self.is_whole() && plainer != sort {
            return self.delta_units(plainer, None);
        }
        let nrows = self.pattern().nrows();
        let of_hack = |rows: &[u32]| {
            let rows = rows.iter().map(|&row| self.pattern().row(row as usize).iter());
            let slots = match new {
                None => SlotSpans::of(rows.map(|row| row.copied())),
                Some(new) => SlotSpans::of(rows.map(|row| row.map(|&old| new[old as usize]))),
            };
            [(slots.runs() * slots.width()) as u64, slots.runs() as u64]
        };
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        let sample = self.groups_of(HACK);
        let [units, met] = match (self.detail(), sort) {
            (Detail::Sampled, Sort::Window(window)) => {
                self.over_windows(HACK, sample.sampled, window, of_hack, sum).1
            }
            _ => {
                let order = (sort != Sort::None).then(|| self.order(sort));
                let row = |i: usize| order.as_ref().map_or(i as u32, |order| order[i]);
                let of_pick = |at: usize| {
                    let h = sample.pick(at);
                    let rows = h * HACK..nrows.min((h + 1) * HACK);
                    of_hack(&rows.map(row).collect::<Vec<u32>>())
                };
                par::reduce(sample.sampled, FEWEST_HACKS, || [0; 2], of_pick, sum)
            }
        };
        let runs = self.n_iter(HACK * RUN, RUN, sort);
        // Hacks outside the sample have columns, too.
        over_all(units, met, runs as usize).max(runs)
    }
}

/// The minimum number of hacks that a thread processes.
const FEWEST_HACKS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::permutation::inverse;

    #[test]
    fn columns_take_as_few_bytes_as_their_slots_need() {
        // The second hack's rows have entries 254 columns apart in one slot, the third's 255.
        let entries = (0..96usize).flat_map(|i| {
            let far = if i % 32 == 31 { [0, 254, 255][i / 32] } else { 0 };
            [(i, 0, 1.0), (i, 1 + far, 1.0)]
        });
        let csr: Csr<f64> = Csr::from_triplets(96, 400, entries).expect("indices are in range");
        let analysis = Analysis::of(&csr);
        assert_eq!(analysis.delta_units(Sort::None, None), 1 + 1 + 2);
        // Rows of equal length keep their order.
        assert_eq!(analysis.delta_units(Sort::Window(64), None), 1 + 1 + 2);
        assert_eq!([1, 2, 4].map(padding), [0xff, 0xffff, u32::MAX]);
    }

    #[test]
    fn columns_of_a_permuted_basis_are_counted_by_their_new_numbers() {
        // Rows with even numbers have two entries and come first, so columns 0 and 1 are far apart.
        let entries = (0..600usize).flat_map(|i| {
            let last = (i % 2 == 0).then_some((i, 599, 1.0));
            [(i, i / 2 % 2, 1.0)].into_iter().chain(last)
        });
        let csr: Csr<f64> = Csr::from_triplets(600, 600, entries).expect("indices are in range");
        let analysis = Analysis::of(&csr);
        let sort = Sort::Window(4096);
        let new = inverse(&analysis.order(sort));
        assert_eq!((new[0], new[1]), (0, 300));
        assert_eq!(analysis.delta_units(sort, None), 19);
        assert_eq!(analysis.delta_units(sort, Some(&new)), 2 * 19);
    }
}
