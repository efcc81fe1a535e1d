//! Records of measurements and of their matrices, and the cases built from them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result, bail};
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::cost::{Cost, CostInputs};
use ellect::device::Device;
use ellect::format::{Basis, CSR, Candidate};
use ellect::measure::{Measurement, Outcome};
use ellect::unstable::choose::baseline_product_s;
use ellect::unstable::cost::{Estimator, relate, terms};
use ellect::unstable::format::sort_key;
use ellect::unstable::wisdom::{Record, StructureRecord, other_image};
use ellect::{Csr, Fingerprint, Precision};
use serde_json::Value;

use crate::case::{Case, Trial, Untimed};
use crate::corpus::{Families, family_of};

/// The contents of all record files: of products with one vector, or of those with several.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// True if measurements of products with several vectors are kept, and the others left out.
    several: bool,
    structures: HashMap<Fingerprint, StructureRecord>,
    sources: HashMap<Fingerprint, String>,
    measurements: Vec<Measurement>,
}

impl Records {
    /// Returns no records, of products with several vectors if `several`, else of those with one.
    pub fn new(several: bool) -> Self {
        Records { several, ..Records::default() }
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record) {
        match record {
            Record::Structure(structure) => {
                self.structures.insert(structure.fingerprint, structure);
            }
            // A model is for products with one vector, or for those with several.
            Record::Measurement(m) if m.is_of_one_vector() == self.several => {}
            Record::Measurement(measurement) => self.measurements.push(*measurement),
        }
    }

    /// Reads lines of JSON: structures and measurements as `wisdom export` and `measure --json`
    /// write them, or measurements with the name of their matrix, as `bench --json` writes them.
    ///
    /// # Errors
    /// Fails at the first line that is none of these.
    pub fn read(&mut self, text: &str) -> Result<()> {
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            self.line(line).with_context(|| format!("line {}", i + 1))?;
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let value: Value = serde_json::from_str(line)?;
        if value.get("kind").is_some() {
            let record = Record::parse(line.as_bytes());
            self.add(record.map_err(anyhow::Error::msg)?);
            return Ok(());
        }
        let Some(source) = value.get("matrix").and_then(Value::as_str).map(String::from) else {
            bail!("neither a record (kind) nor a line of bench --json (matrix)");
        };
        let measurement: Measurement = serde_json::from_value(value)?;
        self.sources.insert(measurement.fingerprint, source);
        let mut record = Record::Measurement(Box::new(measurement));
        record.validate().map_err(anyhow::Error::msg)?;
        self.add(record);
        Ok(())
    }

    /// Returns the timed measurements on a device in the original basis, with their costs.
    pub fn timed(&self, device: &str) -> impl Iterator<Item = (&Measurement, Cost)> {
        let here = move |m: &&Measurement| m.device == device && m.basis == Basis::Original;
        self.measurements.iter().filter(here).filter_map(|m| Some((m, m.cost()?)))
    }

    /// Returns the drivers with which candidates were timed on a device.
    pub fn drivers(&self, device: &str) -> BTreeSet<&str> {
        self.timed(device).map(|(measurement, _)| measurement.provenance.driver.as_str()).collect()
    }

    /// Returns whether there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.measurements.is_empty()
    }

    /// Assigns the families of a table to the matrices.
    pub fn name_families(&mut self, families: &Families) {
        for structure in self.structures.values_mut() {
            structure.family = families.of(&structure.source);
        }
    }

    /// Adds the inputs of estimates and models to the records of a device where they are missing.
    ///
    /// `matrix` returns the matrix of a source and fingerprint, of which features are recomputed.
    /// `skipped` receives a message for each matrix that is unavailable, whose records are left
    /// out.
    pub fn complete(
        &mut self,
        device: &Device,
        families: &Families,
        matrix: &dyn Fn(&str, Fingerprint) -> Result<Csr<f64>>,
        skipped: &mut dyn FnMut(String),
    ) {
        let mut of_matrix: BTreeMap<Fingerprint, Vec<usize>> = BTreeMap::new();
        for (i, measurement) in self.measurements.iter().enumerate() {
            let print = measurement.fingerprint;
            let known = measurement.inputs.is_some() && self.structures.contains_key(&print);
            if measurement.device == device.name && measurement.cost().is_some() && !known {
                of_matrix.entry(print).or_default().push(i);
            }
        }
        for (fingerprint, measurements) in of_matrix {
            let structure = self.structures.get(&fingerprint);
            let source = structure.map(|s| &s.source).or_else(|| self.sources.get(&fingerprint));
            let Some(source) = source.cloned() else {
                skipped(format!("{fingerprint}: unknown matrix"));
                continue;
            };
            match matrix(&source, fingerprint) {
                Ok(csr) if Fingerprint::of(csr.pattern()) == fingerprint => {
                    let structure = Analysis::sampled(&csr);
                    self.note(&structure, device, &measurements);
                    let family = families.of(&source);
                    let record = StructureRecord::of(&structure, &source, &family);
                    match self.structures.get_mut(&fingerprint) {
                        Some(known) => known.features = record.features,
                        None => drop(self.structures.insert(fingerprint, record)),
                    }
                }
                Ok(_) => {
                    skipped(format!("{source}: another matrix than the one that was measured"))
                }
                Err(error) => skipped(format!("{source}: {error:#}")),
            }
        }
    }

    /// Stores the inputs of the estimates in the matrix's measurements.
    fn note(&mut self, structure: &Analysis<'_>, device: &Device, measurements: &[usize]) {
        let mut estimators: BTreeMap<Precision, Estimator<'_>> = BTreeMap::new();
        for &i in measurements {
            let measurement = &mut self.measurements[i];
            let (precision, basis) = (measurement.precision, measurement.basis);
            let workload = Workload { basis, ..Workload::default() };
            let target = workload.target(device, precision);
            let estimator =
                estimators.entry(precision).or_insert_with(|| Estimator::new(structure, &target));
            let Ok(candidate) = measurement.candidate.parse::<Candidate>() else { continue };
            if let Ok(work) = candidate.work(structure, &candidate.target(&target)) {
                let inputs = CostInputs { matrix: estimator.matrix_terms(), work };
                measurement.inputs = Some(Box::new(inputs));
            }
        }
    }

    /// Returns the lines of all records of a device.
    pub fn lines(&self, device: &str) -> Vec<u8> {
        let mut structures: Vec<&StructureRecord> = self.structures.values().collect();
        structures.sort_by_key(|structure| structure.fingerprint);
        let structures = structures.into_iter().cloned().map(Record::Structure);
        let measurements = self.measurements.iter().filter(|m| m.device == device);
        let measurements = measurements.map(|m| Record::Measurement(Box::new(m.clone())));
        structures.chain(measurements).flat_map(|r| [r.line(), b"\n".to_vec()].concat()).collect()
    }

    /// Returns the cases of a device, ordered by source, from the measurements in the original
    /// basis and the matrices' records. Of two records of a candidate, the later one counts.
    pub fn cases(&self, device: &Device) -> Vec<Case> {
        type Key<'a> = (&'a str, Fingerprint, Precision, usize);
        type Sorted<'a> = BTreeMap<Cow<'a, str>, &'a Measurement>;
        let mut groups: BTreeMap<Key<'_>, Sorted<'_>> = BTreeMap::new();
        let mut untimed: BTreeMap<(Fingerprint, Precision, usize), Vec<&Measurement>> =
            BTreeMap::new();
        for m in self.measurements.iter().filter(|m| m.device == device.name) {
            let Some(structure) = self.structures.get(&m.fingerprint) else { continue };
            if m.basis != Basis::Original {
                continue;
            }
            if m.cost().is_none() {
                let key = (m.fingerprint, m.precision, m.protocol.vectors);
                untimed.entry(key).or_default().push(m);
                continue;
            }
            let (precision, vectors) = (m.precision, m.protocol.vectors);
            let key = (structure.source.as_str(), m.fingerprint, precision, vectors);
            let kept = groups.entry(key).or_default().entry(sort_key(&m.candidate)).or_insert(m);
            if kept.provenance.taken_at <= m.provenance.taken_at {
                *kept = m;
            }
        }
        let case = |(key, measured): (Key<'_>, Sorted<'_>)| {
            let (source, fingerprint, precision, vectors) = key;
            let structure = &self.structures[&fingerprint];
            let csr_s = measured.values().find(|m| m.candidate == CSR).and_then(|m| m.cost());
            let csr_s = csr_s.map(|cost| cost.spmv_s);
            let trials = measured.into_values().filter_map(|m| trial(m, device, csr_s));
            let mut trials: Vec<Trial> = trials.collect();
            let target = Workload::default().target(device, precision);
            let size = [structure.nrows, structure.ncols, structure.nnz].map(|n| n as usize);
            let untimed = untimed.get(&(fingerprint, precision, vectors)).into_iter().flatten();
            let untimed = untimed.map(|m| (m.candidate.clone(), why_untimed(m, device)));
            relate(trials.iter_mut().map(|trial| (&trial.candidate, &mut trial.terms)));
            Case {
                source: source.to_string(),
                family: match structure.family.as_str() {
                    "" => family_of(source),
                    family => family.to_string(),
                },
                fingerprint,
                device: device.name.clone(),
                kind: device.kind,
                margin: device.margin,
                precision,
                vectors,
                nrows: structure.nrows,
                nnz: structure.nnz,
                baseline_estimate_s: baseline_product_s(size, &target, vectors).unwrap_or(0.0),
                analysis_s: structure.analysis_s.unwrap_or(0.0),
                features: structure.features.clone(),
                trials,
                untimed: untimed.collect(),
            }
        };
        let cases: Vec<Case> = groups.into_iter().map(case).collect();
        cases.into_iter().filter(|case| !case.trials.is_empty()).collect()
    }
}

/// Returns the reason why a candidate was not timed.
fn why_untimed(measurement: &Measurement, device: &Device) -> Untimed {
    let inputs = measurement.inputs.as_deref();
    let candidate = measurement.candidate.parse::<Candidate>().ok();
    match (&measurement.outcome, inputs, candidate) {
        (Outcome::Cut { .. }, Some(inputs), Some(candidate)) => {
            let target = Workload::default().target(device, measurement.precision);
            let vectors = measurement.protocol.vectors;
            let estimator = Estimator::of(inputs.matrix, &target).with_vectors(vectors);
            Untimed::Cut(estimator.cost(&candidate, &inputs.work))
        }
        _ => Untimed::Refused,
    }
}

/// Returns the trial of a measurement; `None` if it was not timed, if this program does not know the
/// candidate, or if it multiplies such a matrix by another kernel.
///
/// The time of a candidate that took turns with CSR is `csr_s`, that of CSR in seconds, times their
/// ratio.
fn trial(measurement: &Measurement, device: &Device, csr_s: Option<f64>) -> Option<Trial> {
    let Outcome::Timed(timing) = &measurement.outcome else { return None };
    if other_image(measurement).is_some() {
        return None;
    }
    let cost = timing.cost();
    let beside_s = csr_s.zip(timing.over_csr()).map(|(csr_s, over_csr)| csr_s * over_csr);
    let candidate: Candidate = measurement.candidate.parse().ok()?;
    let inputs = measurement.inputs.as_deref()?;
    let target = Workload::default().target(device, measurement.precision);
    let vectors = measurement.protocol.vectors;
    let estimator = Estimator::of(inputs.matrix, &target).with_vectors(vectors);
    let times = estimator.times(&candidate, &inputs.work);
    Some(Trial {
        name: candidate.to_string(),
        terms: terms(&inputs.work, &times, &inputs.matrix),
        estimate: estimator.cost(&candidate, &inputs.work),
        convert_s: if inputs.work.convert_bytes == 0 { 0.0 } else { cost.convert_s },
        conversion_is_known: !timing.convert_kernels.is_empty(),
        spmv_s: beside_s.unwrap_or(cost.spmv_s),
        runs_s: timing.runs().map(|samples| samples.min_s).collect(),
        candidate,
    })
}
