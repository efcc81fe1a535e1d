//! The rules that are compared with each other, replayed on cases, and their scores.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use ellect::format::BASELINES;
use ellect::unstable::choose::FEW;
use serde::Serialize;

use crate::case::{Case, best_s, named};
use crate::crossval::Predicted;
use crate::dataset;
use crate::policy_replay::for_total;
use crate::replay::{Choices, Score, best_of_few, untimed};
use crate::settings::Settings;
use crate::tree::{self, row_statistics};

/// Name of the rule that chooses by predicted times alone.
pub const MODEL: &str = "model";
/// Name of the rule that times CSR and the two candidates predicted to be best.
pub const TWO_TIMED: &str = "model, best 2 timed";
/// Name of the rule that chooses as effort `measure` does.
pub const MEASURE: &str = "effort measure";
/// Name of the rule that chooses by closed formulas alone.
pub const ESTIMATE: &str = "estimate";

/// Depth of the tree over row statistics.
const DEPTH: usize = 6;

/// Scores of one rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the rule.
    pub rule: String,
    /// Score over all cases.
    pub all: Score,
    /// Score over the cases with at least [`LARGE_NNZ`](crate::case::LARGE_NNZ) nonzeros, where there
    /// are any.
    pub large: Option<Score>,
}

/// Returns the rules that a plot shows: the model, the best two timed, the estimate, a tree over
/// row statistics, and the baseline.
///
/// # Errors
/// Fails where linfa fails.
pub fn rules(cases: &[Case], predicted: &[Predicted], settings: &Settings) -> Result<Vec<Choices>> {
    Ok(vec![
        by_model(cases, predicted),
        timed(cases, predicted),
        by_estimate(cases, predicted),
        by_tree(cases, settings)?,
        Choices::of("the baseline", cases, |_, _| None),
    ])
}

fn by_estimate(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(ESTIMATE, cases, |i, case| untimed(case, &predicted[i].estimate_s))
}

/// Returns the figures that are stored in a model.
pub fn scores(cases: &[Case], predicted: &[Predicted]) -> BTreeMap<String, f64> {
    let mut scores = BTreeMap::from([
        ("median_error".to_string(), median_error(cases, predicted)),
        ("cases".to_string(), cases.len() as f64),
    ]);
    if let Some(score) = by_model(cases, predicted).score(cases, |_| true) {
        scores.insert("best_over_chosen".into(), score.best_over_chosen);
        scores.insert("rms_regret".into(), score.rms_regret);
        scores.insert("worst".into(), score.worst);
        scores.insert("speedup".into(), score.speedup);
    }
    scores
}

/// Chooses the least predicted time, where the baseline's predicted time exceeds it by the device's
/// margin.
pub fn by_model(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(MODEL, cases, |i, case| untimed(case, &predicted[i].spmv_s))
}

/// Chooses the fastest of CSR and the two candidates predicted to be best, all timed.
fn timed(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(TWO_TIMED, cases, |i, case| best_of_few(case, &predicted[i], [2, 0]))
}

/// Chooses the fastest of the candidates that effort `measure` times.
fn by_measuring(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(MEASURE, cases, |i, case| best_of_few(case, &predicted[i], FEW))
}

/// Chooses as effort `exhaustive`, which times all: the best possible with these candidates.
fn by_timing_all(cases: &[Case]) -> Choices {
    Choices::of("effort exhaustive", cases, |_, case| {
        case.trials.iter().min_by(|a, b| a.spmv_s.total_cmp(&b.spmv_s))
    })
}

/// Chooses by the model for a million products, with near ties settled toward the cheaper
/// conversion.
fn with_ties_settled(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(
        "model, 1,000,000 products, ties within 2 % to the cheaper conversion",
        cases,
        |i, case| for_total(case, &predicted[i], 1_000_000),
    )
}

/// Chooses by a tree over row statistics that saw no case of the family: the tree predicts the
/// format, and the variant is the one that was best most often.
pub fn by_tree(cases: &[Case], settings: &Settings) -> Result<Choices> {
    let mut taken = vec![None; cases.len()];
    for fold in dataset::folds(cases, settings.folds) {
        let seen = |i: &usize| !fold.contains(i);
        let others: Vec<&Case> = (0..cases.len()).filter(seen).map(|i| &cases[i]).collect();
        let rules = tree::rules(&others, &row_statistics(), DEPTH)?;
        let usual = tree::usual(&others);
        for i in fold {
            let format = rules.walk(|name| cases[i].features.get(name).copied());
            taken[i] = format.and_then(|(_, format)| usual.get(format).cloned());
        }
    }
    Ok(Choices::of("decision tree on row statistics", cases, |i, case| {
        taken[i].as_deref().and_then(|name| named(case, name))
    }))
}

/// Returns the scores of all rules, the model first; `by_tree` is left out where it is `None`.
pub fn rows(cases: &[Case], predicted: &[Predicted], by_tree: Option<Choices>) -> Vec<Row> {
    let always = |name: &str| Choices::of(format!("always {name}"), cases, |_, c| named(c, name));
    let mut rules = vec![
        by_model(cases, predicted),
        timed(cases, predicted),
        by_measuring(cases, predicted),
        by_timing_all(cases),
        with_ties_settled(cases, predicted),
        by_estimate(cases, predicted),
    ];
    rules.extend(by_tree);
    let names: BTreeSet<&str> =
        cases.iter().flat_map(|case| case.trials.iter().map(|t| t.name.as_str())).collect();
    for name in BASELINES.into_iter().rev().filter(|name| names.contains(name)) {
        rules.push(always(name));
    }
    let score = |rule: &Choices| rule.score(cases, |_| true).map_or(0.0, |s| s.best_over_chosen);
    let single = names.into_iter().map(always).max_by(|a, b| score(a).total_cmp(&score(b)));
    rules
        .extend(single.map(|rule| Choices { rule: format!("best single: {}", rule.rule), ..rule }));
    let row = |rule: Choices| {
        let all = rule.score(cases, |_| true)?;
        Some(Row { all, large: rule.score(cases, Case::is_large), rule: rule.rule })
    };
    rules.into_iter().filter_map(row).collect()
}

/// Returns the median of the absolute relative error of predicted times, over candidates within
/// twice the best time.
pub fn median_error(cases: &[Case], predicted: &[Predicted]) -> f64 {
    let mut errors = Vec::new();
    for (case, predicted) in cases.iter().zip(predicted) {
        let near_s = 2.0 * best_s(case);
        let near = case.trials.iter().zip(&predicted.spmv_s).filter(|(t, _)| t.spmv_s <= near_s);
        errors.extend(near.map(|(trial, s)| (s / trial.spmv_s - 1.0).abs()));
    }
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}
