//! Times cuSPARSE's product with the transpose of a matrix in CSR: what a program does that transposes
//! nothing.

use std::sync::Arc;
use std::time::Instant;

use super::{TimedProducts, gpu_kernels, time_turns};
use crate::analysis::Analysis;
use crate::check;
use crate::csr::{Csr, CsrRef};
use crate::cuda::{CusparseProduct, DeviceCsr, Gpu, Vector};
use crate::error::{Error, Result};
use crate::format::{Algorithm, Target, Vendor};
use crate::measure::{Measurement, Outcome, Protocol, Provenance, Samples, State, Timing};
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

/// Checks and times cuSPARSE's y = A^T x for a matrix A in CSR, with preprocessing, as candidates are
/// timed. The target is that of A.
pub fn vendor_transposed<T: Scalar>(
    gpu: &Arc<Gpu>,
    csr: CsrRef<'_, T>,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Measurement {
    let kernels = gpu_kernels(std::iter::once("cusparse"));
    let provenance = Provenance::now(gpu.driver_key(), kernels);
    let (result, provenance) = match time(gpu, csr, target, protocol) {
        Ok((timing, state)) => (Ok(timing), provenance.with_state(state)),
        Err(error) => (Err(error), provenance),
    };
    Measurement {
        fingerprint: Analysis::sampled(csr).fingerprint(),
        candidate: NAME.to_string(),
        device: target.device.name.clone(),
        threads: 1,
        precision: T::PRECISION,
        basis: target.basis,
        protocol: *protocol,
        provenance,
        inputs: None,
        outcome: Outcome::of(result),
    }
}

fn time<T: Scalar>(
    gpu: &Arc<Gpu>,
    csr: CsrRef<'_, T>,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<(Timing, State)> {
    gpu.make_current()?;
    let [nrows, ncols, nnz] = [csr.nrows(), csr.ncols(), csr.nnz()].map(|n| n as u64);
    if nnz == 0 || [nrows, ncols, nnz].into_iter().any(|n| i32::try_from(n).is_err()) {
        return Err(Error::argument(format!(
            "cuSPARSE's product with the transpose takes 1 to {} rows, columns and entries here; this \
             matrix has {nrows}, {ncols} and {nnz}",
            i32::MAX
        )));
    }
    let vendor = Vendor { algorithm: Algorithm::CsrTransposed, nrows, ncols, nnz, slots: nnz };
    let mut prepare_s = Vec::new();
    let mut copy = |seed: u64| -> Result<Copy<T>> {
        let there = DeviceCsr::upload(gpu, csr)?;
        let x = gpu.vector(&check::vector::<T>(csr.nrows(), seed))?;
        let y = gpu.zeros(csr.ncols())?;
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
            // SAFETY: the vectors have the lengths of the transpose, and live until the last product has
            // ended, for which `time_turns` and the check below wait.
            #[allow(unsafe_code, reason = "queues a product of this copy's own vectors")]
            unsafe {
                copy.product.apply::<T>(T::ONE, x, T::ZERO, y, stream)
            }
        })
    };
    let TimedProducts { spmv, products_per_sample, state } =
        time_turns(gpu, protocol, copies.len(), &turn)?;
    let turned: Csr<T> = csr.to_csr().transpose();
    let last = copies.len() - 1;
    let x = check::vector::<T>(csr.nrows(), protocol.seed + last as u64);
    let exact = check::reference(&turned, T::ONE, &x, T::ZERO, &vec![T::ZERO; csr.ncols()]);
    let mut got = vec![T::ZERO; csr.ncols()];
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
    Ok((timing, state))
}
