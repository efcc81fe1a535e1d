//! PCSR: products of the CSR entries formed evenly, entry by entry, and summed by row in a second
//! step.
//!
//! ```text
//!     | 4 . 1 . |      row_ptr = 0 2 3 3 5     values  = 4 1 | 5 | | 2 6
//!     | . 5 . . |      tile = 2 entries        tiles   = 4 1 | 5   | 2 6
//!     | . . . . |                              first row begun in each tile = 0 1 3
//!     | 2 . . 6 |
//! ```
//!
//! Kernel 1 forms `v[k] = values[k] * x[col_idx[k]]`, kernel 2 sums `v` row by row. With
//! `kernel=two` the middle array `v` goes through memory, as in the paper; with `kernel=fused` a
//! tile of it stays in the shared memory of one block of threads. A tile holds at most `tile`
//! entries and at most as many rows. Tiles are cut between rows, except that rows longer than
//! `tile` are summed in pieces, which are added up at the end.
//! No padding, and no conversion except for the bounds of the tiles. Good for: row lengths of every
//! size and few products. Bad for: regular rows, where other formats need not read column indices
//! and row pointers.

use std::ops::Range;

use super::csr::dot;
use super::csr_tiles::{ENTRIES_A_THREAD, FoundTiles, GpuTiles, TILES, Tiles};
use super::gpu::launch::Arrays;
use super::many::{BlockProduct, LARGEST_BLOCK, XBlock, YBlock, in_blocks};
use super::{
    Arg, GpuConverter, GpuLayout, Layout, Matrix, Offsets, OnDevice, Param, Params, Refusal, Stop,
    Storage, Target, Value, Work, bytes_of, store,
};
use crate::analysis::{Analysis, Walk};
use crate::csr::{Csr, CsrRef, Pattern};
use crate::dense::{DenseMut, DenseRef};
use crate::device::Kind;
use crate::par::{self, Scratch};
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct PcsrFormat;

impl Storage for PcsrFormat {
    const NAME: &'static str = "pcsr";
    const TITLE: &'static str = "PCSR, perfect CSR";
    const SOURCE: &'static str = "G. He, J. Gao, A Novel CSR-Based Sparse Matrix-Vector \
        Multiplication on GPUs (2016), section 3";
    const SUITS: &'static str = "row lengths of every size, few products; bad for regular rows";
    const IMMEDIATE: bool = true;
    const VECTORS_AT_ONCE: usize = LARGEST_BLOCK;
    const PARAMS: &'static [Param] = &[
        Param {
            name: "kernel",
            doc: "fused: the middle array stays in shared memory; two: it goes through memory",
            values: &[Value::Word("fused"), Value::Word("two")],
            gpu: &[Value::Word("fused"), Value::Word("two")],
            host: &[Value::Word("fused"), Value::Word("two")],
        },
        Param {
            name: "tile",
            doc: "maximum number of entries that a block of threads processes at a time",
            values: &[Value::Int(1024), Value::Int(2048)],
            gpu: &[Value::Int(1024), Value::Int(2048)],
            host: &[Value::Int(2048)],
        },
    ];

    type Layout<T: Scalar> = PcsrLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let nnz = analysis.pattern().nnz() as u64;
        let fused = tiles_work(analysis, target, params.int("tile"));
        Ok(if params.is("kernel", "two") {
            let middle = 2 * target.precision.bytes() as u64 * nnz;
            Work { extra_bytes: middle, launches: fused.launches + 1, ..fused }
        } else {
            fused
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<PcsrLayout<T>, Refusal> {
        let tiles = Tiles::of(csr.pattern(), params.int("tile"));
        Ok(PcsrLayout {
            ncols: csr.ncols(),
            two: params.is("kernel", "two"),
            tile: params.int("tile"),
            row_ptr: Offsets::new(csr.row_ptr()),
            col_idx: csr.col_idx().to_vec(),
            values: csr.values().to_vec(),
            parts: cut(csr.pattern()),
            tile_rows: tiles.rows,
            tile_ptr: Offsets::new(&tiles.entries),
            middle: Scratch::default(),
            heads: Scratch::default(),
        })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let Matrix { nnz, wide, .. } = converter.matrix();
        let tile = params.int("tile");
        let found = FoundTiles::new(converter, tile)?;
        let plan = GpuTiles {
            two: params.is("kernel", "two"),
            tile,
            tiles: found.count,
            splits: found.splits,
            wide,
            nnz: nnz as u64,
            bounds: [Arg::RowPtr, found.rows, found.entries],
            entries: [Arg::ColIdx, Arg::Values],
            heads: TILES,
        };
        let launches = plan.launches(target.precision);
        Ok(GpuLayout { launches, scratch: plan.scratch(target.precision), ..GpuLayout::default() })
    }
}

/// The work of a product by tiles of at most `tile` entries, each for one block of threads.
pub(super) fn tiles_work(analysis: &Analysis<'_>, target: &Target<'_>, tile: usize) -> Work {
    let pattern = analysis.pattern();
    let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
    let w = target.precision.bytes() as u64;
    let width = Offsets::width(pattern.nnz()) as u64;
    let tiles = analysis.tiles(tile);
    let bytes = (nrows + 1) * width + nnz * (4 + w) + tiles.entries.len() as u64 * (4 + width);
    let (tile_steps, tile_steps_most) = match target.device.kind {
        Kind::Gpu => analysis.tile_steps(tile, tile / ENTRIES_A_THREAD),
        Kind::Host => (0.0, 0.0),
    };
    Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: nnz,
        x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
        x_loaded: analysis.x_loaded(Walk::Entries, target),
        steps: nnz.div_ceil(32),
        tile_steps,
        tile_steps_most,
        launches: 1 + u32::from(analysis.max_length() > tile),
        convert_bytes: bytes,
        ..Work::default()
    }
}

/// One tile per part that a thread processes, with equal numbers of entries and rows in each; cuts
/// fall within rows where necessary.
fn cut(pattern: Pattern<'_>) -> Tiles {
    let (ptr, nrows) = (pattern.row_ptr(), pattern.nrows());
    let weight = pattern.nnz() + nrows;
    let parts = (weight / par::GRAIN).clamp(1, 4 * rayon::current_num_threads());
    let mut tiles = Tiles { rows: vec![0], entries: vec![0] };
    for part in 1..parts {
        let wanted = (weight as u128 * part as u128 / parts as u128) as usize;
        let row = par::partition_point(nrows, |i| ptr[i] + i < wanted);
        let entry = wanted - row;
        tiles.rows.push(row as u32);
        tiles.entries.push(entry);
    }
    tiles.rows.push(nrows as u32);
    tiles.entries.push(pattern.nnz());
    tiles
}

/// The arrays of a CSR matrix, with the tiles that blocks of threads process.
#[derive(Debug)]
pub struct PcsrLayout<T> {
    ncols: usize,
    /// True if the middle array goes through memory.
    two: bool,
    /// The maximum number of entries of a tile.
    tile: usize,
    row_ptr: Offsets,
    col_idx: Vec<u32>,
    values: Vec<T>,
    /// The tiles of a GPU: `Tiles::rows` and `Tiles::entries`.
    tile_rows: Vec<u32>,
    tile_ptr: Offsets,
    /// The tiles of a host.
    parts: Tiles,
    middle: Scratch<T>,
    heads: Scratch<T>,
}

impl<T: Scalar> PcsrLayout<T> {
    /// True if a tile begins within a row.
    fn splits_rows(&self) -> bool {
        let begin = self.tile_rows.iter().zip(self.tile_ptr.to_vec());
        begin.into_iter().any(|(&row, entry)| entry < self.row_ptr.get(row as usize))
    }

    /// Row that begins next in each part.
    fn part_rows(&self) -> Vec<usize> {
        self.parts.rows.iter().map(|&row| row as usize).collect()
    }

    /// Sums the entries at the start of each part that continue the row of an earlier part.
    fn sum_heads<S: Send + Sync + Copy>(
        &self,
        rows: &[usize],
        zero: S,
        sum: impl Fn(Range<usize>) -> S + Sync,
        heads: &mut [S],
    ) {
        let entries = &self.parts.entries;
        let each: Vec<usize> = (0..rows.len()).collect();
        par::over_parts(&each, heads, &|part, head| {
            let part = part.start;
            let rest = entries[part]..self.row_ptr.get(rows[part]).min(entries[part + 1]);
            head[0] = if rest.is_empty() { zero } else { sum(rest) };
        });
    }

    /// Computes y; `sum` sums the products of a range of entries.
    fn sum_rows(&self, sum: impl Fn(Range<usize>) -> T + Sync, (alpha, beta): (T, T), y: &mut [T]) {
        let ptr = |row: usize| self.row_ptr.get(row);
        let entries = &self.parts.entries;
        let rows = self.part_rows();
        let parts = rows.len() - 1;
        self.heads.with(parts, |heads| {
            self.sum_heads(&rows, T::ZERO, &sum, heads);
            // A part in which no row begins only continues an earlier row.
            let mut bounds = rows.clone();
            bounds.dedup();
            par::over_parts(&bounds, y, &|part, y| {
                // The last of the parts that begin with this row holds its entries.
                let p = rows.partition_point(|&row| row <= part.start) - 1;
                let end = entries[p + 1];
                let mut start = ptr(part.start);
                for (y, row) in y.iter_mut().zip(part) {
                    let next = ptr(row + 1);
                    store(y, alpha, sum(start..next.min(end)), beta);
                    start = next;
                }
            });
            for (part, &head) in heads.iter().enumerate() {
                if entries[part] < ptr(rows[part]) {
                    y[rows[part] - 1] += alpha * head;
                }
            }
        });
    }
}

impl<T: Scalar> BlockProduct<T> for PcsrLayout<T> {
    fn block<const B: usize>(
        &self,
        x: XBlock<'_, T>,
        (alpha, beta): (T, T),
        mut y: YBlock<'_, T, B>,
    ) {
        let ptr = |row: usize| self.row_ptr.get(row);
        let sum = |at: Range<usize>| x.dot::<B>(&self.values[at.clone()], &self.col_idx[at]);
        let entries = &self.parts.entries;
        let rows = self.part_rows();
        self.heads.with((rows.len() - 1) * B, |heads| {
            let heads = heads.as_chunks_mut::<B>().0;
            self.sum_heads(&rows, [T::ZERO; B], sum, heads);
            let mut bounds = rows.clone();
            bounds.dedup();
            y.reborrow().over_parts(&bounds, &|part, mut y| {
                // The last of the parts that begin with this row holds its entries.
                let p = rows.partition_point(|&row| row <= part.start) - 1;
                let end = entries[p + 1];
                let mut start = ptr(part.start);
                for (i, row) in part.enumerate() {
                    let next = ptr(row + 1);
                    y.put(i, alpha, &sum(start..next.min(end)), beta);
                    start = next;
                }
            });
            for (part, head) in heads.iter().enumerate() {
                if entries[part] < ptr(rows[part]) {
                    y.put(rows[part] - 1, alpha, head, T::ONE);
                }
            }
        });
    }
}

impl<T: Scalar> Layout<T> for PcsrLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        if !self.two {
            let sum = |at: Range<usize>| dot(&self.values[at.clone()], &self.col_idx[at], x);
            return self.sum_rows(sum, (alpha, beta), y);
        }
        self.middle.with(self.values.len(), |middle| {
            par::over_parts(&self.parts.entries, middle, &|part, middle| {
                let columns = &self.col_idx[part.clone()];
                for ((v, &column), &value) in middle.iter_mut().zip(columns).zip(&self.values[part])
                {
                    *v = value * x[column as usize];
                }
            });
            let sum = |at: Range<usize>| {
                middle[at].iter().fold(T::ZERO, |mut sum, &v| {
                    sum += v;
                    sum
                })
            };
            self.sum_rows(sum, (alpha, beta), y);
        });
    }

    /// Sums stay in registers with both kernels.
    fn apply_many(&self, alpha: T, x: DenseRef<'_, T>, beta: T, y: DenseMut<'_, T>) {
        in_blocks(self, &self.middle, (alpha, beta), x, y);
    }

    fn bytes(&self) -> u64 {
        self.row_ptr.bytes()
            + bytes_of(&self.col_idx)
            + bytes_of(&self.values)
            + bytes_of(&self.tile_rows)
            + self.tile_ptr.bytes()
    }

    fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr.to_vec();
        let nrows = row_ptr.len() - 1;
        Csr::new(nrows, self.ncols, row_ptr, self.col_idx.clone(), self.values.clone())
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let of_rows = "first row that begins in each tile, and the end";
        let of_entries = "first entry of each tile, and the end";
        // Row pointers and bounds of tiles end at the same entry, so both have the same width.
        let plan = GpuTiles {
            two: self.two,
            tile: self.tile,
            tiles: self.tile_rows.len() as u64 - 1,
            splits: self.splits_rows(),
            wide: matches!(self.row_ptr, Offsets::Wide(_)),
            nnz: self.values.len() as u64,
            bounds: [
                arrays.add_either("row_ptr", "first entry of each row, and the end", &self.row_ptr),
                arrays.add("tile_rows", of_rows, &self.tile_rows),
                arrays.add_either("tile_ptr", of_entries, &self.tile_ptr),
            ],
            entries: [
                arrays.add("col_idx", "column of each entry", &self.col_idx),
                arrays.add_values("values", "value of each entry", &self.values),
            ],
            heads: TILES,
        };
        let [_, values] = plan.entries;
        let mut described = arrays.on_device(values, plan.launches(T::PRECISION));
        described.scratch = plan.scratch(T::PRECISION);
        Some(described)
    }
}
