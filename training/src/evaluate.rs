//! Evaluation: the choice replayed on records, beside what simpler rules would have taken.
//!
//! Every prediction is made by a model that saw no matrix of the same family, and so is every tree;
//! or, of records that a model did not learn from, by that model and its trees. Nothing is timed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use ellect::Precision;
use ellect::choose::FEW;
use ellect::device::Device;
use ellect::model::{Model, Predictor};
use serde::Serialize;

use crate::again::Again;
use crate::by_features::{self, Quick};
use crate::case::Case;
use crate::dataset;
use crate::figures::{self, ESTIMATE, Figure, Figures, MEASURE, MODEL, TWO_TIMED};
use crate::plan::Plan;
use crate::policy_replay::for_total;
use crate::replay::{Choices, Score, Trees, best_of_few, best_s, named, untimed};
use crate::sight::{trees, without_families};
use crate::totals::{self, SPMVS, Total};
use crate::train::{Predicted, Settings, cross_validate, leave_classes_out, predict};
use crate::tree::{self, row_statistics};

/// Matrices of at least so many nonzeros are reported alone too.
pub const LARGE_NNZ: u64 = 1_000_000;

/// The depth of the tree over row statistics.
const DEPTH: usize = 6;

/// How well one rule chooses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The rule.
    pub rule: String,
    /// Over all cases.
    pub all: Score,
    /// Over those of at least [`LARGE_NNZ`] nonzeros, where there are any.
    pub large: Option<Score>,
}

/// A class of matrices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Its name.
    pub class: String,
    /// Its cases.
    pub cases: usize,
    /// Geometric mean of best over chosen by models that saw others of the class.
    pub best_over_chosen: f64,
    /// Geometric mean of the incumbent's time over the time of the choice.
    pub speedup: f64,
    /// Mean confidence of models that saw all families but the case's own.
    pub confidence: f64,
    /// Best over chosen by a model that saw none of the class, where that was asked for.
    pub left_out: Option<f64>,
    /// Mean confidence of that model.
    pub left_out_confidence: Option<f64>,
}

/// The tables of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Cases: matrices.
    pub cases: usize,
    /// Cases of at least [`LARGE_NNZ`] nonzeros.
    pub large: usize,
    /// Families of matrices, each wholly on one side of every split.
    pub families: usize,
    /// Candidates that were timed.
    pub trials: usize,
    /// The name of the plan.
    pub plan: String,
    /// Whether the device's profile too saw none of what is left out.
    pub profile_too: bool,
    /// Whether one model that was there already predicted all.
    pub as_is: bool,
    /// The figures that are bounded.
    pub figures: Vec<Figure>,
    /// The rules, the model first.
    pub rows: Vec<Row>,
    /// Totals with analysis and conversion.
    pub totals: Vec<Total>,
    /// The same of matrices that the device holds, chosen by features that it counts; empty for
    /// hosts.
    pub there: Vec<Total>,
    /// Median of the absolute error of predicted times, candidates within twice the best.
    pub median_error: f64,
    /// What one run of timing tells of the next, where some were timed in several.
    pub again: Option<Again>,
    /// Classes of matrices.
    pub classes: Vec<Class>,
}

/// Whether models are tried on classes that they never saw, which takes a model for each class, and a
/// profile where it was fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// They are.
    Tried,
    /// They are not.
    Untried,
}

/// Replays the choice on cases of one device and precision.
///
/// # Errors
/// Cases of one family only, and what learners say.
pub fn evaluate(cases: &[Case], plan: Plan, settings: &Settings, unseen: Unseen) -> Result<Report> {
    let predicted = cross_validate(cases, plan, settings)?;
    report(cases, &predicted, plan, settings, unseen)
}

/// The tables of predictions that were made without the matrix's family.
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
    // Confidence falls where the whole class was never seen, against where its other families were.
    let confidences: Vec<f64> = match unseen {
        Unseen::Tried => confidences_without_families(cases)?,
        Unseen::Untried => predicted.iter().map(|p| p.confidence).collect(),
    };
    let left_out = left_out.as_deref();
    let asked = without_families(cases, settings, |seen| trees(cases, predicted, seen))?;
    let by_tree = Some(by_tree(cases, settings)?);
    let quick = match by_features::learn(cases, settings)? {
        Some((_, told)) => Some(by_features::quick(cases, told, None, settings)?),
        None => None,
    };
    let confidences = &confidences;
    let made = Made { predicted, asked: &asked, by_tree, quick, confidences, left_out };
    let profile_too = settings.fitted.is_some();
    Ok(Report { plan: plan.to_string(), profile_too, ..tables(cases, made)? })
}

/// Replays the choice on cases by a model that is there already, and did not learn from them.
///
/// # Errors
/// No cases, those of another precision or device, and a model neither of the device nor of its
/// kin.
pub fn evaluate_as_is(cases: &[Case], model: Model, device: &Device) -> Result<Report> {
    let kin = device.kin().map(|kin| kin.name);
    let suits = [Some(&device.name), kin.as_ref()].contains(&Some(&model.device));
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
    let trees = Trees { look: model.gate.clone(), sight: model.quick_picks.clone() };
    let asked = vec![trees; cases.len()];
    let confidences: Vec<f64> = predicted.iter().map(|p| p.confidence).collect();
    let rules = model.quick.as_ref().map(|quick| &quick.gate);
    let quick = match by_features::told_as_is(cases, &predictor) {
        Some(told) => Some(by_features::quick(cases, told, rules, &Settings::default())?),
        None => None,
    };
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

/// What tables are made of, by the places of cases.
struct Made<'a> {
    predicted: &'a [Predicted],
    /// The trees that are asked at sight.
    asked: &'a [Trees],
    /// What a tree over row statistics chooses.
    by_tree: Option<Choices>,
    /// What the policy asks where a GPU counts features.
    quick: Option<Quick>,
    confidences: &'a [f64],
    /// Predictions by models that saw none of the class.
    left_out: Option<&'a [Predicted]>,
}

fn tables(cases: &[Case], made: Made<'_>) -> Result<Report> {
    let first = cases.first().context("there are no cases to evaluate on")?;
    let Made { predicted, asked, by_tree, quick, confidences, left_out } = made;
    let families: BTreeSet<&str> = cases.iter().map(Case::kin).collect();
    let rows = rows(cases, predicted, by_tree);
    let totals = totals::on_host(cases, predicted, asked, quick.as_ref());
    let there = quick.map_or_else(Vec::new, |quick| totals::there(cases, &quick, &SPMVS));
    let median_error = median_error(cases, predicted);
    let sum = |left_out: &[Predicted]| left_out.iter().map(|p| p.confidence).sum::<f64>();
    let confidence = left_out.map(|out| sum(out) / confidences.iter().sum::<f64>());
    let figures = Figures { rows: &rows, totals: &totals, there: &there, median_error, confidence };
    Ok(Report {
        device: first.device.clone(),
        precision: first.precision,
        cases: cases.len(),
        large: cases.iter().filter(|case| is_large(case)).count(),
        families: families.len(),
        trials: cases.iter().map(|case| case.trials.len()).sum(),
        plan: String::new(),
        profile_too: false,
        as_is: false,
        figures: figures.of(first.precision),
        classes: classes(cases, predicted, confidences, left_out),
        rows,
        totals,
        there,
        median_error,
        again: Again::of(cases),
    })
}

/// The rules of the tables that a plot shows: the model, the best two timed, the estimate, a tree
/// over row statistics, and the incumbent.
///
/// # Errors
/// What linfa says.
pub fn rules(cases: &[Case], predicted: &[Predicted], settings: &Settings) -> Result<Vec<Choices>> {
    Ok(vec![
        by_model(cases, predicted),
        timed(cases, predicted),
        by_estimate(cases, predicted),
        by_tree(cases, settings)?,
        Choices::of("the incumbent", cases, |_, _| None),
    ])
}

fn by_estimate(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(ESTIMATE, cases, |i, case| untimed(case, &predicted[i].estimate_s))
}

/// The figures that are noted in a model.
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

fn is_large(case: &Case) -> bool {
    case.nnz >= LARGE_NNZ
}

/// The least predicted time, where the incumbent's is longer by the device's margin.
fn by_model(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(MODEL, cases, |i, case| untimed(case, &predicted[i].spmv_s))
}

/// What is taken of the best two predicted, timed with CSR.
fn timed(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(TWO_TIMED, cases, |i, case| best_of_few(case, &predicted[i], [2, 0]))
}

/// What effort `measure` times, and takes.
fn by_measuring(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of(MEASURE, cases, |i, case| best_of_few(case, &predicted[i], FEW))
}

/// What effort `exhaustive` takes, which times all: what can be had of these candidates.
fn by_timing_all(cases: &[Case]) -> Choices {
    Choices::of("effort exhaustive", cases, |_, case| {
        case.trials.iter().min_by(|a, b| a.spmv_s.total_cmp(&b.spmv_s))
    })
}

/// What the model takes for a million products, near ties settled toward the cheaper conversion.
fn with_ties_settled(cases: &[Case], predicted: &[Predicted]) -> Choices {
    Choices::of("model, a million products, near ties settled", cases, |i, case| {
        for_total(case, &predicted[i], 1_000_000)
    })
}

/// What a tree over row statistics takes that saw none of the family: the format, in the variant
/// that was best most often.
fn by_tree(cases: &[Case], settings: &Settings) -> Result<Choices> {
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

fn rows(cases: &[Case], predicted: &[Predicted], by_tree: Option<Choices>) -> Vec<Row> {
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
    for name in ["csr", "cusparse:alg=csr_alg1"].into_iter().filter(|name| names.contains(name)) {
        rules.push(always(name));
    }
    let score = |rule: &Choices| rule.score(cases, |_| true).map_or(0.0, |s| s.best_over_chosen);
    let single = names.into_iter().map(always).max_by(|a, b| score(a).total_cmp(&score(b)));
    rules
        .extend(single.map(|rule| Choices { rule: format!("best single: {}", rule.rule), ..rule }));
    let row = |rule: Choices| {
        let all = rule.score(cases, |_| true)?;
        Some(Row { all, large: rule.score(cases, is_large), rule: rule.rule })
    };
    rules.into_iter().filter_map(row).collect()
}

fn median_error(cases: &[Case], predicted: &[Predicted]) -> f64 {
    let mut errors = Vec::new();
    for (case, predicted) in cases.iter().zip(predicted) {
        let near_s = 2.0 * best_s(case);
        let near = case.trials.iter().zip(&predicted.spmv_s).filter(|(t, _)| t.spmv_s <= near_s);
        errors.extend(near.map(|(trial, s)| (s / trial.spmv_s - 1.0).abs()));
    }
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}

/// The confidence in each case of a model that saw all families but its own.
fn confidences_without_families(cases: &[Case]) -> Result<Vec<f64>> {
    let mut confidences = vec![0.0; cases.len()];
    for family in dataset::groups(cases, Case::kin) {
        let own: BTreeSet<usize> = family.into_iter().collect();
        let others = (0..cases.len()).filter(|i| !own.contains(i)).map(|i| &cases[i]);
        let others: Vec<&Case> = others.collect();
        let features = dataset::features(&others);
        let nearness = dataset::nearness(&others, &features)?;
        for i in own {
            confidences[i] = nearness.confidence(&dataset::values(&cases[i], &features));
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

impl Report {
    /// Notes beside each figure what a model's scores say that it reached.
    pub fn compare(&mut self, scores: &BTreeMap<String, f64>) {
        for figure in &mut self.figures {
            figure.reached = scores.get(figure.key).copied();
        }
    }

    /// The figures, as scores of a model: what [`Report::compare`] compares with.
    pub fn scores(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.figures.iter().map(|figure| (figure.key.to_string(), figure.value))
    }

    /// The figures that do not keep their bounds.
    pub fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| !figure.met())
    }

    /// The figures that are worse than what was reached before.
    pub fn fallen(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.fell())
    }

    /// The tables, as Markdown.
    pub fn markdown(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut text = format!(
            "## {} in {}\n\n{} matrices of {} families, {} of at least {LARGE_NNZ} nonzeros, {} \
             candidates timed; {}; {}.\n\n",
            self.device,
            self.precision,
            self.cases,
            self.families,
            self.large,
            self.trials,
            self.plan,
            match (self.as_is, self.profile_too) {
                (true, _) => "the model as it is, on these records",
                (false, true) =>
                    "no family on both sides of a split, of models or of the device's profile",
                (false, false) =>
                    "no family on both sides of a split, of models; the device's profile was not fitted anew",
            }
        );
        text += &figures::markdown(&self.figures);
        text += "\n| rule | best/chosen | worst | on | over incumbent | slower by 2 % | nnz >= 1e6: \
                 best/chosen | worst | over incumbent |\n";
        text += "|---|---|---|---|---|---|---|---|---|\n";
        for Row { rule, all, large } in &self.rows {
            let large = large.as_ref().map_or_else(
                || "- | - | -".to_string(),
                |s| format!("{:.3} | {:.3} | {:.2}", s.best_over_chosen, s.worst, s.speedup),
            );
            text += &format!(
                "| {rule} | {:.3} | {:.3} | {} | {:.2} | {} | {large} |\n",
                all.best_over_chosen,
                all.worst,
                all.worst_source,
                all.speedup,
                percent(all.losses)
            );
        }
        if let Some(Again { cases, best_over_chosen, worst, worst_source }) = &self.again {
            text += &format!(
                "\nTiming itself: of {cases} matrices where what is near the best was timed in two \
                 runs, what was fastest in the first reaches {best_over_chosen:.4} of the best in \
                 the second, {worst:.3} on {worst_source}.\n"
            );
        }
        text += "\n| products | total over incumbent, features and conversion counted | the least \
                 total, without a look | slower by 2 % | looked at | else in csr | in fused pcsr |\n\
                 |---|---|---|---|---|---|---|\n";
        for Total { spmvs, speedup, best, losses, looked, csr, pcsr } in &self.totals {
            let shares = [losses, looked, csr, pcsr].map(|share| percent(*share));
            text += &format!("| {spmvs} | {speedup:.3} | {best:.3} | {} |\n", shares.join(" | "));
        }
        if !self.there.is_empty() {
            text += "\n| products with a matrix that the device holds | total over incumbent, features \
                     that it counts and conversion counted | slower by 2 % | features counted |\n\
                     |---|---|---|---|\n";
        }
        for Total { spmvs, speedup, losses, looked, .. } in &self.there {
            let [losses, looked] = [losses, looked].map(|share| percent(*share));
            text += &format!("| {spmvs} | {speedup:.3} | {losses} | {looked} |\n");
        }
        text += "\n| class | matrices | best/chosen | over incumbent | confidence | never seen: \
                 best/chosen | confidence |\n|---|---|---|---|---|---|---|\n";
        for class in &self.classes {
            let shown = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:.3}"));
            text += &format!(
                "| {} | {} | {:.3} | {:.2} | {:.2} | {} | {} |\n",
                class.class,
                class.cases,
                class.best_over_chosen,
                class.speedup,
                class.confidence,
                shown(class.left_out),
                shown(class.left_out_confidence)
            );
        }
        text
    }
}
