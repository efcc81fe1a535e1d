//! The product of a CSR matrix on a GPU: which kernel multiplies, and what it needs.

use super::csr::{BLOCK, CUT_ROWS, STAGED_ROWS, WHOLE_ROWS, cut_for, lanes_a_row};
use super::csr_tiles::{FoundTiles, GpuTiles};
use super::csr_variants::Variant;
use super::long_rows::{Cut, Pieces};
use super::row_order::WARP;
use super::staged;
use super::{Arg, Extent, GpuLayout, Launch, Matrix, WIDTHS};
use crate::scalar::Precision;

/// Maximum number of entries of a tile.
pub(super) const TILE: usize = 2048;

/// Entries of the smallest matrix with long rows that is read in tiles, and of the longest row of such
/// a matrix; found by measurement (tests/results/tried.md).
const LEAST: usize = 2_000_000;
const LONGEST: usize = 1 << 18;

/// Tells whether a matrix with rows to cut is read in tiles: blocks of threads read its entries evenly,
/// and add up the parts of rows that go through several of them. In smaller matrices, the rows
/// themselves are cut.
pub(super) fn in_tiles(nnz: usize, longest: usize) -> bool {
    nnz >= LEAST && longest <= LONGEST
}

/// A product of a CSR matrix on a GPU.
pub(super) struct Product {
    /// The variant; `None` for the automatic one.
    pub variant: Option<Variant>,
    pub matrix: Matrix,
    /// Row pointers, columns and values.
    pub arrays: [Arg; 3],
    /// The pieces of long rows, if there are any, or the blocks of rows of the variant.
    pub pieces: Option<Pieces>,
    /// Entries of the longest row.
    pub longest: usize,
    pub precision: Precision,
}

impl Product {
    /// Describes the converted layout.
    pub fn layout(&self) -> GpuLayout {
        GpuLayout {
            launches: vec![self.launch()],
            scratch: self.scratch(),
            counters: self.counters(),
            ..GpuLayout::default()
        }
    }

    /// Describes a layout whose products with one vector read these tiles, of at most [`TILE`] entries.
    /// Products with several vectors cut long rows into pieces.
    pub fn in_tiles(&self, found: &FoundTiles) -> GpuLayout {
        let [row_ptr, columns, values] = self.arrays;
        let cut = self.layout();
        let tiles = GpuTiles {
            two: false,
            tile: TILE,
            tiles: found.count,
            splits: found.splits,
            wide: self.matrix.wide,
            nnz: self.matrix.nnz as u64,
            bounds: [row_ptr, found.rows, found.entries],
            entries: [columns, values],
            heads: "csr_tiles",
        };
        // Products with one and with several vectors use the same scratch memory, one after the other.
        let scratch = cut.scratch.into_iter().chain(tiles.scratch(self.precision)).max();
        GpuLayout {
            launches: tiles.launches(self.precision),
            several: cut.launches,
            scratch: scratch.into_iter().collect(),
            counters: cut.counters,
            ..GpuLayout::default()
        }
    }

    pub fn launch(&self) -> Launch {
        if let Some(variant) = self.variant {
            return variant.launch(self.matrix, self.arrays, self.pieces, self.precision);
        }
        let Matrix { nrows, nnz, wide, .. } = self.matrix;
        let wide = if wide { "wide_" } else { "" };
        let lanes = lanes_a_row(nrows, nnz);
        let extent = Extent { nrows, nnz, longest: self.longest };
        let (image, lanes, cut, blocks) = match &self.pieces {
            None if staged::applies(extent, self.precision) => {
                (STAGED_ROWS, staged::lanes(nrows, nnz), None, 0)
            }
            None => (WHOLE_ROWS, lanes, None, 0),
            Some(Pieces { list, count }) => {
                let Cut { longest, log, .. } = cut_for(nrows, nnz);
                let sizes = [longest, *count as u32, log].map(Arg::U32);
                let buffers = [*list, Arg::Scratch(0), Arg::Counters];
                let blocks = count.div_ceil(u64::from(BLOCK) / WARP as u64);
                (CUT_ROWS, lanes, Some(sizes.into_iter().chain(buffers)), blocks)
            }
        };
        let rows = [Arg::U32(nrows as u32)].into_iter().chain(cut.into_iter().flatten());
        let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
        let args = rows.chain(self.arrays).chain(vectors).collect();
        let kernel = format!("{image}_{wide}t{lanes}_{}", self.precision);
        let launch = Launch::over(image, kernel, (nrows * lanes) as u64, BLOCK, args);
        Launch { grid: blocks + launch.grid, ..launch }
    }

    /// Bytes of the sums of pieces; without a variant, with as many vectors as a kernel multiplies at
    /// once.
    pub fn scratch(&self) -> Vec<u64> {
        let vectors = if self.variant.is_some() { 1 } else { WIDTHS[0] };
        self.pieces.iter().map(|pieces| pieces.sums(vectors, self.precision)).collect()
    }

    /// Bytes of the counters of rows with several pieces.
    pub fn counters(&self) -> u64 {
        self.pieces.map_or(0, |pieces| pieces.counters())
    }
}
