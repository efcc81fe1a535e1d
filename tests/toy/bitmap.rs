//! Bitmap: one bit per place of the matrix, and the values of each row one after the other.
//!
//! ```text
//!     | 4 . 1 . |      bits    = 0101 0010 0000 1001    (column 0 is the lowest bit)
//!     | . 5 . . |      row_ptr = 0 2 3 3 5
//!     | . . . . |      values  = 4 1 | 5 | | 2 6
//!     | 2 . . 6 |
//! ```
//!
//! No padding but the bits between the last column and the end of the row's last word, which are 0.
//! Good for: small, nearly dense matrices. Bad for: sparse matrices, whose bits outweigh the column
//! indices that they replace; refused where there are more than four words of bits per entry.

use ellect::analysis::{Analysis, Walk};
use ellect::format::{
    Layout, Matrix, Param, Params, Refusal, Storage, Target, Value, Work, bytes_of,
};
use ellect::unstable::format::{
    Arg, GpuConverter, GpuLayout, Launch, Offsets, OnDevice, Stop, StoredArray,
};
use ellect::{Csr, CsrRef, Precision, Scalar};
use rayon::prelude::*;

/// See the module.
#[derive(Debug)]
pub struct BitmapFormat;

/// Maximum number of words of bits per entry.
const WORDS_PER_ENTRY: usize = 4;

impl Storage for BitmapFormat {
    const NAME: &'static str = "bitmap";
    const TITLE: &'static str = "bitmap and values";
    const SOURCE: &'static str = "A. Buluc, S. Williams, L. Oliker, J. Demmel, Reduced-Bandwidth \
        Multithreaded Algorithms for Sparse Matrix-Vector Multiplication (2011), for the bits";
    const SUITS: &'static str = "small, nearly dense matrices; bad where most places are empty";
    const PARAMS: &'static [Param] = &[Param {
        name: "lanes",
        doc: "GPU threads per row",
        values: &[Value::Int(32), Value::Int(1)],
        gpu: &[Value::Int(32), Value::Int(1)],
        host: &[Value::Int(32)],
    }];

    type Layout<T: Scalar> = BitmapLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        let (nrows, nnz) = (pattern.nrows(), pattern.nnz());
        let words = words(nrows, pattern.ncols(), nnz)?;
        let offsets = (nrows + 1) * Offsets::width(nnz);
        let bytes = (4 * nrows * words + offsets + nnz * target.precision.bytes()) as u64;
        Ok(Work {
            layout_bytes: bytes,
            stream_bytes: bytes,
            entries: nnz as u64,
            x_sectors: analysis.x_sectors(Walk::Entries, target.precision),
            steps: (nrows * words) as u64,
            lanes: (nrows * params.int("lanes")) as u64,
            launches: 1,
            convert_bytes: bytes + 4 * nnz as u64,
            ..Work::default()
        })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        _analysis: &Analysis<'_>,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<BitmapLayout<T>, Refusal> {
        let words = words(csr.nrows(), csr.ncols(), csr.nnz())?;
        let mut bits = vec![0; csr.nrows() * words];
        for row in 0..csr.nrows() {
            for &column in csr.row(row).0 {
                bits[row * words + column as usize / 32] |= 1 << (column % 32);
            }
        }
        Ok(BitmapLayout {
            ncols: csr.ncols(),
            lanes: params.int("lanes"),
            words,
            bits,
            row_ptr: Offsets::new(csr.row_ptr()),
            values: csr.values().to_vec(),
        })
    }

    fn build(
        builder: &mut dyn GpuConverter,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = builder.matrix();
        let words = words(matrix.nrows, matrix.ncols, matrix.nnz)?;
        let bits = builder.zeros(4 * (matrix.nrows * words) as u64)?;
        let sizes = [matrix.nrows, words].map(|size| Arg::U32(size as u32));
        let args = sizes.into_iter().chain([Arg::RowPtr, Arg::ColIdx, bits]).collect();
        let kernel = format!("bitmap_fill_{}", matrix.offset_name());
        builder.launch(&Launch::over("bitmap", kernel, matrix.nrows as u64, 256, args))?;
        let arrays = [bits, Arg::RowPtr, Arg::Values];
        let launches = vec![product(matrix, words, params.int("lanes"), arrays, target.precision)];
        Ok(GpuLayout { launches, ..GpuLayout::default() })
    }
}

/// Returns the number of words of bits of each row.
fn words(nrows: usize, ncols: usize, nnz: usize) -> Result<usize, Refusal> {
    let words = ncols.div_ceil(32);
    let (needed, allowed) = (nrows.saturating_mul(words), WORDS_PER_ENTRY * nnz);
    if needed <= allowed {
        return Ok(words);
    }
    Err(Refusal::new(format!("the bitmap takes {needed} words; {allowed} are allowed")))
}

/// The launch of one product; `arrays` are the bits, the row pointers and the values.
fn product(
    matrix: Matrix,
    words: usize,
    lanes: usize,
    arrays: [Arg; 3],
    precision: Precision,
) -> Launch {
    let sizes = [matrix.nrows, words].map(|size| Arg::U32(size as u32));
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let args = sizes.into_iter().chain(arrays).chain(vectors).collect();
    let kernel = format!("bitmap_t{lanes}_{}_{precision}", matrix.offset_name());
    Launch::over("bitmap", kernel, (matrix.nrows * lanes) as u64, 256, args)
}

/// The arrays of a matrix as a bitmap.
#[derive(Debug)]
pub struct BitmapLayout<T> {
    ncols: usize,
    /// GPU threads per row.
    lanes: usize,
    /// Words of bits per row.
    words: usize,
    bits: Vec<u32>,
    row_ptr: Offsets,
    values: Vec<T>,
}

impl<T> BitmapLayout<T> {
    /// Returns the columns of a row's entries, in ascending order.
    fn columns(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        let bits = &self.bits[row * self.words..][..self.words];
        bits.iter().enumerate().flat_map(|(word, &bits)| {
            let lowest_cleared = |bits: &u32| Some(bits & bits.wrapping_sub(1));
            let left = std::iter::successors(Some(bits), lowest_cleared);
            let left = left.take_while(|&bits| bits != 0);
            left.map(move |bits| 32 * word + bits.trailing_zeros() as usize)
        })
    }
}

impl<T: Scalar> Layout<T> for BitmapLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        y.par_iter_mut().enumerate().for_each(|(row, y)| {
            let values = &self.values[self.row_ptr.get(row)..];
            let mut sum = T::ZERO;
            for (&value, column) in values.iter().zip(self.columns(row)) {
                sum += value * x[column];
            }
            *y = if beta == T::ZERO { alpha * sum } else { alpha * sum + beta * *y };
        });
    }

    fn bytes(&self) -> u64 {
        bytes_of(&self.bits) + self.row_ptr.bytes() + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        self.values.copy_from_slice(values);
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr.to_vec();
        let nrows = row_ptr.len() - 1;
        let columns = (0..nrows).flat_map(|row| self.columns(row).map(|column| column as u32));
        Csr::new(nrows, self.ncols, row_ptr, columns.collect(), self.values.clone())
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let of_rows = "first entry of each row, and the end";
        let (row_ptr, wide) = match &self.row_ptr {
            Offsets::Narrow(offsets) => (StoredArray::of("row_ptr", of_rows, offsets), false),
            Offsets::Wide(offsets) => (StoredArray::of("row_ptr", of_rows, offsets), true),
        };
        let (nrows, nnz) = (self.row_ptr.len() - 1, self.values.len());
        let matrix = Matrix { nrows, ncols: self.ncols, nnz, wide };
        let arrays = [0, 1, 2].map(Arg::Array);
        Some(OnDevice {
            arrays: vec![
                StoredArray::of("bits", "a bit for each place of a row", &self.bits),
                row_ptr,
                StoredArray::of_values("values", "value of each entry", &self.values),
            ],
            numbers: Vec::new(),
            values: vec![2],
            scratch: Vec::new(),
            counters: 0,
            launches: vec![product(matrix, self.words, self.lanes, arrays, T::PRECISION)],
            vendor: None,
        })
    }
}
