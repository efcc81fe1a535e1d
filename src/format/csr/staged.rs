//! Products of CSR rows on a GPU in which a block of threads reads the entries of its rows evenly,
//! stores their products in shared memory, and sums each row from there with a few lanes.

use ellect_kernels::shared;

use super::csr::BLOCK;
use super::long_rows::Cut;
use super::row_order::WARP;
use super::{Target, Work};
use crate::analysis::{Analysis, Walk};

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

/// Entries of a row per lane above which a warp sums the row.
const BY_WARP: u64 = shared("TILE_LONG");

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

/// The work of a product whose blocks of threads read the entries of their rows evenly. `cut` tells how
/// long rows are cut, if there are any; `whole` is the work of a product in which the lanes of a row
/// read all of it.
pub(super) fn work(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    cut: Option<&Cut>,
    whole: Work,
) -> Work {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
    let own = lanes(nrows, nnz);
    let warps = (nrows * own).div_ceil(WARP).max(1);
    let sums = |length: u32| {
        let length = u64::from(length);
        let by = if cut.is_some() && length > BY_WARP * own as u64 { WARP } else { own };
        length.min(Cut::NONE_CUT as u64).div_ceil(by as u64)
    };
    let pieces = cut.map(|cut| cut.counts(analysis.row_lengths())).unwrap_or_default();
    let list = pieces.listed * size_of::<[u32; 2]>() as u64;
    let longest = sums(analysis.max_length().min(u32::MAX as usize) as u32);
    Work {
        layout_bytes: whole.layout_bytes + list,
        x_loaded: analysis.x_loaded(Walk::Entries, target),
        // The sums of pieces are written and read.
        extra_bytes: 2 * pieces.cut * target.precision.bytes() as u64,
        steps: nnz.div_ceil(WARP) as u64,
        waits: 0,
        tile_steps: analysis.sum_over_warps(WARP, own, sums) as f64 / warps as f64,
        tile_steps_most: pieces.steps_most.max(longest) as f64,
        lanes: 0,
        ..whole
    }
}
