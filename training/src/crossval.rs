//! Cross-validation: every case predicted by models that saw nothing like it.

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
    /// Time of one product of each trial, in seconds.
    pub spmv_s: Vec<f64>,
    /// The same by estimate.
    pub estimate_s: Vec<f64>,
    /// Between 0 and 1.
    pub confidence: f64,
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
pub(crate) struct Fold<'a> {
    left_out: Vec<usize>,
    /// The others, without the kin of these.
    seen: Vec<usize>,
    cases: Cow<'a, [Case]>,
}

impl<'a> Fold<'a> {
    /// Families in so many folds.
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

    /// Predicts what is left out by a model that saw the others.
    fn predict(&self, plan: Plan, settings: &Settings) -> Result<Vec<(usize, Predicted)>> {
        let seen: Vec<&Case> = self.seen.iter().map(|&i| &self.cases[i]).collect();
        let model = Predictor::new(fit(&seen, plan, settings)?);
        Ok(self.left_out.iter().map(|&i| (i, predict(&model, &self.cases[i]))).collect())
    }
}

/// Predicts what each fold leaves out by a model of this plan that saw the rest of it, in the order of
/// the cases.
///
/// # Errors
/// Fewer than two folds, and what learners say.
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

/// The predictions of all folds in the order of their cases.
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
        assert_eq!(folds.len(), 3, "two are of one kin");
        for fold in folds {
            let all: BTreeSet<usize> = fold.left_out.iter().chain(&fold.seen).copied().collect();
            assert_eq!(all.len(), cases.len(), "whatever is not seen is left out");
        }
    }
}
