//! Conversion of CSR entries to sorted tiles on a host.

use super::widths::{EXTRA, Widths, put};
use super::{BASED, EACH, LOW, SortedTiles, WARP, based, nth, place_bits, placed};
use crate::csr::Pattern;
use crate::format::csr_tiles::Tiles;
use crate::par::{self, slices_mut};

impl SortedTiles {
    /// Sorts tiles of at most `tile` entries, each with a product of `value_bytes` bytes.
    pub fn new(pattern: Pattern<'_>, tile: usize, value_bytes: usize) -> Self {
        let tiles = Tiles::of(pattern, tile);
        let TileEntries { ends, lasts, bases, low, rest } =
            TileEntries::sorted(pattern, &tiles, tile, value_bytes);
        let needed = par::map(rest.len() / WARP, 1, |warp| {
            let all = rest[warp * WARP..][..WARP].iter().fold(0, |all, &rest| all | rest);
            u32::BITS - all.leading_zeros()
        });
        let extra = EXTRA[Widths::of(needed.iter().map(|&bits| (bits, 1))).best()];
        let mut high = vec![0u32; rest.len() / 32 * extra as usize];
        let words = extra as usize / 4;
        let mut parts: Vec<&mut [u32]> = high.chunks_mut(words * (tile / EACH)).collect();
        par::for_each(&mut parts, 1, |t, high| {
            let rest = rest[t * tile..][..tile].chunks(EACH);
            high.chunks_mut(words).zip(rest).for_each(|(words, rest)| put(extra, rest, words));
        });
        let wide_warps: Vec<bool> = needed.iter().map(|&bits| bits > extra).collect();
        SortedTiles {
            nrows: pattern.nrows(),
            ncols: pattern.ncols(),
            nnz: pattern.nnz(),
            tile,
            value_bytes,
            tiles: headers(pattern, &tiles, &wide_warps),
            ends,
            lasts,
            bases,
            low,
            extra,
            high,
            wide: wide_bits(&rest, &wide_warps, extra),
        }
    }
}

/// The entries of all tiles, sorted by column, before the bits of their columns are packed; fields
/// are as in [`SortedTiles`].
struct TileEntries {
    ends: Vec<u16>,
    lasts: Vec<u8>,
    bases: Vec<[u32; 4]>,
    low: Vec<u16>,
    /// Per slot, the column bits that do not fit next to the place.
    rest: Vec<u32>,
}

impl TileEntries {
    fn sorted(pattern: Pattern<'_>, tiles: &Tiles, tile: usize, value_bytes: usize) -> Self {
        let (count, warps) = (tiles.rows.len() - 1, tile / WARP);
        let slots = count * tile;
        let end_cuts: Vec<_> = (0..=count).map(|t| tiles.rows[t] as usize + 2 * t).collect();
        let mut ends = vec![0u16; end_cuts[count]];
        let mut low = vec![0u16; slots];
        let mut rest = vec![0u32; slots];
        let mut bases = vec![[0u32; 4]; count * warps];
        let mut lasts = vec![0u8; slots / 8];
        let row_ptr = pattern.row_ptr();
        let (bits, left) = (place_bits(tile), LOW - place_bits(tile));
        let parts = slices_mut(&mut ends, &end_cuts).into_iter().zip(low.chunks_mut(tile));
        let parts = parts.zip(rest.chunks_mut(tile)).zip(bases.chunks_mut(warps));
        let mut parts: Vec<_> = parts.zip(lasts.chunks_mut(tile / 8)).collect();
        par::for_each(&mut parts, 1, |t, ((((ends, low), rest), bases), lasts)| {
            let (start, end) = (tiles.entries[t], tiles.entries[t + 1]);
            let rows = tiles.rows[t] as usize..=tiles.rows[t + 1] as usize;
            for (slot, &row_end) in ends[1..].iter_mut().zip(&row_ptr[rows]) {
                let to = row_end.min(end) - start;
                *slot = to as u16;
                if let Some(last) = to.checked_sub(1) {
                    lasts[last / 8] |= 1 << (last % 8);
                }
            }
            let columns = &pattern.col_idx()[start..end];
            let mut sorted: Vec<(u32, usize)> = columns.iter().copied().zip(0..).collect();
            sorted.sort_unstable();
            let Some(&last) = sorted.last() else { return };
            sorted.resize(tile, last);
            for (bases, warp) in bases.iter_mut().zip(sorted.chunks(WARP)) {
                *bases = [0, 1, 2, 3].map(|i| warp[i * BASED].0);
            }
            for slot in 0..tile {
                let (column, place) = sorted[nth(slot)];
                let away = column - bases[slot / WARP][based(slot)];
                low[slot] = (away << bits) as u16 | placed(place, value_bytes) as u16;
                rest[slot] = away >> left;
            }
        });
        TileEntries { ends, lasts, bases, low, rest }
    }
}

/// The header of each tile: see [`SortedTiles::tiles`].
fn headers(pattern: Pattern<'_>, tiles: &Tiles, wide_warps: &[bool]) -> Vec<[u32; 4]> {
    let count = tiles.rows.len() - 1;
    let mut first_wide = 0;
    let of_tile = |(t, wide): (usize, &[bool])| {
        let rows = tiles.rows[t + 1] - tiles.rows[t];
        let begun = pattern.row_ptr()[tiles.rows[t] as usize].min(tiles.entries[t + 1]);
        let begun = begun.saturating_sub(tiles.entries[t]) as u32;
        let mask = wide.iter().zip(0..).fold(0, |mask, (&wide, w)| mask | u32::from(wide) << w);
        let first = first_wide;
        first_wide += mask.count_ones();
        [tiles.rows[t], rows | begun << 16, first, mask]
    };
    let warps = wide_warps.len() / count.max(1);
    wide_warps.chunks(warps.max(1)).enumerate().map(of_tile).collect()
}

/// The upper 16 bits of the columns of wide warps: see [`SortedTiles::wide`].
fn wide_bits(rest: &[u32], wide_warps: &[bool], extra: u32) -> Vec<u32> {
    let warps = rest.chunks(WARP).zip(wide_warps).filter(|(_, wide)| **wide);
    let of_thread = |rest: &[u32]| {
        let mut words = [0; 4];
        let rest: Vec<u32> = rest.iter().map(|rest| rest >> extra).collect();
        put(LOW, &rest, &mut words);
        words
    };
    warps.flat_map(|(warp, _)| warp.chunks(EACH)).flat_map(of_thread).collect()
}
