//! cuSPARSE, NVIDIA's library: the product that a GPU program would use without ellect.
//!
//! It is a candidate like any other, so that a choice is never slower than the library. The library
//! is loaded at run time; without it, these candidates do not exist. `csr_alg1` and `csr_alg2` read
//! the CSR arrays; `sell` reads the arrays of HLL with a hack of 32 rows (sliced ELLPACK; padding
//! has the column -1). The library's preprocessing prepares each of them.
//!
//! Good for: CSR as it is, at about 0.62 to 0.7 of the speed that its bytes allow on most matrices.
//! Bad for: matrices whose structure shorter formats can use.

use super::csr::{CsrLayout, whole_rows};
use super::hll::HllFormat;
use super::{
    Algorithm, Arg, GpuConverter, GpuLayout, Layout, OnDevice, Param, Params, Refusal, Role, Stop,
    Storage, Target, Value, Vendor, Work,
};
use crate::analysis::{Analysis, Walk};
use crate::csr::{Csr, CsrRef};
use crate::scalar::Scalar;

/// See the module.
#[derive(Debug)]
pub struct CusparseFormat;

impl Storage for CusparseFormat {
    const NAME: &'static str = "cusparse";
    const TITLE: &'static str = "cuSPARSE";
    const SOURCE: &'static str = "NVIDIA, cuSPARSE library, cusparseSpMV (CUDA 13, 2025)";
    const SUITS: &'static str = "GPU programs as they are; the CSR algorithms need no conversion";
    const ROLE: Role = Role::Vendor;
    const PARAMS: &'static [Param] = &[Param {
        name: "alg",
        doc: "cusparseSpMVAlg_t: CSR algorithm 1 or 2, or sliced ELLPACK",
        values: &[Value::Word("csr_alg1"), Value::Word("csr_alg2"), Value::Word("sell")],
        gpu: &[Value::Word("csr_alg1"), Value::Word("csr_alg2"), Value::Word("sell")],
        host: &[],
    }];

    type Layout<T: Scalar> = CusparseLayout<T>;

    fn work(
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<Work, Refusal> {
        let pattern = analysis.pattern();
        check_shape(pattern.nrows(), pattern.ncols(), pattern.nnz())?;
        let work = if algorithm(params) == Algorithm::Sell {
            let work = HllFormat::work(analysis, &sell(), target)?;
            fits("slots", work.entries)?;
            work
        } else {
            // Long rows are split among lanes.
            Work {
                lanes: 0,
                x_loaded: analysis.x_loaded(Walk::Entries, target),
                ..whole_rows(analysis, target)
            }
        };
        // The preprocessing reads the row pointers once.
        Ok(Work { convert_bytes: work.convert_bytes + 4 * analysis.lengths().len() as u64, ..work })
    }

    fn convert<T: Scalar>(
        csr: CsrRef<'_, T>,
        analysis: &Analysis<'_>,
        params: &Params,
        target: &Target<'_>,
    ) -> Result<CusparseLayout<T>, Refusal> {
        let algorithm = algorithm(params);
        let arrays: Box<dyn Layout<T>> = match algorithm {
            Algorithm::Sell => Box::new(HllFormat::convert(csr, analysis, &sell(), target)?),
            Algorithm::CsrAlg1 | Algorithm::CsrAlg2 | Algorithm::CsrTransposed => {
                Box::new(CsrLayout::of(csr.to_csr()))
            }
        };
        Ok(CusparseLayout { shape: [csr.nrows(), csr.ncols(), csr.nnz()], algorithm, arrays })
    }

    fn build(
        converter: &mut dyn GpuConverter,
        params: &Params,
        _target: &Target<'_>,
    ) -> Result<GpuLayout, Stop> {
        let matrix = converter.matrix();
        let algorithm = algorithm(params);
        check_shape(matrix.nrows, matrix.ncols, matrix.nnz)?;
        if algorithm == Algorithm::Sell || matrix.wide {
            return Err(Stop::OnHost);
        }
        let [nrows, ncols, nnz] = [matrix.nrows, matrix.ncols, matrix.nnz].map(|n| n as u64);
        let vendor = Vendor { algorithm, nrows, ncols, nnz, slots: nnz };
        let arrays = [Arg::RowPtr, Arg::ColIdx, Arg::Values];
        Ok(GpuLayout { vendor: Some((vendor, arrays)), ..GpuLayout::default() })
    }
}

/// Refuses matrices on which ellect does not call the library.
fn check_shape(nrows: usize, ncols: usize, nnz: usize) -> Result<(), Refusal> {
    if nnz == 0 {
        return Err(Refusal::new("cuSPARSE is not used for a matrix without entries"));
    }
    fits("rows", nrows as u64)?;
    fits("columns", ncols as u64)?;
    fits("entries", nnz as u64)
}

/// Refuses counts that signed 32-bit indices cannot hold.
fn fits(what: &str, n: u64) -> Result<(), Refusal> {
    if i32::try_from(n).is_ok() {
        return Ok(());
    }
    Err(Refusal::new(format!(
        "{n} {what} need 64-bit indices; cuSPARSE is used with 32-bit indices, at most {}",
        i32::MAX
    )))
}

fn algorithm(params: &Params) -> Algorithm {
    match params.get("alg") {
        Value::Word("csr_alg2") => Algorithm::CsrAlg2,
        Value::Word("sell") => Algorithm::Sell,
        _ => Algorithm::CsrAlg1,
    }
}

/// HLL as sliced ELLPACK: a hack of 32 rows, their own order, 32-bit columns.
fn sell() -> Params {
    Params::defaults(HllFormat::PARAMS)
}

/// The arrays that cuSPARSE reads.
pub struct CusparseLayout<T> {
    /// Rows, columns and entries.
    shape: [usize; 3],
    algorithm: Algorithm,
    arrays: Box<dyn Layout<T>>,
}

impl<T: Scalar> Layout<T> for CusparseLayout<T> {
    fn apply(&self, alpha: T, x: &[T], beta: T, y: &mut [T]) {
        self.arrays.apply(alpha, x, beta, y);
    }

    fn bytes(&self) -> u64 {
        self.arrays.bytes()
    }

    fn set_values(&mut self, values: &[T]) {
        self.arrays.set_values(values);
    }

    fn to_csr(&self) -> Csr<T> {
        self.arrays.to_csr()
    }

    fn on_device(&self) -> Option<OnDevice<'_>> {
        let described = self.arrays.on_device()?;
        let [nrows, ncols, nnz] = self.shape.map(|size| size as u64);
        let slots = described.arrays.get(1).map_or(0, |columns| columns.bytes.len() as u64 / 4);
        let vendor = Vendor { algorithm: self.algorithm, nrows, ncols, nnz, slots };
        Some(OnDevice { launches: Vec::new(), vendor: Some(vendor), ..described })
    }
}
