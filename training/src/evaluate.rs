//! Evaluation: the choice replayed on records, beside what simpler rules would have taken.
//!
//! Every prediction is made by a model that saw no matrix of the same family. Nothing is timed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use ellect::choose::INCUMBENTS;
use serde::Serialize;

use crate::case::{Case, Trial};
use crate::train::{Plan, Predicted, Settings, cross_validate, leave_one_out};

/// Matrices of at least so many nonzeros are reported alone too.
pub const LARGE_NNZ: u64 = 1_000_000;

/// Slower than the incumbent by more than this share counts as a loss.
const LOSS: f64 = 0.02;

/// The products that totals with conversion are reported for.
const SPMVS: [u64; 3] = [100, 1000, 10_000];

/// How well one rule chooses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The rule.
    pub rule: String,
    /// Geometric mean of best measured time over the time of the choice.
    pub best_over_chosen: f64,
    /// The same for matrices of at least [`LARGE_NNZ`] nonzeros; none where there are none.
    pub large: Option<f64>,
    /// The smallest of these ratios...
    pub worst: f64,
    /// ...and the matrix it is of.
    pub worst_source: String,
    /// Geometric mean of the incumbent's time over the time of the choice.
    pub speedup: f64,
    /// Matrices slower than the incumbent by over 2 %, as a share.
    pub losses: f64,
}

/// Totals with conversion against staying with the incumbent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    /// Products.
    pub spmvs: u64,
    /// Geometric mean of the incumbent's total over the total of the choice.
    pub speedup: f64,
    /// Matrices whose total is worse by over 2 %, as a share.
    pub losses: f64,
}

/// One family left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Family {
    /// The family.
    pub family: String,
    /// Its cases.
    pub cases: usize,
    /// Geometric mean of best over chosen by a model that saw all the others.
    pub best_over_chosen: f64,
    /// Mean confidence of that model.
    pub confidence: f64,
}

/// The tables of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Device and precision.
    pub title: String,
    /// Cases.
    pub cases: usize,
    /// Families of matrices.
    pub families: usize,
    /// The learner and what its predictions multiply.
    pub plan: String,
    /// The rules, the model first.
    pub rows: Vec<Row>,
    /// Totals with conversion (features not counted), chosen by predicted and estimated times.
    pub totals: Vec<Total>,
    /// Median of the absolute error of predicted times, candidates within twice the best.
    pub median_error: f64,
    /// Every family left out.
    pub left_out: Vec<Family>,
}

/// Replays the choice on cases of one device and precision.
///
/// # Errors
/// Cases of one family only, and what learners say.
pub fn evaluate(cases: &[Case], plan: Plan, settings: &Settings) -> Result<Report> {
    let predicted = cross_validate(cases, plan, settings)?;
    let left_out = leave_one_out(cases, plan, settings)?;
    let title = cases.first().map(|c| format!("{} in {}", c.device, c.precision));
    let families: BTreeSet<&str> = cases.iter().map(|case| case.family.as_str()).collect();
    Ok(Report {
        title: title.unwrap_or_default(),
        cases: cases.len(),
        families: families.len(),
        plan: format!("{} over the {:?}", plan.learner.name(), plan.base).to_lowercase(),
        rows: rows(cases, &predicted),
        totals: SPMVS.map(|spmvs| total(cases, &predicted, spmvs)).to_vec(),
        median_error: median_error(cases, &predicted),
        left_out: families.iter().map(|family| one_left_out(cases, &left_out, family)).collect(),
    })
}

/// The figures that are noted in a model.
pub fn scores(cases: &[Case], predicted: &[Predicted]) -> BTreeMap<String, f64> {
    let row = row("model", cases, |i| Some(cheapest(cases, predicted, i)));
    BTreeMap::from([
        ("best_over_chosen".to_string(), row.best_over_chosen),
        ("worst".to_string(), row.worst),
        ("median_error".to_string(), median_error(cases, predicted)),
        ("cases".to_string(), cases.len() as f64),
    ])
}

/// The geometric mean; 1 of nothing.
fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value.ln(), n + 1));
    (sum / count.max(1) as f64).exp()
}

fn least(trials: &[Trial], by: impl Fn(usize, &Trial) -> f64) -> Option<&Trial> {
    let order = |a: &(usize, &Trial), b: &(usize, &Trial)| by(a.0, a.1).total_cmp(&by(b.0, b.1));
    trials.iter().enumerate().min_by(order).map(|(_, trial)| trial)
}

fn named<'a>(case: &'a Case, name: &str) -> Option<&'a Trial> {
    case.trials.iter().find(|trial| trial.name == name)
}

/// What a program has without a choice.
fn incumbent(case: &Case) -> Option<&Trial> {
    INCUMBENTS.into_iter().find_map(|name| named(case, name))
}

fn best_s(case: &Case) -> f64 {
    case.trials.iter().map(|trial| trial.spmv_s).fold(f64::INFINITY, f64::min)
}

/// The least predicted time.
fn cheapest(cases: &[Case], predicted: &[Predicted], i: usize) -> f64 {
    let spmv_s = &predicted[i].spmv_s;
    least(&cases[i].trials, |j, _| spmv_s[j]).map_or(f64::NAN, |trial| trial.spmv_s)
}

/// The best of the incumbent and of the `few` with the least predicted times, all timed.
fn best_of_few(case: &Case, predicted: &Predicted, few: usize) -> Option<f64> {
    let mut order: Vec<usize> = (0..case.trials.len()).collect();
    order.sort_by(|&a, &b| predicted.spmv_s[a].total_cmp(&predicted.spmv_s[b]));
    let timed = order.iter().take(few).map(|&j| &case.trials[j]).chain(incumbent(case));
    timed.map(|trial| trial.spmv_s).min_by(f64::total_cmp)
}

/// A rule that takes a trial of `spmv_s(i)` seconds for case `i`; none where it has nothing to
/// take, which counts as the incumbent.
fn row(rule: &str, cases: &[Case], spmv_s: impl Fn(usize) -> Option<f64>) -> Row {
    struct Taken<'a> {
        case: &'a Case,
        ratio: f64,
        speedup: f64,
    }
    let taken = cases.iter().enumerate().filter_map(|(i, case)| {
        let base_s = incumbent(case)?.spmv_s;
        let chosen_s = spmv_s(i).unwrap_or(base_s);
        Some(Taken { case, ratio: best_s(case) / chosen_s, speedup: base_s / chosen_s })
    });
    let taken: Vec<Taken<'_>> = taken.collect();
    let large = || taken.iter().filter(|t| t.case.nnz >= LARGE_NNZ).map(|t| t.ratio);
    let worst = taken.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let lost = taken.iter().filter(|t| t.speedup < 1.0 / (1.0 + LOSS)).count();
    Row {
        rule: rule.to_string(),
        best_over_chosen: geometric_mean(taken.iter().map(|t| t.ratio)),
        large: large().next().is_some().then(|| geometric_mean(large())),
        worst: worst.map_or(1.0, |t| t.ratio),
        worst_source: worst.map_or_else(String::new, |t| t.case.source.clone()),
        speedup: geometric_mean(taken.iter().map(|t| t.speedup)),
        losses: lost as f64 / taken.len().max(1) as f64,
    }
}

fn rows(cases: &[Case], predicted: &[Predicted]) -> Vec<Row> {
    let always = |name: &str| {
        row(&format!("always {name}"), cases, |i| named(&cases[i], name).map(|trial| trial.spmv_s))
    };
    let names: BTreeSet<&str> =
        cases.iter().flat_map(|case| case.trials.iter().map(|t| t.name.as_str())).collect();
    let single = names
        .into_iter()
        .map(always)
        .max_by(|a, b| a.best_over_chosen.total_cmp(&b.best_over_chosen));
    let mut rows = vec![
        row("model", cases, |i| Some(cheapest(cases, predicted, i))),
        row("model, 2 timed", cases, |i| best_of_few(&cases[i], &predicted[i], 2)),
        row("estimate", cases, |i| {
            least(&cases[i].trials, |_, trial| trial.estimate.spmv_s).map(|trial| trial.spmv_s)
        }),
    ];
    for name in ["csr", "cusparse:alg=csr_alg1"] {
        if cases.iter().any(|case| named(case, name).is_some()) {
            rows.push(always(name));
        }
    }
    rows.extend(single.map(|row| Row { rule: format!("best single: {}", row.rule), ..row }));
    rows
}

fn total(cases: &[Case], predicted: &[Predicted], spmvs: u64) -> Total {
    let n = spmvs as f64;
    let ratio = |(case, predicted): (&Case, &Predicted)| {
        let expected = |j: usize, t: &Trial| t.estimate.convert_s + n * predicted.spmv_s[j];
        let chosen = least(&case.trials, expected)?;
        let stay_s = n * incumbent(case)?.spmv_s;
        Some(stay_s / (chosen.convert_s + n * chosen.spmv_s))
    };
    let ratios: Vec<f64> = cases.iter().zip(predicted).filter_map(ratio).collect();
    let lost = ratios.iter().filter(|&&ratio| ratio < 1.0 / (1.0 + LOSS)).count();
    Total {
        spmvs,
        speedup: geometric_mean(ratios.iter().copied()),
        losses: lost as f64 / ratios.len().max(1) as f64,
    }
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

fn one_left_out(cases: &[Case], predicted: &[Predicted], family: &str) -> Family {
    let own: Vec<usize> = (0..cases.len()).filter(|&i| cases[i].family == family).collect();
    let ratios = own.iter().map(|&i| best_s(&cases[i]) / cheapest(cases, predicted, i));
    let confidence: f64 = own.iter().map(|&i| predicted[i].confidence).sum();
    Family {
        family: family.to_string(),
        cases: own.len(),
        best_over_chosen: geometric_mean(ratios),
        confidence: confidence / own.len().max(1) as f64,
    }
}

impl Report {
    /// The tables, as Markdown.
    pub fn markdown(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut text = format!(
            "## {}\n{} cases of {} families; {}; no family on both sides of a split\n\n",
            self.title, self.cases, self.families, self.plan
        );
        text +=
            "| rule | best/chosen | nnz >= 1e6 | worst | on | over incumbent | slower by 2 % |\n";
        text += "|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let large = row.large.map_or_else(|| "-".to_string(), |large| format!("{large:.3}"));
            text += &format!(
                "| {} | {:.3} | {large} | {:.3} | {} | {:.2} | {} |\n",
                row.rule,
                row.best_over_chosen,
                row.worst,
                row.worst_source,
                row.speedup,
                percent(row.losses)
            );
        }
        text += "\n| products | total over incumbent, conversion counted | slower by 2 % |\n|---|---|---|\n";
        for total in &self.totals {
            let (speedup, losses) = (total.speedup, percent(total.losses));
            text += &format!("| {} | {speedup:.2} | {losses} |\n", total.spmvs);
        }
        let error = percent(self.median_error);
        text += &format!("\nMedian error of times, candidates within 2x of the best: {error}\n");
        text += "\n| family left out | cases | best/chosen | confidence |\n|---|---|---|---|\n";
        for family in &self.left_out {
            text += &format!(
                "| {} | {} | {:.3} | {:.2} |\n",
                family.family, family.cases, family.best_over_chosen, family.confidence
            );
        }
        text
    }
}
