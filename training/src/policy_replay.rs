//! Replays the policy on cases: which steps [`Policy`] would take for a matrix, which candidate it
//! would choose, and how long all of it takes.
//!
//! The replay performs the steps of the code that serves requests on recorded times. Reading row
//! lengths, sampling, counting and analysing take the seconds that the library states or that
//! records hold. A choice takes the measured times of its candidate.

use std::collections::BTreeMap;

use ellect::choose::{Trials, Workload};
use ellect::cost::Cost;
use ellect::device::Kind;
use ellect::format::Candidate;
use ellect::unstable::choose::{
    By, CLEAR, Hopeful, LEAST_TOTAL_S, PRODUCTS, SAMPLE_S, Thought, feature_count_s,
    feature_sample_s, order, row_scan_s, trial_budget_s, tried,
};
use ellect::unstable::choose::{
    CandidateState, Decision, Found, Knowledge, Mode, Place, Policy, Step,
};
use ellect::unstable::model::{Gates, QuickModel, Stage};

use crate::case::{Case, Trial, Untimed, baseline_trial, named};
use crate::crossval::Predicted;
use crate::trees::Trees;

/// Inputs of a replay from a model, for one case.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The gate before an analysis, and the quick picks.
    pub trees: &'a Trees,
    /// The quick model and its predictions; `None` where no GPU finds features.
    pub quick: Option<QuickAsked<'a>>,
    /// The times predicted after an analysis.
    pub predicted: Option<&'a Predicted>,
}

/// Inputs of the quick model for one case.
#[derive(Clone, Copy)]
pub struct QuickAsked<'a> {
    /// The shares and margins of its stages.
    pub model: &'a QuickModel,
    /// The costs that its stages predict, in the order of the stages.
    pub costs: &'a [StageCosts],
}

/// Costs that one stage predicts for a case.
pub type StageCosts = Vec<(Candidate, Cost)>;

/// Inputs of the policy where a GPU finds features.
#[derive(Clone, Debug)]
pub struct Quick {
    /// The shares and margins of the stages; their candidates are not read.
    pub model: QuickModel,
    /// For each case, the costs that the stages predict, in their order.
    pub costs: Vec<Vec<StageCosts>>,
}

impl Quick {
    /// Returns the inputs for the case at index `i`.
    pub fn of(&self, i: usize) -> QuickAsked<'_> {
        QuickAsked { model: &self.model, costs: &self.costs[i] }
    }
}

/// The way in which the policy reached its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It kept the baseline, or picked another candidate at once.
    Kept,
    /// A stage of the quick model chose.
    Quick(Stage),
    /// It analysed the matrix.
    Analysed,
}

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The way in which the choice was reached.
    pub way: Way,
    /// The candidate that is used; `None` for the baseline without an analysis.
    pub candidate: Option<String>,
    /// Seconds of gathering information, of conversions that refused, of the final conversion and
    /// of all products.
    pub total_s: f64,
    /// Seconds of gathering information alone.
    pub spent_s: f64,
}

impl Replayed {
    /// Returns the total divided by the seconds of all products with the baseline.
    pub fn over_baseline(&self, case: &Case, spmvs: u64) -> Option<f64> {
        Some(self.total_s / (spmvs as f64 * baseline_trial(case)?.spmv_s))
    }
}

/// A decision of the policy, and the seconds of the steps that led to it.
pub struct Walked {
    /// The decision.
    pub decision: Decision,
    /// Seconds of gathering information.
    pub spent_s: f64,
}

/// Performs the steps of a policy on a case until it decides. Returns `None` where it times
/// candidates.
pub fn walk(case: &Case, policy: &Policy<'_>) -> Option<Walked> {
    let feature = |name: &str| case.features.get(name).copied();
    let (mut found, mut spent_s) = (Found::default(), 0.0);
    let mut state = None;
    loop {
        let known = Knowledge { found, feature: &feature, state: state.as_ref() };
        match policy.next(&known) {
            Step::ReadRowLengths => {
                found.row_lengths = true;
                spent_s += row_scan_s(case.nrows);
            }
            Step::SampleColumns => {
                found.columns = true;
                spent_s += SAMPLE_S;
            }
            Step::SampleFeatures => {
                found.sample = true;
                spent_s += feature_sample_s(case.nrows);
            }
            Step::CountFeatures => {
                found.features = true;
                spent_s += count_s(case);
            }
            Step::Analyse => {
                // The analysis reads the row lengths too, so its time replaces the time spent so
                // far.
                spent_s = case.analysis_s;
                state = Some(CandidateState::default());
            }
            // Effort `predict` times nothing.
            Step::Time(_) => return None,
            Step::Choose(decision) => return Some(Walked { decision, spent_s }),
        }
    }
}

/// Replays the policy for this number of products. Returns `None` where the baseline was not timed,
/// or where the policy asks for an analysis of which nothing was predicted.
pub fn replay(
    case: &Case,
    place: Place,
    spmvs: u64,
    trials: Trials,
    asked: &Asked<'_>,
) -> Option<Replayed> {
    let workload = Workload { spmvs, trials, ..Workload::default() };
    if let Some(tried) = after_trial(case, place, &workload, asked) {
        return Some(tried);
    }
    let Walked { decision, spent_s } = walk(case, &policy(case, place, &workload, asked))?;
    let (way, candidate, chosen_s) = match decision {
        Decision::KeepBaseline(reason) => {
            let pick = reason.pick.map(|(name, _)| name);
            let kept_s = kept_s(case, pick.as_deref(), spmvs)?;
            (Way::Kept, pick, kept_s)
        }
        Decision::Quick(stage) => {
            let (candidate, quick_s) = quick_s(case, asked.quick?, stage, spmvs)?;
            (Way::Quick(stage), Some(candidate), quick_s)
        }
        Decision::Ranked => {
            let chosen = for_total(case, asked.predicted?, spmvs)?;
            (Way::Analysed, Some(chosen.name.clone()), chosen.total_s(spmvs as f64))
        }
    };
    baseline_trial(case)?;
    Some(Replayed { way, candidate, total_s: spent_s + chosen_s, spent_s })
}

/// Replays a trial on a host: the analysis, the conversions and the products that it times, and the
/// choice of what is clearly faster than the baseline. Returns `None` where nothing is tried.
fn after_trial(
    case: &Case,
    place: Place,
    workload: &Workload,
    asked: &Asked<'_>,
) -> Option<Replayed> {
    let (baseline, predicted) = (baseline_trial(case)?, asked.predicted?);
    let spmvs = workload.spmvs as f64;
    let all_s = spmvs * baseline.spmv_s;
    let may_try = workload.trials == Trials::WhenTheyPay && place == Place::Host;
    if !may_try || case.kind != Kind::Host || all_s < LEAST_TOTAL_S {
        return None;
    }
    let budget_s = trial_budget_s(all_s);
    let left_s = budget_s - 3.0 * baseline.spmv_s;
    if case.analysis_s > left_s / 2.0 {
        return None;
    }
    let hopeful = |(trial, (&predicted_s, &estimated_s)): (_, (&f64, &f64))| {
        let Trial { candidate, estimate, .. }: &Trial = trial;
        let is_baseline = candidate.is_baseline();
        let convert_s = if is_baseline { 0.0 } else { estimate.convert_s };
        let [of_model, of_estimate] =
            [predicted_s, estimated_s].map(|spmv_s| convert_s + spmvs * spmv_s);
        let thought = Thought { predicted_s: of_model, estimated_s: of_estimate };
        Hopeful { candidate, thought, convert_s, spmv_s: predicted_s }
    };
    let times = predicted.spmv_s.iter().zip(&predicted.estimate_s);
    let all: Vec<Hopeful<'_>> = case.trials.iter().zip(times).map(hopeful).collect();
    let names = tried(&all, baseline.spmv_s, left_s - case.analysis_s, workload);
    let tried: Vec<&Trial> =
        case.trials.iter().filter(|trial| names.contains(&&trial.candidate)).collect();
    if tried.is_empty() {
        return None;
    }
    let faster = tried.iter().filter(|trial| trial.spmv_s * CLEAR < baseline.spmv_s);
    let chosen = faster.min_by(|a, b| a.spmv_s.total_cmp(&b.spmv_s)).copied().unwrap_or(baseline);
    let products_s = |trial: &&Trial| trial.convert_s + PRODUCTS * trial.spmv_s;
    let least_s = case.analysis_s + tried.iter().map(products_s).sum::<f64>();
    let total_s = least_s.max(budget_s) + spmvs * chosen.spmv_s;
    Some(Replayed {
        way: Way::Analysed,
        candidate: Some(chosen.name.clone()),
        total_s,
        spent_s: case.analysis_s,
    })
}

/// Returns the policy for a case.
pub fn policy<'a>(
    case: &Case,
    place: Place,
    workload: &'a Workload,
    asked: &Asked<'a>,
) -> Policy<'a> {
    let Trees { gate_rules, quick_picks } = asked.trees;
    let quick = asked.quick.map(|quick| quick.model);
    let gates = Gates { analysis: gate_rules, picks: quick_picks, quick };
    let baseline_s = (case.baseline_estimate_s > 0.0).then_some(case.baseline_estimate_s);
    let size = [case.nrows, case.nnz];
    Policy::new(Mode::Prepare, place, workload, size, baseline_s, Some(gates))
}

/// Returns the seconds of counting the features of a case.
pub fn count_s(case: &Case) -> f64 {
    let cv = case.features.get("row_nnz_cv").copied().unwrap_or(0.0);
    feature_count_s(case.nnz, cv)
}

/// Returns the seconds of all products and the conversion with the candidate `pick` where it was
/// timed, else with the baseline.
pub fn kept_s(case: &Case, pick: Option<&str>, spmvs: u64) -> Option<f64> {
    let baseline = baseline_trial(case)?;
    let trial = pick.and_then(|name| named(case, name)).unwrap_or(baseline);
    Some(trial.total_s(spmvs as f64))
}

/// Returns the candidate that is used where a stage of the quick model chooses, and the seconds of
/// conversions and all products.
///
/// A conversion that refuses the matrix takes its predicted time, and the next candidate is tried,
/// as in the library. A candidate that was cut as hopeless takes its estimate. A candidate that the
/// run had no time for is left out.
pub fn quick_s(
    case: &Case,
    quick: QuickAsked<'_>,
    stage: Stage,
    spmvs: u64,
) -> Option<(String, f64)> {
    let workload = Workload { spmvs, ..Workload::default() };
    let at = quick.model.stages.iter().position(|one| one.stage == stage)?;
    let margin = quick.model.stages[at].margin.max(case.margin);
    let costs: Vec<&(Candidate, Cost)> = quick.costs.get(at)?.iter().collect();
    let of = order(costs, |one| (&one.0, &one.1), By::Features, margin, &workload);
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
    let baseline = baseline_trial(case)?;
    Some((baseline.name.clone(), spent_s + baseline.total_s(spmvs as f64)))
}

/// Returns the choice after an analysis, from predicted times and estimated conversions.
pub fn for_total<'a>(case: &'a Case, predicted: &Predicted, spmvs: u64) -> Option<&'a Trial> {
    let workload = Workload { spmvs, ..Workload::default() };
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

/// Returns the seconds of an analysis, the conversion and all products, divided by those of all
/// products with the baseline.
pub fn analysis_over_keeping(case: &Case, predicted: &Predicted, spmvs: u64) -> Option<f64> {
    let baseline_s = spmvs as f64 * baseline_trial(case)?.spmv_s;
    let chosen = for_total(case, predicted, spmvs)?;
    Some((case.analysis_s + chosen.total_s(spmvs as f64)) / baseline_s)
}

/// The policy's decision on a case on the host before any analysis, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct GateOutcome {
    /// True where the matrix is analysed.
    pub analyses: bool,
    /// Candidate used where the matrix is not analysed; `None` for the baseline.
    pub taken: Option<String>,
    /// Seconds of reading row lengths and of sampling columns, where a gate needed them.
    pub read_s: f64,
}

impl GateOutcome {
    /// Runs the policy for a matrix on the host until it decides on an analysis or keeps the
    /// baseline.
    pub fn of(trees: &Trees, case: &Case, spmvs: u64) -> GateOutcome {
        let workload = Workload { spmvs, ..Workload::default() };
        let asked = Asked { trees, quick: None, predicted: None };
        let policy = policy(case, Place::Host, &workload, &asked);
        let feature = |name: &str| case.features.get(name).copied();
        let (mut found, mut read_s) = (Found::default(), 0.0);
        loop {
            match policy.next(&Knowledge { found, feature: &feature, state: None }) {
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
                    return GateOutcome { analyses: false, taken, read_s };
                }
                _ => return GateOutcome { analyses: true, taken: None, read_s },
            }
        }
    }

    /// Returns the seconds of all products without an analysis, divided by those with the baseline.
    pub fn over_keeping(&self, case: &Case, spmvs: u64) -> Option<f64> {
        let baseline_s = spmvs as f64 * baseline_trial(case)?.spmv_s;
        Some((self.read_s + kept_s(case, self.taken.as_deref(), spmvs)?) / baseline_s)
    }
}

#[cfg(test)]
mod tests {
    use ellect::format::{BASELINES, CSR};

    use super::*;
    use crate::sample_cases::{case, trial};

    #[test]
    fn the_time_of_keeping_the_baseline_is_predicted() {
        let mut case = case("stencil5", 400);
        case.trials = vec![trial("csr", 2.0), trial(BASELINES[0], 4.0)];
        let over = |csr: bool, read_s, case: &Case| {
            let taken = csr.then(|| CSR.to_string());
            let outcome = GateOutcome { analyses: false, taken, read_s };
            outcome.over_keeping(case, 100).expect("a baseline")
        };
        // The baseline needs no conversion: 400 us.
        assert!((over(false, 0.0, &case) - 1.0).abs() < 1e-12);
        assert!((over(false, 40e-6, &case) - 1.1).abs() < 1e-12);
        assert!((over(true, 40e-6, &case) - 0.6).abs() < 1e-12);
        case.trials.remove(0);
        assert!((over(true, 40e-6, &case) - 1.1).abs() < 1e-12, "there is no csr");
    }
}
