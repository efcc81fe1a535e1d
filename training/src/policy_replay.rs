//! The policy replayed on cases: what [`Policy`] would find out about a matrix and choose, and how long
//! all of it takes.
//!
//! It performs the steps of the code that serves requests on recorded times: reading row lengths,
//! sampling, counting and analysing take the seconds that the library states or records hold, and a
//! choice takes the measured times of its candidate.

use std::collections::BTreeMap;

use ellect::choose::policy::{Analysis, Decision, Found, Knowledge, Mode, Place, Policy, Step};
use ellect::choose::{By, SAMPLE_S, Workload, feature_count_s, order, row_scan_s};
use ellect::cost::Cost;
use ellect::format::Candidate;
use ellect::model::{Gates, Rules};

use crate::case::{Case, Trial, Untimed, incumbent, named};
use crate::crossval::Predicted;
use crate::trees::Trees;

/// What a replay asks of a model, for one case.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The gate before an analysis, and the quick picks.
    pub trees: &'a Trees,
    /// The gate before counting, and the costs predicted from features; where a GPU counts them.
    pub quick: Option<(&'a Rules, &'a [(Candidate, Cost)])>,
    /// The times that an analysis predicts.
    pub predicted: Option<&'a Predicted>,
}

/// What the policy asks where a GPU counts features, by the places of cases.
pub struct Quick {
    /// The gate before counting, for each case.
    pub gates: Vec<Rules>,
    /// The costs that features alone predict, for each case.
    pub costs: Vec<Vec<(Candidate, Cost)>>,
}

impl Quick {
    /// The gate and the costs for the case at this place.
    pub fn of(&self, i: usize) -> (&Rules, &[(Candidate, Cost)]) {
        (&self.gates[i], &self.costs[i])
    }
}

/// How the policy reached its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It kept the baseline, or picked another candidate at once.
    Kept,
    /// It counted features.
    Counted,
    /// It analysed the matrix.
    Analysed,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// How the choice was reached.
    pub way: Way,
    /// The candidate that is used; `None` for the baseline without an analysis.
    pub candidate: Option<String>,
    /// Seconds of finding out, of conversions that refused, of the conversion and of all products.
    pub total_s: f64,
}

impl Replayed {
    /// The seconds over those of all products with the baseline.
    pub fn over_baseline(&self, case: &Case, spmvs: u64) -> Option<f64> {
        Some(self.total_s / (spmvs as f64 * incumbent(case)?.spmv_s))
    }
}

/// Replays the policy for this number of products. `None` where the baseline was not timed, or where
/// an analysis is asked for of which nothing was predicted.
pub fn replay(case: &Case, place: Place, spmvs: u64, asked: &Asked<'_>) -> Option<Replayed> {
    let workload = Workload { spmvs, precision: case.precision, ..Workload::default() };
    let policy = policy(case, place, &workload, asked);
    let feature = |name: &str| case.features.get(name).copied();
    let (mut found, mut spent_s) = (Found::default(), 0.0);
    let mut analysis = None;
    loop {
        let known = Knowledge { found, feature: &feature, analysis: analysis.as_ref() };
        match policy.next(&known) {
            Step::ReadRowLengths => {
                found.row_lengths = true;
                spent_s += row_scan_s(case.nrows);
            }
            Step::SampleColumns => {
                found.columns = true;
                spent_s += SAMPLE_S;
            }
            Step::CountFeatures => {
                found.features = true;
                spent_s += count_s(case);
            }
            Step::Analyse => {
                // It reads the row lengths too.
                spent_s = case.analysis_s;
                analysis = Some(Analysis::default());
            }
            // Effort predict times nothing.
            Step::Time(_) => return None,
            Step::Choose(Decision::KeepBaseline(reason)) => {
                let pick = reason.pick.map(|(name, _)| name);
                let total_s = spent_s + kept_s(case, pick.as_deref(), spmvs)?;
                return Some(Replayed { way: Way::Kept, candidate: pick, total_s });
            }
            Step::Choose(Decision::Quick) => {
                let (_, costs) = asked.quick?;
                let (candidate, quick_s) = quick_s(case, costs, spmvs)?;
                let total_s = spent_s + quick_s;
                return Some(Replayed { way: Way::Counted, candidate: Some(candidate), total_s });
            }
            Step::Choose(Decision::Ranked) => {
                let chosen = for_total(case, asked.predicted?, spmvs)?;
                let candidate = Some(chosen.name.clone());
                let total_s = spent_s + chosen.total_s(spmvs as f64);
                return Some(Replayed { way: Way::Analysed, candidate, total_s });
            }
        }
    }
}

/// The policy for a case.
pub fn policy<'a>(
    case: &Case,
    place: Place,
    workload: &'a Workload,
    asked: &Asked<'a>,
) -> Policy<'a> {
    let Trees { look, sight } = asked.trees;
    let counting = asked.quick.map(|(gate, _)| gate);
    let gates = Gates { analysis: look, picks: sight, counting };
    let baseline_s = (case.stay_s > 0.0).then_some(case.stay_s);
    let size = [case.nrows, case.nnz];
    Policy::new(Mode::Prepare, place, workload, size, baseline_s, Some(gates))
}

/// Seconds of counting the features of a case.
pub fn count_s(case: &Case) -> f64 {
    let cv = case.features.get("row_nnz_cv").copied().unwrap_or(0.0);
    feature_count_s(case.nnz, cv)
}

/// Seconds of all products, and the conversion, with this candidate where it was timed, else with the
/// baseline.
pub fn kept_s(case: &Case, pick: Option<&str>, spmvs: u64) -> Option<f64> {
    let baseline = incumbent(case)?;
    let trial = pick.and_then(|name| named(case, name)).unwrap_or(baseline);
    Some(trial.total_s(spmvs as f64))
}

/// The candidate that is used, and the seconds of conversions and all products, where costs predicted
/// from features choose. A conversion that refuses the matrix takes its time, and the next candidate
/// is tried, as the library does; one that was hopeless to time takes its estimate; one that there was
/// no time for is left out.
pub fn quick_s(case: &Case, costs: &[(Candidate, Cost)], spmvs: u64) -> Option<(String, f64)> {
    let workload = Workload { spmvs, precision: case.precision, ..Workload::default() };
    let costs: Vec<&(Candidate, Cost)> = costs.iter().collect();
    let of = order(costs, |one| (&one.0, &one.1), By::Features, case.margin, &workload);
    let trials: BTreeMap<&str, _> = case.trials.iter().map(|t| (t.name.as_str(), t)).collect();
    let mut spent_s = 0.0;
    for (candidate, cost) in of {
        let name = candidate.to_string();
        match (trials.get(name.as_str()), case.untimed.get(&name)) {
            (Some(trial), _) => return Some((name, spent_s + trial.total_s(spmvs as f64))),
            (None, Some(Untimed::Cut(estimate))) => {
                let all_s = estimate.convert_s + spmvs as f64 * estimate.spmv_s;
                return Some((name, spent_s + all_s));
            }
            (None, Some(Untimed::Refused)) => spent_s += cost.convert_s,
            (None, None) => {}
        }
    }
    let baseline = incumbent(case)?;
    Some((baseline.name.clone(), spent_s + baseline.total_s(spmvs as f64)))
}

/// The choice after an analysis, from predicted times and estimated conversions.
pub fn for_total<'a>(case: &'a Case, predicted: &Predicted, spmvs: u64) -> Option<&'a Trial> {
    let workload = Workload { spmvs, precision: case.precision, ..Workload::default() };
    // A baseline too is prepared: cuSPARSE reads the row pointers once.
    let cost = |(trial, &spmv_s): (&'a Trial, &f64)| (trial, Cost { spmv_s, ..trial.estimate });
    let costs: Vec<_> = case.trials.iter().zip(&predicted.spmv_s).map(cost).collect();
    let costs = order(
        costs,
        |(trial, cost)| (&trial.candidate, cost),
        By::Analysis,
        case.margin,
        &workload,
    );
    costs.first().map(|(trial, _)| *trial)
}

/// Seconds of an analysis, the conversion and all products, over those of all products with the
/// baseline.
pub fn look_over_stay(case: &Case, predicted: &Predicted, spmvs: u64) -> Option<f64> {
    let baseline_s = spmvs as f64 * incumbent(case)?.spmv_s;
    let chosen = for_total(case, predicted, spmvs)?;
    Some((case.analysis_s + chosen.total_s(spmvs as f64)) / baseline_s)
}

/// What the policy says of a case on the host before an analysis, and what it asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AtAGlance {
    /// Whether the matrix is analysed.
    pub looks: bool,
    /// The candidate that is used where it is not; `None` for the baseline.
    pub taken: Option<String>,
    /// Seconds of reading row lengths and of sampling columns, where a gate asked for any.
    pub read_s: f64,
}

impl AtAGlance {
    /// Asks the policy for a matrix on the host, until it analyses the matrix or keeps the baseline.
    pub fn of(trees: &Trees, case: &Case, spmvs: u64) -> AtAGlance {
        let workload = Workload { spmvs, precision: case.precision, ..Workload::default() };
        let asked = Asked { trees, quick: None, predicted: None };
        let policy = policy(case, Place::Host, &workload, &asked);
        let feature = |name: &str| case.features.get(name).copied();
        let (mut found, mut read_s) = (Found::default(), 0.0);
        loop {
            match policy.next(&Knowledge { found, feature: &feature, analysis: None }) {
                Step::ReadRowLengths => {
                    found.row_lengths = true;
                    read_s += row_scan_s(case.nrows);
                }
                Step::SampleColumns => {
                    found.columns = true;
                    read_s += SAMPLE_S;
                }
                Step::Choose(Decision::KeepBaseline(reason)) => {
                    let taken = reason.pick.map(|(name, _)| name);
                    return AtAGlance { looks: false, taken, read_s };
                }
                _ => return AtAGlance { looks: true, taken: None, read_s },
            }
        }
    }

    /// Seconds of all products without an analysis, over those with the baseline.
    pub fn over_stay(&self, case: &Case, spmvs: u64) -> Option<f64> {
        let baseline_s = spmvs as f64 * incumbent(case)?.spmv_s;
        Some((self.read_s + kept_s(case, self.taken.as_deref(), spmvs)?) / baseline_s)
    }
}

#[cfg(test)]
mod tests {
    use ellect::format::{BASELINES, CSR};

    use super::*;
    use crate::sample_cases::{case, trial};

    #[test]
    fn what_staying_takes_is_told_beside_the_incumbent() {
        let mut case = case("stencil5", 400);
        case.trials = vec![trial("csr", 2.0), trial(BASELINES[0], 4.0)];
        let over = |csr: bool, read_s, case: &Case| {
            let taken = csr.then(|| CSR.to_string());
            let glance = AtAGlance { looks: false, taken, read_s };
            glance.over_stay(case, 100).expect("an incumbent")
        };
        // The incumbent is there already: 400 us.
        assert!((over(false, 0.0, &case) - 1.0).abs() < 1e-12);
        assert!((over(false, 40e-6, &case) - 1.1).abs() < 1e-12);
        assert!((over(true, 40e-6, &case) - 0.6).abs() < 1e-12);
        case.trials.remove(0);
        assert!((over(true, 40e-6, &case) - 1.1).abs() < 1e-12, "there is no csr");
    }
}
