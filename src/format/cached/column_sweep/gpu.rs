//! Row blocks swept by column on a GPU: the launch of a product, and the conversion.

use super::plan::{ColumnSweepShape, GROUP};
use super::{LANES, LongRow, STEP, WORDS};
use crate::analysis::Sort;
use crate::format::gpu::convert::{GpuRows, bits};
use crate::format::{Arg, GpuConverter, GpuLayout, Launch, Matrix, Stop, Target};
use crate::scalar::Precision;

/// Arrays and sizes from which the launch of a product is made.
pub(super) struct ColumnSweepPlan {
    pub nrows: usize,
    pub blocks: usize,
    /// The maximum number of sums per block.
    pub sums: usize,
    /// Blocks, groups, long rows, bases, keys and values.
    pub arrays: [Arg; 6],
}

impl ColumnSweepPlan {
    /// The launch of one product.
    pub fn launch(&self, precision: Precision) -> Launch {
        let count = [Arg::U32(self.nrows as u32)];
        let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
        Launch {
            image: "column_sweep",
            kernel: format!("column_sweep_{precision}"),
            grid: self.blocks as u64,
            block: STEP as u32,
            shared_bytes: (self.sums * precision.bytes()) as u32,
            args: count.into_iter().chain(self.arrays).chain(vectors).collect(),
        }
    }
}

/// The maximum number of blocks that a GPU conversion distributes.
const MOST_BLOCKS: usize = 4096;

/// A group is light if its weight is at most one part in this many of a block's share. Light groups
/// are assigned to blocks through a table instead of one by one.
const LIGHT: u64 = 64;

/// Places of the table per block.
const PLACES: usize = 256;

fn launch(kernel: impl Into<String>, threads: usize, args: Vec<Arg>) -> Launch {
    Launch::over("convert_column_sweep", kernel, threads as u64, 256, args)
}

/// A launch of `grid` blocks of `block` threads, with shared memory.
fn blocks(kernel: &str, grid: usize, block: usize, shared_bytes: usize, args: Vec<Arg>) -> Launch {
    let (kernel, grid, block) = (kernel.to_string(), grid as u64, block as u32);
    let shared_bytes = shared_bytes as u32;
    Launch { image: "convert_column_sweep", kernel, grid, block, shared_bytes, args }
}

/// A number as an argument.
fn count(n: usize) -> Arg {
    Arg::U32(n as u32)
}

/// Step width that visits all `n` places and spreads consecutive visits evenly: the first number
/// from the golden section of `n` upward that is coprime to `n`.
fn stride(n: usize) -> usize {
    let common = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (n as f64 * 0.618) as usize;
    (first.max(1)..).find(|&stride| common(stride, n) == 1).expect("n + 1 does")
}

/// Assignment of row groups to blocks.
struct Dealt {
    /// Groups, sorted by block.
    groups: Arg,
    /// Start of each block's groups.
    starts: Arg,
    /// Number of rows with several sums.
    long_rows: usize,
}

impl Dealt {
    /// Distributes groups of rows with these lengths over blocks.
    fn new(
        converter: &mut dyn GpuConverter,
        shape: &ColumnSweepShape,
        rows: &GpuRows,
    ) -> Result<Self, Stop> {
        let longest = rows.longest(converter)?;
        let n = shape.nrows.div_ceil(GROUP);
        let share = (shape.nnz + GROUP * n) as u64 / shape.blocks as u64;
        let [heavy, long_rows] = [converter.number()?, converter.number()?];
        let keys = converter.temporary(8 * n as u64)?;
        let [own, sorted] =
            [converter.temporary(4 * n as u64)?, converter.temporary(4 * n as u64)?];
        let args = vec![
            count(shape.nrows),
            count(n),
            Arg::U64(shape.nnz as u64),
            count(shape.blocks),
            Arg::U64(share / LIGHT),
            rows.lengths,
            keys,
            own,
            heavy,
            long_rows,
        ];
        converter.launch(&launch("weigh_groups", n, args))?;
        converter.sort_down(keys, own, sorted, n, bits(GROUP * (longest + 1)))?;
        let [heavy, long_rows] =
            [converter.read(heavy)? as usize, converter.read(long_rows)? as usize];

        let places = PLACES * shape.blocks;
        let dealt = converter.temporary(2 * heavy.max(1) as u64)?;
        let table = converter.temporary(2 * places as u64)?;
        let args = vec![
            count(shape.blocks),
            count(heavy),
            Arg::U64(share),
            keys,
            sorted,
            count(places),
            count(stride(places)),
            dealt,
            table,
        ];
        converter.launch(&blocks("deal_heavy", 1, 1024, 8 * shape.blocks, args))?;
        let counts = converter.temporary_zeros(4 * (shape.blocks as u64 + 1))?;
        let by_block = converter.temporary(8 * n as u64)?;
        let group_bits = bits(n - 1);
        let args = vec![
            count(n),
            count(shape.blocks),
            count(heavy),
            Arg::U32(group_bits),
            sorted,
            dealt,
            table,
            count(places),
            by_block,
            counts,
        ];
        converter.launch(&launch("assign_groups", n, args))?;
        let groups = converter.array(4 * n as u64)?;
        converter.sort_down(by_block, own, groups, n, group_bits + bits(shape.blocks - 1))?;
        let [starts, _] = converter.temporary_starts(counts, 1, shape.blocks + 1)?.args;
        Ok(Dealt { groups, starts, long_rows })
    }
}

/// Rows at their places in blocks.
struct PlacedRows {
    /// Words of each block, an array of the layout; kernels fill in its steps later.
    blocks: Arg,
    long_rows: Arg,
    /// For each row, its block and its place there; and the first of its further sums.
    places: Arg,
    further: Arg,
    /// The maximum number of sums per block.
    sums: usize,
}

impl PlacedRows {
    fn new(
        converter: &mut dyn GpuConverter,
        shape: &ColumnSweepShape,
        rows: &GpuRows,
        dealt: &Dealt,
    ) -> Result<Self, Stop> {
        let to = converter.array(4 * (WORDS * shape.blocks) as u64)?;
        let long_rows = converter.array((size_of::<LongRow>() * dealt.long_rows) as u64)?;
        let places = converter.temporary(4 * shape.nrows as u64)?;
        let further = converter.temporary(2 * shape.nrows as u64)?;
        let [so_far, most] = [converter.number()?, converter.number()?];
        let args = vec![
            count(shape.nrows),
            Arg::U64(shape.nnz as u64),
            count(shape.blocks),
            dealt.starts,
            dealt.groups,
            rows.lengths,
            places,
            further,
            to,
            long_rows,
            so_far,
            most,
        ];
        converter.launch(&blocks("place_rows", shape.blocks, 256, 0, args))?;
        let sums = converter.read(most)? as usize;
        Ok(PlacedRows { blocks: to, long_rows, places, further, sums })
    }
}

/// Entries sorted by block and column, and cut into pieces of columns.
struct SortedEntries {
    /// Sizes that kernels need: entries, columns, blocks, pieces of columns, bits of a column.
    sizes: [Arg; 5],
    keys: Arg,
    /// Index of each entry in the CSR matrix.
    sorted: Arg,
    /// First entry of each piece of the columns of each block, and its first warp of slots.
    firsts: Arg,
    starts: Arg,
}

impl SortedEntries {
    fn new(
        converter: &mut dyn GpuConverter,
        shape: &ColumnSweepShape,
        placed: &PlacedRows,
    ) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let Matrix { nrows, ncols, nnz, .. } = matrix;
        let entries = nnz as u64;
        let keys = converter.temporary(8 * entries)?;
        let [own, sorted] = [converter.temporary(4 * entries)?, converter.temporary(4 * entries)?];
        let column_bits = bits(ncols - 1);
        let sizes = [count(nrows), count(ncols), Arg::U64(entries), count(shape.blocks)];
        let args = sizes.into_iter().chain([Arg::U32(column_bits), Arg::RowPtr, Arg::ColIdx]);
        let args = args.chain([placed.places, placed.further, keys, own]).collect();
        let kernel = format!("entry_keys_{}", matrix.offset_name());
        converter.launch(&launch(kernel, nrows.div_ceil(GROUP) * LANES, args))?;
        converter.sort_down(keys, own, sorted, nnz, column_bits + bits(shape.blocks - 1))?;

        let pieces = shape.blocks * shape.pieces;
        let firsts = converter.temporary(4 * (pieces as u64 + 1))?;
        let sizes = [
            Arg::U64(entries),
            count(ncols),
            count(shape.blocks),
            count(shape.pieces),
            Arg::U32(column_bits),
        ];
        let args = sizes.into_iter().chain([keys, sorted, firsts]).collect();
        converter.launch(&launch("find_pieces", pieces + 1, args))?;
        let warps = converter.temporary_zeros(4 * (pieces as u64 + 1))?;
        let args = vec![count(shape.pieces), firsts, warps];
        converter.launch(&blocks("count_warps", shape.blocks, 256, 0, args))?;
        let [starts, _] = converter.temporary_starts(warps, 1, pieces + 1)?.args;
        let args = vec![count(shape.blocks), count(shape.pieces), starts, placed.blocks];
        converter.launch(&launch("count_steps", shape.blocks, args))?;
        Ok(SortedEntries { sizes, keys, sorted, firsts, starts })
    }
}

/// Converts on a GPU: see [`super::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    target: &Target<'_>,
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    if matrix.nnz == 0 || matrix.nnz >= u32::MAX as usize {
        return Err(Stop::OnHost);
    }
    let rows = GpuRows::new(converter, Sort::None, target)?;
    let shape = ColumnSweepShape::new(matrix, rows.longest(converter)?, target)?;
    if shape.blocks > MOST_BLOCKS {
        return Err(Stop::OnHost);
    }
    let dealt = Dealt::new(converter, &shape, &rows)?;
    let placed = PlacedRows::new(converter, &shape, &rows, &dealt)?;
    // With few heavy rows and very many light ones, only the host, which places groups one by one,
    // finds room for all sums.
    if placed.sums > shape.most {
        return Err(Stop::OnHost);
    }
    let entries = SortedEntries::new(converter, &shape, &placed)?;

    let precision = target.precision;
    let slots = shape.steps * STEP;
    let keys = converter.array(4 * slots as u64)?;
    let bases = converter.array(4 * (slots / LANES) as u64)?;
    let values = converter.array((precision.bytes() * slots) as u64)?;
    let sources = converter.array(4 * slots as u64)?;
    let args = vec![Arg::U64(slots as u64), keys, bases, values, sources];
    converter.launch(&launch(format!("clear_slots_{precision}"), slots, args))?;
    let SortedEntries { sizes, keys: entry_keys, sorted, firsts, starts } = entries;
    let args = sizes.into_iter().chain([entry_keys, sorted, firsts, starts, keys, bases, sources]);
    converter.launch(&launch("fill_slots", matrix.nnz, args.collect()))?;
    let args = vec![placed.blocks, bases, keys, sources];
    converter.launch(&blocks("move_late", shape.blocks, STEP, 4 * placed.sums, args))?;
    let args = vec![Arg::U64(slots as u64), sources, Arg::Values, values];
    let update = launch(format!("update_slots_{precision}"), slots, args);
    converter.launch(&update)?;

    let arrays = [placed.blocks, dealt.groups, placed.long_rows, bases, keys, values];
    let plan =
        ColumnSweepPlan { nrows: shape.nrows, blocks: shape.blocks, sums: placed.sums, arrays };
    Ok(GpuLayout {
        launches: vec![plan.launch(precision)],
        update: vec![update],
        ..GpuLayout::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_meet_every_place() {
        for n in [1, 2, 256, 256 * 132, 256 * 1056] {
            let mut met = vec![false; n];
            (0..n).for_each(|i| met[i * stride(n) % n] = true);
            assert!(met.iter().all(|&met| met), "{n}");
        }
    }
}
