//! Sorted tiles on a GPU: their conversion there, and the launches of a product.

use super::{GROUP, OWN, STEP, most_span, too_wide};
use crate::format::tiles::FoundTiles;
use crate::format::{Arg, Builder, Built, Launch, Matrix, Params, Stop, Target};
use crate::scalar::Precision;

/// What the launches of a product take.
pub(super) struct Plan {
    pub tile: usize,
    pub tiles: u64,
    pub splits: bool,
    /// Tiles, ends, lasts, packed entries, bases and values.
    pub arrays: [Arg; 6],
}

impl Plan {
    pub fn launches(&self, precision: Precision) -> Vec<Launch> {
        let heads = Arg::Scratch(0);
        let args = self.arrays.into_iter().chain([Arg::X, heads, Arg::Y, Arg::Alpha, Arg::Beta]);
        let kernel = format!("stcsr_{}_{precision}", self.tile);
        let block = self.tile / OWN;
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
    let width = if wide { "wide" } else { "narrow" };
    let groups = builder.temporary(4 * (count + 1))?;
    let args = vec![Arg::U32(count as u32), found.entries, groups];
    builder.launch(&Launch::over(
        "convert_tiles",
        format!("tile_groups_{width}"),
        count,
        256,
        args,
    ))?;
    let starts = builder.starts(groups, 1, count as usize + 1)?;
    let [starts_at, _] = starts.args;
    if starts.total > u64::from(u32::MAX) {
        return Err(Stop::OnHost);
    }
    let slots = GROUP as u64 * starts.total;
    let tiles = builder.array(16 * count)?;
    let ends = builder.array(2 * (nrows as u64 + 2 * count))?;
    let lasts = builder.array(count * (tile / 8) as u64)?;
    let packed = builder.array(4 * slots)?;
    let bases = builder.array(4 * count * (tile / STEP) as u64)?;
    let values = builder.array(w * slots)?;
    let widest = builder.number()?;
    let precision = target.precision;
    let matrix = [Arg::RowPtr, Arg::ColIdx, Arg::Values];
    let bounds = [found.rows, found.entries, starts_at];
    let out = [tiles, ends, lasts, packed, bases, values, widest];
    let bits = Arg::U32(u64::BITS - (ncols as u64).leading_zeros());
    let args = [bits].into_iter().chain(matrix).chain(bounds).chain(out).collect();
    let block = tile / SORTED_A_THREAD;
    let kernel = format!("sort_tiles{tile}_{width}_{precision}");
    let threads = count * block as u64;
    builder.launch(&Launch::over("convert_tiles", kernel, threads, block as u32, args))?;
    let widest = builder.read(widest)?;
    if widest > most_span(tile) {
        return Err(too_wide(u64::from(widest), tile).into());
    }
    let plan = Plan {
        tile,
        tiles: count,
        splits: found.splits,
        arrays: [tiles, ends, lasts, packed, bases, values],
    };
    let update = vec![
        Arg::U64(nnz as u64),
        Arg::U32(tile as u32),
        found.entries,
        Arg::Values,
        tiles,
        packed,
        values,
    ];
    let update = Launch::over(
        "convert_tiles",
        format!("update_tiles_{width}_{precision}"),
        count * 256,
        256,
        update,
    );
    Ok(Built {
        launches: plan.launches(precision),
        scratch: vec![w * count],
        update: vec![update],
        ..Built::default()
    })
}

/// Entries that a thread of the kernel `sort_tiles` takes.
const SORTED_A_THREAD: usize = 8;
