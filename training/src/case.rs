//! Cases: one matrix in one precision on one device, with every candidate that was timed on it.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail};
use ellect::choose::{Workload, target, target_of};
use ellect::cost::{Estimator, TERMS, terms};
use ellect::device::Device;
use ellect::features::Features;
use ellect::format::Candidate;
use ellect::measure::Measurement;
use ellect::structure::Structure;
use ellect::{Csr, Fingerprint, Precision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A candidate that was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The candidate, as text.
    pub candidate: String,
    /// The numbers named by [`TERMS`].
    pub terms: [f64; TERMS.len()],
    /// Estimated time of the conversion, in seconds.
    pub estimated_convert_s: f64,
    /// Measured time of the conversion, in seconds.
    pub convert_s: f64,
    /// Measured time of one product, in seconds.
    pub spmv_s: f64,
}

impl Trial {
    /// The byte floor, in seconds.
    pub fn floor_s(&self) -> f64 {
        self.terms[0] * 1e-6
    }

    /// The estimated time of one product, in seconds.
    pub fn estimate_s(&self) -> f64 {
        self.floor_s() * self.terms[1]
    }

    /// The name of its format.
    pub fn format(&self) -> &str {
        self.candidate.split(':').next().unwrap_or_default()
    }
}

/// One matrix in one precision on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What the matrix was made or read from.
    pub source: String,
    /// Matrices that resemble each other: they are never on both sides of a split.
    pub family: String,
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of nonzeros.
    pub nnz: u64,
    /// Features by name.
    pub features: BTreeMap<String, f64>,
    /// Every candidate that was timed.
    pub trials: Vec<Trial>,
}

/// A line of a cases file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Case(Case),
}

/// What records say of one matrix.
#[derive(Debug, Default)]
struct Origin {
    source: String,
    family: String,
}

/// Everything that record files say.
#[derive(Debug, Default)]
pub struct Records {
    cases: Vec<Case>,
    origins: HashMap<Fingerprint, Origin>,
    measurements: Vec<Measurement>,
}

impl Records {
    /// Reads lines of JSON: cases, structures and measurements, with `kind` or as `ellect bench
    /// --json` writes them.
    ///
    /// # Errors
    /// The first line that is none of them.
    pub fn read(&mut self, text: &str) -> Result<()> {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            self.line(line).with_context(|| format!("line {}", i + 1))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let mut value: Value = serde_json::from_str(line)?;
        let kind = value.get("kind").and_then(Value::as_str).unwrap_or("measurement").to_string();
        let text = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_string()
        };
        match kind.as_str() {
            "case" => {
                let Line::Case(case) = serde_json::from_value(value)?;
                self.cases.push(case);
            }
            "structure" => {
                let fingerprint = serde_json::from_value(value["fingerprint"].take())?;
                let origin =
                    Origin { source: text(&value, "source"), family: text(&value, "family") };
                self.origins.insert(fingerprint, origin);
            }
            "measurement" => {
                let source = text(&value, "matrix");
                let measurement: Measurement = serde_json::from_value(value)?;
                if !source.is_empty() {
                    let origin = Origin { source, family: String::new() };
                    self.origins.entry(measurement.fingerprint).or_insert(origin);
                }
                self.measurements.push(measurement);
            }
            other => bail!("kind is '{other}'; it must be case, structure or measurement"),
        }
        Ok(())
    }

    /// The cases: those that were read, and those that the records of measurements make with the
    /// matrices that `matrix` gives for their sources. `skipped` is told of what is left out.
    pub fn cases(
        self,
        device: &Device,
        matrix: &dyn Fn(&str) -> Result<Csr<f64>>,
        skipped: &mut dyn FnMut(String),
    ) -> Vec<Case> {
        let mut cases: Vec<Case> =
            self.cases.into_iter().filter(|case| case.device == device.name).collect();
        let mut groups: BTreeMap<String, BTreeMap<Precision, Vec<&Measurement>>> = BTreeMap::new();
        for measurement in self.measurements.iter().filter(|m| m.device == device.name) {
            match self.origins.get(&measurement.fingerprint) {
                Some(origin) => groups
                    .entry(origin.source.clone())
                    .or_default()
                    .entry(measurement.precision)
                    .or_default()
                    .push(measurement),
                None => skipped(format!("{}: unknown matrix", measurement.fingerprint)),
            }
        }
        for (source, precisions) in groups {
            let csr = match matrix(&source) {
                Ok(csr) => csr,
                Err(error) => {
                    skipped(format!("{source}: {error:#}"));
                    continue;
                }
            };
            let structure = Structure::of(&csr).with_partitioning();
            let fingerprint = structure.fingerprint();
            let Some(origin) = self.origins.get(&fingerprint) else {
                skipped(format!("{source}: another matrix than the one that was measured"));
                continue;
            };
            let features = features(&structure);
            for (precision, measurements) in precisions {
                let trials = trials(&structure, device, precision, &measurements);
                if trials.is_empty() {
                    continue;
                }
                cases.push(Case {
                    source: source.clone(),
                    family: family(origin),
                    fingerprint,
                    device: device.name.clone(),
                    precision,
                    nnz: csr.nnz() as u64,
                    features: features.clone(),
                    trials,
                });
            }
        }
        cases
    }
}

/// The lines of a cases file: what was measured with what the estimate saw, so that no matrix is
/// needed to train again.
///
/// # Errors
/// A number that is not finite.
pub fn write(cases: &[Case]) -> Result<String> {
    let line = |case: &Case| Ok(serde_json::to_string(&Line::Case(case.clone()))? + "\n");
    cases.iter().map(line).collect()
}

/// The family of a matrix: as recorded, or else what is before the first colon of its source.
fn family(origin: &Origin) -> String {
    match origin.family.as_str() {
        "" => origin.source.split(':').next().unwrap_or_default().to_string(),
        family => family.to_string(),
    }
}

fn features(structure: &Structure<'_>) -> BTreeMap<String, f64> {
    let features = Features::of(structure);
    let finite = features.iter().filter(|(_, value)| value.is_finite());
    finite.map(|(feature, value)| (feature.name.to_string(), value)).collect()
}

/// Timed candidates that this program knows, each once, the latest record.
fn trials(
    structure: &Structure<'_>,
    device: &Device,
    precision: Precision,
    measurements: &[&Measurement],
) -> Vec<Trial> {
    let workload = Workload { precision, ..Workload::default() };
    let target = target(device, &workload);
    let estimator = Estimator::new(structure, &target);
    let pattern = structure.pattern();
    let mut trials: BTreeMap<String, Trial> = BTreeMap::new();
    for measurement in measurements.iter().filter(|m| m.basis == workload.basis) {
        let Some(cost) = measurement.cost() else { continue };
        let Ok(candidate) = measurement.candidate.parse::<Candidate>() else { continue };
        let Ok(work) = candidate.work(structure, &target_of(&candidate, &target)) else { continue };
        let times = estimator.times(&candidate, &work);
        let estimate = estimator.cost(&candidate, &work);
        let free = work.convert_bytes == 0;
        let trial = Trial {
            candidate: candidate.to_string(),
            terms: terms(&work, &times, pattern.nrows(), pattern.nnz()),
            estimated_convert_s: estimate.convert_s,
            convert_s: if free { 0.0 } else { cost.convert_s },
            spmv_s: cost.spmv_s,
        };
        trials.insert(trial.candidate.clone(), trial);
    }
    trials.into_values().collect()
}
