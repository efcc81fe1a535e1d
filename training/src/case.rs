//! Cases: one matrix in one precision on one device, with every candidate that was timed on it. A
//! case is built from records alone.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use ellect::cost::Cost;
use ellect::device::Kind;
use ellect::format::{Candidate, baseline};
use ellect::unstable::cost::TERMS;
use ellect::{Fingerprint, Precision};
use serde::Serialize;

use crate::corpus::{class_of, split_group_of};

/// A timed candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The candidate.
    #[serde(skip)]
    pub candidate: Candidate,
    /// The candidate as text.
    pub name: String,
    /// Values of the terms that [`TERMS`] names.
    pub terms: [f64; TERMS.len()],
    /// The estimated cost.
    pub estimate: Cost,
    /// Measured time of the conversion, in seconds; 0 where the caller's arrays are used.
    pub convert_s: f64,
    /// The record tells by which code the conversion ran.
    #[serde(skip)]
    pub conversion_is_known: bool,
    /// Measured time of one product, in seconds.
    pub spmv_s: f64,
    /// Measured time of one product in each run, in seconds.
    #[serde(skip)]
    pub runs_s: Vec<f64>,
}

impl Trial {
    /// Returns the seconds of `spmvs` products and the conversion. Baselines, which multiply the
    /// CSR arrays, need no conversion.
    pub fn total_s(&self, spmvs: f64) -> f64 {
        let convert_s = if self.candidate.is_baseline() { 0.0 } else { self.convert_s };
        convert_s + spmvs * self.spmv_s
    }

    /// Returns the byte floor, in seconds.
    pub fn floor_s(&self) -> f64 {
        self.terms[0] * 1e-6
    }

    /// Returns the name of the candidate's format.
    pub fn format(&self) -> &'static str {
        self.candidate.format.name
    }
}

/// One matrix in one precision on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The file or generator specification that the matrix comes from.
    pub source: String,
    /// Family of matrices that resemble each other, written `class/family` where there is a class.
    pub family: String,
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Name of the device.
    pub device: String,
    /// Kind of the device.
    #[serde(skip)]
    pub kind: Kind,
    /// The [margin](ellect::device::Device::margin) of the device.
    pub margin: f64,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of vectors of a product; not in the hash by which a model knows its cases if it is 1.
    #[serde(skip_serializing_if = "is_one")]
    pub vectors: usize,
    /// Number of rows.
    pub nrows: u64,
    /// Number of nonzeros.
    pub nnz: u64,
    /// Seconds of a product with the baseline, estimated without an analysis; 0 where there is no
    /// estimate.
    pub baseline_estimate_s: f64,
    /// Seconds of computing features and estimates; 0 where that was not timed.
    pub analysis_s: f64,
    /// Features by name.
    pub features: BTreeMap<String, f64>,
    /// Every candidate that was timed.
    pub trials: Vec<Trial>,
    /// Reasons why other candidates were not timed, except those that the run had no time for.
    #[serde(skip)]
    pub untimed: BTreeMap<String, Untimed>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_one(vectors: &usize) -> bool {
    *vectors == 1
}

/// The reason why a candidate was not timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Untimed {
    /// The format refused the matrix, or the candidate failed.
    Refused,
    /// The estimate was hopelessly far above the best one.
    Cut(Cost),
}

/// Returns for each case whether totals are made of it. Where records tell by which code a conversion
/// ran, times of conversions from before are those of other code: such cases are left out.
pub fn counted_in_totals<C: Borrow<Case>>(cases: &[C]) -> Vec<bool> {
    let known: Vec<bool> = cases.iter().map(|case| case.borrow().conversions_are_known()).collect();
    let any = known.iter().any(|known| *known);
    known.into_iter().map(|known| known || !any).collect()
}

/// Matrices with at least this many nonzeros are also reported separately.
pub const LARGE_NNZ: u64 = 1_000_000;

impl Case {
    /// Returns whether the matrix has at least [`LARGE_NNZ`] nonzeros.
    pub fn is_large(&self) -> bool {
        self.nnz >= LARGE_NNZ
    }

    /// Returns whether the matrix has few distinct values: it does if a format that depends on them
    /// was timed.
    pub fn has_few_values(&self) -> bool {
        let few = |candidate: &Candidate| {
            let format = candidate.format;
            format.by_values && format.narrows.is_none() && format.figures_of.is_none()
        };
        self.trials.iter().any(|trial| few(&trial.candidate))
    }

    /// Returns whether some record tells by which code its conversion ran, other than those of
    /// baselines, which are not converted.
    pub fn conversions_are_known(&self) -> bool {
        let mut converted = self.trials.iter().filter(|trial| !trial.candidate.is_baseline());
        converted.any(|trial| trial.conversion_is_known)
    }

    /// Returns whether a baseline, with which choices are compared, was timed.
    pub fn has_baseline(&self) -> bool {
        baseline_trial(self).is_some()
    }

    /// Returns the class, over which tables are made: the first part of the family.
    pub fn class(&self) -> &str {
        class_of(&self.family)
    }

    /// Returns the split group. Matrices of one group are never on both sides of a split: see
    /// [`split_group_of`].
    pub fn split_group(&self) -> &str {
        split_group_of(&self.family)
    }
}

/// Returns the trial of the baseline: the product that a program uses without a choice.
pub fn baseline_trial(case: &Case) -> Option<&Trial> {
    baseline(&case.trials, |trial| &trial.candidate)
}

/// Returns the trial of the candidate with this name.
pub fn named<'a>(case: &'a Case, name: &str) -> Option<&'a Trial> {
    case.trials.iter().find(|trial| trial.name == name)
}

/// Returns the least measured time of a product, in seconds.
pub fn best_s(case: &Case) -> f64 {
    case.trials.iter().map(|trial| trial.spmv_s).fold(f64::INFINITY, f64::min)
}

/// Returns the trial with the least value of `by`, which is given each trial and its index.
pub fn least(case: &Case, by: impl Fn(usize, &Trial) -> f64) -> Option<&Trial> {
    let order = |a: &(usize, &Trial), b: &(usize, &Trial)| by(a.0, a.1).total_cmp(&by(b.0, b.1));
    case.trials.iter().enumerate().min_by(order).map(|(_, trial)| trial)
}
