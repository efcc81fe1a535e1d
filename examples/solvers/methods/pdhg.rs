//! PDHG for a linear program, min (c, x) where A x = b and x >= 0, which multiplies by A and by its
//! transpose. Source: A. Chambolle and T. Pock, A first-order primal-dual algorithm for convex problems
//! with applications to imaging (2011), and T. Pock and A. Chambolle, Diagonal preconditioning for first
//! order primal-dual algorithms (2011) for the scaling.

use ellect::dots::{DotWith, Fused};
use ellect::generate::Spec;
use ellect::{Csr, PreparedPair, Result, Tuner, Workload};

use super::place::Place;
use super::{Found, Solver};

/// Iterations between two tests of the constraints and of the optimum.
const BETWEEN_TESTS: usize = 100;

/// Maximum number of iterations.
const MOST: usize = 200_000;

/// Violation of the constraints, and gap between the two objectives, at which the solver stops, both
/// relative.
const TOLERANCE: f64 = 1e-9;

struct Pdhg<'a> {
    a: &'a PreparedPair<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

/// Solves a linear program whose solution is known: by complementary slackness, x and y are solutions if
/// A x = b and x >= 0, and c - A^T y is 0 where x is not and positive elsewhere.
pub fn run(tuner: &Tuner, rows: usize) -> Result<Found> {
    let csr: Csr<f64> = format!("linear_program:{rows}").parse::<Spec>()?.make();
    let workload = Workload { spmvs: 1000, transposed: 1000, ..Workload::default() };
    let a = tuner.prepare_both(&scaled(&with_slacks(&csr)?)?, &workload)?;
    // Only the slacks differ from 0, so the constraints have no other solution with the same zeros.
    let slacks = (0..csr.nrows()).map(|i| 1.0 + (i % 7) as f64);
    let known: Vec<f64> = std::iter::repeat_n(0.0, csr.ncols()).chain(slacks).collect();
    let y: Vec<f64> = (0..csr.nrows()).map(|i| (i % 5) as f64 - 2.0).collect();
    let mut b = vec![0.0; csr.nrows()];
    a.apply(1.0, &known, 0.0, &mut b)?;
    let mut c: Vec<f64> = known.iter().map(|x| if *x > 0.0 { 0.0 } else { 1.0 }).collect();
    a.apply_transposed(1.0, &y, 1.0, &mut c)?;
    super::solve(&Pdhg { a: &a, b, c }, &[a.forward(), a.transposed()], &known)
}

/// Returns the matrix with one more column for each row, with one entry.
fn with_slacks(csr: &Csr<f64>) -> Result<Csr<f64>> {
    let (m, n) = (csr.nrows(), csr.ncols());
    Csr::from_triplets(m, n + m, csr.iter().chain((0..m).map(|i| (i, n + i, 4.0))))
}

/// Returns the matrix with rows and columns divided by the roots of their sums of magnitudes: no product
/// with it, or with its transpose, lengthens a vector.
fn scaled(csr: &Csr<f64>) -> Result<Csr<f64>> {
    let (mut of_rows, mut of_columns) = (vec![0.0; csr.nrows()], vec![0.0; csr.ncols()]);
    for (i, j, value) in csr.iter() {
        of_rows[i] += value.abs();
        of_columns[j] += value.abs();
    }
    let scale = |i: usize, j: usize| f64::sqrt(of_rows[i] * of_columns[j]);
    let entries = csr.iter().filter(|(_, _, value)| *value != 0.0);
    let entries = entries.map(|(i, j, value)| (i, j, value / scale(i, j)));
    Csr::from_triplets(csr.nrows(), csr.ncols(), entries)
}

impl Solver for Pdhg<'_> {
    fn solve<P: Place>(&self, on: &P) -> Result<(Vec<f64>, usize)> {
        let (a, transposed) = (self.a.forward(), self.a.transposed());
        let (m, n) = (self.b.len(), self.c.len());
        let [b, c] = [on.vector(&self.b)?, on.vector(&self.c)?];
        let [mut x, mut ahead, mut slack] = [on.zeros(n)?, on.zeros(n)?, on.zeros(n)?];
        let [mut y, mut left] = [on.zeros(m)?, on.zeros(m)?];
        let [mut violation, mut primal, mut dual] = [on.zeros(1)?, on.zeros(1)?, on.zeros(1)?];
        let length = self.b.iter().map(|b| b * b).sum::<f64>().sqrt();
        for tests in 1..=MOST / BETWEEN_TESTS {
            for _ in 0..BETWEEN_TESTS {
                // x = max(x - (c - A^T y), 0), and the point as far ahead as the step was long.
                on.axpby(-1.0, &x, 0.0, &mut ahead)?;
                on.axpby(1.0, &c, 0.0, &mut slack)?;
                let fused = Fused::new().add(-1.0, &mut x);
                on.apply(transposed, [-1.0, 1.0], &y, &mut slack, fused)?;
                on.at_least(0.0, &mut x)?;
                on.axpby(2.0, &x, 1.0, &mut ahead)?;
                // y = y + (b - A ahead), with the square of what is left.
                on.axpby(1.0, &b, 0.0, &mut left)?;
                let fused = Fused::new().dots(&[DotWith::Y], &mut violation).add(1.0, &mut y);
                on.apply(a, [-1.0, 1.0], &ahead, &mut left, fused)?;
            }
            on.dot(&c, &x, &mut primal)?;
            on.dot(&b, &y, &mut dual)?;
            let violation = on.read(&violation)?[0].sqrt() / length;
            let (primal, dual) = (on.read(&primal)?[0], on.read(&dual)?[0]);
            let gap = (primal - dual).abs() / (1.0 + primal.abs() + dual.abs());
            if violation.max(gap) <= TOLERANCE {
                return Ok((on.read(&x)?, tests * BETWEEN_TESTS));
            }
        }
        Ok((on.read(&x)?, MOST))
    }
}
