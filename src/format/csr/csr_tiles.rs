//! Tiles of CSR entries, found on a GPU.

use super::{Arg, Builder, Launch, Matrix, Stop};

/// Tiles that a GPU has found.
pub(super) struct FoundTiles {
    /// `Tiles::rows`, 32-bit.
    pub rows: Arg,
    /// `Tiles::entries`, as wide as row pointers.
    pub entries: Arg,
    pub count: u64,
    /// Whether one begins within a row.
    pub splits: bool,
}

impl FoundTiles {
    /// Finds the tiles of `Tiles::of`, but that every warp starts one, as arrays of the layout.
    pub fn new(builder: &mut dyn Builder, most: usize) -> Result<Self, Stop> {
        let matrix = builder.matrix();
        let Matrix { nrows, nnz, wide, .. } = matrix;
        let width = if wide { 8 } else { 4 };
        let weight = TILES_A_CHUNK * most as u64;
        let chunks = (nnz as u64 + nrows as u64).div_ceil(weight).max(1);
        // Placed before it is known how many there are, so that one wait does: a tile that is not its
        // chunk's last is full of entries or of rows, or does not fit into one with the next.
        let most_tiles = (3 * (nnz as u64 + nrows as u64)).div_ceil(most as u64) + chunks;
        let rows = builder.array(4 * (most_tiles + 1))?;
        let entries = builder.array(width * (most_tiles + 1))?;
        let found = builder.temporary_zeros(4 * chunks.div_ceil(CHUNKS_A_BLOCK))?;
        let (taken, total, splits) = (builder.number()?, builder.number()?, builder.number()?);
        let sizes = [Arg::U32(nrows as u32), Arg::U32(most as u32)];
        let chunking = [Arg::U64(weight), Arg::U32(chunks as u32), Arg::RowPtr];
        let out = [rows, entries, found, taken, total, splits];
        let args = sizes.into_iter().chain(chunking).chain(out).collect();
        let kernel = format!("find_tiles_{}", matrix.offset_name());
        let block = 32 * CHUNKS_A_BLOCK as u32;
        builder.launch(&Launch::over("convert_tiles", kernel, chunks * 32, block, args))?;
        let count = u64::from(builder.read(total)?);
        let splits = builder.read(splits)? > 0;
        builder.trim(rows, 4 * (count + 1));
        builder.trim(entries, width * (count + 1));
        Ok(FoundTiles { rows, entries, count, splits })
    }
}

/// Tiles that one warp finds: at most, where all are full.
const TILES_A_CHUNK: u64 = 16;

/// Chunks of a block, a warp each: `warps` of the kernel.
const CHUNKS_A_BLOCK: u64 = 8;
