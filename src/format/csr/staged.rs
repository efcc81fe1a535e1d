//! Products of CSR rows on a GPU in which a block of threads reads the entries of its rows evenly,
//! stores their products in shared memory, and sums each row from there with a few lanes.

use super::csr::BLOCK;

/// Entries of the longest row up to which the lanes of a row read all of it at once, unless rows are
/// short on average, found by measurement (tests/results/tried.md).
const AT_ONCE: usize = 12;

/// Mean entries per row below which rows are staged, whatever the longest one: most lanes would load
/// little.
const SHORT: usize = 4;

/// Most lanes that sum a row of a block's products.
const MOST_LANES: usize = 16;

/// Number of blocks of threads below which more lanes sum a row.
const FEW_BLOCKS: usize = 256;

/// Tells whether blocks of threads read the entries of their rows evenly. The longest row is in
/// `longest`.
pub(super) fn applies(nrows: usize, nnz: usize, longest: usize) -> bool {
    longest > AT_ONCE || nnz < SHORT * nrows
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
