//! Solvers whose steps read each vector once, on a host or entirely on a GPU.
//!
//! Run `cargo run --release -p ellect --example solvers METHOD [DEVICE [ROWS]]`, for a GPU with
//! `--features cuda`. METHOD is `bicgstab` (convection and diffusion), `pdhg` (a linear program) or
//! `chebyshev` (a step of a heat equation), and DEVICE is `cpu` or `cuda:0`, for instance. `apply_fused`
//! computes dot products and sums of vectors in the pass of a product; for a format without such a kernel
//! it takes one more pass over the vectors, so a solver is written once. Numbers that only steps need stay
//! on the GPU. Each solver ends with a known solution, to which it is compared.
#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

mod methods;

use ellect::Error;
use methods::{MOST_ERROR, SOLVED, run};

fn main() -> ellect::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |otherwise: &str| arguments.next().unwrap_or_else(|| otherwise.to_string());
    let (method, device) = (next("bicgstab"), next("cpu"));
    let few = SOLVED.iter().find(|(name, _)| *name == method).map_or(0, |(_, rows)| *rows);
    let rows = next(&few.to_string());
    let rows = rows.parse().map_err(|_| {
        Error::argument(format!("ROWS is '{rows}'; it must be a whole number, as in 20000"))
    })?;
    let found = run(&method, &device, rows)?;
    println!("{method} on {device}: {}", found.formats.join(", "));
    println!("{} iterations, largest error {:.1e}", found.iterations, found.error);
    match found.error <= MOST_ERROR {
        true => Ok(()),
        false => Err(Error::argument("the solution is not the known one")),
    }
}
