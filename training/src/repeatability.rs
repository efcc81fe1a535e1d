//! Repeatability: how well the winner of one timing run does in the next. This bounds what any
//! choice by measured times can reach.

use serde::Serialize;

use crate::case::{Case, Trial};
use crate::stats::geometric_mean;

/// Minimum number of candidates with two runs for a case to count.
const FEWEST: usize = 3;

/// Performance in the second run of the candidate that was fastest in the first run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeatability {
    /// Number of cases whose fastest candidates ran twice.
    pub cases: usize,
    /// Geometric mean of the best time of the second run divided by the time of the choice in that
    /// run.
    pub best_over_chosen: f64,
    /// Smallest of these ratios over the cases.
    pub worst: f64,
    /// Source of the case with the smallest ratio.
    pub worst_source: String,
}

impl Repeatability {
    /// Evaluates the cases where the fastest candidate of the first run and some others ran once
    /// more. Returns `None` if there are none.
    pub fn of(cases: &[Case]) -> Option<Self> {
        let shares = cases.iter().filter_map(|case| Some((share(case)?, case.source.as_str())));
        let shares: Vec<(f64, &str)> = shares.collect();
        let &(worst, source) = shares.iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Repeatability {
            cases: shares.len(),
            best_over_chosen: geometric_mean(shares.iter().map(|share| share.0)),
            worst,
            worst_source: source.to_string(),
        })
    }
}

/// Returns the best time of the second run, divided by the second time of the candidate that was
/// fastest in the first.
fn share(case: &Case) -> Option<f64> {
    let first = |a: &&Trial, b: &&Trial| a.runs_s[0].total_cmp(&b.runs_s[0]);
    let timed = case.trials.iter().filter(|trial| !trial.runs_s.is_empty());
    let chosen_s = timed.min_by(first)?.runs_s.get(1)?;
    let second: Vec<f64> = case.trials.iter().filter_map(|t| t.runs_s.get(1).copied()).collect();
    let best_s = second.iter().copied().min_by(f64::total_cmp)?;
    (second.len() >= FEWEST).then_some(best_s / chosen_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_cases::{case, trial};

    #[test]
    fn what_was_fastest_is_judged_by_the_next_run() {
        let mut case = case("stencil5", 400);
        let runs = |case: &mut Case, runs_us: &[&[f64]]| {
            let with = |runs_us: &&[f64]| Trial {
                runs_s: runs_us.iter().map(|us| us * 1e-6).collect(),
                ..trial("csr", runs_us[0])
            };
            case.trials = runs_us.iter().map(with).collect();
        };
        runs(&mut case, &[&[2.0, 2.5], &[2.1, 2.0], &[2.2, 2.4], &[9.0]]);
        let found = Repeatability::of(std::slice::from_ref(&case)).expect("three ran twice");
        assert_eq!((found.cases, found.worst_source.as_str()), (1, case.source.as_str()));
        assert!((found.best_over_chosen - 0.8).abs() < 1e-12, "{found:?}");
        assert!((found.worst - 0.8).abs() < 1e-12, "{found:?}");
        // Either the fastest candidate ran once, or too few candidates ran twice.
        runs(&mut case, &[&[1.0], &[2.1, 2.0], &[2.2, 2.4], &[2.2, 2.4]]);
        assert_eq!(Repeatability::of(std::slice::from_ref(&case)), None);
        runs(&mut case, &[&[2.0, 2.5], &[2.1, 2.0], &[9.0]]);
        assert_eq!(Repeatability::of(std::slice::from_ref(&case)), None);
    }
}
