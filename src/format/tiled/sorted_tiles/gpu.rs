//! Sorted tiles on a GPU: the conversion, and the launches of a product.

use super::{EACH, WARP, no_entries};
use crate::format::csr_tiles::FoundTiles;
use crate::format::gpu::convert::arrays;
use crate::format::gpu::launch::NULL;
use crate::format::gpu::small::is_small;
use crate::format::{Arg, GpuConverter, Launch, Matrix, Stop, Target};
use crate::scalar::Precision;

/// Arrays and sizes from which the launches of a product are made.
pub(in crate::format) struct TilePlan {
    pub tile: usize,
    pub tiles: u64,
    /// One of [`EXTRA`](super::EXTRA).
    pub extra: u32,
    pub splits: bool,
    /// Tiles, ends, lasts, bases, low bits of columns with places, further bits of columns, and the
    /// upper bits of wide warps.
    pub arrays: [Arg; 7],
}

impl TilePlan {
    /// The launches of a product with the kernel `kernel` of `image`, which takes `values` between
    /// the columns and the vectors.
    pub fn launches(
        &self,
        image: &'static str,
        kernel: String,
        values: &[Arg],
        precision: Precision,
    ) -> Vec<Launch> {
        let heads = Arg::Scratch(0);
        let vectors = [Arg::X, heads, Arg::Y, Arg::Alpha, Arg::Beta];
        let args = self.arrays.iter().chain(values).chain(&vectors).copied().collect();
        let mut launches =
            vec![Launch::over(image, kernel, self.threads(), self.block() as u32, args)];
        if self.splits {
            let [tiles, ..] = self.arrays;
            let args = vec![Arg::U32(self.tiles as u32), tiles, heads, Arg::Y, Arg::Alpha];
            let kernel = format!("st_csr_heads_{precision}");
            launches.push(Launch::over("st_csr", kernel, self.tiles, 256, args));
        }
        launches
    }

    /// Bytes of the scratch buffers that a product needs.
    pub fn scratch(&self, precision: Precision) -> Vec<u64> {
        vec![precision.bytes() as u64 * self.tiles]
    }

    /// As [`TilePlan::scratch`], for up to this number of vectors.
    pub fn scratch_of(&self, vectors: usize, precision: Precision) -> Vec<u64> {
        self.scratch(precision).into_iter().map(|bytes| vectors as u64 * bytes).collect()
    }

    /// Slots of all tiles.
    pub fn slots(&self) -> u64 {
        self.tiles * self.tile as u64
    }

    fn block(&self) -> usize {
        self.tile / EACH
    }

    fn threads(&self) -> u64 {
        self.tiles * self.block() as u64
    }
}

/// Tiles that a GPU has sorted.
pub(in crate::format) struct GpuSortedTiles {
    pub plan: TilePlan,
    /// Values of the slots; null where they are not requested.
    pub values: Arg,
    /// First entry of each tile.
    entries: Arg,
}

impl GpuSortedTiles {
    /// Sorts tiles of at most `tile` entries; `with_values` also stores the values in their slots.
    pub fn new(
        converter: &mut dyn GpuConverter,
        tile: usize,
        with_values: bool,
        target: &Target<'_>,
    ) -> Result<Self, Stop> {
        let Matrix { nrows, ncols, nnz, .. } = converter.matrix();
        if nnz == 0 {
            return Err(no_entries().into());
        }
        let w = target.precision.bytes() as u64;
        let found = FoundTiles::new(converter, tile)?;
        let count = found.count;
        let warps = (tile / WARP) as u64;
        let (slots, threads) = (count * tile as u64, count * (tile / EACH) as u64);
        let ends = 2 * (nrows as u64 + 2 * count);
        let value_bytes = if with_values { w * slots } else { 0 };
        let bytes = [16 * count, ends, threads, 16 * count * warps, 2 * slots, value_bytes];
        let [tiles, ends, lasts, bases, low, values] = arrays(converter, bytes)?;
        let values = if with_values { values } else { NULL };
        let (rest, spans) =
            (converter.temporary(4 * slots)?, converter.temporary(4 * count * warps)?);
        let overs = converter.temporary_zeros(4 * 5)?;
        let matrix = [Arg::RowPtr, Arg::ColIdx, Arg::Values, found.rows, found.entries];
        let out = [tiles, ends, lasts, bases, low, rest, spans, values, overs];
        let bits = Arg::U32(u64::BITS - (ncols as u64).leading_zeros());
        let args = [bits].into_iter().chain(matrix).chain(out).collect();
        let width = converter.matrix().offset_name();
        let kernel = format!("sort_tiles{tile}_{width}_{}", target.precision);
        converter.launch(&launch(kernel, threads, tile / EACH, args))?;

        let sizes = [Arg::U32(count as u32), Arg::U32(warps as u32)];
        let Wide { extra, starts, warps: wide } = Wide::new(converter, sizes, count, spans, overs)?;
        let bytes = [slots * u64::from(extra) / 8, 2 * WARP as u64 * wide];
        let [high, most] = arrays(converter, bytes)?;
        let out = [Arg::U32(extra), rest, spans, starts, tiles, high, most];
        let args = sizes.into_iter().chain(out).collect();
        converter.launch(&launch("pack_tiles".to_string(), threads, 256, args))?;
        let arrays = [tiles, ends, lasts, bases, low, high, most];
        let plan = TilePlan { tile, tiles: count, extra, splits: found.splits, arrays };
        Ok(GpuSortedTiles { plan, values, entries: found.entries })
    }

    /// A launch over the threads of a product, with the kernel `stem` for the width of row pointers
    /// and the precision. Its arguments describe the tiles, followed by `rest`.
    pub fn step(&self, stem: &str, matrix: Matrix, precision: Precision, rest: &[Arg]) -> Launch {
        let TilePlan { tiles, arrays: [.., low, _, _], .. } = self.plan;
        let sizes = [Arg::U64(matrix.nnz as u64), Arg::U32(tiles as u32)];
        let block = Arg::U32(self.plan.block() as u32);
        let args = sizes.into_iter().chain([block, self.entries, low]);
        let args = args.chain(rest.iter().copied()).collect();
        let kernel = format!("{stem}_{}_{precision}", matrix.offset_name());
        launch(kernel, self.plan.threads(), 256, args)
    }
}

/// Columns whose distances do not fit next to places.
struct Wide {
    /// Number of further bits of columns.
    extra: u32,
    /// Starts of the upper bits of the wide warps of each tile.
    starts: Arg,
    /// Number of wide warps.
    warps: u64,
}

impl Wide {
    /// Counts wide warps of `count` tiles, whose number and warps are `sizes`; waits for the numbers.
    fn new(
        converter: &mut dyn GpuConverter,
        sizes: [Arg; 2],
        count: u64,
        spans: Arg,
        overs: Arg,
    ) -> Result<Self, Stop> {
        let counts = converter.temporary(4 * (count + 1))?;
        let args = sizes.into_iter().chain([spans, overs, counts]);
        if is_small(&converter.matrix()) {
            let args = args.chain(converter.host()?).collect();
            converter.launch(&Launch::over("convert_small", "tile_starts", 1024, 1024, args))?;
            let [extra, warps, ..] = converter.told()?;
            return Ok(Wide { extra, starts: counts, warps: u64::from(warps) });
        }
        let extra = converter.number()?;
        converter.launch(&launch(
            "wide_tiles".to_string(),
            count,
            256,
            args.chain([extra]).collect(),
        ))?;
        let starts = converter.temporary_starts(counts, 1, count as usize + 1)?;
        let [narrow, _] = starts.args;
        Ok(Wide { extra: converter.read(extra)?, starts: narrow, warps: starts.total })
    }
}

fn launch(kernel: String, threads: u64, block: usize, args: Vec<Arg>) -> Launch {
    Launch::over("convert_tiles", kernel, threads, block as u32, args)
}
