//! Rows of a divided matrix on their part's GPU: the columns that they need from other parts, and the part's
//! matrices with local columns; see `kernels/conversions/halo.cu`.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::{Arc, OnceLock};

use cust::sys as cuda;
use ellect_kernels::primitives;

use super::convert::check_cub;
use super::launch::{PreparedLaunch, plain};
use super::memory::{Memory, read};
use super::{DeviceCsr, Gpu, check};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::format::{Arg, Launch, Matrix};
use crate::scalar::Scalar;

/// Name of the image.
const IMAGE: &str = "halo";

/// Threads of a block.
const THREADS: u32 = 256;

/// Columns that rows need beside a range of own ones.
pub(crate) struct NeededColumns {
    /// The columns, rising.
    pub foreign: Vec<u32>,
    /// A bit for each row that needs one of them, in words.
    pub rows: Vec<u32>,
    /// Number of entries in rows that need none of them.
    pub inner: usize,
    /// Number of entries in own columns.
    pub own: usize,
    range: Range<usize>,
    /// A bit for each foreign column, and the number of such columns before each word.
    bits: Memory,
    starts: Memory,
}

impl<T: Scalar> DeviceCsr<T> {
    /// Finds the columns outside `own` that the rows have, on the GPU.
    ///
    /// # Errors
    /// [`Error::Argument`] if another GPU holds the matrix; [`Error::Device`] if memory runs out or the GPU
    /// fails.
    pub(crate) fn needed(&self, gpu: &Gpu, own: Range<usize>) -> Result<NeededColumns> {
        self.check(gpu)?;
        let matrix = self.matrix();
        let queue = &gpu.queue;
        let words = matrix.ncols.div_ceil(32) as u64;
        // One more word has no bits, so that the last sum is that of all.
        let [bits, of_rows] =
            [words + 1, (matrix.nrows as u64).div_ceil(32)].map(|n| Memory::zeros(4 * n, queue));
        let (bits, of_rows, sums) = (bits?, of_rows?, Memory::zeros(16, queue)?);
        let [counts, starts] = [4, 8].map(|width| Memory::new(width * (words + 1), queue));
        let (counts, starts) = (counts?, starts?);
        let [row_ptr, col_idx, _] = self.addresses();
        let plan = Marks {
            matrix,
            pattern: [row_ptr, col_idx],
            own: own.clone(),
            columns: bits.address(),
            rows: of_rows.address(),
            sums: sums.address(),
        };
        plan.launches().iter().try_for_each(|launch| queued(gpu, launch))?;
        queued(gpu, &count_bits(words + 1, [bits.address(), counts.address()]))?;
        add_up(gpu, &counts, &starts, words + 1)?;
        let mut total = 0u64;
        read(starts.address() + 8 * words, bytemuck::bytes_of_mut(&mut total), queue)?;
        let list = Memory::new(4 * total, queue)?;
        let addresses = [bits.address(), starts.address(), list.address()];
        queued(gpu, &list_bits(words, addresses))?;
        let mut foreign = vec![0u32; total as usize];
        list.read(bytemuck::cast_slice_mut(&mut foreign))?;
        let mut rows = vec![0u32; matrix.nrows.div_ceil(32)];
        of_rows.read(bytemuck::cast_slice_mut(&mut rows))?;
        let mut found = [0u64; 2];
        sums.read(bytemuck::cast_slice_mut(&mut found))?;
        let [of_own, inner] = found.map(|n| n as usize);
        Ok(NeededColumns { foreign, rows, inner, own: of_own, range: own, bits, starts })
    }

    /// Returns these rows with local columns, on the same GPU. All rows share row pointers and values with
    /// `self`, which lives on.
    ///
    /// # Errors
    /// As [`DeviceCsr::needed`].
    pub(crate) fn local(
        self: &Arc<Self>,
        gpu: &Gpu,
        needed: &NeededColumns,
        rows: Range<usize>,
    ) -> Result<Self> {
        self.check(gpu)?;
        let [from, to] = [self.row_start(gpu, rows.start)?, self.row_start(gpu, rows.end)?];
        let Matrix { nrows, wide, .. } = self.matrix();
        let (own, nnz) = (&needed.range, to - from);
        let matrix =
            Matrix { nrows: rows.len(), ncols: own.len() + needed.foreign.len(), nnz, wide };
        let columns = Memory::new(4 * nnz as u64, &gpu.queue)?;
        let before = needed.foreign.partition_point(|&column| (column as usize) < own.start);
        let [row_ptr, col_idx, values] = self.addresses();
        let addresses = [col_idx + 4 * from as u64, needed.bits.address(), needed.starts.address()];
        queued(gpu, &local_columns(nnz, addresses, own, before, columns.address()))?;
        if rows.len() == nrows {
            gpu.synchronize()?;
            return Ok(DeviceCsr::sharing(self, matrix, gpu, columns));
        }
        let width = if wide { 8 } else { 4 };
        let own_pointers = Memory::new(width * (rows.len() as u64 + 1), &gpu.queue)?;
        let first = row_ptr + width * rows.start as u64;
        queued(gpu, &from_first(wide, rows.len() + 1, first, from, own_pointers.address()))?;
        let bytes = (nnz * size_of::<T>()) as u64;
        let own_values = Memory::new(bytes, &gpu.queue)?;
        let start = values + (from * size_of::<T>()) as u64;
        copy(gpu, start, gpu, own_values.address(), bytes)?;
        gpu.synchronize()?;
        let arrays = vec![own_pointers, columns, own_values];
        Ok(DeviceCsr::owning(matrix, gpu, arrays, OnceLock::new()))
    }

    /// Copies these rows of the matrix, which `gpu` holds, to another GPU, or to the same one.
    ///
    /// ```no_run
    /// use ellect::cuda::{DeviceCsr, Gpu};
    /// use ellect::Csr;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let gpus = [Gpu::open(0)?, Gpu::open(1)?];
    /// let csr = Csr::from_triplets(2, 2, [(0, 0, 4.0), (1, 1, 5.0)])?;
    /// let there = DeviceCsr::upload(&gpus[0], &csr)?;
    /// let last = there.copy_rows(&gpus[0], 1..2, &gpus[1])?;
    /// assert_eq!(last.to_csr(&gpus[1])?.row(0), (&[1][..], &[5.0][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if another GPU holds the matrix, or if it has fewer rows; [`Error::Device`] if
    /// memory runs out or a GPU fails.
    pub fn copy_rows(&self, gpu: &Gpu, rows: Range<usize>, to: &Gpu) -> Result<Self> {
        self.check(gpu)?;
        let Matrix { nrows, ncols, wide, .. } = self.matrix();
        if rows.start > rows.end || rows.end > nrows {
            return Err(Error::argument(format!(
                "rows {} to {} of a matrix of {nrows} rows cannot be copied: rows are counted from 0, and \
                 the last one is left out",
                rows.start, rows.end
            )));
        }
        gpu.synchronize()?;
        let [from, end] = [self.row_start(gpu, rows.start)?, self.row_start(gpu, rows.end)?];
        let (n, nnz, width) = (rows.len() as u64, (end - from) as u64, if wide { 8 } else { 4 });
        let bytes = [width * (n + 1), 4 * nnz, nnz * size_of::<T>() as u64];
        let arrays = bytes.map(|bytes| Memory::new(bytes, &to.queue));
        let arrays = arrays.into_iter().collect::<Result<Vec<_>>>()?;
        let [row_ptr, col_idx, values] = self.addresses();
        let starts = [
            row_ptr + width * rows.start as u64,
            col_idx + 4 * from as u64,
            values + (from * size_of::<T>()) as u64,
        ];
        for ((start, array), bytes) in starts.into_iter().zip(&arrays).zip(bytes) {
            copy(gpu, start, to, array.address(), bytes)?;
        }
        let pointers = arrays[0].address();
        queued(to, &from_first(wide, rows.len() + 1, pointers, from, pointers))?;
        to.synchronize()?;
        let matrix = Matrix { nrows: rows.len(), ncols, nnz: nnz as usize, wide };
        Ok(DeviceCsr::owning(matrix, to, arrays, OnceLock::new()))
    }

    /// Returns the number of entries before a row, which may be the one behind the last.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails.
    pub(crate) fn row_start(&self, gpu: &Gpu, row: usize) -> Result<usize> {
        let Matrix { nrows, nnz, wide, .. } = self.matrix();
        match row {
            0 => return Ok(0),
            row if row == nrows => return Ok(nnz),
            _ => {}
        }
        let [row_ptr, ..] = self.addresses();
        let mut start = [0u32; 2];
        let words = if wide { 2 } else { 1 };
        let at = row_ptr + (4 * words * row) as u64;
        read(at, bytemuck::cast_slice_mut(&mut start[..words]), &gpu.queue)?;
        Ok((u64::from(start[1]) << 32 | u64::from(start[0])) as usize)
    }

    /// Copies the pattern of these rows to the host, with values that mean nothing.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy fails.
    pub(crate) fn rows_to_host(&self, gpu: &Gpu, rows: Range<usize>) -> Result<Csr<f32>> {
        let starts: Vec<usize> =
            (rows.start..=rows.end).map(|row| self.row_start(gpu, row)).collect::<Result<_>>()?;
        let first = starts[0];
        let row_ptr: Vec<usize> = starts.iter().map(|start| start - first).collect();
        let nnz = row_ptr[rows.len()];
        let mut columns = vec![0u32; nnz];
        let [_, col_idx, _] = self.addresses();
        read(col_idx + 4 * first as u64, bytemuck::cast_slice_mut(&mut columns), &gpu.queue)?;
        Csr::new(rows.len(), self.matrix().ncols, row_ptr, columns, vec![0.0; nnz])
    }
}

/// Queues a launch on the GPU's stream, after all work before it: these kernels do not wait for it
/// themselves.
fn queued(gpu: &Gpu, launch: &Launch) -> Result<()> {
    gpu.make_current()?;
    let Some(step) = PreparedLaunch::new(gpu, launch, plain)? else { return Ok(()) };
    // SAFETY: the launches of this module have the addresses of arrays of the sizes that they pass; these
    // are freed in the order of the same stream, or by callers that wait.
    unsafe { step.launch([0; 3], 0f64, 0f64, gpu.queue.as_inner()) }
}

/// Queues `starts[i] = counts[0] + ... + counts[i - 1]`.
fn add_up(gpu: &Gpu, counts: &Memory, starts: &Memory, n: u64) -> Result<()> {
    let stream = gpu.queue.as_inner().cast();
    let (from, to) = (counts.address() as *const u32, starts.address() as *mut u64);
    let mut bytes = 0;
    let call = |temporary: *mut c_void, bytes: &mut usize| {
        // SAFETY: both arrays hold `n` numbers, and the temporary memory has the bytes that were asked for.
        let code =
            unsafe { primitives::ellect_exclusive_sum(temporary, bytes, from, 1, to, n, stream) };
        check_cub(code, "summing")
    };
    call(null_mut(), &mut bytes)?;
    let temporary = Memory::new(bytes as u64, &gpu.queue)?;
    call(temporary.address() as *mut c_void, &mut bytes)
}

/// Queues a copy from one GPU to another, or within one, on the stream of the second. All work of the first
/// that writes the bytes has ended, or is queued on the same stream.
fn copy(from: &Gpu, start: u64, to: &Gpu, end: u64, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    from.make_current()?;
    let source = current()?;
    to.make_current()?;
    let target = current()?;
    let stream = to.queue.as_inner();
    // SAFETY: callers own this many bytes at both addresses.
    let code =
        unsafe { cuda::cuMemcpyPeerAsync(end, target, start, source, bytes as usize, stream) };
    check(code, "copying rows between GPUs")
}

fn current() -> Result<cuda::CUcontext> {
    let mut context = null_mut();
    // SAFETY: the driver writes one handle.
    check(unsafe { cuda::cuCtxGetCurrent(&mut context) }, "asking for the context")?;
    Ok(context)
}

/// Addresses and sizes of the search for foreign columns.
struct Marks {
    matrix: Matrix,
    pattern: [u64; 2],
    own: Range<usize>,
    columns: u64,
    rows: u64,
    sums: u64,
}

impl Marks {
    fn launches(&self) -> [Launch; 2] {
        let Matrix { nrows, nnz, .. } = self.matrix;
        let width = self.matrix.offset_name();
        let [row_ptr, col_idx] = self.pattern;
        let (nrows, nnz) = (nrows as u64, nnz as u64);
        let [begin, end] = [self.own.start, self.own.end].map(|column| Arg::U32(column as u32));
        let mark = [nrows, nnz, row_ptr, col_idx].map(Arg::U64).into_iter();
        let mark = mark.chain([begin, end]);
        let mark = mark.chain([self.columns, self.rows, self.sums].map(Arg::U64)).collect();
        let inner = [nrows, row_ptr, self.rows, self.sums + 8].map(Arg::U64).to_vec();
        [
            Launch::over(IMAGE, format!("mark_{width}"), nnz, THREADS, mark),
            Launch::over(IMAGE, format!("inner_{width}"), nrows, THREADS, inner),
        ]
    }
}

fn count_bits(words: u64, [bits, counts]: [u64; 2]) -> Launch {
    let args = [words, bits, counts].map(Arg::U64).to_vec();
    Launch::over(IMAGE, "count_bits".to_string(), words, THREADS, args)
}

fn list_bits(words: u64, addresses: [u64; 3]) -> Launch {
    let args = [words].into_iter().chain(addresses).map(Arg::U64).collect();
    Launch::over(IMAGE, "list_bits".to_string(), words, THREADS, args)
}

/// Describes the replacement of columns; `addresses` are those of the columns, of the bits of foreign ones
/// and of their numbers before each word.
fn local_columns(
    nnz: usize,
    addresses: [u64; 3],
    own: &Range<usize>,
    before: usize,
    to: u64,
) -> Launch {
    let mut args: Vec<Arg> = [nnz as u64].into_iter().chain(addresses).map(Arg::U64).collect();
    args.extend([own.start, own.end, before].map(|n| Arg::U32(n as u32)));
    args.push(Arg::U64(to));
    Launch::over(IMAGE, "local_columns".to_string(), nnz as u64, THREADS, args)
}

fn from_first(wide: bool, n: usize, row_ptr: u64, first: usize, to: u64) -> Launch {
    let width = if wide { "wide" } else { "narrow" };
    let args = [n as u64, row_ptr, first as u64, to].map(Arg::U64).to_vec();
    Launch::over(IMAGE, format!("from_first_{width}"), n as u64, THREADS, args)
}

/// Returns all launches with invented addresses, for the check of signatures.
#[cfg(test)]
pub(super) fn launches(matrix: Matrix) -> Vec<Launch> {
    let own = 0..matrix.ncols;
    let marks =
        Marks { matrix, pattern: [8, 16], own: own.clone(), columns: 24, rows: 32, sums: 40 };
    let mut all = Vec::from(marks.launches());
    all.push(count_bits(3, [8, 16]));
    all.push(list_bits(3, [8, 16, 24]));
    all.push(local_columns(matrix.nnz, [8, 16, 24], &own, 0, 32));
    all.push(from_first(matrix.wide, 5, 8, 0, 16));
    all
}
