//! Dense blocks on a GPU: the launch of a bhll product, and the conversion to bhll.

use super::HACK;
use crate::analysis::Sort;
use crate::format::gpu::convert::{self, SliceOffsets};
use crate::format::gpu::launch::NULL;
use crate::format::gpu::small::{FoundHacks, HackShape, SmallHacks, is_small};
use crate::format::narrow::gpu::Search;
use crate::format::row_order::WARP;
use crate::format::sliced::{SliceProduct, check_span};
use crate::format::{
    Arg, Basis, GpuConverter, GpuLayout, Launch, Matrix, Params, Several, Stop, Target, fill_marker,
};
use crate::scalar::Precision;
use ellect_kernels::shared;

/// The image of the conversion.
const CONVERT: &str = "convert_blocks";

/// The launch of one product of a matrix of this shape in `b` x `b` blocks; slices are hacks.
pub(super) fn product(
    arrays: SliceProduct,
    shape: [usize; 2],
    b: usize,
    (image, precision): (&'static str, Precision),
) -> Launch {
    let SliceProduct { starts, base, scatter, columns, values } = arrays;
    let mut args = shape.map(|size| Arg::U32(size as u32)).to_vec();
    args.extend(starts);
    args.extend([base, scatter, columns]);
    args.extend(values);
    args.extend([Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
    let bits = if base == NULL { 32 } else { 16 };
    let kernel = format!("{image}_b{b}_c{bits}_{precision}");
    let lanes = shape[0].div_ceil(b).next_multiple_of(HACK);
    Launch::over(image, kernel, lanes as u64, 128, args)
}

/// The launch for several vectors by the image `several_image`, in place of `one`.
pub(in crate::format) fn several(
    one: &Launch,
    several: Several,
    several_image: &'static str,
) -> Option<Launch> {
    let (stem, precision) = one.kernel.rsplit_once('_')?;
    Some(several.launch(one, (several_image, stem, precision), [1, 1, PARTS], &[]))
}

/// Lanes that share a block row in products with 8 packed vectors.
const PARTS: u64 = shared("BHLL_PARTS");

/// Converts on a GPU: see [`super::Storage::build`]. With `search`, values are stored in fewer bits
/// once it has found that these hold them.
pub(in crate::format) fn build(
    converter: &mut dyn GpuConverter,
    params: &Params,
    target: &Target<'_>,
    (image, search): (&'static str, Option<Search>),
) -> Result<GpuLayout, Stop> {
    let (b, sort, narrow) = (params.int("b"), super::sort(params), params.int("col") == 16);
    let Matrix { nrows, ncols, nnz, .. } = converter.matrix();
    super::check_rows(nrows)?;
    if super::movable(nrows, ncols, b, sort) && target.basis == Basis::Permuted {
        return Err(Stop::OnHost);
    }
    let hacks = BlockHacks::find(converter, b, sort, narrow);
    // The host checks values first, and the GPU states the same reason.
    search.iter().try_for_each(|search| search.end(converter))?;
    let hacks = hacks?;
    let BlockHacks { order, base, starts, widest } = hacks;
    let slots = starts.total * HACK as u64;
    let entries = fill_marker::check("its blocks", u128::from(slots) * (b * b) as u128, nnz)?;
    check_span(widest)?;
    let (column_bytes, bits) = if narrow { (2, 16) } else { (4, 32) };
    let value_bytes = search.as_ref().map_or(target.precision.bytes() as u64, Search::bytes);
    let bytes = [slots * column_bytes, entries * value_bytes];
    target.check_bytes(bytes.iter().sum())?;
    let [columns, values] = convert::arrays(converter, bytes)?;
    let stem = format!("fill_blocks_b{b}_c{bits}");
    let (fills, kernel) = match &search {
        Some(search) => {
            let image = search.image_of(["convert_bhll_f32", "convert_half_blocks"]);
            (image, format!("{stem}_{}", search.type_name()))
        }
        None => (CONVERT, format!("{stem}_{}", target.precision)),
    };
    let launch = |columns: Arg| {
        let mut args = vec![Arg::U32(nrows as u32)];
        args.extend(starts.args);
        args.extend([base, order, Arg::RowPtr, Arg::ColIdx, Arg::Values, columns, values]);
        step(fills, nrows.div_ceil(b), kernel.clone(), WARP as u32, args)
    };
    converter.launch(&launch(columns))?;
    let arrays =
        SliceProduct { starts: starts.args, base, scatter: order, columns, values: vec![values] };
    let launches = vec![product(arrays, [nrows, ncols], b, (image, target.precision))];
    let check = search.map(|search| search.check(converter)).transpose()?;
    Ok(GpuLayout { launches, update: vec![launch(NULL)], check, ..GpuLayout::default() })
}

/// A launch over `block_rows` block rows, in whole hacks.
fn step(
    image: &'static str,
    block_rows: usize,
    kernel: String,
    block: u32,
    args: Vec<Arg>,
) -> Launch {
    let lanes = block_rows.next_multiple_of(HACK) as u64;
    Launch::over(image, kernel, lanes, block, args)
}

/// Hacks of block rows.
pub(in crate::format) struct BlockHacks {
    /// The block row of each stored block row; null where block rows keep their order.
    pub order: Arg,
    /// The first column of each hack; null for 32-bit columns.
    pub base: Arg,
    /// Starts of hacks, in columns of blocks.
    pub starts: SliceOffsets,
    /// Columns that the widest hack spans; 0 for 32-bit columns.
    pub widest: usize,
}

impl BlockHacks {
    /// Finds the hacks of `b` x `b` blocks of a matrix with row pointers of 32 bits, with block rows in
    /// `sort` order, and first columns if `narrow`.
    ///
    /// # Errors
    /// [`Stop::OnHost`] for row pointers of 64 bits; [`Stop::Failed`] if the GPU fails.
    pub fn find(
        converter: &mut dyn GpuConverter,
        b: usize,
        sort: Sort,
        narrow: bool,
    ) -> Result<Self, Stop> {
        let matrix = converter.matrix();
        if matrix.wide {
            return Err(Stop::OnHost);
        }
        let block_rows = matrix.nrows.div_ceil(b);
        let list = |converter: &mut dyn GpuConverter| converter.temporary(4 * block_rows as u64);
        let (lengths, firsts, lasts) = (list(converter)?, list(converter)?, list(converter)?);
        let longest = converter.number()?;
        let rows = Arg::U32(matrix.nrows as u32);
        let args = vec![rows, Arg::RowPtr, Arg::ColIdx, lengths, firsts, lasts, longest];
        converter.launch(&step(
            CONVERT,
            block_rows,
            format!("block_lengths_b{b}"),
            WARP as u32,
            args,
        ))?;
        let shape = HackShape { rows: block_rows, hack: HACK, run: 1, each: 1, sort, narrow };
        let small = if is_small(&matrix) { SmallHacks::new(converter, &shape)? } else { None };
        let Some(small) = small else {
            return BlockHacks::large(converter, &shape, [lengths, firsts, lasts, longest]);
        };
        let from = [NULL, NULL, lengths, firsts, lasts];
        let FoundHacks { units, widest, .. } = small.find(converter, from)?;
        let starts = SliceOffsets { args: [small.starts, NULL], total: units };
        Ok(BlockHacks { order: small.order, base: small.base, starts, widest })
    }

    /// Finds hacks of any size, from the lengths, first and last columns of block rows and the
    /// number that is the longest length.
    fn large(
        converter: &mut dyn GpuConverter,
        shape: &HackShape,
        [lengths, firsts, lasts, longest]: [Arg; 4],
    ) -> Result<Self, Stop> {
        let (block_rows, hacks) = (shape.rows, shape.hacks());
        let order = match shape.sort {
            Sort::Window(window) => {
                convert::longest_first(converter, lengths, longest, block_rows, window)?
            }
            Sort::None => NULL,
            Sort::All | Sort::Rcm => return Err(Stop::OnHost),
        };
        let counts = converter.temporary(4 * (hacks as u64 + 1))?;
        let sizes = [block_rows, HACK, hacks];
        converter.launch(&convert::slice_widths(sizes, 1, order, lengths, counts))?;
        let widest = converter.number()?;
        let base = if shape.narrow {
            let base = converter.array(4 * hacks as u64)?;
            let sizes = [Arg::U32(block_rows as u32), Arg::U32(hacks as u32)];
            let args = sizes.into_iter().chain([order, firsts, lasts, base, widest]).collect();
            converter.launch(&step(CONVERT, block_rows, "block_spans".to_string(), 256, args))?;
            base
        } else {
            NULL
        };
        let starts = converter.starts(counts, 1, hacks + 1)?;
        let widest = converter.read(widest)? as usize;
        Ok(BlockHacks { order, base, starts, widest })
    }
}
