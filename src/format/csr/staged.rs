//! Products of CSR rows on a GPU in which a block of threads reads the entries of its rows evenly,
//! stores their products in shared memory, and sums each row from there with a few lanes.

use super::Extent;
use super::csr::BLOCK;
use crate::scalar::Precision;

/// Entries of the smallest matrix whose rows are staged.
pub(super) const LEAST: usize = 1_000_000;

/// Entries of the longest row up to which the lanes of a row read all of it at once, unless rows are
/// very short on average.
const AT_ONCE: usize = 12;

/// Most lanes that sum a row of a block's products.
const MOST_LANES: usize = 16;

/// Number of blocks of threads below which more lanes sum a row.
const FEW_BLOCKS: usize = 256;

/// Tells whether blocks of threads read the entries of their rows evenly: in large matrices of short
/// rows, found by measurement (tests/results/tried.md). In f32, the bytes of the entries take less of
/// the time, so that fewer entries are enough.
pub(super) fn applies(Extent { nrows, nnz, longest }: Extent, precision: Precision) -> bool {
    let shorter_than = |mean: usize| nnz < mean * nrows;
    let (is_uneven, is_f32) = (longest > AT_ONCE, precision == Precision::F32);
    nnz >= LEAST && shorter_than(4)
        || nnz >= 4 * LEAST && shorter_than(100) && is_uneven
        || is_f32 && nnz >= 2 * LEAST && shorter_than(8) && is_uneven
        || is_f32 && nnz >= 12 * LEAST && shorter_than(8)
}

/// Lanes that sum a row of a block's products, found by measurement: more for few rows, so that more
/// blocks share the entries.
pub(super) fn lanes(nrows: usize, nnz: usize) -> usize {
    let mean = nnz / nrows.max(1);
    let least = match mean {
        0..=10 => 1,
        11..=20 => 2,
        21..=64 => 4,
        65..=160 => 8,
        _ => MOST_LANES,
    };
    let enough = |lanes: &usize| {
        nrows * lanes >= FEW_BLOCKS * BLOCK as usize || 2 * lanes > mean || *lanes == MOST_LANES
    };
    let tried = std::iter::successors(Some(least), |lanes| Some(2 * lanes));
    tried.into_iter().find(enough).unwrap_or(MOST_LANES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_matrices_of_short_rows_are_staged() {
        for precision in [Precision::F64, Precision::F32] {
            let applies = |nrows, nnz, longest| applies(Extent { nrows, nnz, longest }, precision);
            assert!(applies(300_000, 1_000_000, 5) && !applies(300_000, 999_999, 5));
            assert!(applies(400_000, 4_000_000, 13) && !applies(400_000, 4_000_000, 12));
            assert!(!applies(400_000, 3_999_999, 13) && applies(80_000, 4_000_000, 60));
            assert!(!applies(100_000, 12_000_000, 150) && !applies(0, 0, 0));
            // Only in f32.
            let is_f32 = precision == Precision::F32;
            assert_eq!(applies(300_000, 2_000_000, 13), is_f32);
            assert_eq!(applies(2_000_000, 12_000_000, 7), is_f32);
        }
    }

    #[test]
    fn few_rows_have_more_lanes() {
        assert_eq!(
            [(1_000_000, 7_000_000), (10_000, 70_000)].map(|(n, nnz)| lanes(n, nnz)),
            [1, 4]
        );
        assert_eq!(lanes(1_000, 500_000), 16);
    }
}
