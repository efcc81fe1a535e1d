//! Tiles: the entries of a matrix in pieces, each for a block of GPU threads.

use super::{Arg, Builder, Launch, Matrix, Stop};
use crate::csr::Pattern;

/// Pieces of nearly the same number of entries: tile `t` has the entries
/// `entries[t]..entries[t + 1]`, and the rows `rows[t]..rows[t + 1]` begin in it. Its entries
/// before the first of these rows are the rest of the row before.
#[derive(Debug)]
pub(super) struct Tiles {
    pub rows: Vec<u32>,
    pub entries: Vec<usize>,
}

impl Tiles {
    /// Tiles of at most `most` entries and rows, cut between rows where none is longer.
    pub fn of(pattern: Pattern<'_>, most: usize) -> Self {
        let (ptr, nrows) = (pattern.row_ptr(), pattern.nrows());
        let mut tiles = Tiles { rows: vec![0], entries: vec![0] };
        // The next row to begin, and the next entry: one of the row before while that goes on.
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
}

/// Tiles that a GPU has found.
pub(super) struct FoundTiles {
    /// [`Tiles::rows`], 32-bit.
    pub rows: Arg,
    /// [`Tiles::entries`], as wide as row pointers.
    pub entries: Arg,
    pub count: u64,
    /// Whether one begins within a row.
    pub splits: bool,
}

impl FoundTiles {
    /// Finds the tiles of [`Tiles::of`], but that every warp starts one, as arrays of the layout.
    pub fn new(builder: &mut dyn Builder, most: usize) -> Result<Self, Stop> {
        let matrix = builder.matrix();
        let Matrix { nrows, nnz, wide, .. } = matrix;
        let width = if wide { 8 } else { 4 };
        let weight = TILES_A_CHUNK * most as u64;
        let chunks = (nnz as u64 + nrows as u64).div_ceil(weight).max(1);
        let starts = builder.temporary(4 * (chunks + 1))?;
        let kept = chunks * KEPT_A_CHUNK;
        let (kept_rows, kept_entries) =
            (builder.temporary(4 * kept)?, builder.temporary(width * kept)?);
        let (ended, total, splits) = (builder.number()?, builder.number()?, builder.number()?);
        let launch = |stem: &str, out: &[Arg]| {
            let sizes = [Arg::U32(nrows as u32), Arg::U32(most as u32)];
            let chunking = [Arg::U64(weight), Arg::U32(chunks as u32), Arg::RowPtr];
            let found = [starts, kept_rows, kept_entries];
            let out = out.iter().copied();
            let args = sizes.into_iter().chain(chunking).chain(found).chain(out).collect();
            let kernel = format!("{stem}_{}", matrix.offset_name());
            Launch::over("convert_tiles", kernel, chunks * 32, 256, args)
        };
        builder.launch(&launch("find_tiles", &[ended, total, splits]))?;
        let count = u64::from(builder.read(total)?);
        let splits = builder.read(splits)? > 0;
        let rows = builder.array(4 * (count + 1))?;
        let entries = builder.array(width * (count + 1))?;
        builder.launch(&launch("place_tiles", &[rows, entries]))?;
        Ok(FoundTiles { rows, entries, count, splits })
    }
}

/// Tiles that one warp finds: at most, where all are full.
const TILES_A_CHUNK: u64 = 16;

/// Tiles of a chunk that are kept between counting and placing: `KEPT` of the kernels.
const KEPT_A_CHUNK: u64 = 64;

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
    fn tiles_hold_few_rows_where_rows_are_empty() {
        let row_ptr = [0; 11];
        let tiles = Tiles::of(Pattern::of(10, 3, &row_ptr, &[]), 4);
        assert_eq!(tiles.rows, [0, 4, 8, 10]);
        assert_eq!(tiles.entries, [0, 0, 0, 0]);
    }
}
