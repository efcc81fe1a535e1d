//! Diagonals along which a matrix has one value, in hacks of rows.

use std::collections::HashMap;

use rayon::prelude::*;

use super::ValuesOf;
use crate::csr::{Pattern, offsets};

/// Pieces of diagonals with one value: `ptr[h]..ptr[h + 1]` are those of hack `h`.
#[derive(Debug)]
pub struct Constants {
    /// First piece of each hack, and the end.
    pub ptr: Vec<usize>,
    /// Offset `column - row` of each piece.
    pub offsets: Vec<i64>,
    /// An entry of each piece, by its number in the CSR arrays.
    pub entries: Vec<usize>,
}

/// Hacks that are looked at before all are.
const SAMPLED: usize = 16;

/// Pieces of the same diagonals in a hack, on average, past which its values are not constant.
const MOST_PIECES: usize = 4;

/// Bytes of an entry with its column.
const ENTRY_BYTES: u64 = 12;

/// Pieces that are looked at, behind the last one found, before all are.
const NEAR: usize = 8;

impl Constants {
    /// The pieces of all hacks of `hack` rows; `None` where `diagonals`, the number of diagonals of
    /// all hacks, have so few entries that their pieces take more bytes than the entries, or where a
    /// sample of the hacks or all of them have more than a few pieces for each.
    pub(super) fn of(
        pattern: Pattern<'_>,
        values: ValuesOf<'_>,
        hack: usize,
        diagonals: u64,
    ) -> Option<Self> {
        let piece_bytes = ENTRY_BYTES + hack as u64 / 8;
        if diagonals.saturating_mul(piece_bytes) > pattern.nnz() as u64 * ENTRY_BYTES {
            return None;
        }
        let hacks = pattern.nrows().div_ceil(hack);
        let most = diagonals as usize / hacks.max(1) * MOST_PIECES + MOST_PIECES;
        let few = |h: usize| pieces(pattern, values, hack, h, 4 * most).len() <= most;
        let sample = (0..SAMPLED.min(hacks)).map(|i| i * hacks / SAMPLED.min(hacks));
        if sample.filter(|&h| !few(h)).count() > SAMPLED / 4 {
            return None;
        }
        let all: Vec<Vec<(i64, usize)>> = (0..hacks)
            .into_par_iter()
            .with_min_len(4)
            .map(|h| pieces(pattern, values, hack, h, 16 * most))
            .collect();
        let total: usize = all.iter().map(Vec::len).sum();
        if total > most * hacks {
            return None;
        }
        let ptr = offsets(all.iter().map(Vec::len));
        let (offsets, entries) = all.into_iter().flatten().unzip();
        Some(Constants { ptr, offsets, entries })
    }
}

/// Offset and first entry of the pieces of hack `h`, in the order in which they begin; no more than
/// `most` and one.
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
        // Entries mostly come in the order of the pieces.
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

#[cfg(test)]
mod tests {
    use crate::csr::Csr;
    use crate::structure::Structure;

    #[test]
    fn a_diagonal_is_cut_where_its_value_changes() {
        // -1 beside the diagonal, 2 on it, but 5 in the second row.
        let entries = (0..8usize).flat_map(|i| {
            let on = if i == 1 { 5.0 } else { 2.0 };
            [(i, i, on)].into_iter().chain((i > 0).then(|| (i, i - 1, -1.0)))
        });
        let csr: Csr<f64> = Csr::from_triplets(8, 8, entries).expect("indices are in range");
        let constants = Structure::of(&csr).constants(4).expect("few pieces");
        assert_eq!(constants.ptr, [0, 3, 5]);
        assert_eq!(constants.offsets, [0, -1, 0, -1, 0]);
        assert_eq!(
            constants.entries.iter().map(|&k| csr.values()[k]).collect::<Vec<_>>(),
            [2.0, -1.0, 5.0, -1.0, 2.0]
        );
    }

    #[test]
    fn values_that_all_differ_are_not_constant() {
        let entries = (0..64usize).flat_map(|i| {
            (i.saturating_sub(1)..=i).map(move |j| (i, j, 1.0 + (i * 64 + j) as f64))
        });
        let csr: Csr<f64> = Csr::from_triplets(64, 64, entries).expect("indices are in range");
        assert!(Structure::of(&csr).constants(32).is_none());
        assert!(Structure::new(csr.pattern()).constants(32).is_none(), "no values are known");
    }
}
