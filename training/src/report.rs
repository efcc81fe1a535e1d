//! The tables of an evaluation.

use std::collections::BTreeMap;

use ellect::Precision;
use serde::Serialize;

use crate::amortized::Total;
use crate::repeatability::Repeatability;
use crate::rules::{LARGE_NNZ, Row};
use crate::targets::{self, Figure};

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
    /// How well the winner of one run of timing does in the next, where some were timed in several.
    #[serde(rename = "again")]
    pub repeatability: Option<Repeatability>,
    /// Classes of matrices.
    pub classes: Vec<Class>,
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
        text += &targets::markdown(&self.figures);
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
        if let Some(Repeatability { cases, best_over_chosen, worst, worst_source }) =
            &self.repeatability
        {
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
