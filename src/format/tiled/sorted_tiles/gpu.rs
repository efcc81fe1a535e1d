//! Sorted tiles on a GPU: the conversion, and the launches of a product.

use super::{EACH, WARP, no_entries};
use crate::format::csr_tiles::{FoundTiles, NUMBERS, UNTOLD, find_small, some_tiles};
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
        let Matrix { nrows, nnz, .. } = converter.matrix();
        if nnz == 0 {
            return Err(no_entries().into());
        }
        if is_small(&converter.matrix())
            && let Some(sorted) = GpuSortedTiles::small(converter, tile, with_values, target)?
        {
            return Ok(sorted);
        }
        let w = target.precision.bytes() as u64;
        let found = FoundTiles::new(converter, tile)?;
        let count = found.count;
        let warps = (tile / WARP) as u64;
        let (slots, threads) = (count * tile as u64, count * (tile / EACH) as u64);
        let tiles = converter.array(16 * count)?;
        let ends = converter.array(2 * (nrows as u64 + 2 * count))?;
        let lasts = converter.array(threads)?;
        let bases = converter.array(16 * count * warps)?;
        let low = converter.array(2 * slots)?;
        let values = if with_values { converter.array(w * slots)? } else { NULL };
        let (rest, spans) =
            (converter.temporary(4 * slots)?, converter.temporary(4 * count * warps)?);
        let overs = converter.temporary_zeros(4 * 5)?;
        let bounds = [found.rows, found.entries];
        let out = [tiles, ends, lasts, bases, low, rest, spans, values, overs];
        converter.launch(&sort(converter.matrix(), tile, count, bounds, out, target))?;

        // Number of further bits of columns, and starts of the upper bits of wide warps.
        let counts = converter.temporary(4 * (count + 1))?;
        let extra = converter.number()?;
        let sizes = [Arg::U32(count as u32), Arg::U32(warps as u32)];
        let args = sizes.into_iter().chain([spans, overs, counts, extra]).collect();
        converter.launch(&launch("wide_tiles".to_string(), count, 256, args))?;
        let starts = converter.temporary_starts(counts, 1, count as usize + 1)?;
        let extra = converter.read(extra)?;
        let high = converter.array(slots * u64::from(extra) / 8)?;
        let most = converter.array(2 * WARP as u64 * starts.total)?;
        let [starts, _] = starts.args;
        let out = [Arg::U32(extra), rest, spans, starts, tiles, high, most];
        let args = sizes.into_iter().chain(out).collect();
        converter.launch(&launch("pack_tiles".to_string(), threads, 256, args))?;
        let arrays = [tiles, ends, lasts, bases, low, high, most];
        let plan = TilePlan { tile, tiles: count, extra, splits: found.splits, arrays };
        Ok(GpuSortedTiles { plan, values, entries: found.entries })
    }

    /// As [`GpuSortedTiles::new`], for a small matrix, with one wait. The arrays are allocated before
    /// their sizes are known; `None` if they were too small.
    fn small(
        converter: &mut dyn GpuConverter,
        tile: usize,
        with_values: bool,
        target: &Target<'_>,
    ) -> Result<Option<Self>, Stop> {
        let matrix = converter.matrix();
        let (warps, w) = ((tile / WARP) as u64, target.precision.bytes() as u64);
        let room = some_tiles(&matrix, tile);
        // Columns have at most 2 bytes beyond those next to places, in all but a few matrices.
        let columns_bytes = 2 * room * tile as u64 + 256;
        let bytes = |count: u64| {
            let bound = 4 * (count + 1);
            let (slots, ends) = (count * tile as u64, 2 * (matrix.nrows as u64 + 2 * count));
            let values = if with_values { w * slots } else { 0 };
            let bases = 16 * count * warps;
            [bound, bound, 16 * count, ends, slots / EACH as u64, bases, 2 * slots, values]
        };
        let mut sizes = bytes(room).to_vec();
        sizes.push(columns_bytes);
        if target.check_bytes(sizes.iter().sum()).is_err() {
            return Ok(None);
        }
        let arrays = converter.arrays(&sizes)?;
        let [rows, entries, tiles, ends, lasts, bases, low, values, high] = arrays[..] else {
            unreachable!("there are as many arrays as sizes")
        };
        let values = if with_values { values } else { NULL };
        let rest = converter.temporary(4 * room * tile as u64)?;
        let spans = converter.temporary(4 * room * warps)?;
        let starts = converter.temporary(4 * room)?;
        let overs = converter.temporary_zeros(4 * 5)?;
        let numbers = converter.temporary_zeros(4 * NUMBERS)?;
        find_small(converter, tile, [room, room], [rows, entries], numbers, UNTOLD)?;
        let out = [tiles, ends, lasts, bases, low, rest, spans, values, overs];
        converter.launch(&sort(matrix, tile, room, [rows, entries], out, target))?;
        let sizes = [room, warps].map(|size| Arg::U32(size as u32));
        let counted = [numbers, spans, overs, starts];
        let args = sizes.into_iter().chain(counted).chain(converter.host()?).collect();
        converter.launch(&small("tile_starts", 1024, 1024, args))?;
        let packed = [Arg::U64(columns_bytes), numbers, rest, spans, starts, tiles, high];
        let args = sizes.into_iter().chain(packed).collect();
        let threads = room * (tile / EACH) as u64;
        converter.launch(&small("pack_tiles_small", threads, 256, args))?;
        let [count, splits, extra, wide] = converter.told()?;
        let count = u64::from(count);
        let high_bytes = count * tile as u64 * u64::from(extra) / 8;
        let most_bytes = 2 * WARP as u64 * u64::from(wide);
        if count > room || high_bytes.next_multiple_of(256) + most_bytes > columns_bytes {
            converter.discard(&arrays);
            return Ok(None);
        }
        arrays.iter().zip(bytes(count)).for_each(|(&array, bytes)| converter.trim(array, bytes));
        let most = converter.divide(high, high_bytes, most_bytes);
        let arrays = [tiles, ends, lasts, bases, low, high, most];
        let plan = TilePlan { tile, tiles: count, extra, splits: splits > 0, arrays };
        Ok(Some(GpuSortedTiles { plan, values, entries }))
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

/// The launch that sorts `count` tiles with these bounds and writes the arrays `out`.
fn sort(
    matrix: Matrix,
    tile: usize,
    count: u64,
    bounds: [Arg; 2],
    out: [Arg; 9],
    target: &Target<'_>,
) -> Launch {
    let bits = Arg::U32(u64::BITS - (matrix.ncols as u64).leading_zeros());
    let csr = [bits, Arg::RowPtr, Arg::ColIdx, Arg::Values];
    let args = csr.into_iter().chain(bounds).chain(out).collect();
    let kernel = format!("sort_tiles{tile}_{}_{}", matrix.offset_name(), target.precision);
    launch(kernel, count * (tile / EACH) as u64, tile / EACH, args)
}

fn launch(kernel: String, threads: u64, block: usize, args: Vec<Arg>) -> Launch {
    Launch::over("convert_tiles", kernel, threads, block as u32, args)
}

fn small(kernel: &str, threads: u64, block: u32, args: Vec<Arg>) -> Launch {
    Launch::over("convert_small", kernel, threads, block, args)
}
