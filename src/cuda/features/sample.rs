//! The launch that samples features, and the counts that it leaves.

use ellect_kernels::shared;

use crate::analysis::EachPrecision;
use crate::features::{RowCounts, SampleCounts};
use crate::format::{Arg, Launch, Matrix};

/// Threads of a block.
const BLOCK: u64 = shared("FEATURES_THREADS");

/// Minimum number of rows that a block reads.
const ROWS: u64 = shared("SAMPLE_ROWS");

/// Maximum number of blocks that read rows.
const MOST_BLOCKS: u64 = shared("SAMPLE_BLOCKS");

/// Number of blocks that sample entries.
const SECTOR_BLOCKS: u64 = shared("SAMPLE_SECTOR_BLOCKS");

/// Number of 64-bit counts.
pub(in crate::cuda) const COUNTS: usize = shared("SAMPLE_COUNTS") as usize;

/// Returns the launch that samples the features of this matrix. `counts` is the address of
/// [`COUNTS`] zeros, which the launch restores, and `out` that of the results in host memory.
pub(in crate::cuda) fn launch(matrix: Matrix, counts: u64, out: u64) -> Launch {
    let blocks = SECTOR_BLOCKS + (matrix.nrows as u64).div_ceil(ROWS).clamp(1, MOST_BLOCKS);
    let args = vec![
        Arg::U32(matrix.nrows as u32),
        Arg::RowPtr,
        Arg::ColIdx,
        Arg::U64(counts),
        Arg::U64(out),
    ];
    let kernel = format!("sample_{}", matrix.offset_name());
    Launch::over("sample", kernel, blocks * BLOCK, BLOCK as u32, args)
}

/// Returns the counts behind the sampled features from what the launch left.
pub(super) fn counts(matrix: Matrix, found: &[u64; COUNTS]) -> SampleCounts {
    let at = |place: u64| found[place as usize];
    let sectors_at = const { shared("sample_sectors_at") };
    let entries = at(sectors_at + 2).max(1) as f64;
    SampleCounts {
        size: [matrix.nrows, matrix.ncols, matrix.nnz],
        rows: RowCounts {
            shortest: u64::from(u32::MAX) - at(const { shared("sample_below_at") }),
            longest: at(const { shared("sample_longest_at") }),
            empty: at(const { shared("sample_empty_at") }),
            squares: f64::from_bits(at(const { shared("sample_squares_at") })),
        },
        sectors: EachPrecision::new([0, 1].map(|i| at(sectors_at + i) as f64 / entries)),
    }
}
