//! `ellect measure` times candidates on one matrix.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use ellect::analysis::Analysis;
use ellect::choose::Effort;
use ellect::format::{BASELINES, Candidate, candidates};
use ellect::measure::{Backend, Measurement, Outcome, Protocol};
use ellect::units::{bytes, time};
use ellect::unstable::session::{Session, SessionEvent, Task, TimeLimits};
use ellect::unstable::wisdom::{Record, StructureRecord};
use ellect::{Csr, Precision, Scalar, Wisdom};

use super::{Answer, Home, read_matrix, source};
use crate::arguments::Input;
use crate::options::{Product, duration, timing_backend};
use crate::output::{bar, print, table};

/// Arguments of `ellect measure`.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Measure {
    /// The device, precision and basis of the product.
    #[command(flatten)]
    product: Product,
    /// Only candidates whose name begins with this text, `hll:hack=32` for instance; may be
    /// repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Time limit of one candidate, including its conversion [default: 120s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// Also time candidates that have a stored measurement
    #[arg(long)]
    again: bool,
    /// Print one JSON record per line, with all samples
    #[arg(long)]
    json: bool,
}

/// Times the selected candidates and prints the results, fastest first.
pub fn run(input: &Input, options: &Measure, home: &Home) -> Result<Answer> {
    let Measure { product, only, json, .. } = options;
    let backend = timing_backend(&product.device, &home.data)?;
    backend.check()?;
    let chosen: Vec<Candidate> = candidates(backend.device().kind)
        .into_iter()
        .filter(|candidate| candidate.is_among(only))
        .collect();
    if chosen.is_empty() {
        bail!("no candidate begins with {}; `ellect formats` lists them", only.join(" or "));
    }
    let wisdom = home.wisdom(Effort::Measure)?;
    let job = Job { options, chosen: &chosen, backend: &backend, wisdom: wisdom.as_deref() };
    let (file, reading) = (&input.file, input.limits.options());
    let measured = match product.precision {
        Precision::F32 => job.measure(&read_matrix::<f32>(file, &reading)?, &source(file)),
        Precision::F64 => job.measure(&read_matrix::<f64>(file, &reading)?, &source(file)),
    }?;
    wisdom.as_deref().map_or(Ok(()), Wisdom::close)?;
    if !json {
        print(&text(measured))?;
    }
    Ok(Answer::Yes)
}

/// Candidates to measure on one matrix.
struct Job<'a> {
    options: &'a Measure,
    chosen: &'a [Candidate],
    backend: &'a Backend,
    wisdom: Option<&'a Wisdom>,
}

impl Job<'_> {
    /// Measures one candidate after the other; prints each JSON record as soon as it exists.
    fn measure<T: Scalar>(&self, csr: &Csr<T>, source: &str) -> Result<Vec<Measurement>> {
        let target = self.options.product.target(self.backend.device());
        let analysis = Analysis::sampled(csr);
        if self.options.json {
            self.tell(&Record::Structure(StructureRecord::of(&analysis, source, "")))?;
        }
        let vectors = self.options.product.vectors;
        let session = Session::new(self.backend, csr, &analysis, target)
            .with_protocol(Protocol { vectors, ..Protocol::default() })
            .with_limits(TimeLimits { each: self.options.limit, ..TimeLimits::default() })
            .repeating_noisy()
            .asking(self.wisdom.filter(|_| !self.options.again))
            .keeping(self.wisdom, source);
        let bar = bar(self.chosen.len() as u64, "timing");
        let mut measured: Vec<Measurement> = Vec::new();
        session.run(self.chosen.iter().map(Task::from), &mut |step| -> Result<()> {
            match step {
                SessionEvent::Timing(candidate) => bar.set_message(candidate.to_string()),
                SessionEvent::Measured { measurement, .. }
                | SessionEvent::Interrupted { measurement, .. } => {
                    // A baseline that was timed again next to a noisy candidate is printed once.
                    let same = |one: &Measurement| one.candidate == measurement.candidate;
                    if let Some(earlier) = measured.iter_mut().find(|one| same(one)) {
                        *earlier = measurement.clone();
                        return Ok(());
                    }
                    self.tell(&Record::Measurement(Box::new(measurement.clone())))?;
                    measured.push(measurement.clone());
                    bar.inc(1);
                }
                SessionEvent::Late(_) => {}
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        Ok(measured)
    }

    fn tell(&self, record: &Record) -> Result<()> {
        match self.options.json {
            true => print(&(serde_json::to_string(record)? + "\n")),
            false => Ok(()),
        }
    }
}

fn text(mut measured: Vec<Measurement>) -> String {
    let spmv_s = |m: &Measurement| m.cost().map_or(f64::INFINITY, |cost| cost.spmv_s);
    measured.sort_by(|a, b| spmv_s(a).total_cmp(&spmv_s(b)));
    let timed = |name: &str| measured.iter().find(|m| m.candidate == name && m.cost().is_some());
    let csr_s = BASELINES.into_iter().find_map(timed).map(spmv_s);
    let (mut rows, mut others) = (Vec::new(), String::new());
    for m in &measured {
        match &m.outcome {
            Outcome::Timed(timing) => rows.push(vec![
                m.candidate.clone(),
                time(timing.spmv.min_s),
                format!("{:.1} %", 100.0 * timing.spmv.spread),
                csr_s.map_or_else(String::new, |csr_s| format!("{:.2}", csr_s / timing.spmv.min_s)),
                time(timing.convert.min_s),
                time(timing.update_s),
                bytes(timing.bytes),
            ]),
            Outcome::Refused { reason } => {
                others += &format!("{} refused: {reason}\n", m.candidate);
            }
            Outcome::Cut { reason } => {
                others += &format!("{} not timed: {reason}\n", m.candidate);
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
