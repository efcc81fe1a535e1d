//! Rules that choose, replayed on cases: the choice of each rule, and its quality.

use ellect::choose::Workload;
use ellect::cost::Cost;
use ellect::unstable::choose::{By, Thought, best_few, trusted};
use serde::Serialize;

use crate::case::{Case, Trial, baseline_trial, best_s, least};
use crate::crossval::Predicted;
use crate::stats::{LOSS, by_class, geometric_mean, rms};

/// Scores of a rule over some cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Number of cases.
    pub cases: usize,
    /// Geometric mean of the best measured time over the time of the choice.
    pub best_over_chosen: f64,
    /// Root mean square of regret, which is the time of the choice over the best time, less 1:
    /// large regrets count more.
    pub rms_regret: f64,
    /// Smallest ratio of the best measured time to the time of the choice.
    pub worst: f64,
    /// Source of the matrix with the smallest ratio.
    pub worst_source: String,
    /// Geometric mean of the baseline's time over the time of the choice, with equal weight for
    /// each class.
    pub speedup: f64,
    /// Share of the cases that are slower than the baseline by more than 2 %.
    pub losses: f64,
}

/// The choices of a rule: the time of one product with the chosen candidate of every case, in
/// seconds.
pub struct Choices {
    /// Name of the rule.
    pub rule: String,
    /// Time of one product for each case, in seconds.
    pub spmv_s: Vec<f64>,
}

impl Choices {
    /// Evaluates the candidates that `take` chooses; where it returns `None`, the baseline.
    pub fn of<'a>(
        rule: impl Into<String>,
        cases: &'a [Case],
        take: impl Fn(usize, &'a Case) -> Option<&'a Trial>,
    ) -> Choices {
        let one = |(i, case): (usize, &'a Case)| {
            take(i, case).or_else(|| baseline_trial(case)).map_or(f64::NAN, |trial| trial.spmv_s)
        };
        Choices { rule: rule.into(), spmv_s: cases.iter().enumerate().map(one).collect() }
    }

    /// Returns the score over the cases for which `counts` is true; `None` if there are none.
    pub fn score(&self, cases: &[Case], counts: impl Fn(&Case) -> bool) -> Option<Score> {
        struct Taken<'a> {
            case: &'a Case,
            ratio: f64,
            speedup: f64,
        }
        let taken = cases.iter().zip(&self.spmv_s).filter(|(case, _)| counts(case));
        let taken = taken.filter_map(|(case, &spmv_s)| {
            let speedup = baseline_trial(case)?.spmv_s / spmv_s;
            Some(Taken { case, ratio: best_s(case) / spmv_s, speedup })
        });
        let taken: Vec<Taken<'_>> = taken.collect();
        let worst = taken.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
        let lost = taken.iter().filter(|t| t.speedup < 1.0 / (1.0 + LOSS)).count();
        Some(Score {
            cases: taken.len(),
            best_over_chosen: geometric_mean(taken.iter().map(|t| t.ratio)),
            rms_regret: rms(taken.iter().map(|t| 1.0 / t.ratio - 1.0)),
            worst: worst.ratio,
            worst_source: worst.case.source.clone(),
            speedup: by_class(taken.iter().map(|t| (t.case.class(), t.speedup))),
            losses: lost as f64 / taken.len() as f64,
        })
    }
}

/// Chooses by times that were not measured: the candidate with the least time, or the baseline
/// where its time is within the device's margin.
pub fn untimed<'a>(case: &'a Case, spmv_s: &[f64]) -> Option<&'a Trial> {
    let time_s = |trial: &Trial| {
        case.trials.iter().zip(spmv_s).find(|(other, _)| other.name == trial.name).map(|(_, &s)| s)
    };
    let best = least(case, |i, _| spmv_s[i])?;
    let Some(keep) = baseline_trial(case) else { return Some(best) };
    let (best_s, baseline_estimate_s) = (time_s(best)?, time_s(keep)?);
    // The comparison assumes that conversions take no time.
    let cost = |trial: &Trial, spmv_s| Cost { convert_s: 0.0, spmv_s, ..trial.estimate };
    let [best_cost, keep_cost] = [cost(best, best_s), cost(keep, baseline_estimate_s)];
    let (of_best, of_keeping) = ((&best.candidate, &best_cost), (&keep.candidate, &keep_cost));
    let workload = Workload { spmvs: 1, ..Workload::default() };
    let trusts = trusted(of_best, of_keeping, By::Analysis, case.margin, &workload);
    Some(if trusts { best } else { keep })
}

/// Chooses the fastest of the candidates that are timed: the baselines, the best `few[0]` by
/// prediction and the best `few[1]` by estimate; see [`best_few`].
pub fn best_of_few<'a>(
    case: &'a Case,
    predicted: &Predicted,
    few: [usize; 2],
) -> Option<&'a Trial> {
    let times = predicted.spmv_s.iter().zip(&predicted.estimate_s);
    let thought = case.trials.iter().zip(times).map(|(trial, (&predicted_s, &estimated_s))| {
        (&trial.candidate, Thought { predicted_s, estimated_s })
    });
    let timed = best_few(thought, few);
    let timed = case.trials.iter().filter(|trial| timed.contains(&&trial.candidate));
    timed.min_by(|a, b| a.spmv_s.total_cmp(&b.spmv_s))
}
