//! The guard of a tuning run: a new model replaces the one in use only if it chooses better on the
//! same measurements.

use std::collections::BTreeMap;

use ellect::Fingerprint;
use ellect::model::{Model, Predictor};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Trial, baseline_trial, best_s, named};
use crate::crossval::{Predicted, predict};
use crate::replay::untimed;
use crate::stats::geometric_mean;

/// Candidates chosen for matrices that a model did not see.
pub type HeldOut = BTreeMap<Fingerprint, String>;

/// Least number of matrices for a verdict: fewer say nothing about others.
pub const LEAST_MATRICES: usize = 10;

/// Share of the matrices that count as worst cases.
const WORST_SHARE: f64 = 0.1;

/// Decrease of best/chosen over the worst cases that the noise of timings explains.
const NOISE: f64 = 0.05;

/// Comparison of a new model with the one in use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Geometric mean of best/chosen with the model in use.
    pub before: f64,
    /// Geometric mean of best/chosen with the new model, which saw no matrix of the family.
    pub after: f64,
    /// Geometric mean of best/chosen over the worst tenth, with the model in use.
    pub worst_before: f64,
    /// Geometric mean of best/chosen over the worst tenth, with the new model.
    pub worst_after: f64,
    /// Number of matrices.
    pub matrices: usize,
}

impl Verdict {
    /// Tells whether the new model should be used: it is better on the whole, and not worse in its
    /// worst cases beyond noise.
    pub fn is_better(&self) -> bool {
        self.matrices >= LEAST_MATRICES
            && self.after > self.before
            && self.worst_after >= self.worst_before - NOISE
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { before, after, worst_before, worst_after, matrices } = self;
        write!(
            f,
            "before {before:.3}, after {after:.3} on {matrices} held-out matrices (worst tenth: before \
             {worst_before:.3}, after {worst_after:.3})"
        )
    }
}

/// Returns the choices for cases whose predictions come from models that did not see them.
pub fn held_out(cases: &[Case], predicted: &[Predicted]) -> HeldOut {
    let chosen = cases.iter().zip(predicted).filter_map(|(case, predicted)| {
        Some((case.fingerprint, untimed(case, &predicted.spmv_s)?.name.clone()))
    });
    chosen.collect()
}

/// Compares the choices of a new model on these cases with those of the model in use; without one,
/// with those of the estimate.
///
/// `known` holds the choices that the model in use made for matrices it learned from while it had
/// not seen them; for all other matrices it predicts now.
pub fn compare(cases: &[Case], new: &HeldOut, used: Option<Model>, known: &HeldOut) -> Verdict {
    let used = used.map(Predictor::new);
    let ratio = |case: &Case, trial: Option<&Trial>| {
        let trial = trial.or_else(|| baseline_trial(case))?;
        Some(best_s(case) / trial.spmv_s)
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for case in cases {
        let by_new = new.get(&case.fingerprint).and_then(|name| named(case, name));
        let by_used = match (known.get(&case.fingerprint), &used) {
            (Some(name), _) => named(case, name),
            (None, Some(used)) => untimed(case, &predict(used, case).spmv_s),
            (None, None) => {
                let estimates: Vec<f64> = case.trials.iter().map(|t| t.estimate.spmv_s).collect();
                untimed(case, &estimates)
            }
        };
        if let (Some(then), Some(now)) = (ratio(case, by_used), ratio(case, by_new)) {
            before.push(then);
            after.push(now);
        }
    }
    let mean = |ratios: &[f64]| geometric_mean(ratios.iter().copied());
    let worst = |ratios: &[f64]| {
        let mut sorted = ratios.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted.truncate(((WORST_SHARE * ratios.len() as f64).ceil() as usize).max(1));
        mean(&sorted)
    };
    Verdict {
        before: mean(&before),
        after: mean(&after),
        worst_before: worst(&before),
        worst_after: worst(&after),
        matrices: before.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_cases::{case, trial};

    /// Returns matrices on which hll takes half of the time of csr, and ell twice that time.
    fn cases(count: usize) -> Vec<Case> {
        let of = |i: usize| Case {
            trials: vec![trial("csr", 2.0), trial("hll", 1.0), trial("ell", 4.0)],
            ..case("banded", 100 + 10 * i)
        };
        (0..count).map(of).collect()
    }

    fn choosing(cases: &[Case], name: impl Fn(usize) -> &'static str) -> HeldOut {
        let named = |(i, case): (usize, &Case)| (case.fingerprint, name(i).to_string());
        cases.iter().enumerate().map(named).collect()
    }

    #[test]
    fn only_a_better_model_is_taken() {
        let cases = cases(20);
        let always = |name| choosing(&cases, move |_| name);
        let better = compare(&cases, &always("hll"), None, &always("csr"));
        assert!(better.is_better() && better.after > 0.99, "{better}");
        assert!((better.before - 0.5).abs() < 1e-9, "{better}");
        assert!(!compare(&cases, &always("csr"), None, &always("hll")).is_better());
        assert!(!compare(&cases, &always("csr"), None, &always("csr")).is_better(), "as good");
        // It is better on the whole, but twice as slow as before on a tenth of the matrices.
        let risky = choosing(&cases, |i| if i < 2 { "ell" } else { "hll" });
        let risky = compare(&cases, &risky, None, &always("csr"));
        assert!(risky.after > risky.before && !risky.is_better(), "{risky}");
        // A few matrices say nothing.
        let few = &cases[..5];
        assert!(!compare(few, &always("hll"), None, &always("csr")).is_better());
    }
}
