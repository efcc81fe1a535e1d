//! Rules that choose, replayed on cases: what each would have taken, and how good that was.

use std::collections::BTreeMap;

use ellect::choose::{By, Thought, Workload, best_few, trusted};
use ellect::cost::Cost;
use ellect::format::baseline;
use ellect::model::{QuickPick, Rules};
use serde::Serialize;

use crate::case::{Case, Trial};
use crate::train::Predicted;
use crate::tree;

/// Slower than the incumbent by more than this share counts as a loss.
pub const LOSS: f64 = 0.02;

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

/// The geometric mean; 1 of nothing.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value.ln(), n + 1));
    (sum / count.max(1) as f64).exp()
}

/// The root of the mean square; 0 of nothing.
fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value * value, n + 1));
    (sum / count.max(1) as f64).sqrt()
}

/// The geometric mean over classes of their geometric means.
pub fn by_class<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> f64 {
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (class, value) in values {
        classes.entry(class).or_default().push(value);
    }
    geometric_mean(classes.into_values().map(|values| geometric_mean(values.into_iter())))
}

/// The trial with the least of these numbers, which stand beside the trials.
pub fn least(case: &Case, by: impl Fn(usize, &Trial) -> f64) -> Option<&Trial> {
    let order = |a: &(usize, &Trial), b: &(usize, &Trial)| by(a.0, a.1).total_cmp(&by(b.0, b.1));
    case.trials.iter().enumerate().min_by(order).map(|(_, trial)| trial)
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
    // As if no conversion took any time.
    let cost = |trial: &Trial, spmv_s| Cost { convert_s: 0.0, spmv_s, ..trial.estimate };
    let [best_cost, stay_cost] = [cost(best, best_s), cost(stay, stay_s)];
    let (of_best, of_stay) = ((&best.candidate, &best_cost), (&stay.candidate, &stay_cost));
    let workload = Workload { spmvs: 1, precision: case.precision, ..Workload::default() };
    let trusts = trusted(of_best, of_stay, By::Analysis, case.margin, &workload);
    Some(if trusts { best } else { stay })
}

/// The trial of this candidate.
pub fn named<'a>(case: &'a Case, name: &str) -> Option<&'a Trial> {
    case.trials.iter().find(|trial| trial.name == name)
}

/// What a program has without a choice.
pub fn incumbent(case: &Case) -> Option<&Trial> {
    baseline(&case.trials, |trial| &trial.candidate)
}

/// The least measured time, in seconds.
pub fn best_s(case: &Case) -> f64 {
    case.trials.iter().map(|trial| trial.spmv_s).fold(f64::INFINITY, f64::min)
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

/// The trees that are asked at sight: [`Model::gate`](ellect::model::Model::gate) and
/// [`Model::quick_picks`](ellect::model::Model::quick_picks).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trees {
    /// Whether a look pays.
    pub look: Rules,
    /// Where it does not, what is taken.
    pub sight: Vec<QuickPick>,
}

impl Trees {
    /// The same where no matrix is looked at.
    pub fn without_look(&self) -> Trees {
        Trees { look: tree::stay(), sight: self.sight.clone() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ellect::cost::{Cost, Source, TERMS};
    use ellect::format::{BASELINES, CSR};

    use super::*;
    use crate::policy_replay::AtAGlance;
    use crate::sight::trees;
    use crate::tree::tests::case;

    /// A trial of so many microseconds a product.
    pub(crate) fn trial(name: &str, spmv_us: f64) -> Trial {
        let spmv_s = spmv_us * 1e-6;
        let convert_s = if name == CSR { 0.0 } else { 1e-3 };
        let source = Source::Estimated;
        Trial {
            candidate: name.parse().expect("a candidate"),
            name: name.to_string(),
            terms: [1.0; TERMS.len()],
            estimate: Cost { convert_s, update_s: 0.0, spmv_s, bytes: 1, source },
            convert_s,
            spmv_s,
            runs_s: Vec::new(),
        }
    }

    #[test]
    fn what_staying_takes_is_told_beside_the_incumbent() {
        let mut case = case("stencil5", 400);
        case.trials = vec![trial("csr", 2.0), trial(BASELINES[0], 4.0)];
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

    #[test]
    fn csr_is_taken_where_it_takes_less_and_a_look_has_to_take_less_still() {
        let of = |i: usize| {
            let class = ["stencil5", "power_law"][i % 2];
            let csr_us = [2.0, 80.0][i % 2];
            let best_us = [1.9, 1.0][i % 2];
            let mut case = case(class, 400 + 2 * i);
            case.stay_s = 4e-6;
            case.analysis_s = 1e-3;
            case.trials = vec![trial(BASELINES[0], 4.0), trial(CSR, csr_us), trial("hll", best_us)];
            case
        };
        let cases: Vec<Case> = (0..200).map(of).collect();
        let taken = |case: &Case| {
            let spmv_s: Vec<f64> = case.trials.iter().map(|trial| trial.spmv_s).collect();
            Predicted { estimate_s: spmv_s.clone(), spmv_s, confidence: 1.0 }
        };
        let predicted: Vec<Predicted> = cases.iter().map(taken).collect();
        let seen: Vec<usize> = (0..cases.len()).collect();
        let gpu = trees(&cases, &predicted, &seen).expect("examples");
        let glance = |case, spmvs| AtAGlance::of(&gpu, case, spmvs);
        for (case, few, many) in [(&cases[0], true, false), (&cases[1], false, true)] {
            let AtAGlance { looks, taken, read_s } = glance(case, 100);
            let csr = taken.as_deref() == Some(CSR);
            assert_eq!((looks, csr, read_s > 0.0), (false, few, true), "{}", case.source);
            // hll takes half of the incumbent's time on both, but hardly less than csr.
            assert_eq!(glance(case, 10_000).looks, many, "{}", case.source);
        }
        // Of hardly any products, nothing is read.
        assert_eq!(glance(&cases[0], 1), AtAGlance { looks: false, taken: None, read_s: 0.0 });

        // Where csr is the incumbent there is nothing to ask.
        let host = |case: &Case| {
            let trials = case.trials[1..].to_vec();
            Case { trials, ..case.clone() }
        };
        let cases: Vec<Case> = cases.iter().map(host).collect();
        let predicted: Vec<Predicted> = cases.iter().map(taken).collect();
        assert_eq!(trees(&cases, &predicted, &seen).expect("examples").sight, []);
    }
}
