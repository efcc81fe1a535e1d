//! CSR tiles: pieces of the entries of a matrix, each for one block of GPU threads.

use std::ops::Range;
use std::sync::Arc;

use ellect_kernels::shared;

use super::gpu::convert::arrays;
use super::gpu::launch::NULL;
use super::gpu::small::is_small;
use super::{Arg, GpuConverter, Launch, Matrix, Stop};
use crate::analysis::{Analysis, probes};
use crate::csr::Pattern;
use crate::scalar::Precision;

/// Pieces with nearly equal numbers of entries. Tile `t` has the entries
/// `entries[t]..entries[t + 1]`, and the rows `rows[t]..rows[t + 1]` begin in it. Entries of the
/// tile before its first such row belong to the row that an earlier tile began.
#[derive(Debug)]
pub(crate) struct Tiles {
    pub rows: Vec<u32>,
    pub entries: Vec<usize>,
}

impl Tiles {
    /// Cuts tiles of at most `most` entries and rows; only rows longer than `most` are split.
    pub fn of(pattern: Pattern<'_>, most: usize) -> Self {
        let (ptr, nrows) = (pattern.row_ptr(), pattern.nrows());
        let mut tiles = Tiles { rows: vec![0], entries: vec![0] };
        // The next row to begin, and the next entry, which may belong to the row before.
        let (mut row, mut entry) = (0, 0);
        while row < nrows || entry < pattern.nnz() {
            let reach = (entry + most).min(pattern.nnz());
            if ptr[row] > reach {
                entry = reach;
            } else {
                let last = (row + most).min(nrows);
                row += ptr[row + 1..=last].partition_point(|&end| end <= reach);
                entry = ptr[row];
                if row < last && ptr[row + 1] - entry > most && entry < reach {
                    row += 1;
                    entry = reach;
                }
            }
            tiles.rows.push(row as u32);
            tiles.entries.push(entry);
        }
        tiles
    }

    /// Turns that a block of `threads` threads takes to process the rows of a tile with one thread
    /// per row: the mean over tiles, and the maximum.
    pub fn turns(&self, threads: usize) -> (f64, f64) {
        let turns = self.rows.windows(2).map(|rows| (rows[1] - rows[0]).div_ceil(threads as u32));
        let (count, sum, most) = turns.fold((0u32, 0, 0), |(count, sum, most), turns| {
            (count + 1, sum + u64::from(turns), most.max(turns))
        });
        (sum as f64 / f64::from(count.max(1)), f64::from(most))
    }

    /// Consecutive steps that a block of `threads` threads takes to sum the rows of its tile: the
    /// mean over tiles, and the maximum. Examines at most about [`SAMPLED_TILES`] tiles.
    pub fn steps(&self, pattern: Pattern<'_>, threads: usize) -> (f64, f64) {
        let count = self.rows.len() - 1;
        let (mut sum, mut most, mut looked_at) = (0, 0, 0);
        for t in (0..count).step_by(count.div_ceil(SAMPLED_TILES).max(1)) {
            let steps = self.steps_of(t, pattern.row_ptr(), threads);
            (sum, most, looked_at) = (sum + steps, most.max(steps), looked_at + 1);
        }
        (sum as f64 / f64::from(looked_at.max(1)), most as f64)
    }

    /// The steps of tile `t`.
    fn steps_of(&self, t: usize, row_ptr: &[usize], threads: usize) -> usize {
        let rows = self.rows[t] as usize..self.rows[t + 1] as usize;
        let entries = self.entries[t]..self.entries[t + 1];
        steps_to_sum(rows, entries, row_ptr, threads)
    }
}

/// The steps in which a block of `threads` threads sums the rows of a tile, counted as `Items::sum`
/// of kernels/common/tiles.cuh executes them: several lanes per row sum the rows in turns; a whole
/// warp sums each row that is too long for its lanes, one after the other. The tile has these
/// entries, and these rows begin in it.
pub(super) fn steps_to_sum(
    rows: Range<usize>,
    entries: Range<usize>,
    row_ptr: &[usize],
    threads: usize,
) -> usize {
    let Range { start, end } = entries;
    let before = usize::from(row_ptr[rows.start].min(end) > start);
    let items = rows.len() + before;
    let shift = lanes_shift(items as u32, threads);
    let (turn, warp) = (threads >> shift, WARP >> shift);
    // Item `i` ends with its row; the last item, whose row may continue, ends with the tile.
    let end_of = |i: usize| row_ptr[rows.start + i + 1 - before].min(end);
    let (mut from, mut steps) = (start, 0);
    for turns in (0..items).step_by(turn) {
        let (mut slowest, turns_end) = (0, (turns + turn).min(items));
        for warps in (turns..turns_end).step_by(warp) {
            let (mut side_by_side, mut in_turn) = (0, 0);
            for item in warps..(warps + warp).min(turns_end) {
                let to = end_of(item);
                match to - from {
                    long if shift < MOST_SHIFT && long > LONG << shift => {
                        in_turn += WARP_SUM + long.div_ceil(WARP);
                    }
                    short => side_by_side = side_by_side.max(short.div_ceil(1 << shift)),
                }
                from = to;
            }
            slowest = slowest.max(side_by_side + in_turn);
        }
        steps += slowest + TURN + shift as usize;
    }
    steps
}

/// Threads of a warp.
const WARP: usize = 32;

/// log2 of the maximum number of lanes per row: a warp.
const MOST_SHIFT: u32 = 5;

/// Entries of a row per lane above which a whole warp sums the row.
const LONG: usize = shared("TILE_LONG") as usize;

/// Additional steps to pass a row to the whole warp and add up the sums of its lanes.
pub(super) const WARP_SUM: usize = 7;

/// Additional steps of a turn: it reads the bounds of its rows and writes its sums.
const TURN: usize = 2;

/// Number of tiles whose steps are counted; a GPU runs no more of the smallest tiles at a time.
pub(super) const SAMPLED_TILES: usize = 1024;

/// log2 of the number of lanes per row that lets `count` rows run at once: at least one lane, at
/// most a warp.
fn lanes_shift(count: u32, threads: usize) -> u32 {
    (0..=MOST_SHIFT).rev().find(|&shift| (count as usize) << shift <= threads).unwrap_or(0)
}

probes! {
    /// Tiles of at most this many entries and rows.
    AllTiles(usize) -> Arc<Tiles>;
    /// Mean and maximum steps of a tile, by entries per tile and threads per block.
    TileSteps(usize, usize) -> (f64, f64);
}

impl Analysis<'_> {
    /// Tiles of at most `most` entries and rows; cached.
    pub(crate) fn tiles(&self, most: usize) -> Arc<Tiles> {
        self.memo().get(AllTiles(most), || Arc::new(Tiles::of(self.pattern(), most)))
    }

    /// Mean and maximum steps of a block of `threads` threads per tile, as [`Tiles::steps`] counts
    /// them; cached.
    pub(crate) fn tile_steps(&self, most: usize, threads: usize) -> (f64, f64) {
        let steps = || self.tiles(most).steps(self.pattern(), threads);
        self.memo().get(TileSteps(most, threads), steps)
    }
}

/// Tiles that a GPU has found.
pub(super) struct FoundTiles {
    /// [`Tiles::rows`], 32-bit.
    pub rows: Arg,
    /// [`Tiles::entries`], as wide as row pointers.
    pub entries: Arg,
    pub count: u64,
    /// True if a tile begins within a row.
    pub splits: bool,
}

impl FoundTiles {
    /// Finds the tiles of [`Tiles::of`], except that every warp starts a new one, as arrays of the
    /// layout.
    pub fn new(converter: &mut dyn GpuConverter, most: usize) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let Matrix { nrows, nnz, wide, .. } = matrix;
        let width = if wide { 8 } else { 4 };
        let (weight, chunks) = chunks(&matrix, most);
        // The arrays are allocated before the number of tiles is known, so that one wait suffices.
        // The bound holds because a tile that is not the last of its chunk is full of entries or of
        // rows, or does not fit into one tile together with the next.
        let most_tiles = (3 * (nnz as u64 + nrows as u64)).div_ceil(most as u64) + chunks;
        if is_small(&matrix) {
            return FoundTiles::small(converter, most, most_tiles);
        }
        let rows = converter.array(4 * (most_tiles + 1))?;
        let entries = converter.array(width * (most_tiles + 1))?;
        let found = converter.temporary_zeros(4 * chunks.div_ceil(CHUNKS_A_BLOCK))?;
        let (taken, total, splits) =
            (converter.number()?, converter.number()?, converter.number()?);
        let sizes = [Arg::U32(nrows as u32), Arg::U32(most as u32)];
        let chunking = [Arg::U64(weight), Arg::U32(chunks as u32), Arg::RowPtr];
        let out = [rows, entries, found, taken, total, splits];
        let args = sizes.into_iter().chain(chunking).chain(out).collect();
        let kernel = format!("find_tiles_{}", matrix.offset_name());
        converter.launch(&Launch::over("convert_tiles", kernel, chunks * 32, BLOCK, args))?;
        let count = u64::from(converter.read(total)?);
        let splits = converter.read(splits)? > 0;
        converter.trim(rows, 4 * (count + 1));
        converter.trim(entries, width * (count + 1));
        Ok(FoundTiles { rows, entries, count, splits })
    }

    /// As [`FoundTiles::new`], for a small matrix, which has at most `most_tiles` tiles: see
    /// `find_tiles_small` of kernels/conversions/convert_small.cu.
    fn small(converter: &mut dyn GpuConverter, most: usize, most_tiles: u64) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let (weight, chunks) = chunks(&matrix, most);
        let bytes = 4 * (most_tiles + 1);
        let [rows, entries] = arrays(converter, [bytes, bytes])?;
        let found = converter.temporary_zeros(4 * chunks)?;
        let numbers = [converter.number()?, converter.number()?, converter.number()?];
        let sizes = [matrix.nrows as u64, most as u64, weight].map(|size| Arg::U32(size as u32));
        let args = sizes.into_iter().chain([Arg::RowPtr, rows, entries, found]).chain(numbers);
        let args = args.chain(converter.host()?).collect();
        let threads = chunks * u64::from(BLOCK);
        let kernel = "find_tiles_small";
        converter.launch(&Launch::over("convert_small", kernel, threads, BLOCK, args))?;
        let [count, splits, ..] = converter.told()?;
        // The kernel tells its numbers when all tiles are written.
        converter.note_written();
        let count = u64::from(count);
        [rows, entries].into_iter().for_each(|array| converter.trim(array, 4 * (count + 1)));
        Ok(FoundTiles { rows, entries, count, splits: splits > 0 })
    }
}

/// The image whose kernels multiply tiles.
pub(super) const TILES: &str = "pcsr";

/// The tiles of a matrix on a GPU.
pub(super) struct GpuTiles {
    /// True if the middle array goes through memory.
    pub two: bool,
    /// The maximum number of entries of a tile.
    pub tile: usize,
    pub tiles: u64,
    /// True if a tile begins within a row.
    pub splits: bool,
    pub wide: bool,
    pub nnz: u64,
    /// Row pointers, `Tiles::rows` and `Tiles::entries`.
    pub bounds: [Arg; 3],
    /// Columns and values.
    pub entries: [Arg; 2],
    /// The image whose kernel adds what tiles summed of rows that began in earlier ones: `pcsr`, or
    /// `csr_tiles`, which always adds them in the same order.
    pub heads: &'static str,
}

impl GpuTiles {
    /// The launches of one product.
    pub fn launches(&self, name: Precision) -> Vec<Launch> {
        let wide = if self.wide { "wide_" } else { "" };
        let (bounds, [columns, values]) = (self.bounds, self.entries);
        let heads = if self.splits { Arg::Scratch(0) } else { NULL };
        let middle = Arg::Scratch(usize::from(self.splits));
        let mut launches = Vec::new();
        let (kernel, source) = if self.two {
            let args = vec![Arg::U64(self.nnz), columns, values, Arg::X, middle];
            let kernel = format!("pcsr_products_{name}");
            launches.push(Launch::over(TILES, kernel, self.nnz.div_ceil(4), 256, args));
            ("two", vec![middle])
        } else {
            ("fused", vec![columns, values, Arg::X])
        };
        let block = self.tile / ENTRIES_A_THREAD;
        let kernel = format!("pcsr_{wide}{kernel}{block}_{name}");
        let end = [heads, Arg::Y, Arg::Alpha, Arg::Beta];
        let args = bounds.into_iter().chain(source).chain(end).collect();
        launches.push(Launch::over(TILES, kernel, self.tiles * block as u64, block as u32, args));
        if self.splits {
            let args = [Arg::U32(self.tiles as u32)].into_iter().chain(bounds);
            let args = args.chain([heads, Arg::Y, Arg::Alpha]).collect();
            let kernel = format!("{}_{wide}heads_{name}", self.heads);
            let threads = if self.heads == TILES { 1 } else { WARP as u64 };
            launches.push(Launch::over(self.heads, kernel, self.tiles * threads, 256, args));
        }
        launches
    }

    /// Bytes of the heads, where a tile begins within a row, and of the middle array.
    pub fn scratch(&self, precision: Precision) -> Vec<u64> {
        let w = precision.bytes() as u64;
        let heads = self.splits.then_some(w * self.tiles);
        heads.into_iter().chain(self.two.then_some(w * self.nnz)).collect()
    }
}

/// Entries and rows of a chunk, and the number of chunks.
fn chunks(matrix: &Matrix, most: usize) -> (u64, u64) {
    let weight = TILES_A_CHUNK * most as u64;
    let chunks = (matrix.nnz as u64 + matrix.nrows as u64).div_ceil(weight);
    (weight, chunks.max(1))
}

/// Entries of a tile that a GPU thread processes.
pub(super) const ENTRIES_A_THREAD: usize = shared("PCSR_EACH") as usize;

/// The number of tiles that one warp finds, at most, where all tiles are full.
const TILES_A_CHUNK: u64 = 16;

/// Chunks per block; each is processed by one warp.
const CHUNKS_A_BLOCK: u64 = shared("TILE_CHUNKS");

/// Threads of a block that finds tiles.
const BLOCK: u32 = 32 * CHUNKS_A_BLOCK as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_end_with_rows_unless_a_row_is_longer() {
        let row_ptr = [0, 3, 4, 4, 14, 15, 17];
        let col_idx: Vec<u32> = (0..17).map(|k| k % 16).collect();
        let pattern = Pattern::of(6, 16, &row_ptr, &col_idx);
        let tiles = Tiles::of(pattern, 4);
        // Rows 0 to 2 fill a tile; row 3 takes 10 entries, and rows 4 and 5 follow it.
        assert_eq!(tiles.entries, [0, 4, 8, 12, 15, 17]);
        assert_eq!(tiles.rows, [0, 3, 4, 4, 5, 6]);
    }

    #[test]
    fn a_tile_takes_as_many_steps_as_its_slowest_warp() {
        // One tile, 64 threads: 4 rows of 8 entries have 16 lanes each, the longest one step.
        let row_ptr: Vec<usize> = (0..5).map(|row| 8 * row).collect();
        let col_idx: Vec<u32> = (0..32).map(|k| k % 8).collect();
        let pattern = Pattern::of(4, 8, &row_ptr, &col_idx);
        assert_eq!(Tiles::of(pattern, 64).steps(pattern, 64), (7.0, 7.0));
        // 64 rows with one lane each; the last has 48 entries, which a warp sums in 2 steps.
        let row_ptr: Vec<usize> = (0..64).chain([111]).collect();
        let col_idx: Vec<u32> = (0..111).map(|k| k % 48).collect();
        let pattern = Pattern::of(64, 48, &row_ptr, &col_idx);
        let all = (1 + WARP_SUM + 2 + TURN) as f64;
        assert_eq!(Tiles::of(pattern, 128).steps(pattern, 64), (all, all));
        // In tiles of 32 entries, the row ends two tiles later.
        let tiles = Tiles::of(pattern, 32);
        assert_eq!(tiles.entries, [0, 32, 64, 96, 111]);
        let steps: Vec<usize> = (0..4).map(|t| tiles.steps_of(t, &row_ptr, 32)).collect();
        assert_eq!(steps, [3, 3, 8, 8]);
    }

    #[test]
    fn threads_go_through_the_rows_of_a_tile_in_turns() {
        // 40 rows of an entry each, then one of 24: tiles of 32 entries have 32 rows and 9.
        let row_ptr: Vec<usize> = (0..=40).chain([64]).collect();
        let col_idx: Vec<u32> = (0..64).map(|k| k % 24).collect();
        let tiles = Tiles::of(Pattern::of(41, 24, &row_ptr, &col_idx), 32);
        assert_eq!(tiles.rows, [0, 32, 41]);
        assert_eq!(tiles.turns(8), (3.0, 4.0));
        assert_eq!(tiles.turns(32), (1.0, 1.0));
    }

    #[test]
    fn tiles_hold_few_rows_where_rows_are_empty() {
        let row_ptr = [0; 11];
        let tiles = Tiles::of(Pattern::of(10, 3, &row_ptr, &[]), 4);
        assert_eq!(tiles.rows, [0, 4, 8, 10]);
        assert_eq!(tiles.entries, [0, 0, 0, 0]);
    }
}
