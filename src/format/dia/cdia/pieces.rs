//! Constant pieces of diagonals, in hacks of rows.

use std::collections::HashMap;
use std::sync::Arc;

use crate::analysis::{Analysis, Detail, Sample, probes};
use crate::csr::{Pattern, offsets};
use crate::par;
use crate::scalar::ValuesOf;

/// Pieces of diagonals with one value each: `ptr[h]..ptr[h + 1]` are those of hack `h`.
#[derive(Debug)]
pub struct Constants {
    /// First piece of each hack, and the end.
    pub ptr: Vec<usize>,
    /// Offset `column - row` of each piece.
    pub offsets: Vec<i64>,
    /// Position in the CSR arrays of one entry of each piece.
    pub entries: Vec<usize>,
}

/// Bytes of an entry with its column.
const ENTRY_BYTES: u64 = 12;

/// The maximum mean number of diagonals per hack. Counting the values of more would take longer
/// than all other analysis, and rows of thousands of entries have no constant diagonals.
const MOST_DIAGONALS: usize = 1024;

/// Number of pieces after the last match that are compared before the hash table is searched.
const NEAR: usize = 8;

/// Counts of the pieces of all hacks: see [`Constants`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstantCounts {
    /// Number of hacks.
    pub hacks: usize,
    /// Number of pieces of all hacks.
    pub pieces: u64,
    /// The maximum number of pieces of an examined hack.
    pub most: usize,
}

impl ConstantCounts {
    /// Estimates the counts from a sample of hacks; `None` as in [`Constants::of`].
    pub(super) fn of(
        pattern: Pattern<'_>,
        values: ValuesOf<'_>,
        hack: usize,
        diagonals: u64,
        sample: Sample,
    ) -> Option<Self> {
        let hacks = sample.groups;
        let most = MostPieces::of(pattern.nnz(), hack, hacks, diagonals)?;
        let count = |h| pieces(pattern, values, hack, h, 4 * most.mean).len();
        let counts = par::map(sample.sampled, 1, |at| count(sample.pick(at)));
        let over = counts.iter().filter(|&&count| count > most.mean).count();
        if most.is_exceeded_by(over, counts.len()) {
            return None;
        }
        let pieces = sample.scale(counts.iter().sum::<usize>() as u64);
        let few = pieces <= (most.mean * hacks) as u64;
        // The first and the last hacks often differ from the others.
        let ends = [0, hacks.saturating_sub(1)].map(count);
        let most = counts.into_iter().chain(ends).max().unwrap_or(0);
        few.then_some(ConstantCounts { hacks, pieces, most })
    }
}

impl Constants {
    /// Finds the pieces of all hacks of `hack` rows. `None` where the diagonals, whose total number
    /// over all hacks is `diagonals`, have so few entries that their pieces would take more bytes
    /// than the entries, or where hacks have too many pieces, in a sample or in total: see
    /// [`MostPieces`].
    pub(super) fn of(
        pattern: Pattern<'_>,
        values: ValuesOf<'_>,
        hack: usize,
        diagonals: u64,
    ) -> Option<Self> {
        let hacks = pattern.nrows().div_ceil(hack);
        let most = MostPieces::of(pattern.nnz(), hack, hacks, diagonals)?;
        let pieces = |h: usize, look: usize| pieces(pattern, values, hack, h, look);
        let sample = (0..most.sample).map(|i| i * hacks / most.sample);
        let over = sample.filter(|&h| pieces(h, 4 * most.mean).len() > most.mean).count();
        if most.is_exceeded_by(over, most.sample) {
            return None;
        }
        let all: Vec<Vec<(i64, usize)>> = par::map(hacks, 4, |h| pieces(h, most.of_one));
        let total: usize = all.iter().map(Vec::len).sum();
        // If a hack has more pieces, the search stopped early and some are missing.
        if total > most.mean * hacks || all.iter().any(|pieces| pieces.len() > most.of_one) {
            return None;
        }
        let ptr = offsets(all.iter().map(Vec::len));
        let (offsets, entries) = all.into_iter().flatten().unzip();
        Some(Constants { ptr, offsets, entries })
    }
}

/// Limits on the number of pieces of hacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MostPieces {
    /// The maximum mean number of pieces per hack.
    pub mean: usize,
    /// The maximum number of pieces of one hack.
    pub of_one: usize,
    /// Number of hacks in a sample, which is spread over all hacks.
    pub sample: usize,
    /// The maximum number of hacks in the sample with more than `mean` pieces.
    pub over: usize,
}

impl MostPieces {
    /// Limits for `hacks` hacks of `hack` rows that have `nnz` entries and `diagonals` diagonals in
    /// total. `None` where diagonals have so few entries that pieces would take more bytes than the
    /// entries, or where hacks have more than [`MOST_DIAGONALS`] diagonals on average.
    pub fn of(nnz: usize, hack: usize, hacks: usize, diagonals: u64) -> Option<Self> {
        let piece_bytes = ENTRY_BYTES + hack as u64 / 8;
        if diagonals.saturating_mul(piece_bytes) > nnz as u64 * ENTRY_BYTES {
            return None;
        }
        // At most four values per diagonal on average.
        let of_hack = diagonals as usize / hacks.max(1);
        if of_hack > MOST_DIAGONALS {
            return None;
        }
        let mean = of_hack * 4 + 4;
        let sample = hacks.min(16);
        // One hack alone may not have more pieces than all hacks together.
        Some(MostPieces { mean, of_one: sample * mean, sample, over: 4 })
    }

    /// True if too many hacks, `over` of the `looked_at` hacks examined, have more than `mean`
    /// pieces.
    fn is_exceeded_by(&self, over: usize, looked_at: usize) -> bool {
        over * self.sample > self.over * looked_at
    }
}

/// Offset and first entry of the pieces of hack `h`, in the order of their first entries; stops
/// after `most` + 1 pieces.
fn pieces(
    pattern: Pattern<'_>,
    values: ValuesOf<'_>,
    hack: usize,
    h: usize,
    most: usize,
) -> Vec<(i64, usize)> {
    let mut pieces: Vec<(i64, usize)> = Vec::new();
    let mut known: HashMap<(i64, u64), usize> = HashMap::new();
    for row in h * hack..((h + 1) * hack).min(pattern.nrows()) {
        let first = pattern.row_ptr()[row];
        // Entries mostly follow the order of the pieces.
        let mut at = 0;
        for (k, &column) in (first..).zip(pattern.row(row)) {
            let (offset, bits) = (i64::from(column) - row as i64, values.bits(k));
            let same =
                |&(other, entry): &(i64, usize)| other == offset && values.bits(entry) == bits;
            let near = pieces[at..].iter().take(NEAR).position(same);
            at = near.map(|i| at + i).unwrap_or_else(|| {
                *known.entry((offset, bits)).or_insert_with(|| {
                    pieces.push((offset, k));
                    pieces.len() - 1
                })
            });
            if pieces.len() > most {
                return pieces;
            }
        }
    }
    pieces
}

probes! {
    /// Pieces of diagonals with one value each, by rows per hack.
    ConstantPieces(usize) -> Option<Arc<Constants>>;
    /// Numbers of such pieces, by rows per hack.
    PieceCounts(usize) -> Option<ConstantCounts>;
}

impl Analysis<'_> {
    /// The constant pieces of the diagonals of hacks of `hack` rows; `None` where values are
    /// unknown or there are too many pieces. Examines a sample of the hacks, then makes one pass
    /// over the matrix if the sample is constant.
    pub fn constants(&self, hack: usize) -> Option<Arc<Constants>> {
        let values = self.values()?;
        self.memo().get(ConstantPieces(hack), || {
            let diagonals = self.exact_diagonals(hack);
            Constants::of(self.pattern(), values, hack, diagonals).map(Arc::new)
        })
    }

    /// The number of pieces that [`Analysis::constants`] has.
    pub fn constant_counts(&self, hack: usize) -> Option<ConstantCounts> {
        let values = self.values()?;
        self.memo().get(PieceCounts(hack), || match self.detail() {
            Detail::Whole => self.constants(hack).map(|constants| ConstantCounts {
                hacks: constants.ptr.len() - 1,
                pieces: constants.offsets.len() as u64,
                most: constants.ptr.windows(2).map(|hack| hack[1] - hack[0]).max().unwrap_or(0),
            }),
            Detail::Sampled => {
                let hacks = self.groups_of(hack);
                let diagonals = self.n_diagonals(hack);
                ConstantCounts::of(self.pattern(), values, hack, diagonals, hacks)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::Analysis;
    use crate::csr::Csr;

    #[test]
    fn a_diagonal_is_cut_where_its_value_changes() {
        // -1 next to the diagonal, 2 on it, except for 5 in the second row.
        let entries = (0..8usize).flat_map(|i| {
            let on = if i == 1 { 5.0 } else { 2.0 };
            [(i, i, on)].into_iter().chain((i > 0).then(|| (i, i - 1, -1.0)))
        });
        let csr: Csr<f64> = Csr::from_triplets(8, 8, entries).expect("indices are in range");
        let constants = Analysis::of(&csr).constants(4).expect("few pieces");
        assert_eq!(constants.ptr, [0, 3, 5]);
        assert_eq!(constants.offsets, [0, -1, 0, -1, 0]);
        assert_eq!(
            constants.entries.iter().map(|&k| csr.values()[k]).collect::<Vec<_>>(),
            [2.0, -1.0, 5.0, -1.0, 2.0]
        );
    }

    #[test]
    fn the_largest_number_of_pieces_is_reported() {
        // Rows 256 to 511 have one more value on their diagonal than the other rows.
        let value = |i: usize| if i / 256 == 1 && i.is_multiple_of(2) { 3.0 } else { 2.0 };
        let entries = (0..1024).map(|i| (i, i, value(i)));
        let csr: Csr<f64> = Csr::from_triplets(1024, 1024, entries).expect("in range");
        let counts = Analysis::of(&csr).constant_counts(256).expect("few pieces");
        assert_eq!((counts.hacks, counts.pieces, counts.most), (4, 5, 2));
    }

    #[test]
    fn a_hack_of_too_many_values_is_not_cut_short() {
        // One hack of 40 has 384 values, and the limit of the sample is 256.
        let entries = (0..128 * 40usize).flat_map(|i| {
            let value = move |j: usize| if i / 128 == 5 { (i * 8 + j % 8) as f64 } else { 1.0 };
            (i.saturating_sub(2)..=i).map(move |j| (i, j, value(j)))
        });
        let csr: Csr<f64> = Csr::from_triplets(5120, 5120, entries).expect("indices are in range");
        assert!(Analysis::of(&csr).constants(128).is_none());
    }

    #[test]
    fn values_that_all_differ_are_not_constant() {
        let entries = (0..64usize).flat_map(|i| {
            (i.saturating_sub(1)..=i).map(move |j| (i, j, 1.0 + (i * 64 + j) as f64))
        });
        let csr: Csr<f64> = Csr::from_triplets(64, 64, entries).expect("indices are in range");
        assert!(Analysis::of(&csr).constants(32).is_none());
        assert!(Analysis::new(csr.pattern()).constants(32).is_none(), "no values are known");
    }
}
