//! Cross-validation: predicts every case by models trained without its family.

use std::borrow::Cow;
use std::collections::BTreeSet;

use anyhow::{Result, bail};
use ellect::model::Predictor;
use rayon::prelude::*;

use crate::case::Case;
use crate::dataset;
use crate::plan::Plan;
use crate::regressors::fit;
use crate::settings::Settings;

/// Predictions for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// Predicted time of one product of each trial, in seconds.
    pub spmv_s: Vec<f64>,
    /// Estimated time of one product of each trial, in seconds.
    pub estimate_s: Vec<f64>,
    /// Confidence of the model in the matrix, between 0 and 1.
    pub confidence: f64,
}

/// Predicts a case with the code that serves requests.
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

/// Predicts every case by a model that saw no case of its family.
///
/// # Errors
/// Fails where there are fewer than two families, or where a learner fails.
pub fn cross_validate(cases: &[Case], plan: Plan, settings: &Settings) -> Result<Vec<Predicted>> {
    split_by(&Fold::all(cases, settings), plan, settings)
}

/// Predicts every case by a model that saw neither its class nor any split group of that class.
///
/// # Errors
/// As [`cross_validate`], with classes instead of families.
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

/// Error message where there is nothing to leave out.
const ONE_FAMILY: &str = "all matrices are of one family: there is nothing to validate on";

/// One fold: the cases left out, and all cases as a model trained without them sees them.
pub(crate) struct Fold<'a> {
    left_out: Vec<usize>,
    /// Indices of the training cases: those that share no split group with a case left out.
    seen: Vec<usize>,
    cases: Cow<'a, [Case]>,
}

impl<'a> Fold<'a> {
    /// Distributes the families over `settings.folds` folds.
    pub(crate) fn all(cases: &'a [Case], settings: &Settings) -> Vec<Self> {
        let folds = dataset::folds(cases, settings.folds).into_par_iter();
        folds.map(|fold| Fold::of(cases, fold, settings)).collect()
    }

    fn of(cases: &'a [Case], left_out: Vec<usize>, settings: &Settings) -> Self {
        let groups: BTreeSet<&str> = left_out.iter().map(|&i| cases[i].split_group()).collect();
        let (unseen, seen): (Vec<_>, Vec<_>) =
            (0..cases.len()).partition(|&i| groups.contains(cases[i].split_group()));
        let cases = match &settings.fitted {
            Some(fitted) => Cow::Owned(fitted.without(cases, &unseen)),
            None => Cow::Borrowed(cases),
        };
        Fold { left_out, seen, cases }
    }

    /// Predicts the cases left out by a model trained on the others.
    fn predict(&self, plan: Plan, settings: &Settings) -> Result<Vec<(usize, Predicted)>> {
        let seen: Vec<&Case> = self.seen.iter().map(|&i| &self.cases[i]).collect();
        let model = Predictor::new(fit(&seen, plan, settings)?);
        Ok(self.left_out.iter().map(|&i| (i, predict(&model, &self.cases[i]))).collect())
    }
}

/// Predicts the cases that each fold leaves out by a model of this plan trained on the rest, and
/// returns the predictions in the order of the cases.
///
/// # Errors
/// Fails where there are fewer than two folds, or where a learner fails.
pub(crate) fn split_by(
    folds: &[Fold<'_>],
    plan: Plan,
    settings: &Settings,
) -> Result<Vec<Predicted>> {
    if folds.len() < 2 {
        bail!(ONE_FAMILY);
    }
    in_order(folds.par_iter().map(|fold| fold.predict(plan, settings)).collect::<Result<_>>()?)
}

/// Merges the predictions of all folds, in the order of their cases.
fn in_order(predicted: Vec<Vec<(usize, Predicted)>>) -> Result<Vec<Predicted>> {
    let mut all: Vec<(usize, Predicted)> = predicted.into_iter().flatten().collect();
    all.sort_by_key(|(i, _)| *i);
    Ok(all.into_iter().map(|(_, predicted)| predicted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_cases::case;

    #[test]
    fn what_is_left_out_is_left_out_with_its_kin() {
        let cases = ["stencil7", "heat", "constant7", "triangles"].map(|class| case(class, 100));
        let settings = Settings::default();
        let fold = Fold::of(&cases, vec![2], &settings);
        assert_eq!((fold.left_out, fold.seen), (vec![2], vec![1, 3]));
        let folds = Fold::all(&cases, &settings);
        assert_eq!(folds.len(), 3, "two are of one group");
        for fold in folds {
            let all: BTreeSet<usize> = fold.left_out.iter().chain(&fold.seen).copied().collect();
            assert_eq!(all.len(), cases.len(), "whatever is not seen is left out");
        }
    }
}
