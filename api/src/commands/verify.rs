//! `ellect verify`.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use ellect::device::{Device, Kind};
use ellect::format::{Candidate, candidates};
use ellect::structure::Structure;
use ellect::{Csr, Error, Precision, PreparedOperator, Scalar, choose};

use super::{Answer, read_matrix};
use crate::cli::Input;
use crate::options::Options;
use crate::output::{bar, print, table};

/// The seed of x and y.
const SEED: u64 = 1;

/// Compares the host product of every candidate, for GPUs and hosts, with the reference.
pub fn run(input: &Input, options: &Options, data: &Path) -> Result<Answer> {
    let meter = options.meter(data)?;
    let device = meter.device();
    match options.precision {
        Precision::F32 => verify(&read_matrix::<f32>(input)?, device, options),
        Precision::F64 => verify(&read_matrix::<f64>(input)?, device, options),
    }
}

fn verify<T: Scalar>(csr: &Csr<T>, device: &Device, options: &Options) -> Result<Answer> {
    let structure = Structure::new(csr.pattern()).with_partitioning();
    let target = choose::target(device, &options.workload());
    let all = all();
    let bar = bar(all.len() as u64, "verifying");
    let (mut rows, mut right, mut refused, mut wrong) = (Vec::new(), 0, 0, 0);
    for candidate in &all {
        bar.set_message(candidate.to_string());
        let start = Instant::now();
        let outcome = PreparedOperator::with_structure(csr, &structure, candidate, &target)
            .and_then(|operator| operator.verify(csr, SEED));
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
        let ms = format!("{:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        rows.push(vec![candidate.to_string(), word.into(), ms, reason]);
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(&table(&["candidate", "product", "time", "reason"], rows, &[0, 1, 3]))?;
    print(&format!("{right} ok, {refused} refused, {wrong} wrong\n"))?;
    Ok(if wrong == 0 { Answer::Yes } else { Answer::No })
}

/// Candidates for GPUs, then those for hosts alone.
fn all() -> Vec<Candidate> {
    let mut all = candidates(Kind::Gpu);
    for candidate in candidates(Kind::Host) {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}
