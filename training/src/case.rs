//! Cases: one matrix in one precision on one device, with every candidate that was timed on it,
//! made from records alone.

use std::collections::BTreeMap;

use ellect::cost::{Cost, TERMS};
use ellect::format::{Candidate, baseline};
use ellect::{Fingerprint, Precision};
use serde::Serialize;

use crate::corpus::{class_of, split_group_of};

/// A candidate that was timed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The candidate.
    #[serde(skip)]
    pub candidate: Candidate,
    /// The candidate, as text.
    pub name: String,
    /// The numbers named by [`TERMS`].
    pub terms: [f64; TERMS.len()],
    /// The estimate.
    pub estimate: Cost,
    /// Measured time of the conversion, in seconds; 0 where the caller's arrays are used.
    pub convert_s: f64,
    /// Measured time of one product, in seconds.
    pub spmv_s: f64,
    /// The same in each of its runs.
    #[serde(skip)]
    pub runs_s: Vec<f64>,
}

impl Trial {
    /// The seconds of so many products, with the conversion, which what multiplies the CSR arrays
    /// needs none of.
    pub fn total_s(&self, spmvs: f64) -> f64 {
        let convert_s = if self.candidate.is_baseline() { 0.0 } else { self.convert_s };
        convert_s + spmvs * self.spmv_s
    }

    /// The byte floor, in seconds.
    pub fn floor_s(&self) -> f64 {
        self.terms[0] * 1e-6
    }

    /// The name of its format.
    pub fn format(&self) -> &'static str {
        self.candidate.format.name()
    }
}

/// One matrix in one precision on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// What the matrix was made or read from.
    pub source: String,
    /// Matrices that resemble each other, behind their class where there is one.
    pub family: String,
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Name of the device.
    pub device: String,
    /// [`Device::margin`] of it.
    pub margin: f64,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of rows.
    pub nrows: u64,
    /// Number of nonzeros.
    pub nnz: u64,
    /// Seconds of a product with the incumbent as they are estimated at sight; 0 where they are not.
    pub stay_s: f64,
    /// Seconds that features and estimates took; 0 where that was not timed.
    pub analysis_s: f64,
    /// Features by name.
    pub features: BTreeMap<String, f64>,
    /// Every candidate that was timed.
    pub trials: Vec<Trial>,
    /// Why others were not; what a run had no time for is not among them.
    #[serde(skip)]
    pub untimed: BTreeMap<String, Untimed>,
}

/// Why a candidate was not timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Untimed {
    /// Its format refused the matrix, or it failed.
    Refused,
    /// Its estimate was hopeless beside that of the best.
    Cut(Cost),
}

impl Case {
    /// Whether the matrix was seen to have few distinct values: a format that suits by them was timed.
    pub fn has_few_values(&self) -> bool {
        self.trials.iter().any(|trial| trial.candidate.format.by_values())
    }

    /// Whether an incumbent was timed, which choices are compared with.
    pub fn has_incumbent(&self) -> bool {
        incumbent(self).is_some()
    }

    /// What tables are made over: the first part of the family.
    pub fn class(&self) -> &str {
        class_of(&self.family)
    }

    /// Matrices of one group are never on both sides of a split: see [`split_group_of`].
    pub fn split_group(&self) -> &str {
        split_group_of(&self.family)
    }
}

/// What a program has without a choice.
pub fn incumbent(case: &Case) -> Option<&Trial> {
    baseline(&case.trials, |trial| &trial.candidate)
}

/// The trial of this candidate.
pub fn named<'a>(case: &'a Case, name: &str) -> Option<&'a Trial> {
    case.trials.iter().find(|trial| trial.name == name)
}

/// The least measured time, in seconds.
pub fn best_s(case: &Case) -> f64 {
    case.trials.iter().map(|trial| trial.spmv_s).fold(f64::INFINITY, f64::min)
}

/// The trial with the least of these numbers, which stand beside the trials.
pub fn least(case: &Case, by: impl Fn(usize, &Trial) -> f64) -> Option<&Trial> {
    let order = |a: &(usize, &Trial), b: &(usize, &Trial)| by(a.0, a.1).total_cmp(&by(b.0, b.1));
    case.trials.iter().enumerate().min_by(order).map(|(_, trial)| trial)
}
