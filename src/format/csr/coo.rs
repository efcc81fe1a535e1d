//! COO, coordinates: row, column and value of every entry, in the order of the rows.
//!
//! ```text
//!     | 4 . 1 . |      row_idx = 0 0 1 3 3
//!     | . 5 . . |      col_idx = 0 2 1 0 3
//!     | . . . . |      values  = 4 1 5 2 6
//!     | 2 . . 6 |
//! ```
//!
//! No padding; rows without entries take no memory.
//! Good for: matrices of mostly empty rows, and on a GPU for row lengths of every size, since all
//! threads process the same number of entries.
//! Bad for: all other matrices, because 4 bytes of row index are read with every entry.

use super::gpu::launch::Arrays;
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, OnDevice, Params, Refusal, Stop, Storage, Target,
    Work, bytes_of, gpu::convert, store,
};
use crate::analysis::{Analysis, Walk};
use crate::csr::{Csr, CsrRef, accumulate};
use crate::device::Kind;
use crate::par;
use crate::scalar::{Precision, Scalar};
use ellect_kernels::shared;

/// See the module.
#[derive(Debug)]
pub struct CooFormat;

impl Storage for CooFormat {
    const NAME: &'static str = "coo";
    const TITLE: &'static str = "coordinates";
    const SOURCE: &'static str = "N. Bell, M. Garland, Efficient Sparse Matrix-Vector \
        Multiplication on CUDA (2008), sections 3.4 and 4.3";
    const SUITS: &'static str = "mostly empty rows, or row lengths of every size; bad for all else";

    type Layout<T: Scalar> = CooLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows() as u64, pattern.nnz() as u64);
        let w = target.precision.bytes() as u64;
        let bytes = nnz * (8 + w);
        // A GPU scales y first and then adds to it; a host does both at once.
        let (launches, extra_bytes) = match target.device.kind {
            Kind::Gpu => (2, 2 * w * nrows),
            Kind::Host => (1, 0),
        };
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: nnz,
            x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
            x_loaded: analysis.x_loaded(Walk::Entries, target),
            extra_bytes,
            steps: nnz.div_ceil(32),
            launches,
            convert_bytes: 8 * nrows + (4 + w) * nnz + bytes,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        _params: &Params,
        _target: &Target<'_>,
    ) -> Result<CooLayout<T>, Refusal> {
        Ok(CooLayout::new(csr))
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = converter.matrix();
        let rows = converter.array(4 * matrix.nnz as u64)?;
        let args = vec![Arg::U32(matrix.nrows as u32), Arg::RowPtr, rows];
        let kernel = format!("row_indices_{}", matrix.offset_name());
        converter.launch(&convert::step(kernel, matrix.nrows, args))?;
        let entries = add(matrix.nnz as u64, [rows, Arg::ColIdx, Arg::Values], target.precision);
        let launches = vec![scale(matrix.nrows, target.precision), entries];
        Ok(GpuLayout { launches, ..GpuLayout::default() })
    }
}

/// The arrays of a matrix in coordinates, with the ranges of rows that threads process.
#[derive(Debug)]
pub struct CooLayout<T> {
    nrows: usize,
    ncols: usize,
    row_idx: Vec<u32>,
    col_idx: Vec<u32>,
    values: Vec<T>,
    parts: Vec<usize>,
}

impl<T: Scalar> CooLayout<T> {
    /// Converts in one pass.
    pub(super) fn new(csr: CsrRef<'_, T>) -> Self {
        let parts = par::split(csr.row_ptr(), 1, par::GRAIN);
        let mut row_idx = vec![0; csr.nnz()];
        let cuts: Vec<usize> = parts.iter().map(|&row| csr.row_ptr()[row]).collect();
        par::for_each(&mut par::slices_mut(&mut row_idx, &cuts), 1, |part, row_idx| {
            let first = csr.row_ptr()[parts[part]];
            for row in parts[part]..parts[part + 1] {
                let entries = csr.row_ptr()[row] - first..csr.row_ptr()[row + 1] - first;
                row_idx[entries].fill(row as u32);
            }
        });
        CooLayout {
            nrows: csr.nrows(),
            ncols: csr.ncols(),
            row_idx,
            col_idx: csr.col_idx().to_vec(),
            values: csr.values().to_vec(),
            parts,
        }
    }

    /// Position of the first entry in row `row` or in a later row.
    fn first_of(&self, row: usize) -> usize {
        self.row_idx.partition_point(|&r| (r as usize) < row)
    }
}

impl<T: Scalar> Layout<T> for CooLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.parts, y, &|rows, y| {
            let entries = self.first_of(rows.start)..self.first_of(rows.end);
            let columns = self.col_idx[entries.clone()].iter();
            let values = self.values[entries.clone()].iter();
            let mut entries = self.row_idx[entries].iter().zip(columns.zip(values)).peekable();
            for (y, row) in y.iter_mut().zip(rows) {
                let mut sum = T::ZERO;
                while let Some((_, (&column, &value))) =
                    entries.next_if(|(r, _)| **r as usize == row)
                {
                    sum += value * x[column as usize];
                }
                store(y, alpha, sum, beta);
            }
        });
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.row_idx) + bytes_of(&self.col_idx) + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    fn to_csr(&self) -> Csr<T> {
        let mut row_ptr = vec![0; self.nrows + 1];
        for &row in &self.row_idx {
            row_ptr[row as usize + 1] += 1;
        }
        accumulate(&mut row_ptr);
        Csr::new(self.nrows, self.ncols, row_ptr, self.col_idx.clone(), self.values.clone())
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut entries = self.add_on_device();
        entries.launches.insert(0, scale(self.nrows, T::PRECISION));
        Some(entries)
    }
}

/// Entries that a lane processes.
const PER_LANE: u64 = shared("COO_EACH");

impl<T: Scalar> CooLayout<T> {
    /// The row of each entry.
    pub(super) fn rows(&self) -> &[u32] {
        &self.row_idx
    }

    /// The launch that adds the product to the existing y.
    pub(super) fn add_on_device(&self) -> OnDevice<'_> {
        let nnz = self.values.len() as u64;
        let mut arrays = Arrays::default();
        let rows = arrays.add("row_idx", "row of each entry", &self.row_idx);
        let columns = arrays.add("col_idx", "column of each entry", &self.col_idx);
        let values = arrays.add_values("values", "value of each entry", &self.values);
        arrays.on_device(values, vec![add(nnz, [rows, columns, values], T::PRECISION)])
    }
}

/// The launch that scales y.
fn scale(nrows: usize, precision: Precision) -> Launch {
    let args = vec![Arg::U32(nrows as u32), Arg::Y, Arg::Beta];
    Launch::over("coo", format!("coo_scale_{precision}"), nrows as u64, 256, args)
}

/// The launch that adds the product of the entries in `arrays` to y.
fn add(nnz: u64, arrays: [Arg; 3], precision: Precision) -> Launch {
    let vectors = [Arg::X, Arg::Y, Arg::Alpha];
    let args = [Arg::U64(nnz)].into_iter().chain(arrays).chain(vectors).collect();
    let threads = nnz.div_ceil(32 * PER_LANE) * 32;
    Launch::over("coo", format!("coo_add_{precision}"), threads, 256, args)
}
