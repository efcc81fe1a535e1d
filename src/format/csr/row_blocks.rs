//! Blocks of rows of a CSR matrix on a GPU, one for each block of threads (CSR-Adaptive).
//!
//! ```text
//!     rows of 2, 3, 0, 9 and 1 entries; blocks of at most 6 entries, pieces of 4
//!     rows          0 1 2 | 3 | 3 | 3 | 4
//!     first row     0     | 3 | 3 | 3 | 4
//!     first piece   0     | 1 | 1 | 1 | 4
//! ```
//!
//! A block has as many rows as fit into shared memory with all their entries, or one row that may be
//! longer. A row that is much longer is cut into pieces, each a block of its own. Blocks are found
//! one after the other within a chunk of rows, and chunks side by side.

use std::ops::Range;

use ellect_kernels::shared;

use super::csr_tiles::{SAMPLED_TILES, WARP_SUM, steps_to_sum};
use super::{Arg, GpuConverter, Launch, Matrix, Stop};

/// Maximum number of entries, and of rows, of a block of several rows.
const ENTRIES: usize = shared("CSR_ADAPTIVE_ENTRIES") as usize;

/// Entries of a piece; rows with more are cut.
const PIECE: usize = shared("CSR_ADAPTIVE_PIECE") as usize;

/// Rows of a chunk.
const CHUNK: usize = shared("CSR_ADAPTIVE_CHUNK") as usize;

/// Threads of a block.
pub(super) const THREADS: usize = 256;

/// Returns the list of blocks: the first row of each, and the position in the list of the row's
/// first piece.
pub(super) fn list(row_ptr: &[usize]) -> Vec<[u32; 2]> {
    let nrows = row_ptr.len() - 1;
    let mut list: Vec<[u32; 2]> = Vec::new();
    for chunk in (0..nrows).step_by(CHUNK) {
        let end = (chunk + CHUNK).min(nrows);
        let mut row = chunk;
        while row < end {
            let start = list.len();
            let pieces = (row_ptr[row + 1] - row_ptr[row]).div_ceil(PIECE).max(1);
            list.resize(start + pieces, [row as u32, start as u32]);
            row = end_of(row, end, row_ptr);
        }
    }
    list
}

/// Returns the end of the block that begins with row `row`, in a chunk that ends with row `end`.
fn end_of(row: usize, end: usize, row_ptr: &[usize]) -> usize {
    let most = end.min(row + ENTRIES);
    let fits = |&end: &usize| end - row_ptr[row] <= ENTRIES;
    row + row_ptr[row + 1..=most].partition_point(fits).max(1)
}

/// Lists the blocks of a matrix on a GPU, as [`list`] does; returns the list, and its length. Waits
/// once, for the length.
pub(super) fn find(converter: &mut dyn GpuConverter) -> Result<(Arg, u64), Stop> {
    let matrix = converter.matrix();
    let Matrix { nrows, .. } = matrix;
    let chunks = nrows.div_ceil(CHUNK);
    let counts = converter.temporary(4 * (chunks as u64 + 1))?;
    let step = |kernel: &str, out: &[Arg]| {
        let args = [Arg::U32(nrows as u32), Arg::RowPtr].into_iter().chain(out.iter().copied());
        let kernel = format!("{kernel}_{}", matrix.offset_name());
        let threads = (chunks * THREADS) as u64;
        Launch::over("convert_csr_blocks", kernel, threads, THREADS as u32, args.collect())
    };
    converter.launch(&step("count_blocks", &[counts]))?;
    let starts = converter.temporary_starts(counts, 1, chunks + 1)?;
    let list = converter.array(size_of::<[u32; 2]>() as u64 * starts.total)?;
    let [narrow, wide] = starts.args;
    converter.launch(&step("list_blocks", &[narrow, wide, list]))?;
    Ok((list, starts.total))
}

/// Counts of the blocks of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BlockCounts {
    pub blocks: u64,
    /// Pieces of rows that are cut.
    pub pieces: u64,
    /// Consecutive steps in which a block is summed: the mean over blocks, and the maximum. Sampled
    /// if there are many blocks.
    pub steps: f64,
    pub steps_most: f64,
}

impl BlockCounts {
    /// Counts the blocks of a matrix with these row pointers.
    pub fn of(row_ptr: &[usize]) -> Self {
        let list = list(row_ptr);
        let nrows = row_ptr.len() - 1;
        let row_of = |b: usize| list.get(b).map_or(nrows, |block| block[0] as usize);
        let is_piece = |row: usize| row_ptr[row + 1] - row_ptr[row] > PIECE;
        let pieces = list.iter().filter(|[row, _]| is_piece(*row as usize)).count() as u64;
        let (mut sum, mut most, mut looked_at) = (0, 0, 0);
        for b in (0..list.len()).step_by(list.len().div_ceil(SAMPLED_TILES).max(1)) {
            let steps = steps_of(row_of(b)..row_of(b + 1), row_ptr);
            (sum, most, looked_at) = (sum + steps, most.max(steps), looked_at + 1);
        }
        let steps = sum as f64 / f64::from(looked_at.max(1));
        BlockCounts { blocks: list.len() as u64, pieces, steps, steps_most: most as f64 }
    }
}

/// Returns the steps in which a block with these rows is summed; a piece has its row or none.
fn steps_of(rows: Range<usize>, row_ptr: &[usize]) -> usize {
    if rows.len() > 1 {
        let entries = row_ptr[rows.start]..row_ptr[rows.end];
        return steps_to_sum(rows, entries, row_ptr, THREADS);
    }
    // All threads sum a row or a piece. Then they add up their sums, and those of all pieces.
    let length = row_ptr[rows.start + 1] - row_ptr[rows.start];
    let whole = |entries: usize| entries.div_ceil(THREADS) + 2 * WARP_SUM;
    match length.div_ceil(PIECE) {
        0 | 1 => whole(length),
        pieces => whole(PIECE) + whole(pieces),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row pointers of rows with these lengths.
    fn of(lengths: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let ends = lengths.into_iter().scan(0, |end, length| {
            *end += length;
            Some(*end)
        });
        [0].into_iter().chain(ends).collect()
    }

    #[test]
    fn a_block_has_the_rows_that_fit_or_a_row_or_a_piece() {
        // Blocks of at most 1024 entries, pieces of 4096.
        let rows = [1000, 24, 0, 1, 1024, 1025, 4096, 4097, 0, 0, 3];
        assert_eq!(
            list(&of(rows)),
            [[0, 0], [3, 1], [4, 2], [5, 3], [6, 4], [7, 5], [7, 5], [8, 7]]
        );
        assert_eq!(list(&of([])), [[0; 2]; 0]);
        assert_eq!(list(&of([0])), [[0, 0]]);
        assert_eq!(list(&of([10_000])), [[0, 0]; 3]);
    }

    #[test]
    fn a_block_has_a_limited_number_of_rows_of_one_chunk() {
        let firsts = |n: usize, length: usize| -> Vec<u32> {
            list(&of(std::iter::repeat_n(length, n))).iter().map(|block| block[0]).collect()
        };
        assert_eq!(firsts(2100, 0), [0, 1024, 2048]);
        assert_eq!(firsts(4097, 1), [0, 1024, 2048, 3072, 4096]);
        // 341 rows of 3 entries fit; the chunk of 4096 rows ends within a block.
        let expected: Vec<u32> = (0..=12).map(|b| 341 * b).chain([4096]).collect();
        assert_eq!(firsts(4100, 3), expected);
    }

    #[test]
    fn blocks_take_the_steps_of_their_rows() {
        // 256 rows of 4 entries with one lane each, a row of 2000 entries, and three pieces.
        let row_ptr = of([4; 256].into_iter().chain([2000, 10_000]));
        let counts = BlockCounts::of(&row_ptr);
        assert_eq!((counts.blocks, counts.pieces), (5, 3));
        let [several, row, piece] = [4.0 + 2.0, 8.0 + 14.0, 16.0 + 14.0 + 1.0 + 14.0];
        assert_eq!(counts.steps_most, piece);
        assert_eq!(counts.steps, (several + row + 3.0 * piece) / 5.0);
    }
}
