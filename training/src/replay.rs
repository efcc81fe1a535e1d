//! Rules that choose, replayed on cases: what each would have taken, and how good that was.

use std::cell::Cell;

use ellect::choose::{SAMPLE_S, Thought, Workload, best_few, is_csr, read_s, settle};
use ellect::cost::Cost;
use ellect::features::{Needs, of_rows_alone};
use ellect::model::{sectors, staying, taken};
use serde::Serialize;

use crate::case::{Case, Trial, best_s, incumbent, least, named};
use crate::crossval::Predicted;
use crate::stats::{LOSS, by_class, geometric_mean, rms};
use crate::tree;
use crate::trees::Trees;

/// How well a rule chooses, over some cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Cases.
    pub cases: usize,
    /// Geometric mean of best measured time over the time of the choice.
    pub best_over_chosen: f64,
    /// Root of the mean square of regret, the time of the choice over the best one, less 1: large
    /// ones count more.
    pub rms_regret: f64,
    /// The smallest of these ratios...
    pub worst: f64,
    /// ...and the matrix it is of.
    pub worst_source: String,
    /// Geometric mean of the incumbent's time over the time of the choice, classes in equal parts.
    pub speedup: f64,
    /// Share of the cases that are slower than the incumbent by over 2 %.
    pub losses: f64,
}

/// The time of a product of what a rule takes of every case, in seconds.
pub struct Choices {
    /// The rule.
    pub rule: String,
    /// One time a case.
    pub spmv_s: Vec<f64>,
}

impl Choices {
    /// What `take` takes; the incumbent where it takes nothing.
    pub fn of<'a>(
        rule: impl Into<String>,
        cases: &'a [Case],
        take: impl Fn(usize, &'a Case) -> Option<&'a Trial>,
    ) -> Choices {
        let one = |(i, case): (usize, &'a Case)| {
            take(i, case).or_else(|| incumbent(case)).map_or(f64::NAN, |trial| trial.spmv_s)
        };
        Choices { rule: rule.into(), spmv_s: cases.iter().enumerate().map(one).collect() }
    }

    /// The score over the cases that `counts`; none where there are none.
    pub fn score(&self, cases: &[Case], counts: impl Fn(&Case) -> bool) -> Option<Score> {
        struct Taken<'a> {
            case: &'a Case,
            ratio: f64,
            speedup: f64,
        }
        let taken = cases.iter().zip(&self.spmv_s).filter(|(case, _)| counts(case));
        let taken = taken.filter_map(|(case, &spmv_s)| {
            let speedup = incumbent(case)?.spmv_s / spmv_s;
            Some(Taken { case, ratio: best_s(case) / spmv_s, speedup })
        });
        let taken: Vec<Taken<'_>> = taken.collect();
        let worst = taken.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
        let lost = taken.iter().filter(|t| t.speedup < 1.0 / (1.0 + LOSS)).count();
        Some(Score {
            cases: taken.len(),
            best_over_chosen: geometric_mean(taken.iter().map(|t| t.ratio)),
            rms_regret: rms(taken.iter().map(|t| 1.0 / t.ratio - 1.0)),
            worst: worst.ratio,
            worst_source: worst.case.source.clone(),
            speedup: by_class(taken.iter().map(|t| (t.case.class(), t.speedup))),
            losses: lost as f64 / taken.len() as f64,
        })
    }
}

/// What is taken by these times, which were not measured: the least of them, or the incumbent where
/// that is within the device's margin.
pub fn untimed<'a>(case: &'a Case, spmv_s: &[f64]) -> Option<&'a Trial> {
    let time_s = |trial: &Trial| {
        case.trials.iter().zip(spmv_s).find(|(other, _)| other.name == trial.name).map(|(_, &s)| s)
    };
    let best = least(case, |i, _| spmv_s[i])?;
    let Some(stay) = incumbent(case) else { return Some(best) };
    let (best_s, stay_s) = (time_s(best)?, time_s(stay)?);
    Some(if best_s * (1.0 + case.margin) <= stay_s { best } else { stay })
}

/// The best of what is timed where so many by prediction and by estimate are: see [`best_few`].
pub fn best_of_few<'a>(
    case: &'a Case,
    predicted: &Predicted,
    few: [usize; 2],
) -> Option<&'a Trial> {
    let times = predicted.spmv_s.iter().zip(&predicted.estimate_s);
    let thought = case.trials.iter().zip(times).map(|(trial, (&predicted_s, &estimated_s))| {
        (&trial.candidate, Thought { predicted_s, estimated_s })
    });
    let timed = best_few(thought, few);
    let timed = case.trials.iter().filter(|trial| timed.contains(&&trial.candidate));
    timed.min_by(|a, b| a.spmv_s.total_cmp(&b.spmv_s))
}

/// What is taken for so many products by predicted times and estimated conversions.
pub fn for_total<'a>(case: &'a Case, predicted: &Predicted, spmvs: u64) -> Option<&'a Trial> {
    let workload = Workload { spmvs, precision: case.precision, ..Workload::default() };
    let cost = |(trial, &spmv_s): (&'a Trial, &f64)| {
        let free = is_csr(&trial.candidate);
        let convert_s = if free { 0.0 } else { trial.estimate.convert_s };
        (trial, Cost { spmv_s, convert_s, ..trial.estimate })
    };
    let mut costs: Vec<_> = case.trials.iter().zip(&predicted.spmv_s).map(cost).collect();
    if let Some(stay) = incumbent(case) {
        let stay_s = costs.iter().find(|(trial, _)| trial.name == stay.name);
        let stay_s = stay_s.map_or(f64::INFINITY, |(_, cost)| cost.total_s(&workload));
        costs.retain(|(trial, cost)| {
            is_csr(&trial.candidate) || cost.total_s(&workload) * (1.0 + case.margin) <= stay_s
        });
    }
    costs.sort_by(|a, b| a.1.total_s(&workload).total_cmp(&b.1.total_s(&workload)));
    let taken = settle(&costs, |(trial, cost)| (&trial.candidate, cost), &workload);
    costs.get(taken).map(|(trial, _)| *trial)
}

/// Seconds that all takes for so many products where the matrix is looked at, over the seconds of
/// staying with the incumbent.
pub fn look_over_stay(case: &Case, predicted: &Predicted, spmvs: u64) -> Option<f64> {
    let n = spmvs as f64;
    let stay = incumbent(case)?;
    let taken = for_total(case, predicted, spmvs)?;
    let convert_s = if taken.name == stay.name { 0.0 } else { taken.convert_s };
    Some((case.analysis_s + convert_s + n * taken.spmv_s) / (n * stay.spmv_s))
}

/// What trees say of a case, and what they asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AtAGlance {
    /// Whether the matrix is to be looked at.
    pub looks: bool,
    /// The candidate that it is multiplied by, where it is not; none for the incumbent.
    pub taken: Option<String>,
    /// Seconds of reading the lengths of rows and of sampling entries, where a tree asked for any.
    pub read_s: f64,
}

impl AtAGlance {
    /// Walks the trees.
    pub fn of(trees: &Trees, case: &Case, spmvs: u64) -> AtAGlance {
        let of_rows =
            |name: &str| of_rows_alone().any(|f| f.name == name && f.needs() == Needs::Rows);
        let (read, sampled) = (Cell::new(false), Cell::new(false));
        let feature = |name: &str| {
            read.set(read.get() || of_rows(name));
            sampled.set(sampled.get() || name == sectors(case.precision));
            case.features.get(name).copied()
        };
        let known = tree::known(case, spmvs);
        let looks = staying(&trees.look, &known, feature).is_none();
        let taken = if looks { None } else { taken(&trees.sight, &known, feature) };
        let read_s = if read.get() { read_s(case.nrows) } else { 0.0 };
        let sample_s = if sampled.get() { SAMPLE_S } else { 0.0 };
        AtAGlance { looks, taken: taken.map(|(name, _)| name), read_s: read_s + sample_s }
    }

    /// Seconds of so many products without a look after this glance, over those with the incumbent
    /// without it.
    pub fn over_stay(&self, case: &Case, spmvs: u64) -> Option<f64> {
        let stay = incumbent(case)?;
        let taken = self.taken.as_deref().and_then(|name| named(case, name));
        let (convert_s, spmv_s) =
            taken.map_or((0.0, stay.spmv_s), |taken| (taken.convert_s, taken.spmv_s));
        let n = spmvs as f64;
        Some((self.read_s + convert_s + n * spmv_s) / (n * stay.spmv_s))
    }
}

#[cfg(test)]
mod tests {
    use ellect::choose::{CSR, INCUMBENTS};

    use super::*;
    use crate::sample_cases::{case, trial};

    #[test]
    fn what_staying_takes_is_told_beside_the_incumbent() {
        let mut case = case("stencil5", 400);
        case.trials = vec![trial("csr", 2.0), trial(INCUMBENTS[0], 4.0)];
        let over = |csr: bool, read_s, case: &Case| {
            let taken = csr.then(|| CSR.to_string());
            let glance = AtAGlance { looks: false, taken, read_s };
            glance.over_stay(case, 100).expect("an incumbent")
        };
        // The incumbent is there already: 400 us.
        assert!((over(false, 0.0, &case) - 1.0).abs() < 1e-12);
        assert!((over(false, 40e-6, &case) - 1.1).abs() < 1e-12);
        assert!((over(true, 40e-6, &case) - 0.6).abs() < 1e-12);
        case.trials.remove(0);
        assert!((over(true, 40e-6, &case) - 1.1).abs() < 1e-12, "there is no csr");
    }
}
