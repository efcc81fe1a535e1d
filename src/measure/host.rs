//! Checks and times candidates on this host.

use std::time::Instant;

use super::{Measurement, Outcome, Protocol, Provenance, Samples, Timing, take_samples};
use crate::analysis::Analysis;
use crate::check;
use crate::csr::CsrRef;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, CSR, Candidate, Refusal, Target};
use crate::operator::{PreparedOperator, permute_back, seeded};
use crate::scalar::Scalar;

/// Number of conversions that are timed at most.
const CONVERSIONS: usize = 3;

/// Checks and times one candidate on this host, over rayon's current threads.
///
/// A refusal and a wrong product are outcomes, not errors.
pub fn on_host<'a, T: Scalar>(
    csr: impl Into<CsrRef<'a, T>>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Measurement {
    let csr = csr.into();
    let outcome = Outcome::of(time(csr, candidate, target, protocol));
    let candidate = candidate.to_string();
    Measurement {
        fingerprint: Fingerprint::of(csr.pattern()),
        provenance: Provenance::host(&candidate),
        candidate,
        device: target.device.name.clone(),
        threads: rayon::current_num_threads() as u32,
        precision: T::PRECISION,
        basis: target.basis,
        protocol: *protocol,
        inputs: None,
        outcome,
    }
}

/// A copy of the layout with its own vectors, in the operator's basis; several vectors are the
/// columns of column-major matrices.
struct HostCopy<T: Scalar> {
    operator: PreparedOperator<T>,
    vectors: usize,
    x: Vec<T>,
    y: Vec<T>,
}

impl<T: Scalar> HostCopy<T> {
    /// Computes y = A x this many times; returns the time, in seconds.
    fn products(&mut self, count: u64) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..count {
            self.operator.multiply((T::ONE, T::ZERO), self.vectors, &self.x, &mut self.y)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// Returns the number of products, a power of two, that take as long as a sample at least, after
    /// the first products.
    fn products_of_a_sample(&mut self, protocol: &Protocol) -> Result<u64> {
        self.products(u64::from(protocol.warmup))?;
        let mut count = 1;
        while self.products(count)? < protocol.min_sample_s {
            count *= 2;
        }
        Ok(count)
    }
}

fn time<T: Scalar>(
    csr: CsrRef<'_, T>,
    candidate: &Candidate,
    target: &Target<'_>,
    protocol: &Protocol,
) -> Result<Timing> {
    let mut convert_s = Vec::new();
    let vectors = protocol.vectors;
    check_vectors(csr, candidate, target, vectors)?;
    let mut own = copy(csr, candidate, target, vectors, protocol.seed, &mut convert_s)?;
    let conversions = CONVERSIONS.min(protocol.max_copies as usize);
    while convert_s.len() < conversions && convert_s.iter().sum::<f64>() < protocol.max_convert_s {
        own = copy(csr, candidate, target, vectors, protocol.seed, &mut convert_s)?;
    }
    own.operator.verify_many(csr, vectors, protocol.seed)?;
    let start = Instant::now();
    own.operator.update_values(csr.values())?;
    let update_s = start.elapsed().as_secs_f64();
    let bytes = own.operator.bytes();

    let count = own.products_of_a_sample(protocol)?;
    // CSR takes turns with the candidate, so that both are timed while the host is equally fast.
    let mut beside = base(csr, candidate, target, vectors, protocol)?;
    let mut of_csr = Vec::new();
    let spmv = take_samples(protocol, || {
        if let Some((base, count)) = &mut beside {
            of_csr.push(base.products(*count)? / *count as f64);
        }
        Ok(own.products(count)? / count as f64)
    })?
    .beside(&of_csr);
    check_last(csr, &own)?;
    Ok(Timing {
        convert_kernels: String::new(),
        reruns: Vec::new(),
        spmv,
        products_per_sample: count,
        convert: Samples::new(convert_s),
        update_s,
        bytes,
        copies: 1,
    })
}

/// Returns CSR's layout with the number of products of a sample; `None` if it is the candidate, or
/// if it takes over an eighth of the device's memory.
fn base<T: Scalar>(
    csr: CsrRef<'_, T>,
    candidate: &Candidate,
    target: &Target<'_>,
    vectors: usize,
    protocol: &Protocol,
) -> Result<Option<(HostCopy<T>, u64)>> {
    let base: Candidate = CSR.parse()?;
    let bytes = (csr.nnz() * (size_of::<T>() + 4) + csr.nrows() * size_of::<usize>()) as u64;
    if *candidate == base || bytes > target.device.memory_bytes / 8 {
        return Ok(None);
    }
    let target = Target { basis: Basis::Original, ..*target };
    let mut copy = copy(csr, &base, &target, vectors, protocol.seed, &mut Vec::new())?;
    let count = copy.products_of_a_sample(protocol)?;
    Ok(Some((copy, count)))
}

/// Converts a matrix without any cached analysis, and appends the time to `convert_s`.
fn copy<T: Scalar>(
    csr: CsrRef<'_, T>,
    candidate: &Candidate,
    target: &Target<'_>,
    vectors: usize,
    seed: u64,
    convert_s: &mut Vec<f64>,
) -> Result<HostCopy<T>> {
    let start = Instant::now();
    let analysis = Analysis::of(csr).with_partitioning();
    let operator = PreparedOperator::with_analysis(csr, &analysis, candidate, target)?;
    convert_s.push(start.elapsed().as_secs_f64());
    let x = seeded(csr.ncols(), vectors, seed, operator.permutation());
    Ok(HostCopy { y: vec![T::ZERO; csr.nrows() * vectors], operator, vectors, x })
}

/// Bytes of x and y.
fn vector_bytes<T: Scalar>(csr: CsrRef<'_, T>, vectors: usize) -> u64 {
    (csr.nrows() as u64 + csr.ncols() as u64) * (vectors * size_of::<T>()) as u64
}

/// Refuses several vectors that take more than half of the device's memory.
fn check_vectors<T: Scalar>(
    csr: CsrRef<'_, T>,
    candidate: &Candidate,
    target: &Target<'_>,
    vectors: usize,
) -> Result<()> {
    let (needed, allowed) = (vector_bytes(csr, vectors), target.device.memory_bytes / 2);
    if vectors == 1 || needed <= allowed {
        return Ok(());
    }
    Err(candidate.refused(&Refusal::new(format!(
        "x and y of {vectors} vectors take {needed} bytes; {allowed} are allowed, half of the \
         memory: time fewer vectors"
    ))))
}

/// Compares each vector of the last timed product with the reference.
fn check_last<T: Scalar>(csr: CsrRef<'_, T>, copy: &HostCopy<T>) -> Result<()> {
    let back = |vector: &[T]| match copy.operator.permutation() {
        Some(order) => permute_back(vector, order),
        None => vector.to_vec(),
    };
    for column in 0..copy.vectors {
        let x = &copy.x[column * csr.ncols()..][..csr.ncols()];
        let y = &copy.y[column * csr.nrows()..][..csr.nrows()];
        let reference = check::reference(csr, T::ONE, &back(x), T::ZERO, y);
        copy.operator.check_product(&reference, &back(y))?;
    }
    Ok(())
}
