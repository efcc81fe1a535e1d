//! Complex blocks on a GPU: the launch of a product, and the conversion.

use super::HACK;
use super::structure::{check_size, other, other_values};
use crate::format::bhll::gpu::BlockHacks;
use crate::format::bhll::{check_rows, movable, sort};
use crate::format::gpu::convert::{self, Check};
use crate::format::gpu::launch::NULL;
use crate::format::sliced::{SliceProduct, check_span};
use crate::format::{
    Arg, Basis, GpuConverter, GpuLayout, Launch, Matrix, Params, Stop, Target, fill_marker,
};
use crate::scalar::Precision;

/// The image of the kernels that convert.
const CONVERT: &str = "convert_chll";

/// The launch of one product of a matrix of `block_rows` block rows; slices are hacks.
pub(super) fn product(arrays: SliceProduct, block_rows: usize, precision: Precision) -> Launch {
    let bits = if arrays.base == NULL { 32 } else { 16 };
    let kernel = format!("chll_c{bits}_{precision}");
    arrays.launch("chll", kernel, block_rows, block_rows.next_multiple_of(HACK))
}

/// Converts on a GPU: see [`super::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    params: &Params,
    target: &Target<'_>,
) -> Result<GpuLayout, Stop> {
    let Matrix { nrows, ncols, nnz, wide } = converter.matrix();
    check_size([nrows, ncols, nnz])?;
    check_rows(nrows)?;
    let (sort, narrow) = (sort(params), params.int("col") == 16);
    if wide || (movable(nrows, ncols, 2, sort) && target.basis == Basis::Permuted) {
        return Err(Stop::OnHost);
    }
    let precision = target.precision;
    let found = converter.number()?;
    converter.launch(&check(nrows, Arg::ColIdx, [NULL, found], precision))?;
    let hacks = BlockHacks::find(converter, 2, sort, narrow)?;
    match converter.read(found)? {
        0 => {}
        below => return Err(other((u32::MAX - below) as usize).into()),
    }
    let BlockHacks { order, base, starts, widest } = hacks;
    let slots = starts.total * HACK as u64;
    fill_marker::check("its blocks", 4 * u128::from(slots), nnz)?;
    check_span(widest)?;
    let bits = if narrow { 16 } else { 32 };
    let bytes = [slots * bits / 8, 2 * slots * precision.bytes() as u64];
    target.check_bytes(bytes.iter().sum())?;
    let [columns, values] = convert::arrays(converter, bytes)?;
    let kernel = format!("fill_complex_c{bits}_{precision}");
    let fill = |columns: Arg| {
        let mut args = vec![Arg::U32(nrows as u32 / 2)];
        args.extend(starts.args);
        args.extend([base, order, Arg::RowPtr, Arg::ColIdx, Arg::Values, columns, values]);
        let lanes = (nrows / 2).next_multiple_of(HACK) as u64;
        Launch::over(CONVERT, kernel.clone(), lanes, 128, args)
    };
    converter.launch(&fill(columns))?;
    let row = converter.array(4)?;
    let check = Check {
        launch: check(nrows, NULL, [row, NULL], precision),
        row,
        reason: |row| other_values(row as usize),
    };
    let values = vec![values];
    let arrays = SliceProduct { starts: starts.args, base, scatter: order, columns, values };
    Ok(GpuLayout {
        launches: vec![product(arrays, nrows / 2, precision)],
        update: vec![fill(NULL)],
        check: Some(check),
        ..GpuLayout::default()
    })
}

/// The launch that searches the first pair of rows with another structure, one warp for each pair.
/// Columns may be null: only values are checked then.
fn check(nrows: usize, columns: Arg, out: [Arg; 2], precision: Precision) -> Launch {
    let args = [Arg::U32(nrows as u32 / 2), Arg::RowPtr, columns, Arg::Values];
    let args = args.into_iter().chain(out).collect();
    let threads = (nrows / 2 * HACK) as u64;
    Launch::over(CONVERT, format!("check_complex_{precision}"), threads, 256, args)
}
