//! Hub-cached ELLPACK on a GPU: the launches of a product, and the conversion.

use ellect_kernels::shared;

use super::{BLOCK, HubEllSize, check_rows, check_share, most_hubs};
use crate::format::gpu::convert::{bits, step};
use crate::format::gpu::launch::NULL;
use crate::format::row_order::WARP;
use crate::format::{
    Arg, GpuConverter, GpuLayout, Launch, Matrix, Params, SliceOffsets, Stop, Target,
};
use crate::scalar::Precision;

/// Arrays and sizes from which the launches of one product are made.
pub(super) struct HubEllPlan {
    /// Numbers of hubs, of rows whose y is scaled first, and of pieces.
    pub counts: [usize; 3],
    /// Columns of the hubs, and the rows whose y is scaled first.
    pub lists: [Arg; 2],
    /// Slots of the hub part and of the rest.
    pub parts: [PartArgs; 2],
    /// The row of each piece.
    pub rows: Arg,
    /// Blocks of threads.
    pub blocks: u32,
}

/// Arguments for one part: the hub part or the rest.
#[derive(Clone, Copy)]
pub(super) struct PartArgs {
    /// Starts of the slices: 32-bit and 64-bit offsets, of which one is null.
    pub starts: [Arg; 2],
    /// Number of entries of each piece.
    pub lengths: Arg,
    pub columns: Arg,
    pub values: Arg,
}

impl HubEllPlan {
    /// Bytes of the x of all hubs, rounded up to a multiple of 16 for the copy.
    fn cached_bytes(&self, precision: Precision) -> u64 {
        (self.counts[0] * precision.bytes()).next_multiple_of(16) as u64
    }

    /// The launches of one product, and the bytes of its scratch memory.
    pub fn launches(&self, precision: Precision) -> (Vec<Launch>, Vec<u64>) {
        let [hubs, scaled, pieces] = self.counts;
        let [near, far] = self.parts;
        let cached = Arg::Scratch(0);
        let count = |n: usize| Arg::U32(n as u32);
        let mut gather = vec![count(hubs), self.lists[0], Arg::X, cached];
        gather.extend([count(scaled), self.lists[1], Arg::Y, Arg::Beta]);
        let threads = hubs.max(scaled) as u64;
        let gather =
            Launch::over("hub_ell", format!("hub_ell_gather_{precision}"), threads, 256, gather);

        let mut args = vec![count(hubs), count(pieces), cached];
        args.extend(near.starts.into_iter().chain(far.starts));
        args.extend([near.lengths, far.lengths, self.rows]);
        args.extend([near.columns, near.values, far.columns, far.values]);
        args.extend([Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
        let warps = (pieces.div_ceil(WARP) as u64).div_ceil(u64::from(BLOCK) / WARP as u64);
        let bytes = self.cached_bytes(precision);
        let product = Launch {
            image: "hub_ell",
            kernel: format!("hub_ell_{precision}"),
            grid: u64::from(self.blocks).min(warps),
            block: BLOCK,
            shared_bytes: bytes as u32,
            args,
        };
        (vec![gather, product], vec![bytes])
    }
}

/// A launch of a conversion kernel over `threads` threads.
fn convert(kernel: impl Into<String>, threads: u64, args: Vec<Arg>) -> Launch {
    Launch::over("convert_hub_ell", kernel, threads, 256, args)
}

/// A number as an argument.
fn count(n: usize) -> Arg {
    Arg::U32(n as u32)
}

/// The hubs of a matrix on a GPU.
struct FoundHubs {
    count: usize,
    /// Columns of the hubs, an array of the layout.
    columns: Arg,
    /// Place of each column among the hubs.
    places: Arg,
}

impl FoundHubs {
    /// Counts the entries of all columns and selects at most `most` columns with the most entries.
    fn new(converter: &mut dyn GpuConverter, most: u16) -> Result<Self, Stop> {
        let Matrix { ncols, nnz, .. } = converter.matrix();
        // This limit equals the one in `Analysis::hubs`.
        if nnz == 0 || ncols / 64 > nnz {
            check_share(0, 0, nnz as u64)?;
        }
        let most = usize::from(most).min(ncols);
        let counts = converter.temporary_zeros(4 * ncols as u64)?;
        let args = vec![Arg::U64(nnz as u64), Arg::ColIdx, counts];
        converter.launch(&convert("count_columns", nnz as u64, args))?;
        let keys = converter.temporary(8 * ncols as u64)?;
        let [own, sorted] =
            [converter.temporary(4 * ncols as u64)?, converter.temporary(4 * ncols as u64)?];
        let places = converter.temporary(2 * ncols as u64)?;
        let args = vec![count(ncols), counts, keys, own, places];
        converter.launch(&convert("column_keys", ncols as u64, args))?;
        let entries_bits = bits(converter.matrix().nrows);
        converter.sort_down(keys, own, sorted, ncols, entries_bits)?;
        let found = [converter.number()?, converter.number()?, converter.number()?];
        let args = [count(most), sorted, counts, places].into_iter().chain(found).collect();
        converter.launch(&convert("choose_hubs", most as u64, args))?;
        let [hubs, low, high] = found;
        let hubs = converter.read(hubs)? as usize;
        let covered = u64::from(converter.read(low)?) + (u64::from(converter.read(high)?) << 16);
        check_share(hubs, covered, nnz as u64)?;
        let columns = converter.array(4 * hubs as u64)?;
        let args = vec![count(hubs), NULL, sorted, columns];
        converter.launch(&step("permute".to_string(), hubs, args))?;
        Ok(FoundHubs { count: hubs, columns, places })
    }
}

/// Marks the entries in hubs. Returns an array with one bit per entry, and the number of set bits
/// before each of its 32-bit words, as 32-bit and 64-bit offsets, of which one is null.
fn mark_near(converter: &mut dyn GpuConverter, hubs: &FoundHubs) -> Result<[Arg; 3], Stop> {
    let nnz = converter.matrix().nnz as u64;
    let words = nnz / 32 + 1;
    let bits = converter.array(4 * words)?;
    let counts = converter.temporary(4 * words)?;
    let args = vec![Arg::U64(nnz), Arg::U64(words), Arg::ColIdx, hubs.places, bits, counts];
    converter.launch(&convert("mark_near", 32 * words, args))?;
    let SliceOffsets { args: [narrow, wide], .. } = converter.starts(counts, 1, words as usize)?;
    Ok([bits, narrow, wide])
}

/// Pieces of rows on a GPU.
struct CutRows {
    pieces: usize,
    /// The first piece of each row.
    starts: Arg,
    /// Rows with several pieces or none, and their number.
    scaled: Arg,
    n_scaled: usize,
}

impl CutRows {
    /// Cuts rows into pieces of at most `1 << shift` entries in either part.
    fn new(converter: &mut dyn GpuConverter, near: [Arg; 3], shift: Arg) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let (nrows, width) = (matrix.nrows, matrix.offset_name());
        let rows = nrows as u64 + 1;
        let [counts, marks] = [converter.temporary(4 * rows)?, converter.temporary(4 * rows)?];
        let args = [count(nrows), shift, Arg::RowPtr].into_iter().chain(near);
        let args = args.chain([counts, marks]).collect();
        converter.launch(&convert(format!("row_pieces_{width}"), rows, args))?;
        let starts = converter.starts(counts, 1, rows as usize)?;
        let Ok(pieces) = u32::try_from(starts.total) else { return Err(Stop::OnHost) };
        let marked = converter.temporary_starts(marks, 1, rows as usize)?;
        let scaled = converter.array(4 * marked.total)?;
        let [marked_starts, _] = marked.args;
        let args = vec![count(nrows), marks, marked_starts, scaled];
        converter.launch(&convert("list_marked", nrows as u64, args))?;
        let (pieces, n_scaled) = (pieces as usize, marked.total as usize);
        Ok(CutRows { pieces, starts: starts.args[0], scaled, n_scaled })
    }
}

/// Pieces on a GPU in the order of the layout.
struct SortedPieces {
    /// The row of each piece.
    rows: Arg,
    /// Entries of each piece in the hub part and in the rest.
    lengths: [Arg; 2],
    /// Place of each piece, in the order of the rows.
    at: Arg,
    /// Starts of the slices of the hub part and of the rest.
    starts: [SliceOffsets; 2],
}

impl SortedPieces {
    /// Sorts pieces of at most `longest` entries in either part.
    fn new(
        converter: &mut dyn GpuConverter,
        near: [Arg; 3],
        cut: &CutRows,
        longest: usize,
    ) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        let shift = Arg::U32(longest.trailing_zeros());
        let pieces = cut.pieces;
        let keys = converter.temporary(8 * pieces as u64)?;
        let mut numbers = || converter.temporary(4 * pieces as u64);
        let [own, piece_rows, sorted] = [numbers()?, numbers()?, numbers()?];
        let sizes = [count(pieces), count(matrix.nrows), shift, Arg::RowPtr];
        let args = sizes.into_iter().chain(near).chain([cut.starts, keys, own, piece_rows]);
        let kernel = format!("piece_keys_{}", matrix.offset_name());
        converter.launch(&convert(kernel, pieces as u64, args.collect()))?;
        converter.sort_down(keys, own, sorted, pieces, 2 * (longest.trailing_zeros() + 1))?;
        let slices = pieces.div_ceil(WARP);
        let rows = converter.array(4 * pieces as u64)?;
        let lengths = [converter.array(2 * pieces as u64)?, converter.array(2 * pieces as u64)?];
        let at = converter.array(4 * pieces as u64)?;
        let mut numbers = || converter.temporary(4 * (slices as u64 + 1));
        let widths = [numbers()?, numbers()?];
        let from = [count(pieces), count(slices), shift, sorted, keys, piece_rows, rows];
        let args = from.into_iter().chain(lengths).chain([at]).chain(widths).collect();
        converter.launch(&convert("place_pieces", 32 * (slices as u64 + 1), args))?;
        let [near, far] = widths;
        let starts =
            [converter.starts(near, WARP, slices + 1)?, converter.starts(far, WARP, slices + 1)?];
        Ok(SortedPieces { rows, lengths, at, starts })
    }
}

/// Converts on a GPU: see [`super::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    params: &Params,
    target: &Target<'_>,
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    let Matrix { nrows, nnz, .. } = matrix;
    check_rows(nrows)?;
    let longest = params.int("piece");
    if !longest.is_power_of_two() {
        return Err(Stop::OnHost);
    }
    let shift = Arg::U32(longest.trailing_zeros());
    let hubs = FoundHubs::new(converter, most_hubs(params, target))?;
    let near = mark_near(converter, &hubs)?;
    let cut = CutRows::new(converter, near, shift)?;
    let sorted = SortedPieces::new(converter, near, &cut, longest)?;
    let value_bytes = target.precision.bytes();
    let slots = [0, 1].map(|part: usize| sorted.starts[part].total);
    let size = HubEllSize { pieces: cut.pieces, scaled: cut.n_scaled, slots };
    target.check_bytes(size.bytes(hubs.count, value_bytes))?;
    let mut part = |part: usize, column_bytes: u64| -> Result<PartArgs, Stop> {
        Ok(PartArgs {
            starts: sorted.starts[part].args,
            lengths: sorted.lengths[part],
            columns: converter.array(column_bytes * slots[part])?,
            values: converter.array(value_bytes as u64 * slots[part])?,
        })
    };
    let parts = [part(0, 2)?, part(1, 4)?];
    let fill = |places: Arg, columns: [Arg; 2]| {
        let sizes = [Arg::U64(nnz as u64), count(nrows), shift];
        let from = [Arg::RowPtr, Arg::ColIdx, Arg::Values, places];
        let slots = parts[0].starts.into_iter().chain(parts[1].starts);
        let to = [columns[0], parts[0].values, columns[1], parts[1].values];
        let args = sizes.into_iter().chain(from).chain(near).chain([cut.starts, sorted.at]);
        let kernel = format!("fill_hubs_{}_{}", matrix.offset_name(), target.precision);
        let threads = (nnz as u64).div_ceil(FILLED_BY_A_WARP) * WARP as u64;
        convert(kernel, threads, args.chain(slots).chain(to).collect())
    };
    converter.launch(&fill(hubs.places, parts.map(|part| part.columns)))?;
    let plan = HubEllPlan {
        counts: [hubs.count, size.scaled, size.pieces],
        lists: [hubs.columns, cut.scaled],
        parts,
        rows: sorted.rows,
        blocks: target.device.processors,
    };
    let (launches, scratch) = plan.launches(target.precision);
    Ok(GpuLayout {
        launches,
        scratch,
        update: vec![fill(NULL, [NULL, NULL])],
        ..GpuLayout::default()
    })
}

/// Entries that a warp of the kernel `fill_hubs` processes.
const FILLED_BY_A_WARP: u64 = shared("HUB_ELL_CHUNK");
