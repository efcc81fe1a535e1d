//! Evaluation: replays the choice on records, next to the choices of simpler rules.
//!
//! Every prediction, and every tree, comes from a model that saw no matrix of the same family. For
//! records that an existing model did not learn from, that model and its trees are used instead.
//! Nothing is timed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use ellect::device::Device;
use ellect::model::{Model, Predictor};

use crate::amortized::{self, SPMVS};
use crate::case::Case;
use crate::crossval::{Predicted, cross_validate, leave_classes_out, predict};
use crate::dataset;
use crate::gate::{trees, without_families};
use crate::plan::Plan;
use crate::policy_replay::Quick;
use crate::quick;
use crate::repeatability::Repeatability;
use crate::replay::Choices;
use crate::report::{Class, Report, SizeTotals};
use crate::rules::{MEASURE, MODEL, by_model, by_tree, median_error, rows};
use crate::settings::Settings;
use crate::targets::Figures;
use crate::trees::Trees;

/// Choice of whether models are tried on classes that they never saw. This takes one model per
/// class, and one profile per class where the profile was fitted to the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// Unseen classes are tried.
    Tried,
    /// Unseen classes are not tried.
    Untried,
}

/// Replays the choice on cases of one device and precision.
///
/// # Errors
/// Fails where all cases are of one family, or where a learner fails.
pub fn evaluate(cases: &[Case], plan: Plan, settings: &Settings, unseen: Unseen) -> Result<Report> {
    let predicted = cross_validate(cases, plan, settings)?;
    report(cases, &predicted, plan, settings, unseen)
}

/// Returns the tables for predictions that were made without the matrix's family.
///
/// # Errors
/// As [`evaluate`].
pub fn report(
    cases: &[Case],
    predicted: &[Predicted],
    plan: Plan,
    settings: &Settings,
    unseen: Unseen,
) -> Result<Report> {
    let left_out = match unseen {
        Unseen::Tried => Some(leave_classes_out(cases, plan, settings)?),
        Unseen::Untried => None,
    };
    // Confidence is to fall where the whole class was never seen, compared with models that saw
    // other families of the class.
    let confidences: Vec<f64> = match unseen {
        Unseen::Tried => confidences_without_families(cases)?,
        Unseen::Untried => predicted.iter().map(|p| p.confidence).collect(),
    };
    let left_out = left_out.as_deref();
    let asked = without_families(cases, settings, |seen| trees(cases, predicted, seen))?;
    let by_tree = Some(by_tree(cases, settings)?);
    let quick = quick::shown(cases, settings)?;
    let confidences = &confidences;
    let made = Made { predicted, asked: &asked, by_tree, quick, confidences, left_out };
    let profile_too = settings.fitted.is_some();
    Ok(Report { plan: plan.to_string(), profile_too, ..tables(cases, made)? })
}

/// Replays the choice on cases with an existing model that did not learn from them.
///
/// # Errors
/// Fails where there are no cases, where a case is of another precision or device, or where the
/// model is neither of the device nor of its proxy device.
pub fn evaluate_as_is(cases: &[Case], model: Model, device: &Device) -> Result<Report> {
    let proxy = device.proxy().map(|proxy| proxy.name);
    let suits = [Some(&device.name), proxy.as_ref()].contains(&Some(&model.device));
    let other =
        |case: &&Case| !suits || case.device != device.name || case.precision != model.precision;
    if let Some(Case { device, precision, source, .. }) = cases.iter().find(other) {
        bail!(
            "the model is of {} in {}, {source} was timed on {device} in {precision}",
            model.device,
            model.precision
        );
    }
    let predictor = Predictor::new(model);
    let predicted: Vec<Predicted> = cases.iter().map(|case| predict(&predictor, case)).collect();
    let model = predictor.model();
    let trees = Trees { gate_rules: model.gate.clone(), quick_picks: model.quick_picks.clone() };
    let asked = vec![trees; cases.len()];
    let confidences: Vec<f64> = predicted.iter().map(|p| p.confidence).collect();
    let quick = quick::as_is(cases, &predictor);
    let made = Made {
        predicted: &predicted,
        asked: &asked,
        by_tree: None,
        quick,
        confidences: &confidences,
        left_out: None,
    };
    Ok(Report { plan: model.plan.clone(), as_is: true, ..tables(cases, made)? })
}

/// Returns scores of the choices that an existing model makes on cases it learned from.
///
/// Nothing is learned, so equal code gives equal scores: they differ from recorded ones if a change
/// of the code moved a choice.
///
/// # Errors
/// As [`evaluate_as_is`].
pub fn replay_scores(
    cases: &[Case],
    model: Model,
    device: &Device,
) -> Result<BTreeMap<String, f64>> {
    let report = evaluate_as_is(cases, model, device)?;
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    let mut scores = BTreeMap::new();
    for row in report.rows.iter().filter(|row| [MODEL, MEASURE].contains(&row.rule.as_str())) {
        let rule = row.rule.replace(' ', "_");
        scores.insert(format!("replay_{rule}"), rounded(row.all.best_over_chosen));
    }
    for (place, totals) in [("total", &report.totals), ("there", &report.there)] {
        for total in totals {
            scores.insert(format!("replay_{place}_{}", total.spmvs), rounded(total.speedup));
        }
    }
    Ok(scores)
}

/// Inputs of the tables, indexed like the cases.
struct Made<'a> {
    predicted: &'a [Predicted],
    /// The trees that decide without an analysis.
    asked: &'a [Trees],
    /// Choices of a tree over row statistics.
    by_tree: Option<Choices>,
    /// Inputs of the policy where a GPU finds features.
    quick: Option<Quick>,
    confidences: &'a [f64],
    /// Predictions by models that saw no case of the class.
    left_out: Option<&'a [Predicted]>,
}

fn tables(cases: &[Case], made: Made<'_>) -> Result<Report> {
    let first = cases.first().context("there are no cases to evaluate on")?;
    let Made { predicted, asked, by_tree, quick, confidences, left_out } = made;
    let families: BTreeSet<&str> = cases.iter().map(Case::split_group).collect();
    let rows = rows(cases, predicted, by_tree);
    let totals = amortized::on_host(cases, predicted, asked, quick.as_ref());
    let there = quick.map(|quick| amortized::there(cases, &quick, &SPMVS)).unwrap_or_default();
    let median_error = median_error(cases, predicted);
    let sum = |left_out: &[Predicted]| left_out.iter().map(|p| p.confidence).sum::<f64>();
    let confidence = left_out.map(|out| sum(out) / confidences.iter().sum::<f64>());
    let figures =
        Figures { rows: &rows, totals: &totals.all, there: &there.all, median_error, confidence };
    Ok(Report {
        device: first.device.clone(),
        precision: first.precision,
        cases: cases.len(),
        large: cases.iter().filter(|case| case.is_large()).count(),
        families: families.len(),
        trials: cases.iter().map(|case| case.trials.len()).sum(),
        plan: String::new(),
        profile_too: false,
        as_is: false,
        figures: figures.of(first.kind, first.precision),
        classes: classes(cases, predicted, confidences, left_out),
        rows,
        totals: totals.all,
        there: there.all,
        small: SizeTotals { totals: totals.small, there: there.small },
        large_totals: SizeTotals { totals: totals.large, there: there.large },
        median_error,
        repeatability: Repeatability::of(cases),
    })
}

/// Returns the confidence in each case of a model that saw all families except the case's own.
fn confidences_without_families(cases: &[Case]) -> Result<Vec<f64>> {
    let mut confidences = vec![0.0; cases.len()];
    for family in dataset::groups(cases, Case::split_group) {
        let own: BTreeSet<usize> = family.into_iter().collect();
        let others = (0..cases.len()).filter(|i| !own.contains(i)).map(|i| &cases[i]);
        let others: Vec<&Case> = others.collect();
        let features = dataset::features(&others);
        let applicability = dataset::applicability(&others, &features)?;
        for i in own {
            confidences[i] = applicability.confidence(&dataset::values(&cases[i], &features));
        }
    }
    Ok(confidences)
}

fn classes(
    cases: &[Case],
    predicted: &[Predicted],
    confidences: &[f64],
    left_out: Option<&[Predicted]>,
) -> Vec<Class> {
    let names: BTreeSet<&str> = cases.iter().map(Case::class).collect();
    let chosen = by_model(cases, predicted);
    let unseen = left_out.map(|left_out| by_model(cases, left_out));
    let one = |name: &str| {
        let own = |case: &Case| case.class() == name;
        let score = chosen.score(cases, own)?;
        let mean = |confidence: &dyn Fn(usize) -> f64| {
            let own = (0..cases.len()).filter(|&i| own(&cases[i]));
            own.map(confidence).sum::<f64>() / score.cases as f64
        };
        let unseen = unseen.as_ref().and_then(|unseen| unseen.score(cases, own));
        Some(Class {
            class: name.to_string(),
            cases: score.cases,
            best_over_chosen: score.best_over_chosen,
            speedup: score.speedup,
            confidence: mean(&|i| confidences[i]),
            left_out: unseen.map(|score| score.best_over_chosen),
            left_out_confidence: left_out.map(|out| mean(&|i| out[i].confidence)),
        })
    };
    names.into_iter().filter_map(one).collect()
}
