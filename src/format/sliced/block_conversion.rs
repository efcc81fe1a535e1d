//! Dense blocks on a GPU: the launch of a bhll product, and the conversion to bhll.

use super::bhll::HACK;
use super::gpu::launch::NULL;
use super::row_order::WARP;
use super::sliced::{SliceProduct, check_span};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Matrix, Stop, Target, fill_marker, gpu::convert,
};
use crate::analysis::Sort;
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
    let Matrix { nrows, ncols, nnz, wide } = converter.matrix();
    if wide {
        return Err(Stop::OnHost);
    }
    let block_rows = nrows.div_ceil(b);
    let hacks = block_rows.div_ceil(HACK);
    let list = |converter: &mut dyn GpuConverter| converter.temporary(4 * block_rows as u64);
    let (lengths, firsts, lasts) = (list(converter)?, list(converter)?, list(converter)?);
    let rows = Arg::U32(nrows as u32);
    let (longest, widest) = (converter.number()?, converter.number()?);
    let step = |kernel: String, block: u32, args: Vec<Arg>| {
        Launch::over("convert_blocks", kernel, (hacks * HACK) as u64, block, args)
    };
    let args = vec![rows, Arg::RowPtr, Arg::ColIdx, lengths, firsts, lasts, longest];
    converter.launch(&step(format!("block_lengths_b{b}"), WARP as u32, args))?;
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
        converter.launch(&step("block_spans".to_string(), 256, args))?;
        base
    } else {
        NULL
    };
    let starts = converter.starts(counts, 1, hacks + 1)?;
    let slots = starts.total * HACK as u64;
    let entries = fill_marker::check("its blocks", u128::from(slots) * (b * b) as u128, nnz)?;
    check_span(converter.read(widest)? as usize)?;
    let (column_bytes, bits) = if narrow { (2, 16) } else { (4, 32) };
    let value_bytes = target.precision.bytes() as u64;
    target.check_bytes(slots * column_bytes + entries * value_bytes)?;
    let columns = converter.array(slots * column_bytes)?;
    let values = converter.array(entries * value_bytes)?;
    let kernel = format!("fill_blocks_b{b}_c{bits}_{}", target.precision);
    let launch = |columns: Arg| {
        let mut args = vec![rows];
        args.extend(starts.args);
        args.extend([base, order, Arg::RowPtr, Arg::ColIdx, Arg::Values, columns, values]);
        step(kernel.clone(), WARP as u32, args)
    };
    converter.launch(&launch(columns))?;
    let arrays =
        SliceProduct { starts: starts.args, base, scatter: order, columns, values: vec![values] };
    let launches = vec![product(arrays, [nrows, ncols], b, target.precision)];
    Ok(GpuLayout { launches, update: vec![launch(NULL)], ..GpuLayout::default() })
}
