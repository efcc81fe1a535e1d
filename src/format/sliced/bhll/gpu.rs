//! Dense blocks on a GPU: the launch of a bhll product, and the conversion to bhll.

use super::HACK;
use crate::analysis::Sort;
use crate::format::gpu::convert;
use crate::format::gpu::launch::NULL;
use crate::format::gpu::small::{self, FoundHacks, HackShape, SmallHacks};
use crate::format::row_order::WARP;
use crate::format::sliced::{SliceProduct, check_span};
use crate::format::{
    Arg, GpuConverter, GpuLayout, Launch, Matrix, Refusal, Stop, Target, fill_marker,
};
use crate::scalar::Precision;

/// The launch of one product of a matrix of this shape in `b` x `b` blocks; slices are hacks.
pub(super) fn product(
    arrays: SliceProduct,
    shape: [usize; 2],
    b: usize,
    precision: Precision,
) -> Launch {
    let SliceProduct { starts, base, scatter, columns, values } = arrays;
    let mut args = shape.map(|size| Arg::U32(size as u32)).to_vec();
    args.extend(starts);
    args.extend([base, scatter, columns]);
    args.extend(values);
    args.extend([Arg::X, Arg::Y, Arg::Alpha, Arg::Beta]);
    let bits = if base == NULL { 32 } else { 16 };
    let kernel = format!("bhll_b{b}_c{bits}_{precision}");
    let lanes = shape[0].div_ceil(b).next_multiple_of(HACK);
    Launch::over("bhll", kernel, lanes as u64, 128, args)
}

/// Converts on a GPU, with block rows in `sort` order: see [`super::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    target: &Target<'_>,
    b: usize,
    sort: Sort,
    narrow: bool,
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    if matrix.wide {
        return Err(Stop::OnHost);
    }
    let block_rows = matrix.nrows.div_ceil(b);
    let hacks = block_rows.div_ceil(HACK);
    let list = |converter: &mut dyn GpuConverter| converter.temporary(4 * block_rows as u64);
    let (lengths, firsts, lasts) = (list(converter)?, list(converter)?, list(converter)?);
    let (longest, widest) = (converter.number()?, converter.number()?);
    let blocks = Blocks { matrix, b, narrow, precision: target.precision };
    let rows = Arg::U32(matrix.nrows as u32);
    let args = vec![rows, Arg::RowPtr, Arg::ColIdx, lengths, firsts, lasts, longest];
    converter.launch(&blocks.step(format!("block_lengths_b{b}"), WARP as u32, args))?;
    let shape = HackShape { rows: block_rows, hack: HACK, run: 1, each: 1, sort, narrow };
    if small::is_small(&matrix)
        && let Some(hacks) = SmallHacks::new(converter, &shape)?
    {
        let from = [NULL, NULL, lengths, firsts, lasts];
        return blocks.build_small(converter, &hacks, from, target);
    }
    let order = match sort {
        Sort::Window(window) => {
            convert::longest_first(converter, lengths, longest, block_rows, window)?
        }
        Sort::None => NULL,
        Sort::All | Sort::Rcm => return Err(Stop::OnHost),
    };
    let counts = converter.temporary(4 * (hacks as u64 + 1))?;
    let sizes = [block_rows, HACK, hacks];
    converter.launch(&convert::slice_widths(sizes, 1, order, lengths, counts))?;
    let base = if narrow {
        let base = converter.array(4 * hacks as u64)?;
        let sizes = [Arg::U32(block_rows as u32), Arg::U32(hacks as u32)];
        let args = sizes.into_iter().chain([order, firsts, lasts, base, widest]).collect();
        converter.launch(&blocks.step("block_spans".to_string(), 256, args))?;
        base
    } else {
        NULL
    };
    let starts = converter.starts(counts, 1, hacks + 1)?;
    let widest = converter.read(widest)? as usize;
    blocks.check(starts.total, widest, target)?;
    let [column_bytes, value_bytes] = blocks.bytes(starts.total);
    let (columns, values) = (converter.array(column_bytes)?, converter.array(value_bytes)?);
    let arrays =
        SliceProduct { starts: starts.args, base, scatter: order, columns, values: vec![values] };
    converter.launch(&blocks.fill(&arrays, columns, values))?;
    Ok(blocks.built(arrays, values))
}

/// The blocks of a matrix.
struct Blocks {
    matrix: Matrix,
    b: usize,
    narrow: bool,
    precision: Precision,
}

impl Blocks {
    /// Converts a small matrix, whose block rows `from` describes.
    fn build_small(
        &self,
        converter: &mut dyn GpuConverter,
        hacks: &SmallHacks,
        from: [Arg; 5],
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let arrays = |[columns, values]: [Arg; 2]| SliceProduct {
            starts: [hacks.starts, NULL],
            base: hacks.base,
            scatter: hacks.order,
            columns,
            values: vec![values],
        };
        let bound = small::some_slots(self.matrix.nnz) / (HACK * self.b * self.b) as u64 + 1;
        let bytes = |units| self.bytes(units);
        let check = |found: &FoundHacks| self.check(found.units, found.widest, target);
        let fill = |to: [Arg; 2]| vec![self.fill(&arrays(to), to[0], to[1])];
        let (_, filled) = hacks.fill(converter, from, bound, bytes, check, fill)?;
        Ok(self.built(arrays(filled), filled[1]))
    }

    /// Bytes of the columns and of the values of `units` columns of blocks of all hacks.
    fn bytes(&self, units: u64) -> [u64; 2] {
        let slots = units * HACK as u64;
        let entries = slots * (self.b * self.b) as u64;
        [slots * if self.narrow { 2 } else { 4 }, entries * self.precision.bytes() as u64]
    }

    /// Checks that blocks hold few places without an entry, that 16 bits hold the `widest` span, and
    /// that memory suffices.
    fn check(&self, units: u64, widest: usize, target: &Target<'_>) -> Result<(), Refusal> {
        let entries = u128::from(units) * (HACK * self.b * self.b) as u128;
        fill_marker::check("its blocks", entries, self.matrix.nnz)?;
        check_span(widest)?;
        target.check_bytes(self.bytes(units).iter().sum())
    }

    /// A launch over block rows.
    fn step(&self, kernel: String, block: u32, args: Vec<Arg>) -> Launch {
        let lanes = self.matrix.nrows.div_ceil(self.b).next_multiple_of(HACK);
        Launch::over("convert_blocks", kernel, lanes as u64, block, args)
    }

    /// The launch that fills columns, unless null, and values.
    fn fill(&self, arrays: &SliceProduct, columns: Arg, values: Arg) -> Launch {
        let SliceProduct { starts: [narrow, wide], base, scatter: order, .. } = *arrays;
        let rows = Arg::U32(self.matrix.nrows as u32);
        let from = [base, order, Arg::RowPtr, Arg::ColIdx, Arg::Values, columns, values];
        let args = [rows, narrow, wide].into_iter().chain(from).collect();
        let bits = if self.narrow { 16 } else { 32 };
        self.step(format!("fill_blocks_b{}_c{bits}_{}", self.b, self.precision), WARP as u32, args)
    }

    /// The layout with these arrays.
    fn built(&self, arrays: SliceProduct, values: Arg) -> GpuLayout {
        let update = vec![self.fill(&arrays, NULL, values)];
        let shape = [self.matrix.nrows, self.matrix.ncols];
        let launches = vec![product(arrays, shape, self.b, self.precision)];
        GpuLayout { launches, update, ..GpuLayout::default() }
    }
}
