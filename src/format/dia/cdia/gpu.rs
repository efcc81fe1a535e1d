//! Conversion to constant diagonals on a GPU.

use super::pieces::MostPieces;
use super::{HACK, WORDS, check_size, layout_bytes, not_constant, product};
use crate::format::gpu::convert::Check;
use crate::format::gpu::launch::NULL;
use crate::format::{
    Arg, GpuConverter, GpuLayout, Launch, Matrix, Refusal, SliceOffsets, Stop, Target,
};

/// Pieces of a hack for which a block has places. Where a hack has more pieces, all hacks are
/// processed again with the larger number; where it has even more, or shared memory does not hold
/// that many places, the host converts.
const CAPACITIES: [usize; 2] = [128, 896];

/// Number of pieces of each hack that are kept between counting and writing.
const KEPT: usize = 64;

/// Maximum bytes of static shared memory of the kernel `hack_pieces`.
const OWN_SHARED: u64 = 1024;

/// Threads per block; each block processes one hack.
const THREADS: u32 = 256;

/// Entries that a block of the kernel `hack_pieces` transposes in shared memory: 8 warps, 8 entries
/// of 32 rows, and a column of padding.
const TURNED: usize = 8 * 8 * 33;

/// Dynamic shared memory of the kernel `hack_pieces`: the transposed entries, and for each piece
/// its value, offset, first row and row bits.
fn shared_bytes(capacity: usize, value_bytes: usize) -> u32 {
    (TURNED * (value_bytes + 4) + capacity * (value_bytes + 4 + 4 + 4 * WORDS)) as u32
}

/// Bytes that a piece takes in each array: value, offset, entry, order and row bits.
fn piece_bytes(value_bytes: usize) -> [u64; 5] {
    [value_bytes, 4, 8, 4, 4 * WORDS].map(|bytes| bytes as u64)
}

/// The numbers of pieces of all hacks.
struct Counted {
    capacity: usize,
    /// The first piece of each hack.
    starts: SliceOffsets,
    /// The largest number of pieces of a hack.
    largest: usize,
    diagonals: u64,
}

/// Converts on a GPU: see [`crate::format::Storage::build`].
pub(super) fn build(
    converter: &mut dyn GpuConverter,
    target: &Target<'_>,
) -> Result<GpuLayout, Stop> {
    let matrix = converter.matrix();
    let Matrix { nrows, ncols, nnz, .. } = matrix;
    check_size(nrows, ncols)?;
    // Lanes with short rows advance their index as far as the longest of 32 rows does.
    if !matrix.wide && nnz + ncols > u32::MAX as usize {
        return Err(Stop::OnHost);
    }
    let (hacks, w) = (nrows.div_ceil(HACK), target.precision.bytes());
    let (width, precision) = (matrix.offset_name(), target.precision);
    let count = |n: usize| Arg::U32(n as u32);
    let a_hack_each = |kernel: String, args: Vec<Arg>| {
        let threads = hacks as u64 * u64::from(THREADS);
        Launch::over("convert_cdia", kernel, threads, THREADS, args)
    };
    let counts = converter.temporary(4 * (hacks as u64 + 1))?;
    let mut kept = [NULL; 5];
    for (array, bytes) in kept.iter_mut().zip(piece_bytes(w)) {
        *array = converter.temporary(bytes * (hacks * KEPT) as u64)?;
    }
    let find = |capacity: usize, numbers: [Arg; 2], starts: [Arg; 2], to: [Arg; 5]| {
        let sizes = [nrows, capacity, KEPT].map(count);
        let from = [Arg::RowPtr, Arg::ColIdx, Arg::Values, counts];
        let args = sizes.into_iter().chain(from).chain(numbers).chain(kept).chain(starts);
        let kernel = format!("hack_pieces_{width}_{precision}");
        let launch = a_hack_each(kernel, args.chain(to).collect());
        Launch { shared_bytes: shared_bytes(capacity, w), ..launch }
    };

    let mut counted = None;
    for capacity in CAPACITIES {
        if u64::from(shared_bytes(capacity, w)) + OWN_SHARED > target.device.shared_bytes {
            return Err(Stop::OnHost);
        }
        let numbers = [converter.number()?, converter.number()?];
        converter.launch(&find(capacity, numbers, [NULL; 2], [NULL; 5]))?;
        let starts = converter.starts(counts, 1, hacks + 1)?;
        let largest = converter.read(numbers[0])? as usize;
        let diagonals = u64::from(converter.read(numbers[1])?);
        if largest <= capacity {
            counted = Some(Counted { capacity, starts, largest, diagonals });
            break;
        }
    }
    let Some(Counted { capacity, starts, largest, diagonals }) = counted else {
        return Err(Stop::OnHost);
    };
    let most = MostPieces::of(nnz, HACK, hacks, diagonals).ok_or_else(not_constant)?;
    if starts.total > (most.mean * hacks) as u64 || largest > most.of_one {
        return Err(not_constant().into());
    }
    if largest > most.mean {
        let over = converter.number()?;
        let args = [hacks, most.sample, most.mean].map(count).into_iter().chain([counts, over]);
        let threads = most.sample as u64;
        let sample = Launch::over("convert_cdia", "sample_hacks", threads, THREADS, args.collect());
        converter.launch(&sample)?;
        if converter.read(over)? as usize > most.over {
            return Err(not_constant().into());
        }
    }

    target.check_bytes(layout_bytes(hacks, starts.total, w as u64))?;
    let mut pieces = [NULL; 5];
    for (array, bytes) in pieces.iter_mut().zip(piece_bytes(w)) {
        *array = converter.array(bytes * starts.total)?;
    }
    converter.launch(&find(capacity, [NULL; 2], starts.args, pieces))?;
    let [values, offsets, entries, order, rows] = pieces;
    let args = vec![Arg::U32(starts.total as u32), entries, Arg::Values, values];
    let kernel = format!("take_pieces_{precision}");
    let update = Launch::over("convert_cdia", kernel, starts.total, THREADS, args);
    let row = converter.array(4)?;
    let from = [entries, order, rows, Arg::RowPtr, Arg::Values, row];
    let args = [count(nrows)].into_iter().chain(starts.args).chain(from).collect();
    let launch = a_hack_each(format!("check_pieces_{width}_{precision}"), args);
    Ok(GpuLayout {
        launches: vec![product(nrows, starts.args, offsets, values, rows, precision)],
        update: vec![update],
        check: Some(Check { launch, row, reason: not_alike }),
        ..GpuLayout::default()
    })
}

fn not_alike(row: u32) -> Refusal {
    Refusal::new(format!(
        "the new values are not constant along the diagonals that had one value: row {row} has \
         a value that differs from an earlier row; prepare a new operator for them"
    ))
}
