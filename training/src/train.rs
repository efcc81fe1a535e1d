//! Training: the plan chosen by cross-validation over families, then one regressor a format.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use ellect::Precision;
use ellect::model::Model;

use crate::amortized::{self, SPMVS, Total};
use crate::by_features;
use crate::case::Case;
use crate::crossval::{Fold, Predicted, cross_validate, split_by};
use crate::gate;
use crate::plan::{PLANS, Plan};
use crate::regressors::{data_of, fit};
use crate::rules;
use crate::settings::Settings;
use crate::targets;
use crate::tree;
use crate::trees::Trees;

/// What training made.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The model, trained on all cases.
    pub model: Model,
    /// Its plan.
    pub plan: Plan,
    /// The case's predictions by models that saw none of its family.
    pub predicted: Vec<Predicted>,
}

/// Chooses a plan by cross-validation and trains on all cases.
///
/// # Errors
/// Cases of several devices or precisions, of one family only, and what learners say.
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
    let Trees { look: gate, sight: quick_picks } = gate::trees(cases, &predicted, &everywhere)?;
    let quick = by_features::learn(cases, settings)?.map(|(learned, _)| learned);
    let model = Model { scores, rules, gate, quick_picks, quick, ..fit(&all, plan, settings)? };
    model.check()?;
    Ok(Trained { model, plan, predicted })
}

/// The model with what features alone tell learned anew, and its totals without the families: of
/// matrices on a host, and of those that the device holds.
///
/// # Errors
/// Cases that are not those of the model, none that features alone tell anything of, and what learners
/// say.
pub fn with_by_features(
    model: Model,
    cases: &[Case],
    settings: &Settings,
) -> Result<(Model, [Vec<Total>; 2])> {
    if data_of(&cases.iter().collect::<Vec<_>>())? != model.data {
        bail!("the model was trained on other records: train it again");
    }
    let learned = by_features::learn(cases, settings)?;
    let (learned, told) = learned.context("nothing was timed here with cuSPARSE")?;
    let quick = by_features::quick(cases, told, None, settings)?;
    let asked = gate::without_families(cases, settings, |seen| gate::without_look(cases, seen))?;
    let predicted = cross_validate(cases, Plan::of(&model)?, settings)?;
    let on_host = amortized::on_host(cases, &predicted, &asked, Some(&quick));
    let there = amortized::there(cases, &quick, &SPMVS);
    let mut scores = model.scores.clone();
    scores.extend(targets::scores_of_totals(&on_host, &there));
    let model = Model { quick: Some(learned), scores, ..model };
    model.check()?;
    Ok((model, [on_host, there]))
}

/// Plans whose root mean square of regret is within this share of the least one are as good: a single
/// matrix among a thousand decides that much.
const AS_GOOD: f64 = 0.1;

/// The plan that cross-validation finds best: of those that are as good by the root mean square of
/// regret, since one bad choice in a hundred harms, the one that chooses best in the mean. Its
/// predictions, and the scores of all plans by name.
fn choose_plan(
    cases: &[Case],
    settings: &Settings,
) -> Result<(Plan, Vec<Predicted>, BTreeMap<String, f64>)> {
    let folds = Fold::all(cases, settings);
    let mut tried = Vec::new();
    let mut scores = BTreeMap::new();
    for plan in PLANS {
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

/// Cases of one precision.
pub fn of_precision(cases: &[Case], precision: Precision) -> Vec<Case> {
    cases.iter().filter(|case| case.precision == precision).cloned().collect()
}
