//! Methods of solvers, and the places where they run.

mod bicgstab;
mod chebyshev;
mod pdhg;
mod place;

use ellect::{Error, PreparedOperator, Tuner};
use place::{Host, Place};

/// The result of a solver.
pub struct Found {
    /// The number of iterations.
    pub iterations: usize,
    /// The largest error of the solution, relative to its largest entry.
    pub error: f64,
    /// The formats, and whether they compute dot products and sums of vectors in the pass of a product.
    pub formats: Vec<String>,
}

/// Maximum of [`Found::error`].
pub const MOST_ERROR: f64 = 1e-6;

/// The methods, and how many rows take them a moment on a host.
pub const SOLVED: [(&str, usize); 3] = [("bicgstab", 20_000), ("chebyshev", 20_000), ("pdhg", 400)];

/// Solves a problem of about `rows` rows.
///
/// # Errors
/// [`Error::Argument`] for another method; as [`Tuner::open`] and [`Tuner::prepare`].
pub fn run(method: &str, device: &str, rows: usize) -> ellect::Result<Found> {
    let tuner = Tuner::open(device)?;
    match method {
        "bicgstab" => bicgstab::run(&tuner, rows),
        "chebyshev" => chebyshev::run(&tuner, rows),
        "pdhg" => pdhg::run(&tuner, rows),
        _ => Err(Error::argument(format!(
            "there is no method '{method}'; take bicgstab, chebyshev or pdhg"
        ))),
    }
}

/// A solver that runs where its operators are.
trait Solver {
    /// Returns the solution and the number of iterations.
    fn solve<P: Place>(&self, place: &P) -> ellect::Result<(Vec<f64>, usize)>;
}

/// Runs a solver where `operators` are, and compares its solution with the known one.
fn solve(
    solver: &impl Solver,
    operators: &[&PreparedOperator<f64>],
    known: &[f64],
) -> ellect::Result<Found> {
    let (x, iterations) = match operators[0].on_device() {
        #[cfg(feature = "cuda")]
        Some(a) => solver.solve(&**a.gpu())?,
        _ => solver.solve(&Host)?,
    };
    let largest = known.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let error = x.iter().zip(known).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
    let formats = operators.iter().map(|a| {
        let fused = if a.fuses_dots() { "in one pass" } else { "in two passes" };
        format!("{} {fused}", a.candidate())
    });
    Ok(Found { iterations, error: error / largest, formats: formats.collect() })
}
