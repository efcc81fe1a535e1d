//! Solves A x = b with conjugate gradients entirely on a GPU.
//!
//! Run `cargo run --release -p ellect --features cuda --example cg_gpu [CLASS:ROWS]`, where the
//! matrix is a generated one that is symmetric positive definite. No vector is copied while the
//! solver runs: step lengths stay on the GPU, and the host reads one number every few iterations to
//! decide when to stop. Each iteration is three steps that read every vector once: the product with
//! (p, q), the residual with its norm, and the solution with the next direction. The solution is then
//! compared with the host's.
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use std::time::Instant;

use ellect::choose::Workload;
use ellect::cuda::{Factor, GpuOperator};
use ellect::dots::DotWith;
use ellect::format::Basis;
use ellect::generate::Spec;
use ellect::operator::{permute, permute_back};
use ellect::{Csr, Error, PreparedOperator, Tuner};

/// Iterations between two tests of the residual.
const BETWEEN_TESTS: usize = 10;

/// Square of the relative residual at which the solvers stop.
const TOLERANCE: f64 = 1e-20;

fn main() -> ellect::Result<()> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "elasticity:60000".to_string());
    let csr: Csr<f64> = spec.parse::<Spec>()?.make();
    let b: Vec<f64> = (0..csr.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();

    let workload = Workload { basis: Basis::Permuted, spmvs: 2_000, ..Workload::default() };
    let operator = Tuner::open("cuda:0")?.prepare(&csr, &workload)?;
    let start = Instant::now();
    let (x, iterations) = on_gpu(&operator, &b)?;
    let took_s = start.elapsed().as_secs_f64();
    let passes = if operator.fuses_dots() { "in the same pass" } else { "in another pass" };
    println!(
        "{}, (p, A p) {passes}: {iterations} iterations in {took_s:.3} s",
        operator.candidate()
    );

    let host = Tuner::open("cpu")?.prepare(&csr, &workload)?;
    let (expected, iterations) = on_host(&host, &b)?;
    println!("host, {}: {iterations} iterations", host.candidate());
    let largest = expected.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let error = x.iter().zip(&expected).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    println!("largest difference {:.1e} of the largest entry", error / largest);
    match error <= 1e-6 * largest {
        true => Ok(()),
        false => Err(Error::argument("the solutions differ")),
    }
}

/// Solves on the operator's GPU; returns the solution and the number of iterations.
fn on_gpu(operator: &PreparedOperator<f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let a = operator.on_device().ok_or_else(|| Error::argument("the operator is on the host"))?;
    // The vectors are permuted once before and once after.
    let b = operator.permutation().map_or_else(|| b.to_vec(), |order| permute(b, order));
    let (x, iterations) = conjugate_gradients(a, &b)?;
    Ok((operator.permutation().map_or_else(|| x.clone(), |o| permute_back(&x, o)), iterations))
}

/// The solver; all vectors are in the operator's basis.
fn conjugate_gradients(a: &GpuOperator<f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let (gpu, n) = (a.gpu(), b.len());
    let (mut x, mut q) = (gpu.zeros(n)?, gpu.zeros(n)?);
    let (mut r, mut p) = (gpu.vector(b)?, gpu.vector(b)?);
    // Numbers on the GPU: r.r, the next r.r, and p.q.
    let (mut rr, mut next, mut pq) = (gpu.zeros(1)?, gpu.zeros(1)?, gpu.zeros(1)?);
    gpu.dot(&r, &r, &mut rr)?;
    let mut residual = [0.0];
    rr.read(&mut residual)?;
    let enough = TOLERANCE * residual[0];
    let mut iterations = 0;
    while residual[0] > enough && iterations < 10 * n {
        for _ in 0..BETWEEN_TESTS {
            a.apply_dot(1.0, &p, 0.0, &mut q, &[DotWith::X], &mut pq)?;
            gpu.axpby_dot(Factor::quotient(-1.0, &rr, &pq)?, &q, 1.0, &mut r, &mut next)?;
            let (step, turn) =
                (Factor::quotient(1.0, &rr, &pq)?, Factor::quotient(1.0, &next, &rr)?);
            gpu.advance(step, &mut p, &mut x, turn, &r)?;
            std::mem::swap(&mut rr, &mut next);
        }
        iterations += BETWEEN_TESTS;
        rr.read(&mut residual)?;
    }
    let mut solution = vec![0.0; n];
    x.read(&mut solution)?;
    Ok((solution, iterations))
}

/// Solves on the host; returns the solution and the number of iterations.
fn on_host(operator: &PreparedOperator<f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let order = operator.permutation();
    let b = order.map_or_else(|| b.to_vec(), |order| permute(b, order));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut x = vec![0.0; b.len()];
    let (mut r, mut p, mut q) = (b.clone(), b.clone(), vec![0.0; b.len()]);
    let mut rr = dot(&r, &r);
    let (enough, mut iterations) = (TOLERANCE * rr, 0);
    while rr > enough && iterations < 10 * b.len() {
        operator.apply(1.0, &p, 0.0, &mut q)?;
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
    Ok((order.map_or_else(|| x.clone(), |order| permute_back(&x, order)), iterations))
}
