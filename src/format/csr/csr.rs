//! Compressed sparse rows: the input form of every matrix and the baseline for every other format.
//!
//! ```text
//!     | 4 . 1 . |      row_ptr = 0 2 3 3 5
//!     | . 5 . . |      col_idx = 0 2 | 1 | | 0 3
//!     | . . . . |      values  = 4 1 | 5 | | 2 6
//!     | 2 . . 6 |
//! ```
//!
//! No padding. Row pointers take 4 bytes where they fit, as in cuSPARSE.
//! Good for: every matrix, with no conversion but a copy. Bad for: regular matrices, where other
//! formats need not read column indices.

use ellect_kernels::shared;

use super::gpu::launch::Arrays;
use super::row_order::WARP;
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Matrix, Offsets, OnDevice, Params, Refusal, Role,
    Stop, Storage, Target, Work, bytes_of, store,
};
use crate::analysis::{Analysis, Sort, Walk};
use crate::csr::{Csr, CsrRef};
use crate::device::Kind;
use crate::par;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct CsrFormat;

/// Entries that a lane loads at a time.
const BATCH: usize = shared("CSR_BATCH") as usize;

impl Storage for CsrFormat {
    const NAME: &'static str = "csr";
    const TITLE: &'static str = "compressed sparse rows";
    const SOURCE: &'static str = "Y. Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. \
        (2003), section 3.4";
    const SUITS: &'static str = "every matrix; needs no conversion";
    const ROLE: Role = Role::Baseline;

    type Layout<T: Scalar> = CsrLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
        let threads = lanes_a_row(nrows, nnz);
        let gpu = target.device.kind == Kind::Gpu;
        let bytes =
            ((nrows + 1) * Offsets::width(nnz) + nnz * (4 + target.precision.bytes())) as u64;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: nnz as u64,
            x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
            x_loaded: analysis.x_loaded(Walk::Rows { threads, sort: Sort::None }, target),
            steps: analysis.n_iter(WARP, threads, Sort::None),
            // Lanes of a GPU walk whole rows; hosts split the entries evenly.
            waits: if gpu { analysis.n_waits(WARP, threads, BATCH) } else { 0 },
            lanes: if gpu { (threads * nrows) as u64 } else { 0 },
            launches: 1,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        _params: &Params,
        _target: &Target<'_>,
    ) -> Result<CsrLayout<T>, Refusal> {
        Ok(CsrLayout::of(csr.to_csr()))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let arrays = [Arg::RowPtr, Arg::ColIdx, Arg::Values];
        let launches = vec![product(converter.matrix(), arrays, target.precision)];
        Ok(GpuLayout { launches, ..GpuLayout::default() })
    }
}

/// Lanes that share a row on a GPU, found by measurement. Short rows of average length are loaded
/// at once, [`BATCH`] entries per lane; among long rows, neighbours share more of x where each has
/// few lanes (tests/results/tried.md).
fn lanes_a_row(nrows: usize, nnz: usize) -> usize {
    match nnz / nrows.max(1) {
        0..=10 => 2,
        11..=20 => 4,
        21..=128 => 8,
        129..=512 => 16,
        _ => 32,
    }
}

/// The launch of one product of a CSR matrix with these arrays.
fn product(matrix: Matrix, arrays: [Arg; 3], precision: Precision) -> Launch {
    let wide = if matrix.wide { "wide_" } else { "" };
    let tpr = lanes_a_row(matrix.nrows, matrix.nnz);
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let rows = Arg::U32(matrix.nrows as u32);
    let args = [rows].into_iter().chain(arrays).chain(vectors).collect();
    let kernel = format!("csr_{wide}t{tpr}_{precision}");
    Launch::over("csr", kernel, (matrix.nrows * tpr) as u64, 256, args)
}

/// The arrays of a CSR matrix, with the ranges of rows that threads process.
#[derive(Clone, Debug)]
pub struct CsrLayout<T> {
    ncols: usize,
    row_ptr: Offsets,
    col_idx: Vec<u32>,
    values: Vec<T>,
    parts: Vec<usize>,
}

impl<T: Scalar> Layout<T> for CsrLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        match &self.row_ptr {
            Offsets::Narrow(ptr) => self.product(|i| ptr[i] as usize, alpha, x, beta, y),
            Offsets::Wide(ptr) => self.product(|i| ptr[i] as usize, alpha, x, beta, y),
        }
    }

    fn bytes(&self) -> u64 {
        self.row_ptr.bytes() + bytes_of(&self.col_idx) + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr.to_vec();
        let nrows = row_ptr.len() - 1;
        Csr::new(nrows, self.ncols, row_ptr, self.col_idx.clone(), self.values.clone())
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let (nrows, ncols, nnz) = (self.row_ptr.len() - 1, self.ncols, self.values.len());
        let matrix = Matrix { nrows, ncols, nnz, wide: matches!(self.row_ptr, Offsets::Wide(_)) };
        let row_ptr = arrays.add_either(&self.row_ptr);
        let (columns, values) = (arrays.add(&self.col_idx), arrays.add(&self.values));
        let launch = product(matrix, [row_ptr, columns, values], T::PRECISION);
        Some(arrays.on_device(values, vec![launch]))
    }
}

impl<T: Scalar> CsrLayout<T> {
    pub(super) fn of(csr: Csr<T>) -> Self {
        let ncols = csr.ncols();
        let (row_ptr, col_idx, values) = csr.into_arrays();
        let parts = par::split(&row_ptr, 1, par::GRAIN);
        CsrLayout { ncols, row_ptr: Offsets::new(&row_ptr), col_idx, values, parts }
    }

    pub(super) fn row_ptr(&self) -> Vec<usize> {
        self.row_ptr.to_vec()
    }

    fn product(
        &self,
        row_ptr: impl Fn(usize) -> usize + Sync,
        alpha: T,
        x: &[T],
        beta: T,
        y: &mut [T],
    ) {
        if self.values.len() < SHORT * (self.row_ptr.len() - 1) {
            self.by_rows(row_ptr, |values, columns| short_dot(values, columns, x), alpha, beta, y);
        } else {
            self.by_rows(row_ptr, |values, columns| dot(values, columns, x), alpha, beta, y);
        }
    }

    fn by_rows(
        &self,
        row_ptr: impl Fn(usize) -> usize + Sync,
        sum: impl Fn(&[T], &[u32]) -> T + Sync,
        alpha: T,
        beta: T,
        y: &mut [T],
    ) {
        par::over_parts(&self.parts, y, &|rows, y| {
            let mut start = row_ptr(rows.start);
            for (y, row) in y.iter_mut().zip(rows) {
                let end = row_ptr(row + 1);
                store(y, alpha, sum(&self.values[start..end], &self.col_idx[start..end]), beta);
                start = end;
            }
        });
    }
}

/// Mean entries per row below which a row is summed in order.
const SHORT: usize = 8;

/// Sum of `values[k] * x[columns[k]]`, in the order of `k`.
#[inline(always)]
fn short_dot<T: Scalar>(values: &[T], columns: &[u32], x: &[T]) -> T {
    let mut sum = T::ZERO;
    for (&value, &column) in values.iter().zip(columns) {
        sum += value * x[column as usize];
    }
    sum
}

/// Sum of `values[k] * x[columns[k]]`, in four independent chains.
#[inline(always)]
pub(crate) fn dot<T: Scalar>(values: &[T], columns: &[u32], x: &[T]) -> T {
    let mut sums = [T::ZERO; 4];
    let quads = values.chunks_exact(4).zip(columns.chunks_exact(4));
    let rest = values.len() / 4 * 4;
    for (values, columns) in quads {
        for lane in 0..4 {
            sums[lane] += values[lane] * x[columns[lane] as usize];
        }
    }
    let mut sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (&value, &column) in values[rest..].iter().zip(&columns[rest..]) {
        sum += value * x[column as usize];
    }
    sum
}
