//! Times cuSPARSE's product with the transpose of a matrix in CSR: what a program does that transposes
//! nothing.

use std::sync::Arc;
use std::time::Instant;

use super::{TimedProducts, gpu_kernels, measured, time_turns};
use crate::analysis::Analysis;
use crate::check;
use crate::csr::{Csr, CsrRef};
use crate::cuda::{CusparseProduct, DeviceCsr, Gpu, Vector};
use crate::error::{Error, Result};
use crate::format::{Algorithm, Target, Vendor};
use crate::measure::{Measurement, Protocol, Samples, State, Timing};
use crate::scalar::Scalar;

/// Name of the product in place of a candidate's.
const NAME: &str = "cusparse:op=transpose";

/// A matrix, its product and vectors.
struct Copy<T: Scalar> {
    product: CusparseProduct,
    x: Vector<T>,
    y: Vector<T>,
    _csr: DeviceCsr<T>,
}

/// Checks and times cuSPARSE's y = A x where it stores the transpose of A in CSR, with preprocessing, as
/// candidates are timed.
pub fn vendor_transposed<T: Scalar>(
    gpu: &Arc<Gpu>,
    csr: CsrRef<'_, T>,
    analysis: &Analysis<'_>,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Measurement {
    let timed = time(gpu, csr, target, protocol);
    measured::<T>(gpu, analysis, NAME.to_string(), target, protocol, timed)
}

fn time<T: Scalar>(
    gpu: &Arc<Gpu>,
    csr: CsrRef<'_, T>,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<(Timing, String, State)> {
    gpu.make_current()?;
    // The dimensions of the transpose.
    let [nrows, ncols, nnz] = [csr.ncols(), csr.nrows(), csr.nnz()].map(|n| n as u64);
    if nnz == 0 || [nrows, ncols, nnz].into_iter().any(|n| i32::try_from(n).is_err()) {
        return Err(Error::argument(format!(
            "cuSPARSE's product with the transpose takes 1 to {} rows, columns and entries here; the \
             stored matrix has {nrows}, {ncols} and {nnz}",
            i32::MAX
        )));
    }
    let vendor = Vendor { algorithm: Algorithm::CsrTransposed, nrows, ncols, nnz, slots: nnz };
    let stored: Csr<T> = csr.to_csr().transpose();
    let mut prepare_s = Vec::new();
    let mut copy = |seed: u64| -> Result<Copy<T>> {
        let there = DeviceCsr::upload(gpu, &stored)?;
        let x = gpu.vector(&check::vector::<T>(csr.ncols(), seed))?;
        let y = gpu.zeros(csr.nrows())?;
        gpu.synchronize()?;
        let start = Instant::now();
        let product = CusparseProduct::on::<T>(gpu, &vendor, there.addresses())?;
        gpu.synchronize()?;
        prepare_s.push(start.elapsed().as_secs_f64());
        Ok(Copy { product, x, y, _csr: there })
    };
    let first = copy(protocol.seed)?;
    let bytes = first._csr.bytes().iter().sum();
    let mut copies = vec![first];
    for more in 1..protocol.copies(bytes, target.device) {
        copies.push(copy(protocol.seed + more as u64)?);
    }
    let turn = |stream| {
        copies.iter().try_for_each(|copy| {
            let (x, y) = (copy.x.address(), copy.y.address());
            // SAFETY: the vectors have the lengths of the product, and live until the last product has
            // ended, for which `time_turns` and the check below wait.
            #[allow(unsafe_code, reason = "queues a product of this copy's own vectors")]
            unsafe {
                copy.product.apply::<T>(T::ONE, x, T::ZERO, y, stream)
            }
        })
    };
    let TimedProducts { spmv, products_per_sample, state } =
        time_turns(gpu, protocol, copies.len(), &turn)?;
    let last = copies.len() - 1;
    let x = check::vector::<T>(csr.ncols(), protocol.seed + last as u64);
    let exact = check::reference(csr, T::ONE, &x, T::ZERO, &vec![T::ZERO; csr.nrows()]);
    let mut got = vec![T::ZERO; csr.nrows()];
    copies[last].y.read(&mut got)?;
    check::compare(NAME, &exact, &got)?;
    let timing = Timing {
        reruns: Vec::new(),
        spmv,
        products_per_sample,
        convert: Samples::new(prepare_s),
        convert_kernels: String::new(),
        update_s: 0.0,
        bytes,
        copies: copies.len() as u32,
    };
    Ok((timing, gpu_kernels(std::iter::once("cusparse")), state))
}
