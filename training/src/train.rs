//! Training: the plan chosen by cross-validation over families, then one regressor a format.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ellect::Precision;
use ellect::cost::TERMS;
use ellect::model::{Model, Predictor, Regressor, Rules, SCHEMA};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_128;

use crate::by_features;
use crate::case::Case;
use crate::dataset;
use crate::evaluate;
use crate::figures;
use crate::plan::{PLANS, Plan};
use crate::profile::Fitted;
use crate::replay::Trees;
use crate::sight;
use crate::totals::{self, SPMVS, Total};
use crate::tree;

/// How to train.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most folds of the cross-validation.
    pub folds: usize,
    /// Seed of all learners.
    pub seed: u64,
    /// The revision of this program, to be noted in the model.
    pub commit: String,
    /// The records, where the device's profile was fitted to them: what is left out is then seen by a
    /// profile fitted without it too.
    pub fitted: Option<Arc<Fitted>>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { folds: 5, seed: 1, commit: String::new(), fitted: None }
    }
}

/// Predictions for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Time of one product of each trial, in seconds.
    pub spmv_s: Vec<f64>,
    /// The same by estimate.
    pub estimate_s: Vec<f64>,
    /// Between 0 and 1.
    pub confidence: f64,
}

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
    scores.extend(evaluate::scores(cases, &predicted));
    let all: Vec<&Case> = cases.iter().collect();
    let rules = tree::rules(&all, &tree::EXPLAINING, tree::EXPLAINING_DEPTH)?;
    let everywhere: Vec<usize> = (0..cases.len()).collect();
    let Trees { look: gate, sight: quick_picks } = sight::trees(cases, &predicted, &everywhere)?;
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
    let asked = sight::without_families(cases, settings, |seen| sight::without_look(cases, seen))?;
    let predicted = cross_validate(cases, Plan::of(&model)?, settings)?;
    let on_host = totals::on_host(cases, &predicted, &asked, Some(&quick));
    let there = totals::there(cases, &quick, &SPMVS);
    let mut scores = model.scores.clone();
    scores.extend(figures::scores_of_totals(&on_host, &there));
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
        let own = evaluate::scores(cases, &predicted);
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

/// The model of one plan, with no scores yet.
///
/// # Errors
/// What learners say.
pub fn fit(cases: &[&Case], plan: Plan, settings: &Settings) -> Result<Model> {
    let first = cases.first().context("there are no cases to train on")?;
    let features = dataset::features(cases);
    let forests = plan.fit(cases, &features, settings.seed)?.into_iter();
    let regressor = |(format, forest): (String, _)| {
        let parameters = dataset::parameters(&format);
        (format, Regressor { parameters, forest })
    };
    let model = Model {
        schema: SCHEMA,
        device: first.device.clone(),
        precision: first.precision,
        data: data_of(cases)?,
        seed: settings.seed,
        commit: settings.commit.clone(),
        plan: plan.name.to_string(),
        scores: BTreeMap::new(),
        nearness: dataset::nearness(cases, &features)?,
        features,
        terms: TERMS.map(String::from).to_vec(),
        floor_share: plan.floor_share,
        formats: forests.map(regressor).collect(),
        rules: Rules::default(),
        gate: Rules::default(),
        quick_picks: Vec::new(),
        quick: None,
    };
    model.check()?;
    Ok(model)
}

/// What a model notes of the cases that it was trained on.
///
/// # Errors
/// None of sound cases.
pub fn data_of(cases: &[&Case]) -> Result<String> {
    Ok(format!("{:032x}", xxh3_128(&serde_json::to_vec(cases)?)))
}

/// Predicts a case by the code that serves requests.
pub fn predict(predictor: &Predictor, case: &Case) -> Predicted {
    let model = predictor.model();
    let values = dataset::values(case, &model.features);
    let mut inputs = predictor.inputs(&values);
    let spmv_s = case.trials.iter().map(|trial| {
        let spmv_s = predictor.spmv_s(&mut inputs, &trial.candidate, &trial.terms);
        spmv_s.unwrap_or(trial.estimate.spmv_s)
    });
    Predicted {
        spmv_s: spmv_s.collect(),
        estimate_s: case.trials.iter().map(|trial| trial.estimate.spmv_s).collect(),
        confidence: inputs.confidence(),
    }
}

/// Predicts every case by a model that saw none of its family.
///
/// # Errors
/// Fewer than two families, and what learners say.
pub fn cross_validate(cases: &[Case], plan: Plan, settings: &Settings) -> Result<Vec<Predicted>> {
    split_by(&Fold::all(cases, settings), plan, settings)
}

/// Predicts every case by a model that saw all classes but its own and the kin of it.
///
/// # Errors
/// As [`cross_validate`].
pub fn leave_classes_out(
    cases: &[Case],
    plan: Plan,
    settings: &Settings,
) -> Result<Vec<Predicted>> {
    let classes = dataset::groups(cases, Case::class);
    if classes.len() < 2 {
        bail!(ONE_FAMILY);
    }
    let predicted = classes
        .into_par_iter()
        .map(|left_out| Fold::of(cases, left_out, settings).predict(plan, settings));
    in_order(predicted.collect::<Result<_>>()?)
}

/// Why nothing can be left out.
const ONE_FAMILY: &str = "all matrices are of one family: there is nothing to validate on";

/// Cases that are left out, and all cases as they are seen without them.
struct Fold<'a> {
    left_out: Vec<usize>,
    /// The others, without the kin of these.
    seen: Vec<usize>,
    cases: Cow<'a, [Case]>,
}

impl<'a> Fold<'a> {
    /// Families in so many folds.
    fn all(cases: &'a [Case], settings: &Settings) -> Vec<Self> {
        let folds = dataset::folds(cases, settings.folds).into_par_iter();
        folds.map(|fold| Fold::of(cases, fold, settings)).collect()
    }

    fn of(cases: &'a [Case], left_out: Vec<usize>, settings: &Settings) -> Self {
        let kin: BTreeSet<&str> = left_out.iter().map(|&i| cases[i].kin()).collect();
        let (unseen, seen): (Vec<_>, Vec<_>) =
            (0..cases.len()).partition(|&i| kin.contains(cases[i].kin()));
        let cases = match &settings.fitted {
            Some(fitted) => Cow::Owned(fitted.without(cases, &unseen)),
            None => Cow::Borrowed(cases),
        };
        Fold { left_out, seen, cases }
    }

    /// Predicts what is left out by a model that saw the others.
    fn predict(&self, plan: Plan, settings: &Settings) -> Result<Vec<(usize, Predicted)>> {
        let seen: Vec<&Case> = self.seen.iter().map(|&i| &self.cases[i]).collect();
        let model = Predictor::new(fit(&seen, plan, settings)?);
        Ok(self.left_out.iter().map(|&i| (i, predict(&model, &self.cases[i]))).collect())
    }
}

fn split_by(folds: &[Fold<'_>], plan: Plan, settings: &Settings) -> Result<Vec<Predicted>> {
    if folds.len() < 2 {
        bail!(ONE_FAMILY);
    }
    in_order(folds.par_iter().map(|fold| fold.predict(plan, settings)).collect::<Result<_>>()?)
}

/// The predictions of all folds in the order of their cases.
fn in_order(predicted: Vec<Vec<(usize, Predicted)>>) -> Result<Vec<Predicted>> {
    let mut all: Vec<(usize, Predicted)> = predicted.into_iter().flatten().collect();
    all.sort_by_key(|(i, _)| *i);
    Ok(all.into_iter().map(|(_, predicted)| predicted).collect())
}

/// Cases of one precision.
pub fn of_precision(cases: &[Case], precision: Precision) -> Vec<Case> {
    cases.iter().filter(|case| case.precision == precision).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::case;

    #[test]
    fn what_is_left_out_is_left_out_with_its_kin() {
        let cases = ["stencil7", "heat", "constant7", "triangles"].map(|class| case(class, 100));
        let settings = Settings::default();
        let fold = Fold::of(&cases, vec![2], &settings);
        assert_eq!((fold.left_out, fold.seen), (vec![2], vec![1, 3]));
        let folds = Fold::all(&cases, &settings);
        assert_eq!(folds.len(), 3, "two are of one kin");
        for fold in folds {
            let all: BTreeSet<usize> = fold.left_out.iter().chain(&fold.seen).copied().collect();
            assert_eq!(all.len(), cases.len(), "whatever is not seen is left out");
        }
    }
}
