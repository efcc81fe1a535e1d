//! Solves A x = b with conjugate gradients on several GPUs, one process for each.
//!
//! Build it with `cargo build --release -p ellect --features cuda --example cg_ranks`, and start as many
//! processes as there are GPUs, for instance by
//! `torchrun --no-python --nproc-per-node 2 target/release/examples/cg_ranks [CLASS:ROWS [TRANSPORT]]`.
//! Any launcher will do that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without
//! them, the program is the only rank. The matrix is a generated one that is symmetric positive definite,
//! and the transport auto, peer, nccl or host. Neither PyTorch nor MPI moves any bytes: the set-up runs
//! over TCP, at the port after MASTER_PORT, and halos and sums move between the GPUs.
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use std::time::{Duration, Instant};

use ellect::choose::Workload;
use ellect::cuda::Factor;
use ellect::generate::Spec;
use ellect::sharded::{Rank, RankOnGpu, Sockets, Split, Transport};
use ellect::{Csr, Error, Tuner};

/// Iterations between two tests of the residual.
const BETWEEN_TESTS: usize = 10;

/// Square of the relative residual at which the solver stops.
const TOLERANCE: f64 = 1e-20;

fn main() -> ellect::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "stencil7:2000000".to_string());
    let transport = arguments.next().unwrap_or_else(|| "auto".to_string());
    let (rank, size) = (number("RANK", 0)?, number("WORLD_SIZE", 1)?);
    let gpu = format!("cuda:{}", number("LOCAL_RANK", rank)?);
    let host = std::env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".to_string());
    // The launcher itself uses MASTER_PORT.
    let meeting = format!("{host}:{}", 1 + number("MASTER_PORT", 29_500)?);
    let exchange = Sockets::meet(rank, size, &meeting, Duration::from_secs(60))?;
    let rank = Rank::of(rank, size, exchange)?;

    let csr: Csr<f64> = spec.parse::<Spec>()?.make();
    let workload = Workload { spmvs: 2_000, ..Workload::default() };
    let a = rank.prepare_whole(&Tuner::open(&gpu)?, &csr, &workload, Split::EqualNonzeros)?;
    let on_gpu = a.on_gpu(transport.parse::<Transport>()?)?;
    println!(
        "rank {} on {gpu}: {} rows in {}, by {}: {}",
        rank.rank(),
        a.part().rows(),
        a.part().candidate(),
        on_gpu.transport(),
        on_gpu.why()
    );

    // The solution is known, and b is computed from it.
    let wanted: Vec<f64> = a.rows().map(|row| 1.0 + (row % 7) as f64).collect();
    let mut b = vec![0.0; wanted.len()];
    a.apply(1.0, &wanted, 0.0, &mut b)?;
    let start = Instant::now();
    let (x, iterations) = conjugate_gradients(&on_gpu, &b)?;
    let took_s = start.elapsed().as_secs_f64();
    let error = x.iter().zip(&wanted).fold(0.0, |sum: f64, (a, b)| sum + (a - b).powi(2));
    let mut norms = [error, wanted.iter().map(|x| x * x).sum()];
    rank.sum(&mut norms)?;
    let error = (norms[0] / norms[1]).sqrt();
    if rank.rank() == 0 {
        println!("{iterations} iterations in {took_s:.3} s, relative error {error:.1e}");
    }
    match error <= 1e-6 {
        true => Ok(()),
        false => Err(Error::argument("the solution is wrong")),
    }
}

/// Reads a number that the launcher sets.
fn number(name: &str, otherwise: usize) -> ellect::Result<usize> {
    let Ok(text) = std::env::var(name) else { return Ok(otherwise) };
    text.parse().map_err(|_| Error::argument(format!("{name} is '{text}'; it must be a number")))
}

/// Returns the own elements of the solution, and the number of iterations.
fn conjugate_gradients(a: &RankOnGpu<'_, f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let gpu = a.gpu();
    let (mut x, mut q) = (a.zeros_x()?, a.zeros_y()?);
    let (mut r, mut p) = (a.scatter_y(b)?, a.scatter_x(b)?);
    // Numbers on the GPUs: r.r, the next r.r, and p.q.
    let (mut rr, mut next, mut pq) = (a.number()?, a.number()?, a.number()?);
    a.dot_into(&r, &r, &mut rr)?;
    let mut residual = a.read(&rr)?;
    let enough = TOLERANCE * residual;
    let mut iterations = 0;
    // All ranks read equal bits, so they stop at the same time.
    while residual > enough && iterations < 20_000 {
        for _ in 0..BETWEEN_TESTS {
            a.apply(1.0, &p, 0.0, &mut q)?;
            a.dot_into(&p, &q, &mut pq)?;
            let alpha = |sign| Factor::quotient(sign, rr.slice()?, pq.slice()?);
            gpu.axpby(alpha(1.0)?, p.own()?, 1.0, x.own_mut()?)?;
            gpu.axpby(alpha(-1.0)?, q.own()?, 1.0, r.own_mut()?)?;
            a.dot_into(&r, &r, &mut next)?;
            let beta = Factor::quotient(1.0, next.slice()?, rr.slice()?)?;
            gpu.axpby(1.0, r.own()?, beta, p.own_mut()?)?;
            std::mem::swap(&mut rr, &mut next);
        }
        iterations += BETWEEN_TESTS;
        residual = a.read(&rr)?;
    }
    let mut solution = vec![0.0; b.len()];
    a.gather(&x, &mut solution)?;
    Ok((solution, iterations))
}
