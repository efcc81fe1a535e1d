//! The Chebyshev method for a symmetric matrix with known bounds of its eigenvalues: no dot product, and
//! one pass an iteration.
//!
//! A step of a heat equation, M x = b with M = I + s L, has eigenvalues from 1 to K = [`CONDITION`] if
//! those of L lie between 0 and g, and s = (K - 1) / g. With T = (2 / g) L - I, whose eigenvalues lie
//! between -1 and 1, M = (K - 1) / 2 (T + m I), where m = (K + 1) / (K - 1). The inverse of t + m is a sum
//! of Chebyshev polynomials of t whose factors fall as powers of q = m - sqrt(m^2 - 1), and the polynomials
//! of T times b follow from each other by products. Source: J. Mason and D. Handscomb, Chebyshev
//! Polynomials (2003), chapter 5.

use ellect::dots::Fused;
use ellect::generate::Spec;
use ellect::{Csr, PreparedOperator, Result, Tuner, Workload};

use super::place::Place;
use super::{Found, Solver};

/// Largest eigenvalue of M; its smallest is 1 or more.
const CONDITION: f64 = 100.0;

/// Size of the first term that is left out, relative to the first one.
const TOLERANCE: f64 = 1e-12;

struct Chebyshev<'a> {
    t: &'a PreparedOperator<f64>,
    b: Vec<f64>,
}

/// Solves M x = b for a known x.
pub fn run(tuner: &Tuner, rows: usize) -> Result<Found> {
    let l: Csr<f64> = format!("stencil7:{rows}").parse::<Spec>()?.make();
    let t = shifted(&l)?;
    let t = tuner.prepare(&t, &Workload { spmvs: 1000, ..Workload::default() })?;
    let known: Vec<f64> = (0..l.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();
    let half = (CONDITION - 1.0) / 2.0;
    let mut b: Vec<f64> = known.iter().map(|x| x * (CONDITION + 1.0) / 2.0).collect();
    t.apply(half, &known, 1.0, &mut b)?;
    super::solve(&Chebyshev { t: &t, b }, &[&t], &known)
}

/// Returns T = (2 / g) L - I, where g is the largest sum of magnitudes of a row of L.
fn shifted(l: &Csr<f64>) -> Result<Csr<f64>> {
    let n = l.nrows();
    let sum = |i: usize| l.row(i).1.iter().map(|value| value.abs()).sum();
    let largest = (0..n).map(sum).fold(0.0, f64::max);
    let scaled = l.iter().map(|(i, j, value)| (i, j, 2.0 / largest * value));
    Csr::from_triplets(n, n, scaled.chain((0..n).map(|i| (i, i, -1.0))))
}

impl Solver for Chebyshev<'_> {
    fn solve<P: Place>(&self, on: &P) -> Result<(Vec<f64>, usize)> {
        let m = (CONDITION + 1.0) / (CONDITION - 1.0);
        let root = (m * m - 1.0).sqrt();
        let (q, mut factor) = (m - root, 4.0 / ((CONDITION - 1.0) * root));
        let enough = TOLERANCE * factor;
        // T_0 b = b and its term of the sum, which has half the factor of the others.
        let (mut now, mut x) = (on.vector(&self.b)?, on.zeros(self.b.len())?);
        on.axpby(factor / 2.0, &now, 0.0, &mut x)?;
        // T_1 b = T b, and T_(k + 1) b = 2 T (T_k b) - T_(k - 1) b in the place of T_(k - 1) b.
        let (mut next, mut factors, mut iterations) = (on.zeros(self.b.len())?, [1.0, 0.0], 0);
        while factor.abs() > enough {
            factor *= -q;
            on.apply(self.t, factors, &now, &mut next, Fused::new().add(factor, &mut x))?;
            std::mem::swap(&mut now, &mut next);
            factors = [2.0, -1.0];
            iterations += 1;
        }
        Ok((on.read(&x)?, iterations))
    }
}
