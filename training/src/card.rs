//! Model cards: how a model was made, how well it chooses, and where it fails.

use anyhow::Result;
use ellect::model::QuickPick;

use crate::case::Case;
use crate::evaluate::{self, Report, rules};
use crate::plot;
use crate::replay::{best_s, geometric_mean, least};
use crate::train::{Predicted, Settings, Trained};

/// Matrices that a card names where the model chooses worst.
const WORST: usize = 10;

/// The card, as Markdown, of a model that this report is of.
pub fn card(cases: &[Case], trained: &Trained, report: &Report) -> String {
    let model = &trained.model;
    let mut text = format!(
        "# Model of {} in {}\n\nPredicts the time of one product of every candidate: one regressor \
         a format, of the logarithm of a ratio of times, by {}, the plan that cross-validation over \
         families found best.\n\n",
        model.device, model.precision, model.plan
    )
    .to_string();
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
    text += "Plans, by the root mean square of regret, the time of the choice over the best one, less \
         1:\n\n| plan | regret |\n|---|---|\n";
    for (plan, score) in model.scores.iter().filter(|(name, _)| name.contains("_over_the_")) {
        text += &format!("| {} | {score:.4} |\n", plan.replace('_', " "));
    }
    text += &format!("\n{}\n", report.markdown());
    text += "## Where it fails\n\n| matrix | class | chosen | best | best/chosen | confidence |\n\
             |---|---|---|---|---|---|\n";
    for (ratio, case, predicted, chosen, best) in worst(cases, &trained.predicted) {
        text += &format!(
            "| {} | {} | {chosen} | {best} | {ratio:.3} | {:.2} |\n",
            case.source,
            case.class(),
            predicted.confidence
        );
    }
    text += "\n## Confidence\n\n| confidence | matrices | best/chosen |\n|---|---|---|\n";
    for (low, high) in [(0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.01)] {
        let within = cases.iter().zip(&trained.predicted);
        let within = within.filter(|(_, p)| p.confidence >= low && p.confidence < high);
        let ratios: Vec<f64> = within.filter_map(|(case, p)| ratio(case, p)).collect();
        let (count, mean) = (ratios.len(), geometric_mean(ratios.into_iter()));
        text += &format!("| {low} to {:.2} | {count} | {mean:.3} |\n", f64::min(high, 1.0));
    }
    text + "\n## Rules of thumb\n\nA tree by linfa over features that a person can see; it explains \
            and does not choose.\n\n```\n"
        + &model.rules.text()
        + "```\n\n## When it looks\n\nA tree by linfa over the lengths of rows and the products to \
           come, trained on whether features, estimates and conversion paid beside what is taken \
           without a look; what is prepared by effort predict asks it first.\n\n```\n"
        + &model.gate.text()
        + "```\n"
        + &at_sight(&model.quick_picks)
}

/// The trees of what is taken without a look, where there are any.
fn at_sight(sight: &[QuickPick]) -> String {
    if sight.is_empty() {
        return String::new();
    }
    let text = "\n## What it takes without a look\n\nThe same where it does not look: the first of these \
                that takes less, conversion counted, than what is taken without it.\n";
    let tree = |at_sight: &QuickPick| format!("\n```\n{}```\n", at_sight.rules.text());
    text.to_string() + &sight.iter().map(tree).collect::<String>()
}

fn ratio(case: &Case, predicted: &Predicted) -> Option<f64> {
    let chosen = least(case, |j, _| predicted.spmv_s[j])?;
    Some(best_s(case) / chosen.spmv_s)
}

type Miss<'a> = (f64, &'a Case, &'a Predicted, &'a str, &'a str);

/// The worst choices.
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

/// The plots of a model, each with the word that its file is named by.
///
/// # Errors
/// What the drawing library and linfa say.
pub fn plots(
    cases: &[Case],
    trained: &Trained,
    settings: &Settings,
) -> Result<Vec<(&'static str, String)>> {
    let of = format!("{} in {}", trained.model.device, trained.model.precision);
    let rules = rules(cases, &trained.predicted, settings)?;
    let large = |case: &&Case| case.nnz >= evaluate::LARGE_NNZ;
    let winners = match cases.iter().any(|case| large(&case)) {
        true => plot::winners(
            &format!("Formats that win, {of}, nnz >= 1e6"),
            &cases.iter().filter(large).cloned().collect::<Vec<_>>(),
        ),
        false => plot::winners(&format!("Formats that win, {of}"), cases),
    };
    Ok(vec![
        ("regret", plot::regret(&format!("Regret of rules, {of}"), cases, &rules)?),
        (
            "predictions",
            plot::predictions(&format!("Predictions, {of}"), cases, &trained.predicted)?,
        ),
        ("winners", winners?),
    ])
}
