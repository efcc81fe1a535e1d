//! Training: chooses the plan by cross-validation over families, then fits one regressor per
//! format.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use ellect::Precision;
use ellect::model::Model;

use crate::amortized::{self, SPMVS, Total};
use crate::case::Case;
use crate::crossval::{Fold, Predicted, cross_validate, split_by};
use crate::gate;
use crate::plan::{PLANS, Plan};
use crate::quick;
use crate::regressors::{data_of, fit};
use crate::rules;
use crate::settings::Settings;
use crate::targets;
use crate::tree;
use crate::trees::Trees;

/// The result of training.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Model trained on all cases.
    pub model: Model,
    /// Plan of the model.
    pub plan: Plan,
    /// Predictions of the cases by models that saw no case of the same family.
    pub predicted: Vec<Predicted>,
}

/// Chooses a plan by cross-validation and trains on all cases.
///
/// # Errors
/// Fails where cases are of several devices or precisions, where all are of one family, or where a
/// learner fails.
pub fn train(cases: &[Case], settings: &Settings) -> Result<Trained> {
    let first = cases.first().context("there are no cases to train on")?;
    if cases.iter().any(|c| c.device != first.device || c.precision != first.precision) {
        bail!("cases of several devices or precisions: one model is for one of each");
    }
    let (plan, predicted, mut scores) = choose_plan(cases, settings)?;
    scores.extend(rules::scores(cases, &predicted));
    let all: Vec<&Case> = cases.iter().collect();
    let rules = tree::rules(&all, &tree::EXPLAINING, tree::EXPLAINING_DEPTH)?;
    let everywhere: Vec<usize> = (0..cases.len()).collect();
    // Only decisions about products with one vector ask whether an analysis pays.
    let (Trees { gate_rules: gate, quick_picks }, quick) = match first.vectors {
        1 => (
            gate::trees(cases, &predicted, &everywhere)?,
            quick::learn(cases, settings)?.map(|(learned, _)| learned),
        ),
        _ => (Trees::default(), None),
    };
    let model = Model { scores, rules, gate, quick_picks, quick, ..fit(&all, plan, settings)? };
    model.check()?;
    Ok(Trained { model, plan, predicted })
}

/// Returns the model with its quick model relearned, and the totals of choices made without the
/// case's family: first for matrices on a host, then for matrices on the device.
///
/// # Errors
/// Fails where the cases are not those of the model, where the quick model does not apply to them,
/// or where a learner fails.
pub fn with_by_features(
    model: Model,
    cases: &[Case],
    settings: &Settings,
) -> Result<(Model, [Vec<Total>; 2])> {
    if data_of(&cases.iter().collect::<Vec<_>>())? != model.data {
        bail!("the model was trained on other records: train it again");
    }
    let learned = quick::learn(cases, settings)?;
    let (learned, quick) = learned.context("nothing was timed here with cuSPARSE")?;
    let asked =
        gate::without_families(cases, settings, |seen| gate::quick_pick_trees(cases, seen))?;
    let predicted = cross_validate(cases, Plan::of(&model)?, settings)?;
    let on_host = amortized::on_host(cases, &predicted, &asked, Some(&quick)).all;
    let there = amortized::there(cases, &quick, &SPMVS).all;
    let mut scores = model.scores.clone();
    scores.extend(targets::scores_of_totals(&on_host, &there));
    let model = Model { quick: Some(learned), scores, ..model };
    model.check()?;
    Ok((model, [on_host, there]))
}

/// Plans whose root mean square of regret is within this share of the least one count as equally
/// good: a single matrix in a thousand can decide that much.
const AS_GOOD: f64 = 0.1;

/// Returns the plan of the settings, or chooses the best plan by cross-validation: among the plans that are equally good by the root
/// mean square of regret, since one bad choice in a hundred does harm, the one with the best mean.
/// Returns the plan, its predictions, and the scores of all plans that were tried, by name.
fn choose_plan(
    cases: &[Case],
    settings: &Settings,
) -> Result<(Plan, Vec<Predicted>, BTreeMap<String, f64>)> {
    let folds = Fold::all(cases, settings);
    let mut tried = Vec::new();
    let mut scores = BTreeMap::new();
    let plans = settings.plan.map_or(PLANS.to_vec(), |plan| vec![plan]);
    for plan in plans {
        let predicted = split_by(&folds, plan, settings)?;
        let own = rules::scores(cases, &predicted);
        let of = |name: &str, worst: f64| own.get(name).copied().unwrap_or(worst);
        let (regret, mean) = (of("rms_regret", f64::MAX), of("best_over_chosen", 0.0));
        scores.insert(plan.to_string().replace(' ', "_"), regret);
        tried.push((regret, mean, plan, predicted));
    }
    let least = tried.iter().map(|(regret, ..)| *regret).fold(f64::MAX, f64::min);
    tried.retain(|(regret, ..)| *regret <= least * (1.0 + AS_GOOD));
    let best = tried.into_iter().max_by(|(_, a, ..), (_, b, ..)| a.total_cmp(b));
    let (.., plan, predicted) = best.context("no learner worked")?;
    Ok((plan, predicted, scores))
}

/// Returns the cases of one precision.
pub fn of_precision(cases: &[Case], precision: Precision) -> Vec<Case> {
    cases.iter().filter(|case| case.precision == precision).cloned().collect()
}
