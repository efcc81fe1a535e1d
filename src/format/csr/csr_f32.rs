//! CSR-F32: compressed sparse rows with values in f32, for matrices and vectors of f64.
//!
//! ```text
//!     | 4 . 1 . |      row_ptr = 0 2 3 3 5
//!     | . 5 . . |      col_idx = 0 2 | 1 | | 0 3      4 bytes each
//!     | . . . . |      values  = 4 1 | 5 | | 2 6      4 bytes each
//!     | 2 . . 6 |
//! ```
//!
//! No padding. Row pointers and columns are those of CSR, which a GPU reads where they are, so that a
//! conversion writes only values. A product converts each value to f64 and computes as `csr` does for
//! matrices without long rows. An entry takes 8 bytes, where CSR takes 12.
//!
//! It applies to the values that `hll_f32` takes, and refuses new values under the same conditions.
//! Good for: few products, where other conversions do not pay. Bad for: regular matrices. Refused where
//! a row is so long that `csr` cuts it into pieces.

use super::csr::{BLOCK, cut_for, cut_of, described, lanes_a_row, whole_rows};
use super::csr_variants::KERNEL;
use super::gpu::launch::Arrays;
use super::narrow::gpu::{Search, launch};
use super::narrow::{self, InF32, Keep};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Matrix, Offsets, OnDevice, Param, Params,
    Refusal, Stop, Storage, Target, Value, Work, bytes_of, store,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::par;
use crate::scalar::{Precision, Scalar};

/// See the module.
#[derive(Debug)]
pub struct CsrF32Format;

impl Storage for CsrF32Format {
    const NAME: &'static str = "csr_f32";
    const TITLE: &'static str = "CSR-F32, compressed sparse rows with values in f32";
    const SOURCE: &'static str = "the arrays of csr, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular \
        precision ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = "matrices of f64 whose values are f32 numbers or may be rounded to \
        them, for few products; refused for very long rows";
    const PARAMS: &'static [Param] = &[Param {
        name: KERNEL.name,
        doc: "auto: lanes of a row by the mean row length",
        values: &[Value::AUTO],
        gpu: &[Value::AUTO],
        host: &[Value::AUTO],
    }];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("csr");
    const KERNELS_OF: &'static [&'static str] = &["csr"];

    type Layout<T: Scalar> = CsrF32Layout;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check(analysis, target)?;
        if let Some(cut) = cut_of(analysis, target) {
            return Err(too_long(cut.longest));
        }
        let work = whole_rows(analysis, target);
        let nnz = analysis.pattern().nnz() as u64;
        let [wide, narrow] = [Precision::F64, Precision::F32].map(|of| nnz * of.bytes() as u64);
        let bytes = work.layout_bytes - (wide - narrow);
        let convert_bytes = wide + narrow;
        let work = Work { layout_bytes: bytes, stream_bytes: bytes, convert_bytes, ..work };
        Ok(narrow::checked(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<CsrF32Layout, Refusal> {
        narrow::check_all(analysis, target)?;
        let row_ptr = csr.row_ptr();
        Ok(CsrF32Layout {
            ncols: csr.ncols(),
            row_ptr: Offsets::new(row_ptr),
            col_idx: csr.col_idx().to_vec(),
            values: csr.values().iter().map(|&value| InF32::store(value)).collect(),
            parts: par::split(row_ptr, 1, par::GRAIN),
            keep: InF32::of(target),
        })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = converter.matrix();
        let search = Search::begin(converter, target)?;
        let cut = cut_for(matrix.nrows, matrix.nnz);
        let pieces = cut.find(converter);
        search.end(converter)?;
        if pieces?.1.is_some() {
            return Err(too_long(cut.longest).into());
        }
        let nnz = matrix.nnz as u64;
        let values = converter.array(Precision::F32.bytes() as u64 * nnz)?;
        let args = vec![Arg::U64(nnz), Arg::Values, values];
        let fill = launch("narrow_values".to_string(), nnz, args);
        converter.launch(&fill)?;
        Ok(GpuLayout {
            launches: vec![product(matrix, [Arg::RowPtr, Arg::ColIdx, values], target.precision)],
            update: vec![fill],
            check: Some(search.check(converter)?),
            ..GpuLayout::default()
        })
    }
}

/// The refusal of a matrix with long rows.
fn too_long(longest: u32) -> Refusal {
    Refusal::new(format!(
        "a row has over {longest} entries, and no kernel cuts rows whose values are in f32"
    ))
}

/// The launch of a product on a GPU.
fn product(matrix: Matrix, arrays: [Arg; 3], precision: Precision) -> Launch {
    let Matrix { nrows, nnz, wide, .. } = matrix;
    let (wide, lanes) = (if wide { "wide_" } else { "" }, lanes_a_row(nrows, nnz));
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let args = [Arg::U32(nrows as u32)].into_iter().chain(arrays).chain(vectors).collect();
    let kernel = format!("csr_f32_{wide}t{lanes}_{precision}");
    Launch::over(CsrF32Format::NAME, kernel, (nrows * lanes) as u64, BLOCK, args)
}

/// The arrays of a CSR matrix with values in f32, and the ranges of rows that threads process.
#[derive(Debug)]
pub struct CsrF32Layout {
    ncols: usize,
    row_ptr: Offsets,
    col_idx: Vec<u32>,
    values: Vec<f32>,
    parts: Vec<usize>,
    keep: InF32,
}

impl<T: Scalar> Layout<T> for CsrF32Layout {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.parts, y, &|rows, y| {
            let mut start = self.row_ptr.get(rows.start);
            for (y, row) in y.iter_mut().zip(rows) {
                let end = self.row_ptr.get(row + 1);
                let entries = self.values[start..end].iter().zip(&self.col_idx[start..end]);
                let mut sum = T::ZERO;
                for (&value, &column) in entries {
                    sum += InF32::load::<T>(value) * x[column as usize];
                }
                store(y, alpha, sum, beta);
                start = end;
            }
        });
    }

    fn bytes(&self) -> u64 {
        self.row_ptr.bytes() + bytes_of(&self.col_idx) + bytes_of(&self.values)
    }

    fn set_values(&mut self, values: &[T]) {
        for (own, &value) in self.values.iter_mut().zip(values) {
            *own = InF32::store(value);
        }
    }

    fn limits_values(&self) -> bool {
        self.keep.limits()
    }

    fn check_values(&self, values: &[T]) -> Result<(), Refusal> {
        self.keep.check(values, |k| narrow::row_of(&self.row_ptr.to_vec(), k))
    }

    fn to_csr(&self) -> Csr<T> {
        let row_ptr = self.row_ptr.to_vec();
        let values = self.values.iter().map(|&value| InF32::load(value)).collect();
        Csr::new(row_ptr.len() - 1, self.ncols, row_ptr, self.col_idx.clone(), values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let (row_ptr, col_idx) = (&self.row_ptr, &self.col_idx);
        let (matrix, at) = described(&mut arrays, self.ncols, row_ptr, col_idx, &self.values);
        let [.., values] = at;
        Some(arrays.on_device(values, vec![product(matrix, at, T::PRECISION)]))
    }
}
