//! Solves min |A x - b| with LSQR, which multiplies by A and by its transpose.
//!
//! Run `cargo run --release --example least_squares -p ellect [CLASS:ROWS]` for a generated matrix of
//! full column rank, `least_squares:500000` for instance. Every equation is there twice, with
//! right-hand sides that lie as far above as below A x for a known x: that x is the only solution,
//! although no x fulfils the equations. Source of the method: C. Paige and M. Saunders, LSQR: an algorithm for sparse linear
//! equations and sparse least squares (1982).
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use ellect::choose::Workload;
use ellect::generate::Spec;
use ellect::{Csr, Error, PreparedPair, Tuner};

/// Decrease of the gradient A^T (A x - b) at which the solver stops.
const TOLERANCE: f64 = 1e-12;

fn main() -> ellect::Result<()> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "least_squares:20000".to_string());
    let once: Csr<f64> = spec.parse::<Spec>()?.make();
    let a = twice(&once)?;
    let known: Vec<f64> = (0..a.ncols()).map(|i| 1.0 + (i % 7) as f64).collect();

    let workload = Workload { spmvs: 1000, transposed: 1000, ..Workload::default() };
    let pair = Tuner::open("cpu")?.prepare_both(&a, &workload)?;
    for (name, operator) in [("A", pair.forward()), ("transpose", pair.transposed())] {
        println!("{name}: {}, {} bytes", operator.candidate(), operator.bytes());
    }

    let mut b = vec![0.0; a.nrows()];
    pair.apply(1.0, &known, 0.0, &mut b)?;
    let (above, below) = b.split_at_mut(once.nrows());
    for (row, (above, below)) in above.iter_mut().zip(below).enumerate() {
        let off = 0.1 * ((row % 11) as f64 - 5.0);
        *above += off;
        *below -= off;
    }
    let (x, iterations) = solve(&pair, &b)?;

    let largest = known.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let error = x.iter().zip(&known).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    println!("{iterations} iterations, largest error {:.1e} of the largest entry", error / largest);
    match error <= 1e-6 * largest {
        true => Ok(()),
        false => Err(Error::argument("the solution is not the known one")),
    }
}

/// Returns the matrix with all its rows twice.
fn twice(csr: &Csr<f64>) -> ellect::Result<Csr<f64>> {
    let mut row_ptr = csr.row_ptr().to_vec();
    row_ptr.extend(csr.row_ptr()[1..].iter().map(|end| csr.nnz() + end));
    let (col_idx, values) = (csr.col_idx().repeat(2), csr.values().repeat(2));
    Csr::new(2 * csr.nrows(), csr.ncols(), row_ptr, col_idx, values)
}

/// LSQR from x = 0; returns x and the number of iterations.
fn solve(a: &PreparedPair<f64>, b: &[f64]) -> ellect::Result<(Vec<f64>, usize)> {
    let n = a.forward().ncols();
    let (mut x, mut u, mut v) = (vec![0.0; n], b.to_vec(), vec![0.0; n]);
    let mut beta = normalise(&mut u);
    a.apply_transposed(1.0, &u, 0.0, &mut v)?;
    let mut alpha = normalise(&mut v);
    let mut w = v.clone();
    let (mut left, mut rho_bar, mut iterations) = (beta, alpha, 0);
    let enough = TOLERANCE * alpha * beta;
    let mut gradient = alpha * beta;
    while gradient > enough && iterations < 10 * n {
        a.apply(1.0, &v, -alpha, &mut u)?;
        beta = normalise(&mut u);
        a.apply_transposed(1.0, &u, -beta, &mut v)?;
        alpha = normalise(&mut v);
        let rho = rho_bar.hypot(beta);
        let (cosine, sine) = (rho_bar / rho, beta / rho);
        let (step, back) = (cosine * left / rho, sine * alpha / rho);
        (rho_bar, left) = (-cosine * alpha, sine * left);
        for i in 0..n {
            x[i] += step * w[i];
            w[i] = v[i] - back * w[i];
        }
        gradient = left * alpha * cosine.abs();
        iterations += 1;
    }
    Ok((x, iterations))
}

/// Divides a vector by its length, which it returns.
fn normalise(vector: &mut [f64]) -> f64 {
    let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|v| *v /= length);
    }
    length
}
