//! `ellect measure`.

use std::path::Path;

use anyhow::{Result, bail};
use ellect::format::{Candidate, candidates};
use ellect::measure::{Measurement, Meter, Outcome, Protocol};
use ellect::structure::Structure;
use ellect::{Csr, Precision, Scalar, choose};

use super::{Answer, read_matrix};
use crate::cli::Input;
use crate::options::{Product, timing_meter};
use crate::output::{bar, bytes, print, table, time_us};

/// Times every candidate and prints what was found, fastest first.
pub fn run(
    input: &Input,
    product: &Product,
    only: &[String],
    json: bool,
    data: &Path,
) -> Result<Answer> {
    let meter = timing_meter(&product.device, data)?;
    meter.check()?;
    let chosen: Vec<Candidate> = candidates(meter.device().kind)
        .into_iter()
        .filter(|c| only.is_empty() || only.iter().any(|text| c.to_string().starts_with(text)))
        .collect();
    if chosen.is_empty() {
        bail!("no candidate begins with {}; `ellect formats` lists them", only.join(" or "));
    }
    let measured = match product.precision {
        Precision::F32 => measure(&read_matrix::<f32>(input)?, &chosen, &meter, product, json),
        Precision::F64 => measure(&read_matrix::<f64>(input)?, &chosen, &meter, product, json),
    }?;
    if !json {
        print(&text(measured))?;
    }
    Ok(Answer::Yes)
}

/// Measures one candidate after the other; JSON records are printed as they come.
fn measure<T: Scalar>(
    csr: &Csr<T>,
    chosen: &[Candidate],
    meter: &Meter,
    product: &Product,
    json: bool,
) -> Result<Vec<Measurement>> {
    let target = choose::target(meter.device(), &product.workload());
    let structure = Structure::of(csr).with_partitioning();
    let bar = bar(chosen.len() as u64, "timing");
    let mut measured = Vec::new();
    for candidate in chosen {
        bar.set_message(candidate.to_string());
        let protocol = Protocol::default();
        let measurement = meter.measure(csr, &structure, candidate, &target, &protocol)?;
        if json {
            print(&(serde_json::to_string(&measurement)? + "\n"))?;
        }
        measured.push(measurement);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(measured)
}

fn text(mut measured: Vec<Measurement>) -> String {
    let spmv_s = |m: &Measurement| m.cost().map_or(f64::INFINITY, |cost| cost.spmv_s);
    measured.sort_by(|a, b| spmv_s(a).total_cmp(&spmv_s(b)));
    let csr_s = choose::INCUMBENTS
        .into_iter()
        .find_map(|name| measured.iter().find(|m| m.candidate == name && m.cost().is_some()))
        .map(spmv_s);
    let (mut rows, mut others) = (Vec::new(), String::new());
    for m in &measured {
        match &m.outcome {
            Outcome::Timed(timing) => rows.push(vec![
                m.candidate.clone(),
                time_us(timing.spmv.min_s * 1e6),
                format!("{:.1} %", 100.0 * timing.spmv.spread),
                csr_s.map_or_else(String::new, |csr_s| format!("{:.2}", csr_s / timing.spmv.min_s)),
                time_us(timing.convert.min_s * 1e6),
                time_us(timing.update_s * 1e6),
                bytes(timing.bytes),
            ]),
            Outcome::Refused { reason } => {
                others += &format!("{} refused: {reason}\n", m.candidate);
            }
            Outcome::Wrong { reason } | Outcome::Failed { reason } => {
                others += &format!("{} FAILED: {reason}\n", m.candidate);
            }
        }
    }
    let head = ["candidate", "product", "spread", "over csr", "conversion", "new values", "memory"];
    let table = table(&head, rows, &[0]);
    if others.is_empty() { table } else { format!("{table}\n{others}") }
}
