//! Times operators of one matrix in turns.

use std::time::Instant;

use anyhow::Result;
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::format::{CSR, Candidate};
use ellect::measure::Backend;
use ellect::{Csr, Error, PreparedOperator, Scalar};

/// Samples of each operator; the shortest one counts.
const ROUNDS: usize = 40;

/// Least time of a sample, in seconds.
const SAMPLE_S: f64 = 1e-3;

/// Number of candidates that are raced with two operators of CSR at a time.
const TOGETHER: usize = 6;

/// Times of all candidates of a matrix.
pub struct Raced {
    /// Time of one product with CSR, in seconds.
    pub csr_s: f64,
    /// Longer over shorter time of two operators of CSR, at most over all races.
    pub noise: f64,
    /// Time of one product with each candidate, in seconds: its ratio to CSR in the same race, times
    /// `csr_s`.
    pub times: Vec<(Candidate, f64)>,
}

/// Times the products of all candidates that suit the matrix.
pub fn race<T: Scalar>(backend: &Backend, csr: &Csr<T>, all: &[Candidate]) -> Result<Raced> {
    let base: Candidate = CSR.parse()?;
    let target = Workload::default().target(backend.device(), T::PRECISION);
    let analysis = Analysis::sampled(csr).with_partitioning();
    let prepare = |candidate: &Candidate| {
        backend.prepare(csr, &analysis, candidate, &candidate.target(&target))
    };
    let mut raced = Raced { csr_s: f64::INFINITY, noise: 1.0, times: Vec::new() };
    let mut ratios = vec![(base.clone(), 1.0)];
    let others: Vec<&Candidate> = all.iter().filter(|candidate| **candidate != base).collect();
    for some in others.chunks(TOGETHER) {
        let mut operators = vec![prepare(&base)?];
        for candidate in some {
            match prepare(candidate) {
                Ok(operator) => operators.push(operator),
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        operators.push(prepare(&base)?);
        let times = alternately(csr, &operators)?;
        let (first_s, last_s) = (times[0], times[times.len() - 1]);
        let csr_s = first_s.min(last_s);
        raced.noise = raced.noise.max(first_s.max(last_s) / csr_s);
        raced.csr_s = raced.csr_s.min(csr_s);
        let middle = 1..operators.len() - 1;
        let of = |at: usize| (operators[at].candidate().clone(), times[at] / csr_s);
        ratios.extend(middle.map(of));
    }
    let scaled = |(candidate, ratio)| (candidate, ratio * raced.csr_s);
    raced.times = ratios.into_iter().map(scaled).collect();
    Ok(raced)
}

/// Times operators in turns; returns the shortest sample of each, per product, in seconds.
fn alternately<T: Scalar>(csr: &Csr<T>, all: &[PreparedOperator<T>]) -> Result<Vec<f64>> {
    let x = vec![T::ONE; csr.ncols()];
    let mut y = vec![T::ZERO; csr.nrows()];
    let mut sample = |operator: &PreparedOperator<T>, products: u32| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..products {
            operator.apply(T::ONE, &x, T::ZERO, &mut y)?;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(products))
    };
    sample(&all[0], 1)?;
    let products = (SAMPLE_S / sample(&all[0], 1)?).ceil().clamp(1.0, 1e5) as u32;
    let mut shortest = vec![f64::INFINITY; all.len()];
    for _ in 0..ROUNDS {
        for (operator, shortest_s) in all.iter().zip(&mut shortest) {
            // The operator before it has displaced its arrays from the caches.
            sample(operator, 1)?;
            *shortest_s = shortest_s.min(sample(operator, products)?);
        }
    }
    Ok(shortest)
}
