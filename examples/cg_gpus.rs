//! Solves A x = b with conjugate gradients on several GPUs in one process.
//!
//! Run `cargo run --release -p ellect --features cuda --example cg_gpus [CLASS:ROWS [DEVICES [one-sum]]]`,
//! where the matrix is a generated one that is symmetric positive definite, and the devices are
//! cuda:0,cuda:1 unless others are named. With `one-sum`, an iteration needs one sum over the GPUs, not two. Vectors and step lengths stay on the GPUs. Two iterations are recorded as one CUDA
//! graph for each GPU, so that the host launches once for them and reads a number every few iterations to
//! decide when to stop. The residual is then computed anew on the host.
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use std::time::Instant;

use ellect::choose::Workload;
use ellect::dots::DotWith;
use ellect::generate::Spec;
use ellect::sharded::{GpuFactor, Mode, OnGpus, Split};
use ellect::{Csr, Error, Tuner};

/// Launches of two iterations between two tests of the residual.
const BETWEEN_TESTS: usize = 5;

/// Square of the relative residual at which the solver stops.
const TOLERANCE: f64 = 1e-20;

fn main() -> ellect::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "stencil7:2000000".to_string());
    let devices = arguments.next().unwrap_or_else(|| "cuda:0,cuda:1".to_string());
    let devices: Vec<&str> = devices.split(',').collect();
    let solve = match arguments.next().as_deref() {
        None => conjugate_gradients,
        Some("one-sum") => with_one_sum,
        Some(other) => {
            let what = format!("the third argument is '{other}'; leave it out, or write one-sum");
            return Err(Error::argument(what));
        }
    };

    let csr: Csr<f64> = spec.parse::<Spec>()?.make();
    let b: Vec<f64> = (0..csr.nrows()).map(|i| 1.0 + (i % 7) as f64).collect();
    let workload = Workload { spmvs: 2_000, ..Workload::default() };
    let tuners = Tuner::open_all(&devices)?.with_mode(Mode::Vector);
    let a = tuners.prepare_sharded(&csr, &workload, Split::EqualNonzeros)?;
    println!("{}", a.choice().why);

    let gpus = a.on_gpus()?;
    let start = Instant::now();
    let (x, iterations) = solve(&gpus, &b)?;
    println!("{iterations} iterations in {:.3} s", start.elapsed().as_secs_f64());

    let mut residual = b.clone();
    Tuner::open("cpu")?.prepare(&csr, &workload)?.apply(-1.0, &x, 1.0, &mut residual)?;
    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
    let relative = norm(&residual) / norm(&b);
    println!("residual of the solution: {relative:.1e} of b");
    match relative <= 1e-8 {
        true => Ok(()),
        false => Err(Error::argument("the solver did not find the solution")),
    }
}

/// Returns the solution and the number of iterations.
fn conjugate_gradients(gpus: &OnGpus<'_, f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let (mut r, mut p) = (gpus.scatter_x(b)?, gpus.scatter_x(b)?);
    let (mut x, mut q) = (gpus.zeros_x()?, gpus.zeros_x()?);
    // Numbers on the GPUs: r.r, the next r.r, and p.q.
    let (mut rr, mut next, mut pq) = (gpus.number()?, gpus.number()?, gpus.number()?);
    gpus.dot_into(&r, &r, &mut rr)?;
    let mut residual = gpus.read(&rr)?;
    let enough = TOLERANCE * residual;
    // After two iterations, `rr` and `next` have their first meaning again.
    let two = gpus.record(|gpus| {
        for _ in 0..2 {
            gpus.apply_dot(1.0, &p, 0.0, &mut q, &[DotWith::X], &mut [&mut pq])?;
            gpus.axpby_dot(GpuFactor::quotient(-1.0, &rr, &pq), &q, 1.0, &mut r, &mut next)?;
            let step = GpuFactor::quotient(1.0, &rr, &pq);
            let turn = GpuFactor::quotient(1.0, &next, &rr);
            gpus.advance(step, &mut p, &mut x, turn, &r)?;
            std::mem::swap(&mut rr, &mut next);
        }
        Ok(())
    })?;
    let mut iterations = 0;
    while residual > enough && iterations < 10 * b.len() {
        (0..BETWEEN_TESTS).try_for_each(|_| two.launch())?;
        iterations += 2 * BETWEEN_TESTS;
        residual = gpus.read(&rr)?;
    }
    let mut solution = vec![0.0; b.len()];
    gpus.gather_x(&x, &mut solution)?;
    Ok((solution, iterations))
}

/// As [`conjugate_gradients`], by the method of Chronopoulos and Gear.
fn with_one_sum(gpus: &OnGpus<'_, f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let (mut x, mut r) = (gpus.zeros_x()?, gpus.scatter_x(b)?);
    let mut cg = gpus.one_sum_cg(&r)?;
    let mut residual = gpus.read(cg.residual())?;
    let enough = TOLERANCE * residual;
    let two = gpus.record(|gpus| (0..2).try_for_each(|_| gpus.iterate(&mut cg, &mut x, &mut r)))?;
    let mut iterations = 0;
    while residual > enough && iterations < 10 * b.len() {
        (0..BETWEEN_TESTS).try_for_each(|_| two.launch())?;
        iterations += 2 * BETWEEN_TESTS;
        residual = gpus.read(cg.residual())?;
    }
    let mut solution = vec![0.0; b.len()];
    gpus.gather_x(&x, &mut solution)?;
    Ok((solution, iterations))
}
