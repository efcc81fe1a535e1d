//! Solves A x = b with conjugate gradients and the operator that the tuner prepares.
//!
//! Run `cargo run --release --example conjugate_gradients -p ellect [FILE.mtx]`; the matrix must be
//! symmetric positive definite. x and b stay in the permuted basis while the solver runs.
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use ellect::choose::Workload;
use ellect::format::Basis;
use ellect::operator::{permute, permute_back};
use ellect::read::{self, Limits};
use ellect::{Csr, PreparedOperator, Tuner};

fn main() -> ellect::Result<()> {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/elasticity.mtx");
    let path = std::env::args().nth(1).unwrap_or_else(|| sample.to_string());
    let csr: Csr<f64> = read::file(&path, &Limits::default())?;
    let b = vec![1.0; csr.nrows()];

    let tuner = Tuner::open("cpu")?;
    for basis in [Basis::Original, Basis::Permuted] {
        let workload = Workload { basis, spmvs: 10_000, ..Workload::default() };
        let operator = tuner.prepare(&csr, &workload)?;
        // Permute b into the operator's basis once, and x back once.
        let order = operator.permutation();
        let b_here = order.map_or_else(|| b.clone(), |order| permute(&b, order));
        let (x_here, iterations) = solve(&operator, &b_here)?;
        let x = order.map_or_else(|| x_here.clone(), |order| permute_back(&x_here, order));

        let mut residual = b.clone();
        let csr_operator = tuner.prepare(&csr, &Workload { spmvs: 0, ..workload })?;
        csr_operator.apply(1.0, &x, -1.0, &mut residual)?;
        println!(
            "{basis} basis: {} took {iterations} iterations, residual {:.1e}",
            operator.candidate(),
            dot(&residual, &residual).sqrt() / dot(&b, &b).sqrt()
        );
        if let Some(choice) = operator.choice() {
            println!("    {}", choice.explanation[0]);
        }
    }
    Ok(())
}

fn solve(a: &PreparedOperator<f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let mut x = vec![0.0; b.len()];
    let (mut r, mut p, mut q) = (b.to_vec(), b.to_vec(), vec![0.0; b.len()]);
    let mut rr = dot(&r, &r);
    let (enough, mut iterations) = (1e-20 * rr, 0);
    while rr > enough && iterations < 10 * b.len() {
        a.apply(1.0, &p, 0.0, &mut q)?;
        let alpha = rr / dot(&p, &q);
        for i in 0..b.len() {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        let next = dot(&r, &r);
        for i in 0..b.len() {
            p[i] = r[i] + next / rr * p[i];
        }
        rr = next;
        iterations += 1;
    }
    Ok((x, iterations))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
