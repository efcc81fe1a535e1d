//! Model cards: how a model was made, how well it chooses, and where it fails.

use anyhow::{Context, Result};
use ellect::Precision;
use ellect::unstable::model::QuickPick;

use crate::case::{Case, best_s, least};
use crate::crossval::Predicted;
use crate::plot;
use crate::report::Report;
use crate::rules::{MODEL, Row, rules};
use crate::settings::Settings;
use crate::stats::geometric_mean;
use crate::train::Trained;

/// Number of matrices that a card lists where the model chooses worst.
const WORST: usize = 10;

/// Returns the card, as Markdown, of the model that the report describes.
pub fn card(cases: &[Case], trained: &Trained, report: &Report) -> String {
    let model = &trained.model;
    let mut text = format!(
        "# Model of {} in {}{}\n\nThe model predicts the time of one product y = A x for every \
         candidate (a storage format with its parameters). Each format has one regressor of the \
         logarithm of a ratio of times. All use the plan '{}', which had the least regret in \
         cross-validation over families of matrices. The tables below score the choices that the \
         predictions lead to, on matrices of families held out of the training.",
        model.device,
        model.precision,
        if model.several { ", for products with several vectors" } else { "" },
        model.plan
    );
    if let Some(Row { all, .. }) = report.rows.iter().find(|row| row.rule == MODEL) {
        text += &format!(
            " The choice by predictions alone reaches {:.4} of the speed of the best candidate \
             (geometric mean over {} matrices), {:.4} on the worst matrix.",
            all.best_over_chosen, all.cases, all.worst
        );
    }
    text += &format!("\n\n{}\n\n", how_to_plot(&model.device, model.precision));
    text += &format!(
        "| | |\n|---|---|\n| schema | {} |\n| data hash | {} |\n| seed | {} |\n| commit | {} |\n\
         | features | {} |\n| formats | {} |\n\n",
        model.schema,
        model.data,
        model.seed,
        if model.commit.is_empty() { "-" } else { &model.commit },
        model.features.len(),
        model.formats.keys().cloned().collect::<Vec<_>>().join(", ")
    );
    text += "A plan is a learner and the quantity that its trees multiply: the estimate by closed \
             formulas, the byte floor (time to move the format's bytes), or their mean. Regret is time \
             of the choice / best measured time - 1.\n\n| plan | regret (root mean square) |\n|---|---|\n";
    for (plan, score) in model.scores.iter().filter(|(name, _)| name.contains("_over_the_")) {
        text += &format!("| {} | {score:.4} |\n", plan.replace('_', " "));
    }
    text += &format!("\n{}\n", report.markdown());
    text += "## Worst choices\n\nThe candidate with the least predicted time against the candidate \
             with the best measured time.\n\n| matrix | class | chosen | best | best/chosen | \
             confidence |\n|---|---|---|---|---|---|\n";
    for (ratio, case, predicted, chosen, best) in worst(cases, &trained.predicted) {
        text += &format!(
            "| {} | {} | {chosen} | {best} | {ratio:.3} | {:.2} |\n",
            case.source,
            case.class(),
            predicted.confidence
        );
    }
    text += "\n## Confidence\n\nConfidence is 1 for a matrix of \
             the training set and falls toward 0 far from all of them.\n\n| confidence | matrices | best/chosen, geometric mean |\n|---|---|---|\n";
    for (low, high) in [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01)] {
        let within = cases.iter().zip(&trained.predicted);
        let within = within.filter(|(_, p)| p.confidence >= low && p.confidence < high);
        let ratios: Vec<f64> = within.filter_map(|(case, p)| ratio(case, p)).collect();
        let (count, mean) = (ratios.len(), geometric_mean(ratios.into_iter()));
        text += &format!("| {low} to {:.2} | {count} | {mean:.3} |\n", f64::min(high, 1.0));
    }
    text + "\n## Rules of thumb\n\nA decision tree (linfa) over features that a reader can check by \
            eye. It explains choices and makes none.\n\n```\n"
        + &model.rules.text()
        + "```\n\n## When to analyse the matrix\n\nA decision tree (linfa) over row lengths and the \
           number of products. Effort `predict` asks it before anything else. It was trained on \
           whether features, estimates and conversion together cost less than they save over the \
           choice without analysis. `look`: analyse the matrix; `stay`: do not. `spmvs`: number of \
           products; `reading_share`: time to read all row lengths / time of all products with the \
           baseline; `sampling_share`: the same for sampling entries; `longest_row_a_us`: nonzeros of \
           the longest row per microsecond of a product.\n\n```\n"
        + &model.gate.text()
        + "```\n"
        + &without_analysis(&model.quick_picks)
}

/// Returns the sentence with the command that draws the plots of a model.
fn how_to_plot(device: &str, precision: Precision) -> String {
    format!(
        "Regret, predictions and winning formats are drawn by `ellect evaluate --quick --device \
         {device} --precision {precision} --plots DIR`."
    )
}

/// Returns the section on the trees that choose without an analysis; empty where there are none.
fn without_analysis(quick_picks: &[QuickPick]) -> String {
    if quick_picks.is_empty() {
        return String::new();
    }
    let text = "\n## Choice without analysis\n\nThese trees choose a candidate where the matrix is not \
                analysed. The first tree that names a candidate decides; `stay` passes on to the next, \
                and the last `stay` keeps the baseline. A tree names its candidate where that takes \
                less time, conversion included, than the choice without the tree.\n";
    let tree =
        |without_analysis: &QuickPick| format!("\n```\n{}```\n", without_analysis.rules.text());
    text.to_string() + &quick_picks.iter().map(tree).collect::<String>()
}

fn ratio(case: &Case, predicted: &Predicted) -> Option<f64> {
    let chosen = least(case, |j, _| predicted.spmv_s[j])?;
    Some(best_s(case) / chosen.spmv_s)
}

type Miss<'a> = (f64, &'a Case, &'a Predicted, &'a str, &'a str);

/// Returns the worst choices, worst first.
fn worst<'a>(cases: &'a [Case], predicted: &'a [Predicted]) -> Vec<Miss<'a>> {
    let miss = |(case, predicted): (&'a Case, &'a Predicted)| {
        let chosen = least(case, |j, _| predicted.spmv_s[j])?;
        let best = least(case, |_, trial| trial.spmv_s)?;
        let ratio = best.spmv_s / chosen.spmv_s;
        Some((ratio, case, predicted, chosen.name.as_str(), best.name.as_str()))
    };
    let mut all: Vec<Miss<'a>> = cases.iter().zip(predicted).filter_map(miss).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.truncate(WORST);
    all
}

/// Draws regret, predictions and winning formats. Returns the SVG text of each plot with the word
/// that names its file. All cases must be of one device and precision.
///
/// # Errors
/// Fails where there are no cases, or where the drawing library or linfa fails.
pub fn plots(
    cases: &[Case],
    predicted: &[Predicted],
    settings: &Settings,
) -> Result<Vec<(&'static str, String)>> {
    let first = cases.first().context("there are no cases to draw")?;
    let of = format!("{} in {}", first.device, first.precision);
    let rules = rules(cases, predicted, settings)?;
    let large = |case: &&Case| case.is_large();
    let winners = match cases.iter().any(|case| large(&case)) {
        true => plot::winners(
            &format!("Formats that win, {of}, nnz >= 1e6"),
            &cases.iter().filter(large).cloned().collect::<Vec<_>>(),
        ),
        false => plot::winners(&format!("Formats that win, {of}"), cases),
    };
    Ok(vec![
        ("regret", plot::regret(&format!("Regret of rules, {of}"), cases, &rules)?),
        ("predictions", plot::predictions(&format!("Predictions, {of}"), cases, predicted)?),
        ("winners", winners?),
    ])
}
