//! The figures of an evaluation, with their goals and the values reached before.

use ellect::Precision;
use ellect::device::Kind;
use serde::Serialize;

use crate::amortized::Total;
use crate::goals::Goals;
use crate::rules::{ESTIMATE, MEASURE, MODEL, Row, TWO_TIMED};

/// Tolerance against the value reached before: a figure that is worse by no more than this, or than
/// half of its upper bound if that is smaller, counts as equal, since trees settle ties by chance.
const TOLERANCE: f64 = 0.005;

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Lower bound.
    AtLeast(f64),
    /// Upper bound.
    AtMost(f64),
}

impl Bound {
    /// Returns whether a value satisfies the bound.
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }

    /// Returns a bound of the same direction, set by the value `reached` before.
    fn moved_to(self, reached: f64) -> Bound {
        match self {
            Bound::AtLeast(_) => Bound::AtLeast(reached - TOLERANCE),
            Bound::AtMost(most) => Bound::AtMost(reached + TOLERANCE.min(most / 2.0)),
        }
    }
}

/// A figure with its goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure.
    pub name: String,
    /// Key of the figure among the scores of a model.
    pub key: String,
    /// Value of the figure.
    pub value: f64,
    /// Goal of the figure.
    pub bound: Bound,
    /// Value that the model it is compared with reached, if there is one.
    pub reached: Option<f64>,
}

impl Figure {
    /// Returns whether the figure reaches its goal.
    pub fn met(&self) -> bool {
        self.bound.holds(self.value)
    }

    /// Returns whether the figure is worse than the value reached before.
    pub fn fell(&self) -> bool {
        self.reached.is_some_and(|reached| !self.bound.moved_to(reached).holds(self.value))
    }
}

/// Sources of the figures.
pub struct Figures<'a> {
    /// Scores of the rules.
    pub rows: &'a [Row],
    /// Totals with analysis and conversion, for matrices on a host.
    pub totals: &'a [Total],
    /// Totals for matrices on the device.
    pub there: &'a [Total],
    /// Median of the absolute relative error of predicted times.
    pub median_error: f64,
    /// Mean confidence in classes never seen, divided by the mean where other families of the class
    /// were seen; `None` where that was not tried.
    pub confidence: Option<f64>,
}

impl Figures<'_> {
    /// Returns the figures that these rows and totals provide, with the goals of this kind of
    /// device.
    pub fn of(&self, kind: Kind, precision: Precision) -> Vec<Figure> {
        use Bound::{AtLeast, AtMost};
        let goals = Goals::of(kind);
        let mut figures = Vec::new();
        let mut figure = |key: &str, name: &str, value: f64, bound: Bound| {
            let (name, key) = (name.to_string(), key.to_string());
            figures.push(Figure { name, key, value, bound, reached: None });
        };
        let row = |rule: &str| self.rows.iter().find(|row| row.rule == rule);
        if let Some(Row { all, .. }) = row(MODEL) {
            let name = "model: best/chosen";
            figure("prediction", name, all.best_over_chosen, AtLeast(goals.prediction));
            let worst = AtLeast(goals.prediction_worst);
            figure("prediction_worst", "model: worst best/chosen", all.worst, worst);
        }
        if let Some(Row { all, .. }) = row(TWO_TIMED) {
            let name = "model, best 2 timed: best/chosen";
            figure("two_timed", name, all.best_over_chosen, AtLeast(goals.two_timed));
            figure(
                "two_timed_worst",
                "model, best 2 timed: worst best/chosen",
                all.worst,
                AtLeast(goals.two_timed_worst),
            );
        }
        if let Some(Row { all, .. }) = row(MEASURE) {
            let name = "effort measure (3 by model, 1 by estimate timed): best/chosen";
            figure("measured", name, all.best_over_chosen, AtLeast(goals.measured));
            let worst = AtLeast(goals.measured_worst);
            figure("measured_worst", "effort measure: worst best/chosen", all.worst, worst);
            let name = "effort measure: share of matrices over 2 % slower than the baseline";
            figure("measure_losses", name, all.losses, AtMost(0.0));
        }
        for (totals, key, place, speedups, of_least) in [
            (self.totals, "total", "", goals.total_speedups, goals.total_of_least),
            (
                self.there,
                "there",
                ", matrix on the device",
                goals.there_speedups,
                goals.there_of_least,
            ),
        ] {
            for total in totals {
                let spmvs = total.spmvs;
                let of = format!("total for {spmvs} products{place}");
                let name = format!("{of}: share over 2 % slower");
                figure(&format!("{key}_losses_{spmvs}"), &name, total.losses, AtMost(0.005));
                for (word, what, goals, value) in [
                    ("speedup", "speed-up", speedups, total.speedup),
                    ("of_least", "least possible / total", of_least, total.of_least()),
                ] {
                    if let Some((_, least)) = goals.iter().find(|goal| goal.0 == spmvs) {
                        let (key, name) =
                            (format!("{key}_{word}_{spmvs}"), format!("{of}: {what}"));
                        figure(&key, &name, value, AtLeast(*least));
                    }
                }
            }
        }
        if let Some(large) = row(MEASURE).and_then(|row| row.large.as_ref()) {
            let least = goals.speedup_large(precision);
            let name = "effort measure, nnz >= 1e6: speed-up, classes weighted equally";
            figure("speedup_large", name, large.speedup, AtLeast(least));
        }
        let name = "median relative error of predictions, candidates within 2x of the best";
        figure("median_error", name, self.median_error, AtMost(goals.median_error));
        if let Some(Row { all, .. }) = row(ESTIMATE) {
            let name = "estimate: best/chosen";
            figure("estimate", name, all.best_over_chosen, AtLeast(goals.estimate));
        }
        if let Some(confidence) = self.confidence {
            let name = "mean confidence: class held out / family held out";
            figure("unseen_confidence", name, confidence, AtMost(1.0));
        }
        figures
    }
}

/// Returns the figures of these totals, as scores of a model.
pub fn scores_of_totals(totals: &[Total], there: &[Total]) -> Vec<(String, f64)> {
    let figures = Figures { rows: &[], totals, there, median_error: 0.0, confidence: None };
    // Values depend neither on the kind of device nor, without rows, on the precision.
    let figures = figures.of(Kind::Gpu, Precision::F64).into_iter();
    let of_totals = |key: &str| key.starts_with("there_") || key.starts_with("total_");
    let figures = figures.filter(|figure| of_totals(&figure.key));
    figures.map(|figure| (figure.key, figure.value)).collect()
}

/// Returns the table of figures as Markdown.
pub fn markdown(figures: &[Figure]) -> String {
    let mut text =
        "| figure | value | goal | reached before | |\n|---|---|---|---|---|\n".to_string();
    for figure in figures {
        let bound = match figure.bound {
            Bound::AtLeast(least) => format!(">= {least}"),
            Bound::AtMost(most) => format!("<= {most}"),
        };
        let reached = figure.reached.map_or("-".into(), |reached| format!("{reached:.4}"));
        let word = match (figure.fell(), figure.met()) {
            (true, _) => "FELL",
            (false, true) => "met",
            (false, false) => "missed",
        };
        let Figure { name, value, .. } = figure;
        text += &format!("| {name} | {value:.4} | {bound} | {reached} | {word} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_falls_where_it_is_worse_than_what_was_reached() {
        let figure = |value, bound, reached| Figure {
            name: "one".into(),
            key: "one".into(),
            value,
            bound,
            reached: Some(reached),
        };
        let least = Bound::AtLeast(0.985);
        let missed = figure(0.97, least, 0.971);
        assert!(!missed.met() && !missed.fell());
        assert!(figure(0.96, least, 0.97).fell());
        let met = figure(0.986, least, 0.999);
        assert!(met.met() && met.fell());
        // For a share with a small upper bound, half of the bound is already a large change.
        for (most, more) in [(0.0, 0.0), (0.005, 0.0025), (0.08, 0.005)] {
            let bound = Bound::AtMost(most);
            assert!(!figure(0.001 + more - 1e-9, bound, 0.001).fell(), "{most}");
            assert!(figure(0.001 + more + 1e-9, bound, 0.001).fell(), "{most}");
            assert!(!figure(0.0, bound, 0.5).fell());
        }
        let none = Figure { reached: None, ..missed };
        assert!(!none.fell());
        assert!(markdown(&[none]).ends_with("| one | 0.9700 | >= 0.985 | - | missed |\n"));
    }
}
