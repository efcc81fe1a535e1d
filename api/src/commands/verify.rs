//! `ellect verify` checks the product of every candidate.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use ellect::analysis::Analysis;
use ellect::device::Kind;
use ellect::format::{Candidate, Role, candidates};
use ellect::measure::Backend;
use ellect::{Csr, Error, Precision, Scalar, units};

use super::{Answer, read_matrix};
use crate::arguments::Input;
use crate::options::Product;
use crate::output::{bar, note, print};

/// Seed of the random x and y.
const SEED: u64 = 1;

/// Compares the product of every candidate with the reference.
///
/// The products run on a GPU of this machine if one is named; otherwise this host computes those
/// of all candidates, for GPUs as well as for hosts.
pub fn run(input: &Input, product: &Product, data: &Path) -> Result<Answer> {
    let backend = product.backend(data)?;
    let (file, reading) = (&input.file, input.limits.options());
    match product.precision {
        Precision::F32 => verify(&read_matrix::<f32>(file, &reading)?, &backend, product),
        Precision::F64 => verify(&read_matrix::<f64>(file, &reading)?, &backend, product),
    }
}

/// Checks every candidate; prints one line for each as soon as its result is known.
fn verify<T: Scalar>(csr: &Csr<T>, backend: &Backend, product: &Product) -> Result<Answer> {
    let analysis = Analysis::of(csr).with_partitioning();
    let device = backend.device();
    let target = product.target(device);
    let on_gpu = device.kind == Kind::Gpu && backend.check().is_ok();
    let all = if on_gpu { candidates(Kind::Gpu) } else { all() };
    let width = all.iter().map(|candidate| candidate.to_string().len()).max().unwrap_or(0);
    let line = |candidate: &str, product: &str, time: &str, reason: &str| {
        let line = format!("{candidate:width$}  {product:7}  {time:>10}  {reason}");
        print(&(line.trim_end().to_string() + "\n"))
    };
    if device.kind == Kind::Gpu && !on_gpu {
        note(&format!(
            "{} is not on this machine: its kernels are not run, and this host computes the products of \
             its layouts; cuSPARSE's products are not run",
            device.name
        ));
    }
    line("candidate", "product", "checked in", "reason")?;
    let bar = bar(all.len() as u64, "verifying");
    let (mut right, mut refused, mut wrong, mut not_run) = (0, 0, 0, 0);
    for candidate in &all {
        bar.set_message(candidate.to_string());
        if candidate.format.role == Role::Vendor && !on_gpu {
            not_run += 1;
            bar.inc(1);
            let reason = "cuSPARSE's product needs a GPU";
            bar.suspend(|| line(&candidate.to_string(), "not run", "", reason))?;
            continue;
        }
        let start = Instant::now();
        let outcome = backend
            .prepare(csr, &analysis, candidate, &candidate.target(&target))
            .and_then(|operator| operator.verify_many(csr, product.vectors, SEED));
        let time = units::time(start.elapsed().as_secs_f64());
        let (word, reason) = match outcome {
            Ok(()) => {
                right += 1;
                ("ok", String::new())
            }
            Err(Error::Refused { reason, .. }) => {
                refused += 1;
                ("refused", reason)
            }
            Err(error) => {
                wrong += 1;
                ("WRONG", error.to_string())
            }
        };
        bar.inc(1);
        bar.suspend(|| line(&candidate.to_string(), word, &time, &reason))?;
    }
    bar.finish_and_clear();
    let absent = match not_run {
        0 => String::new(),
        not_run => format!(", {not_run} not run"),
    };
    print(&format!("{right} ok, {refused} refused, {wrong} wrong{absent}\n"))?;
    Ok(if wrong == 0 { Answer::Yes } else { Answer::No })
}

/// Returns the candidates for GPUs, then those for hosts only.
fn all() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    for candidate in candidates(Kind::Host) {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}
