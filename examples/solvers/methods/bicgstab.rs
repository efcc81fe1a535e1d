//! BiCGStab for a matrix that is not symmetric. Source: H. van der Vorst, Bi-CGSTAB: a fast and smoothly
//! converging variant of Bi-CG (1992).

use ellect::dots::{DotWith, Fused};
use ellect::generate::Spec;
use ellect::{Csr, PreparedOperator, Result, Tuner, Workload};

use super::place::{Place, quotient};
use super::{Found, Solver};

/// Iterations between two tests of the residual.
const BETWEEN_TESTS: usize = 10;

/// Square of the relative residual at which the solver stops.
const TOLERANCE: f64 = 1e-22;

struct BiCgStab<'a> {
    a: &'a PreparedOperator<f64>,
    b: Vec<f64>,
}

/// Solves A x = b for a known x.
pub fn run(tuner: &Tuner, rows: usize) -> Result<Found> {
    let csr: Csr<f64> = format!("convection_diffusion:{rows}").parse::<Spec>()?.make();
    let a = tuner.prepare(&csr, &Workload { spmvs: 1000, ..Workload::default() })?;
    let known: Vec<f64> = (0..csr.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();
    let mut b = vec![0.0; csr.nrows()];
    a.apply(1.0, &known, 0.0, &mut b)?;
    super::solve(&BiCgStab { a: &a, b }, &[&a], &known)
}

impl Solver for BiCgStab<'_> {
    fn solve<P: Place>(&self, on: &P) -> Result<(Vec<f64>, usize)> {
        let (a, n) = (self.a, self.b.len());
        let [shadow, mut r, mut p] =
            [on.vector(&self.b)?, on.vector(&self.b)?, on.vector(&self.b)?];
        let [mut x, mut v, mut t] = [on.zeros(n)?, on.zeros(n)?, on.zeros(n)?];
        // Numbers: (r, shadow) before and after an iteration, (v, shadow), (t, r) with (t, t), (r, r), and
        // (v, shadow) omega.
        let [mut rho, mut next, mut rv] = [on.zeros(1)?, on.zeros(1)?, on.zeros(1)?];
        let [mut of_t, mut rr, mut turn] = [on.zeros(2)?, on.zeros(1)?, on.zeros(1)?];
        on.dot(&r, &shadow, &mut rho)?;
        let (first, mut iterations) = (on.read(&rho)?[0], 0);
        let mut residual = first;
        while residual > TOLERANCE * first && iterations < 10 * n {
            for _ in 0..BETWEEN_TESTS {
                let with = [DotWith::Z(&shadow)];
                on.apply(a, [1.0, 0.0], &p, &mut v, Fused::new().dots(&with, &mut rv))?;
                on.axpby(quotient(-1.0, (&rho, 0), (&rv, 0)), &v, 1.0, &mut r)?;
                let fused = Fused::new().dots(&[DotWith::X, DotWith::Y], &mut of_t);
                on.apply(a, [1.0, 0.0], &r, &mut t, fused)?;
                let omega = |sign| quotient(sign, (&of_t, 0), (&of_t, 1));
                on.axpby(quotient(1.0, (&rho, 0), (&rv, 0)), &p, 1.0, &mut x)?;
                on.axpby(omega(1.0), &r, 1.0, &mut x)?;
                on.axpby(omega(-1.0), &t, 1.0, &mut r)?;
                on.dot(&r, &shadow, &mut next)?;
                on.axpby(omega(1.0), &rv, 0.0, &mut turn)?;
                on.axpby(omega(-1.0), &v, 1.0, &mut p)?;
                on.axpby(1.0, &r, quotient(1.0, (&next, 0), (&turn, 0)), &mut p)?;
                std::mem::swap(&mut rho, &mut next);
            }
            iterations += BETWEEN_TESTS;
            on.dot(&r, &r, &mut rr)?;
            residual = on.read(&rr)?[0];
        }
        Ok((on.read(&x)?, iterations))
    }
}
