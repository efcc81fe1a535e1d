//! The tables of an evaluation.

use std::collections::BTreeMap;

use ellect::Precision;
use serde::Serialize;

use crate::amortized::Total;
use crate::case::LARGE_NNZ;
use crate::repeatability::Repeatability;
use crate::rules::Row;
use crate::targets::{self, Figure};

/// The terms of the tables of a report.
const LEGEND: &str = "\
Best/chosen: best measured time / measured time of the choice, as a geometric mean; 1 is perfect. The \
baseline is cuSPARSE's CSR product with preprocessing on a GPU and `csr` on a host. The table of rules \
gives every class of matrices equal weight in speed-ups; totals give every matrix equal weight. A total \
is the time of all products with what was found out and the conversion. Least possible: all times \
known, nothing analysed. Of the least: least possible total / total. Best fixed choice: the candidate \
that is the best choice for all matrices together. By size, sampled, counted, analysed: share of the \
matrices for which the choice was made from the size alone, from row lengths and a few entries, from \
counted features, or from an analysis on the host; for the rest, a gate kept the baseline or picked a \
candidate. Class held out: the model saw no matrix of the class, not only none of the family.";

/// A class of matrices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Name of the class.
    pub class: String,
    /// Number of cases.
    pub cases: usize,
    /// Geometric mean of best over chosen time by models that saw other families of the class.
    pub best_over_chosen: f64,
    /// Geometric mean of the baseline's time over the time of the choice.
    pub speedup: f64,
    /// Mean confidence of models that saw all families except the case's own.
    pub confidence: f64,
    /// Best over chosen time by a model that saw no case of the class, where that was requested.
    pub left_out: Option<f64>,
    /// Mean confidence of the model that saw no case of the class.
    pub left_out_confidence: Option<f64>,
}

/// The totals for matrices of a range of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeTotals {
    /// Totals for matrices on a host.
    pub totals: Vec<Total>,
    /// Totals for matrices on the device; empty for hosts.
    pub there: Vec<Total>,
}

/// The tables of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of cases: one per matrix.
    pub cases: usize,
    /// Number of cases with at least [`LARGE_NNZ`] nonzeros.
    pub large: usize,
    /// Number of families of matrices, each wholly on one side of every split.
    pub families: usize,
    /// Number of timed candidates.
    pub trials: usize,
    /// Name of the plan.
    pub plan: String,
    /// True where the device's profile, too, was fitted without the cases left out.
    pub profile_too: bool,
    /// True where one existing model made all predictions.
    pub as_is: bool,
    /// Figures that have a goal.
    pub figures: Vec<Figure>,
    /// Scores of the rules, the model first.
    pub rows: Vec<Row>,
    /// Totals with analysis and conversion, for matrices on a host.
    pub totals: Vec<Total>,
    /// Totals for matrices on the device, chosen by features that the device counts; empty for
    /// hosts.
    pub there: Vec<Total>,
    /// Totals for matrices with fewer than [`LARGE_NNZ`] nonzeros.
    pub small: SizeTotals,
    /// Totals for the other matrices.
    pub large_totals: SizeTotals,
    /// Median of the absolute relative error of predicted times, over candidates within twice the
    /// best time.
    pub median_error: f64,
    /// Performance of the winner of one timing run in the next, where candidates were timed in
    /// several runs.
    #[serde(rename = "again")]
    pub repeatability: Option<Repeatability>,
    /// Scores by class of matrices.
    pub classes: Vec<Class>,
}

impl Report {
    /// Adds to each figure the value that a model's scores recorded for it.
    pub fn compare(&mut self, scores: &BTreeMap<String, f64>) {
        for figure in &mut self.figures {
            figure.reached = scores.get(&figure.key).copied();
        }
    }

    /// Returns the figures as scores of a model, which [`Report::compare`] accepts.
    pub fn scores(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.figures.iter().map(|figure| (figure.key.clone(), figure.value))
    }

    /// Returns the figures that miss their goals.
    pub fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| !figure.met())
    }

    /// Returns the figures that are worse than before.
    pub fn fallen(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.fell())
    }

    /// Returns the tables as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "## {} in {}\n\n{} matrices of {} families ({} with at least {LARGE_NNZ} nonzeros), {} \
             timed candidates. Plan: {}. {}.\n\n{LEGEND}\n\n",
            self.device,
            self.precision,
            self.cases,
            self.families,
            self.large,
            self.trials,
            self.plan,
            match (self.as_is, self.profile_too) {
                (true, _) => "The model is used as it is; it did not learn from these records",
                (false, true) =>
                    "Cross-validation holds each family out of both the model and the device's profile",
                (false, false) =>
                    "Cross-validation holds each family out of the model; the device's profile is not refitted",
            }
        );
        text += &targets::markdown(&self.figures);
        text += "\n| rule | best/chosen | worst | on matrix | speed-up over baseline | over 2 % slower \
                 | nnz >= 1e6: best/chosen | worst | speed-up over baseline |\n";
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
                "\nRepeatability of the timing: on {cases} matrices the candidates near the best \
                 were timed in two runs. The fastest of the first run reaches \
                 {best_over_chosen:.4} of the best in the second, at worst {worst:.3} \
                 ({worst_source}).\n"
            );
        }
        let SizeTotals { totals, there } = &self.small;
        let SizeTotals { totals: large_totals, there: large_there } = &self.large_totals;
        for (title, totals) in [
            ("Totals", &self.totals),
            ("Totals, under 1,000,000 nonzeros", totals),
            ("Totals, at least 1,000,000 nonzeros", large_totals),
            ("Totals, matrix on the device", &self.there),
            ("Totals, matrix on the device, under 1,000,000 nonzeros", there),
            ("Totals, matrix on the device, at least 1,000,000 nonzeros", large_there),
        ] {
            text += &table_of_totals(title, totals);
        }
        text += "\n| class | matrices | best/chosen | speed-up over baseline | confidence | class held \
                 out: best/chosen | confidence |\n|---|---|---|---|---|---|---|\n";
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

/// Returns a table of totals as Markdown; nothing if there are none.
fn table_of_totals(title: &str, totals: &[Total]) -> String {
    if totals.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n### {title}\n\n| products | speed-up over baseline | least possible | of the least | if looking were free | best \
         fixed choice | its speed-up | over 2 % slower | by size | sampled | counted | analysed |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    for total in totals {
        let Total { spmvs, speedup, best, fixed, fixed_speedup, losses, .. } = total;
        let Total { by_size, sampled, counted, analysed, .. } = total;
        let shares = [losses, by_size, sampled, counted, analysed].map(|share| percent(*share));
        text += &format!(
            "| {spmvs} | {speedup:.3} | {best:.3} | {:.3} | {:.3} | {fixed} | {fixed_speedup:.3} | {} |\n",
            total.of_least(),
            total.informed / best,
            shares.join(" | ")
        );
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
