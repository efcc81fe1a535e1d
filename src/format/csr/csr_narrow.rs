//! CSR-F32, CSR-F16 and CSR-BF16: compressed sparse rows with values in fewer bits than vectors have: in f32
//! for matrices of f64, in f16 or bf16 for matrices of f32.
//!
//! ```text
//!     | 4 . 1 . |      row_ptr = 0 2 3 3 5
//!     | . 5 . . |      col_idx = 0 2 | 1 | | 0 3      4 bytes each
//!     | . . . . |      values  = 4 1 | 5 | | 2 6      4 or 2 bytes each
//!     | 2 . . 6 |
//! ```
//!
//! No padding. Row pointers and columns are those of CSR, which a GPU reads where they are, so that a
//! conversion writes only values. A product converts each value to the type of the vectors and computes as
//! `csr` does for matrices without long rows. An entry of f64 takes 8 bytes in f32, where CSR takes 12; an
//! entry of f32 takes 6 bytes in f16 or bf16, where CSR takes 8.
//!
//! They apply to the values that `hll_f32`, `hll_f16` and `hll_bf16` take, and refuse new values under the
//! same conditions.
//! Good for: few products, where other conversions do not pay. Bad for: regular matrices. Refused where
//! a row is so long that `csr` cuts it into pieces.

use std::marker::PhantomData;

use super::csr::{BLOCK, cut_for, cut_of, described, lanes_a_row, whole_rows};
use super::csr_variants::KERNEL;
use super::gpu::launch::Arrays;
use super::narrow::gpu::Search;
use super::narrow::{self, In, Keep, Narrow};
use super::{
    Arg, GpuConverter, GpuLayout, Launch, Layout, Matrix, Offsets, OnDevice, Param, Params,
    Refusal, Stop, Storage, StoredValues, Target, Value, Work, bytes_of, store,
};
use crate::analysis::Analysis;
use crate::csr::{Csr, CsrRef};
use crate::par;
use crate::scalar::{Precision, Scalar};

/// The format for values in f32, of matrices of f64.
pub type CsrF32Format = CsrNarrow<f32>;

/// The format for values in f16, of matrices of f32.
pub type CsrF16Format = CsrNarrow<half::f16>;

/// The format for values in bf16, of matrices of f32.
pub type CsrBf16Format = CsrNarrow<half::bf16>;

/// See the module.
#[derive(Debug)]
pub struct CsrNarrow<N>(PhantomData<N>);

impl<N: Narrow> Storage for CsrNarrow<N> {
    const NAME: &'static str = narrow::text_for::<N>(["csr_f32", "csr_f16", "csr_bf16"]);
    const TITLE: &'static str = narrow::text_for::<N>([
        "CSR-F32, compressed sparse rows with values in f32",
        "CSR-F16, compressed sparse rows with values in f16",
        "CSR-BF16, compressed sparse rows with values in bf16",
    ]);
    const SOURCE: &'static str = "the arrays of csr, with storage in a lower precision than \
        arithmetic: H. Anzt, G. Flegar, T. Gruetzmacher, E. S. Quintana-Orti, Toward a modular \
        precision ecosystem for high-performance computing (2019)";
    const SUITS: &'static str = narrow::text_for::<N>([
        "matrices of f64 whose values are f32 numbers or may be rounded to them, for \
            few products; refused for very long rows",
        "matrices without very long rows, for few products, of f32 whose values may be \
            rounded to f16; by consent",
        "matrices without very long rows, for few products, of f32 whose values may be \
            rounded to bf16; by consent",
    ]);
    const PARAMS: &'static [Param] = &[Param {
        name: KERNEL.name,
        doc: "auto: lanes of a row by the mean row length",
        values: &[Value::AUTO],
        gpu: &[Value::AUTO],
        host: &[Value::AUTO],
    }];
    const BY_VALUES: bool = true;
    const NARROWS: Option<&'static str> = Some("csr");
    const STORES: StoredValues = N::STORES;
    const SAVES: f64 = narrow::saves_for::<N>([0.4, 0.4, 0.2]);
    const KERNELS_OF: &'static [&'static str] = &["csr"];

    type Layout<T: Scalar> = CsrNarrowLayout<N>;

    fn work(
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        narrow::check::<N>(analysis, target)?;
        if let Some(cut) = cut_of(analysis, target) {
            return Err(too_long::<N>(cut.longest));
        }
        let work = whole_rows(analysis, target);
        let nnz = analysis.pattern().nnz() as u64;
        let [wide, narrow] = [N::OF.bytes(), size_of::<N>()].map(|bytes| nnz * bytes as u64);
        let bytes = work.layout_bytes - (wide - narrow);
        let convert_bytes = wide + narrow;
        let work = Work { layout_bytes: bytes, stream_bytes: bytes, convert_bytes, ..work };
        Ok(narrow::checked::<N>(analysis, work))
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<CsrNarrowLayout<N>, Refusal> {
        narrow::check_all::<N>(analysis, target)?;
        let row_ptr = csr.row_ptr();
        Ok(CsrNarrowLayout {
            ncols: csr.ncols(),
            row_ptr: Offsets::new(row_ptr),
            col_idx: csr.col_idx().to_vec(),
            values: csr.values().iter().map(|&value| In::<N>::store(value)).collect(),
            parts: par::split(row_ptr, 1, par::GRAIN),
            keep: In::<N>::of(target),
        })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        _params: &Params,
        target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = converter.matrix();
        let search = Search::begin::<N>(converter, target)?;
        let cut = cut_for(matrix.nrows, matrix.nnz);
        let rows = cut.find(converter);
        search.end(converter)?;
        if rows?.pieces.is_some() {
            return Err(too_long::<N>(cut.longest).into());
        }
        let nnz = matrix.nnz as u64;
        let values = converter.array(search.bytes() * nnz)?;
        let args = vec![Arg::U64(nnz), Arg::Values, values];
        let fill = search.step("narrow_values", nnz, args);
        converter.launch(&fill)?;
        Ok(GpuLayout {
            launches: vec![product(
                Self::NAME,
                matrix,
                [Arg::RowPtr, Arg::ColIdx, values],
                target.precision,
            )],
            update: vec![fill],
            check: Some(search.check(converter)?),
            ..GpuLayout::default()
        })
    }
}

/// The refusal of a matrix with long rows.
fn too_long<N: Narrow>(longest: u32) -> Refusal {
    Refusal::new(format!(
        "a row has over {longest} entries, and no kernel cuts rows whose values are in {}",
        N::STORES
    ))
}

/// The launch of a product on a GPU.
fn product(image: &'static str, matrix: Matrix, arrays: [Arg; 3], precision: Precision) -> Launch {
    let Matrix { nrows, nnz, wide, .. } = matrix;
    let (wide, lanes) = (if wide { "wide_" } else { "" }, lanes_a_row(nrows, nnz));
    let vectors = [Arg::X, Arg::Y, Arg::Alpha, Arg::Beta];
    let args = [Arg::U32(nrows as u32)].into_iter().chain(arrays).chain(vectors).collect();
    let kernel = format!("{image}_{wide}t{lanes}_{precision}");
    Launch::over(image, kernel, (nrows * lanes) as u64, BLOCK, args)
}

/// The arrays of a CSR matrix with values in fewer bits, and the ranges of rows that threads process.
#[derive(Debug)]
pub struct CsrNarrowLayout<N> {
    ncols: usize,
    row_ptr: Offsets,
    col_idx: Vec<u32>,
    values: Vec<N>,
    parts: Vec<usize>,
    keep: In<N>,
}

impl<N: Narrow, T: Scalar> Layout<T> for CsrNarrowLayout<N> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        par::over_parts(&self.parts, y, &|rows, y| {
            let mut start = self.row_ptr.get(rows.start);
            for (y, row) in y.iter_mut().zip(rows) {
                let end = self.row_ptr.get(row + 1);
                let entries = self.values[start..end].iter().zip(&self.col_idx[start..end]);
                let mut sum = T::ZERO;
                for (&value, &column) in entries {
                    sum += In::<N>::load::<T>(value) * x[column as usize];
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
            *own = In::<N>::store(value);
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
        let values = self.values.iter().map(|&value| In::<N>::load(value)).collect();
        Csr::new(row_ptr.len() - 1, self.ncols, row_ptr, self.col_idx.clone(), values)
            .expect("a layout is made from a valid matrix")
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let mut arrays = Arrays::default();
        let (row_ptr, col_idx) = (&self.row_ptr, &self.col_idx);
        let (matrix, at) = described(&mut arrays, self.ncols, row_ptr, col_idx, &self.values);
        let [.., values] = at;
        Some(
            arrays.on_device(values, vec![product(CsrNarrow::<N>::NAME, matrix, at, T::PRECISION)]),
        )
    }
}
