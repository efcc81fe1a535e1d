//! Sorted tiles on a GPU: their conversion there, and the launches of a product.

use super::{EACH, WARP};
use crate::format::tiles::FoundTiles;
use crate::format::{Arg, Builder, Built, Launch, Matrix, Params, Stop, Target};
use crate::scalar::Precision;

/// What the launches of a product take.
pub(super) struct Plan {
    pub tile: usize,
    pub tiles: u64,
    /// One of [`EXTRA`](super::EXTRA).
    pub extra: u32,
    pub splits: bool,
    /// Tiles, ends, lasts, bases, the bits of columns with places, those besides, those of wide
    /// warps, and values.
    pub arrays: [Arg; 8],
}

impl Plan {
    pub fn launches(&self, precision: Precision) -> Vec<Launch> {
        let heads = Arg::Scratch(0);
        let args = self.arrays.into_iter().chain([Arg::X, heads, Arg::Y, Arg::Alpha, Arg::Beta]);
        let kernel = format!("stcsr_{}_{precision}_{}", self.tile, self.extra);
        let block = self.tile / EACH;
        let threads = self.tiles * block as u64;
        let mut launches =
            vec![Launch::over("stcsr", kernel, threads, block as u32, args.collect())];
        if self.splits {
            let [tiles, ..] = self.arrays;
            let args = vec![Arg::U32(self.tiles as u32), tiles, heads, Arg::Y, Arg::Alpha];
            let kernel = format!("stcsr_heads_{precision}");
            launches.push(Launch::over("stcsr", kernel, self.tiles, 256, args));
        }
        launches
    }
}

/// See [`Storage::build`](crate::format::Storage::build).
pub(super) fn build(
    builder: &mut dyn Builder,
    params: &Params,
    target: &Target<'_>,
) -> Result<Built, Stop> {
    let Matrix { nrows, ncols, nnz, wide } = builder.matrix();
    if nnz == 0 {
        return Err(Stop::OnHost);
    }
    let (tile, w) = (params.int("tile"), target.precision.bytes() as u64);
    let found = FoundTiles::new(builder, tile)?;
    let count = found.count;
    let warps = (tile / WARP) as u64;
    let (slots, threads) = (count * tile as u64, count * (tile / EACH) as u64);
    let tiles = builder.array(16 * count)?;
    let ends = builder.array(2 * (nrows as u64 + 2 * count))?;
    let lasts = builder.array(threads)?;
    let bases = builder.array(16 * count * warps)?;
    let low = builder.array(2 * slots)?;
    let values = builder.array(w * slots)?;
    let (rest, spans) = (builder.temporary(4 * slots)?, builder.temporary(4 * count * warps)?);
    let overs = builder.temporary_zeros(4 * 5)?;
    let precision = target.precision;
    let matrix = [Arg::RowPtr, Arg::ColIdx, Arg::Values, found.rows, found.entries];
    let out = [tiles, ends, lasts, bases, low, rest, spans, values, overs];
    let bits = Arg::U32(u64::BITS - (ncols as u64).leading_zeros());
    let args = [bits].into_iter().chain(matrix).chain(out).collect();
    let launch = |kernel: String, threads, block, args| {
        Launch::over("convert_tiles", kernel, threads, block, args)
    };
    let width = if wide { "wide" } else { "narrow" };
    let kernel = format!("sort_tiles{tile}_{width}_{precision}");
    builder.launch(&launch(kernel, threads, (tile / EACH) as u32, args))?;

    // How many bits columns take besides, and where those of wide warps go.
    let counts = builder.temporary(4 * (count + 1))?;
    let extra = builder.number()?;
    let sizes = [Arg::U32(count as u32), Arg::U32(warps as u32)];
    let args = sizes.into_iter().chain([spans, overs, counts, extra]).collect();
    builder.launch(&launch("wide_tiles".to_string(), count, 256, args))?;
    let starts = builder.temporary_starts(counts, 1, count as usize + 1)?;
    let extra = builder.read(extra)?;
    let high = builder.array(slots * u64::from(extra) / 8)?;
    let most = builder.array(2 * WARP as u64 * starts.total)?;
    let [starts, _] = starts.args;
    let out = [Arg::U32(extra), rest, spans, starts, tiles, high, most];
    let args = sizes.into_iter().chain(out).collect();
    builder.launch(&launch("pack_tiles".to_string(), threads, 256, args))?;

    let plan = Plan {
        tile,
        tiles: count,
        extra,
        splits: found.splits,
        arrays: [tiles, ends, lasts, bases, low, high, most, values],
    };
    let sizes = [Arg::U64(nnz as u64), Arg::U32(count as u32), Arg::U32((tile / EACH) as u32)];
    let args = sizes.into_iter().chain([found.entries, Arg::Values, low, values]).collect();
    let update = launch(format!("update_tiles_{width}_{precision}"), threads, 256, args);
    Ok(Built {
        launches: plan.launches(precision),
        scratch: vec![w * count],
        update: vec![update],
        ..Built::default()
    })
}
