//! Row blocks swept by column: each block of threads sums its own rows, entry by entry, in the
//! order of the columns.
//!
//! ```text
//!     | 4 . 1 . |      two blocks, one of rows 0 1 and one of rows 2 3
//!     | . 5 . . |      swept   = 4 (row 0), 5 (row 1), 1 (row 0) | 2 (row 3), 6 (row 3)
//!     | . . . . |      sums    = 0 1 0 | 1 1      in shared memory, one for each row
//!     | 2 . . 6 |      columns = 0 1 2 | 0 3
//! ```
//!
//! Blocks hold the sums of all their rows in shared memory, as many as fit with one block per
//! processor, and process their entries in steps of 1,024, one thread per entry. Because all
//! entries of a processor are sorted by column, they share loads even if columns are scattered:
//! lanes read neighbouring elements of x, a sector serves several of them, and all blocks pass over
//! x at the same pace, so that x comes from memory once.
//!
//! Rows are distributed in groups of four neighbours, the heaviest first, each to the block with
//! the least work so far; so blocks take equally long for any order of rows. Where two entries of a
//! step have the same sum, the second swaps places with an entry of the next step whose sum is
//! free. An entry that finds no partner is *late*: it is added atomically after all other entries
//! of some steps. Rows that are so long that this would be common get several sums, which are added
//! up at the end.
//!
//! A slot holds a value and a key of 32 bits: 16 for its sum, one for late, 15 for its column,
//! counted from the base of its warp, a multiple of 32,768.
//! Padding: no sum; read, not added.
//! Good for: columns anywhere, graphs, meshes in random order. Bad for: rows whose neighbours share
//! columns, which caches serve equally well from any layout.

mod gpu;
mod plan;
mod sectors;
mod slots;

use ellect_kernels::shared;
use rayon::prelude::*;

use self::plan::{ColumnSweepShape, GROUP};
use self::slots::{BlockSlots, rows_of};
use super::gpu::launch::Arrays;
use super::{
    GpuConverter, GpuLayout, Layout, Matrix, OnDevice, Params, Refusal, Stop, Storage, Target,
    Work, bytes_of, store,
};
use crate::analysis::{Analysis, inverse};
use crate::csr::{Csr, CsrRef, accumulate, offsets};
use crate::par::{self, GRAIN, Scratch, over_parts};
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct ColumnSweepFormat;

/// Entries per step, and threads per block.
const STEP: usize = shared("COLUMN_SWEEP_STEP") as usize;

/// Threads of a warp, which share one base for their columns.
const LANES: usize = 32;

/// Number of columns that are counted from one base.
const REACH: u32 = shared("COLUMN_SWEEP_REACH") as u32;

/// Marks a slot whose sum another slot of its step also uses.
const LATE: u32 = shared("COLUMN_SWEEP_LATE") as u32;

/// The sum of a slot without an entry.
const NO_SUM: u32 = shared("COLUMN_SWEEP_NO_SUM") as u32;

/// Number of slots in the next step that an entry may swap with, and the distance between them.
const TRIES: usize = shared("COLUMN_SWEEP_TRIES") as usize;
const SHIFT: usize = shared("COLUMN_SWEEP_SHIFT") as usize;

impl Storage for ColumnSweepFormat {
    const NAME: &'static str = "column_sweep";
    const ALIASES: &'static [&'static str] = &["sweep"];
    const TITLE: &'static str = "row blocks swept by column";
    const SOURCE: &'static str = "the row blocks of A. Buluc, J. Fineman, M. Frigo, J. Gilbert, \
        C. Leiserson, Parallel sparse matrix-vector and matrix-transpose-vector multiplication using \
        compressed sparse blocks (2009), section 4, as wide as the matrix; sweeping them by column \
        with all sums in shared memory is our own";
    const SUITS: &'static str = "columns anywhere, graphs, meshes in random order; bad for rows whose \
        neighbours share columns";

    type Layout<T: Scalar> = ColumnSweep<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let shape = ColumnSweepShape::new(matrix(analysis), analysis.max_length(), target)?;
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let bytes = shape.bytes(shape.long_rows(analysis), w);
        // On average half of the last step of each block is empty, and half of the last warp of
        // each piece of its columns.
        let ends = shape.blocks * (STEP + shape.pieces * LANES) / 2;
        let unread = ((shape.steps * STEP) as u64).saturating_sub(nnz + ends as u64);
        let read = (shape.steps * STEP) as u64 - unread;
        let x_bytes = w * pattern.ncols() as u64;
        // Later waves of blocks read x again where no cache has kept it.
        let again =
            if 2 * x_bytes > target.device.cache_bytes { shape.waves as u64 - 1 } else { 0 };
        let sectors = analysis.swept_sectors(shape.blocks, target.precision);
        // Entries of the longest row beyond a block's average share.
        let over = analysis.max_length().saturating_sub(pattern.nnz() / shape.blocks);
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes - unread * (4 + w),
            entries: read,
            x_sectors: sectors,
            x_loaded: Some(sectors),
            x_window_bytes: Some(0),
            extra_bytes: again * x_bytes,
            tile_steps: read as f64 / (shape.blocks * STEP) as f64,
            tile_steps_most: (over / STEP) as f64,
            launches: 1,
            convert_bytes: 8 * nrows + 2 * (4 + w) * nnz + bytes,
            sorted_keys: nnz,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<ColumnSweep<T>, Refusal> {
        let shape = ColumnSweepShape::new(matrix(analysis), analysis.max_length(), target)?;
        let deal = shape.deal(analysis.lengths())?;
        Ok(ColumnSweep::new(csr, &shape, &deal))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        gpu::build(converter, target)
    }
}

/// Dimensions of the matrix of this analysis.
fn matrix(analysis: &Analysis<'_>) -> Matrix {
    let pattern = analysis.pattern();
    let (nrows, ncols, nnz) = (pattern.nrows(), pattern.ncols(), pattern.nnz());
    Matrix { nrows, ncols, nnz, wide: false }
}

/// Rows, steps and sums of a block of threads.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnSweepBlock {
    first_step: u32,
    steps: u32,
    first_group: u32,
    groups: u32,
    /// Index of the first row with several sums; `long_rows` is their number.
    first_long: u32,
    long_rows: u32,
    /// Total number of sums; those of long rows follow one sum per row.
    sums: u32,
}

impl ColumnSweepBlock {
    /// The block's words in the order that kernels read.
    fn words(self) -> [u32; WORDS] {
        [
            self.first_step,
            self.steps,
            self.first_group,
            self.groups,
            self.first_long,
            self.long_rows,
            self.sums,
            0,
        ]
    }

    fn of(
        [first_step, steps, first_group, groups, first_long, long_rows, sums, _]: [u32; 8],
    ) -> Self {
        ColumnSweepBlock { first_step, steps, first_group, groups, first_long, long_rows, sums }
    }
}

/// Words of a [`ColumnSweepBlock`].
const WORDS: usize = shared("COLUMN_SWEEP_BLOCK_WORDS") as usize;

/// A row with several sums: its place in its block, the first of its further sums, and their
/// number.
type LongRow = [u32; shared("COLUMN_SWEEP_LONG_WORDS") as usize];

/// The arrays of a matrix whose row blocks are swept by column.
#[derive(Debug)]
pub struct ColumnSweep<T> {
    nrows: usize,
    ncols: usize,
    blocks: Vec<[u32; WORDS]>,
    /// Groups of rows, sorted by block.
    groups: Vec<u32>,
    long_rows: Vec<LongRow>,
    keys: Vec<u32>,
    /// Base column of each warp of slots.
    bases: Vec<u32>,
    values: Vec<T>,
    /// Index in `groups` of each group.
    places: Vec<u32>,
    /// Bounds of the rows of the blocks, in that order.
    bounds: Vec<usize>,
    sums: Scratch<T>,
    stored: Scratch<T>,
}

/// An entry of a block: its row, its column and its slot.
type ColumnSweepEntry = (u32, u32, usize);

impl<T: Scalar> ColumnSweep<T> {
    fn new(csr: CsrRef<'_, T>, shape: &ColumnSweepShape, deal: &[Vec<u32>]) -> Self {
        let filled =
            par::map(deal.len(), 1, |block| Some(BlockSlots::new(csr, shape, &deal[block])));
        let slots = shape.steps * STEP;
        let groups = deal.concat();
        let mut layout = ColumnSweep {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            blocks: Vec::with_capacity(deal.len()),
            places: inverse(&groups),
            bounds: offsets(deal.iter().map(|groups| groups.len() * GROUP)),
            groups,
            long_rows: Vec::new(),
            keys: Vec::with_capacity(slots),
            bases: Vec::with_capacity(slots / LANES),
            values: Vec::with_capacity(slots),
            sums: Scratch::default(),
            stored: Scratch::default(),
        };
        let mut first_group = 0;
        for (filled, groups) in filled.into_iter().flatten().zip(deal) {
            let block = ColumnSweepBlock {
                first_step: (layout.keys.len() / STEP) as u32,
                steps: (filled.keys.len() / STEP) as u32,
                first_group,
                groups: groups.len() as u32,
                first_long: layout.long_rows.len() as u32,
                long_rows: filled.long_rows.len() as u32,
                sums: filled.sums,
            };
            first_group += block.groups;
            layout.blocks.push(block.words());
            layout.long_rows.extend(filled.long_rows);
            layout.keys.extend(filled.keys);
            layout.bases.extend(filled.bases);
            layout.values.extend(filled.values);
        }
        layout.keys.resize(slots, NO_SUM << 16);
        layout.bases.resize(slots / LANES, 0);
        layout.values.resize(slots, T::ZERO);
        layout
    }

    fn block(&self, block: usize) -> ColumnSweepBlock {
        ColumnSweepBlock::of(self.blocks[block])
    }

    fn long_rows(&self, block: ColumnSweepBlock) -> &[LongRow] {
        &self.long_rows[block.first_long as usize..][..block.long_rows as usize]
    }

    fn groups(&self, block: ColumnSweepBlock) -> &[u32] {
        &self.groups[block.first_group as usize..][..block.groups as usize]
    }

    /// The column of the entry in a slot.
    fn column(&self, slot: usize) -> u32 {
        self.bases[slot / LANES] + self.keys[slot] % REACH
    }

    /// Slots that hold entries, each with its sum.
    fn slots(&self, block: ColumnSweepBlock) -> impl Iterator<Item = (usize, usize)> + '_ {
        let sum = |slot: usize| (slot, self.keys[slot] >> 16);
        let first = block.first_step as usize * STEP;
        let slots = (first..first + block.steps as usize * STEP).map(sum);
        slots.filter(|slot| slot.1 != NO_SUM).map(|(slot, sum)| (slot, sum as usize))
    }

    /// Computes the sums of the rows of a block.
    fn multiply(&self, block: ColumnSweepBlock, x: &[T], rows: &mut [T]) {
        self.sums.with(block.sums as usize, |sums| {
            sums.fill(T::ZERO);
            for (slot, sum) in self.slots(block) {
                sums[sum] += self.values[slot] * x[self.column(slot) as usize];
            }
            rows.copy_from_slice(&sums[..rows.len()]);
            for &[row, first, further] in self.long_rows(block) {
                for &sum in &sums[first as usize..][..further as usize] {
                    rows[row as usize] += sum;
                }
            }
        });
    }

    /// The entries of a block, sorted by row and column.
    fn entries(&self, block: ColumnSweepBlock) -> Vec<ColumnSweepEntry> {
        let groups = self.groups(block);
        let mut rows = vec![0; block.sums as usize];
        for (row, place) in rows_of(groups, self.nrows) {
            rows[place as usize] = row as u32;
        }
        for &[row, first, further] in self.long_rows(block) {
            let row = rows[row as usize];
            rows[first as usize..][..further as usize].fill(row);
        }
        let entry = |(slot, sum): (usize, usize)| (rows[sum], self.column(slot), slot);
        let mut entries: Vec<ColumnSweepEntry> = self.slots(block).map(entry).collect();
        entries.par_sort_unstable();
        entries
    }

    /// Row pointers, and column and slot of each entry in the order of the CSR matrix.
    fn in_rows(&self) -> (Vec<usize>, Vec<(u32, usize)>) {
        let found = par::map(self.blocks.len(), 1, |block| self.entries(self.block(block)));
        let mut row_ptr = vec![0; self.nrows + 1];
        for rows in found.iter().flat_map(|entries| entries.chunk_by(|a, b| a.0 == b.0)) {
            row_ptr[rows[0].0 as usize + 1] = rows.len();
        }
        accumulate(&mut row_ptr);
        let mut all = vec![(0, 0); row_ptr[self.nrows]];
        for row in found.iter().flat_map(|entries| entries.chunk_by(|a, b| a.0 == b.0)) {
            for (at, &(_, column, slot)) in all[row_ptr[row[0].0 as usize]..].iter_mut().zip(row) {
                *at = (column, slot);
            }
        }
        (row_ptr, all)
    }
}

impl<T: Scalar> Layout<T> for ColumnSweep<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.stored.with(self.groups.len() * GROUP, |stored| {
            over_parts(&self.bounds, stored, &|part, rows| {
                // Only the last of the blocks that begin here has rows.
                let block = self.bounds.partition_point(|&first| first <= part.start) - 1;
                if !rows.is_empty() {
                    self.multiply(ColumnSweepBlock::of(self.blocks[block]), x, rows);
                }
            });
            let stored = &*stored;
            par::for_each(y, GRAIN, |row, y| {
                let place = self.places[row / GROUP] as usize;
                store(y, alpha, stored[place * GROUP + row % GROUP], beta);
            });
        });
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.blocks)
            + bytes_of(&self.groups)
            + bytes_of(&self.long_rows)
            + bytes_of(&self.keys)
            + bytes_of(&self.bases)
            + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        let (_, entries) = self.in_rows();
        for (&(_, slot), &value) in entries.iter().zip(values) {
            self.values[slot] = value;
        }
    }

    fn to_csr(&self) -> Csr<T> {
        let (row_ptr, entries) = self.in_rows();
        let (columns, values) =
            entries.into_iter().map(|(column, slot)| (column, self.values[slot])).unzip();
        Csr::new(self.nrows, self.ncols, row_ptr, columns, values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let sums =
            self.blocks.iter().map(|&words| ColumnSweepBlock::of(words).sums).max().unwrap_or(0);
        let values = arrays.add_values("values", "value of each slot; 0 for padding", &self.values);
        let of_blocks =
            "first step, steps, first group, groups, first long row, long rows, sums, 0";
        let of_keys =
            "sum of each slot << 16, 1 << 15 if late, column less its base; no sum: 2^16 - 1";
        let of_long = "place in its block, first further sum, further sums of each long row";
        let plan = gpu::ColumnSweepPlan {
            nrows: self.nrows,
            blocks: self.blocks.len(),
            sums: sums as usize,
            arrays: [
                arrays.add("blocks", of_blocks, &self.blocks),
                arrays.add("groups", "group of four rows, block by block", &self.groups),
                arrays.add("long_rows", of_long, &self.long_rows),
                arrays.add("bases", "base column of each 32 slots", &self.bases),
                arrays.add("keys", of_keys, &self.keys),
                values,
            ],
        };
        Some(arrays.on_device(values, vec![plan.launch(T::PRECISION)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device;
    use crate::generate;

    #[test]
    fn entries_of_a_step_share_a_sum_only_if_late() {
        let device = device::find("h200").expect("shipped");
        let small = device::Device { processors: 3, shared_bytes: 100_000, ..device };
        let far = Csr::<f64>::from_triplets(
            40,
            900_000,
            (0..40_000).map(|k| (k % 40, (k * 7919) % 900_000, k as f64)),
        );
        let mut all_late = 0;
        for csr in [generate::rmat(3000, 16, 1), far.expect("indices are in range")] {
            let analysis = Analysis::of(&csr);
            let target = Target {
                device: &small,
                precision: crate::Precision::F64,
                basis: super::super::Basis::Original,
                memory_limit: u64::MAX,
                stored: Default::default(),
            };
            let params = Params::defaults(ColumnSweepFormat::PARAMS);
            let layout = ColumnSweepFormat::convert(csr.as_ref(), &analysis, &params, &target)
                .expect("applies");
            assert!(layout.blocks.len() > 2, "{} blocks", layout.blocks.len());
            let mut late = 0;
            for (step, keys) in layout.keys.chunks(STEP).enumerate() {
                let mut sums: Vec<u32> = keys
                    .iter()
                    .filter(|&&key| key >> 16 != NO_SUM && key & LATE == 0)
                    .map(|key| key >> 16)
                    .collect();
                late += keys.iter().filter(|&&key| key & LATE != 0).count();
                let slots = sums.len();
                sums.sort_unstable();
                sums.dedup();
                assert_eq!(sums.len(), slots, "step {step}");
            }
            assert!(late < csr.nnz() / 100, "{late} of {} are late", csr.nnz());
            all_late += late;
        }
        assert!(all_late > 0);
    }
}
