//! Totals, replayed on cases: the time of a number of products with everything that precedes them,
//! which is the analysis, if any, and the conversion.

use ellect::format::{CSR, PCSR};
use ellect::unstable::choose::Place;
use serde::Serialize;

use crate::case::{Case, baseline_trial};
use crate::crossval::Predicted;
use crate::policy_replay::{Asked, Quick, Way, replay};
use crate::stats::{LOSS, geometric_mean};
use crate::trees::Trees;

/// Numbers of products that totals are reported for.
pub const SPMVS: [u64; 3] = [100, 1000, 10_000];

/// Totals with analysis and conversion, compared with keeping the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    /// Number of products.
    pub spmvs: u64,
    /// Geometric mean of the baseline's total over the total of the choice.
    pub speedup: f64,
    /// Geometric mean of the baseline's total over the least total of all candidates, as if the
    /// fastest were known without an analysis.
    pub best: f64,
    /// Share of the matrices whose total exceeds the baseline's by more than 2 %.
    pub losses: f64,
    /// Share of the matrices that are analysed, or whose features a GPU counts; for the others, a
    /// tree predicts that this would not pay.
    pub analysed: f64,
    /// Share of the matrices that are not analysed, and for which another tree picks [`CSR`].
    pub csr: f64,
    /// Share of the matrices that are not analysed, and for which another tree picks [`PCSR`].
    pub pcsr: f64,
}

/// The outcome for one case.
struct Amortized {
    /// Seconds of the total, divided by those of keeping the baseline.
    over: f64,
    analysed: bool,
    /// Candidate chosen without an analysis; `None` for the baseline.
    taken: Option<String>,
}

fn total(cases: &[Case], spmvs: u64, done: &[Amortized]) -> Total {
    let share = |counts: &dyn Fn(&Amortized) -> bool| {
        done.iter().filter(|done| counts(done)).count() as f64 / done.len().max(1) as f64
    };
    Total {
        spmvs,
        speedup: geometric_mean(done.iter().map(|done| 1.0 / done.over)),
        best: geometric_mean(cases.iter().filter_map(|case| best(case, spmvs))),
        losses: share(&|done| done.over > 1.0 + LOSS),
        analysed: share(&|done| done.analysed),
        csr: share(&|done| done.taken.as_deref() == Some(CSR)),
        pcsr: share(&|done| done.taken.as_deref() == Some(PCSR)),
    }
}

/// Returns the baseline's total divided by the least total.
fn best(case: &Case, spmvs: u64) -> Option<f64> {
    let n = spmvs as f64;
    let least_s = case.trials.iter().map(|trial| trial.total_s(n)).fold(f64::INFINITY, f64::min);
    Some(n * baseline_trial(case)?.spmv_s / least_s)
}

/// Returns the outcome of the policy for a case, relative to the baseline.
fn done(case: &Case, place: Place, spmvs: u64, asked: &Asked<'_>) -> Amortized {
    let kept = Amortized { over: 1.0, analysed: false, taken: None };
    let Some(replayed) = replay(case, place, spmvs, asked) else { return kept };
    let analysed = replayed.way != Way::Kept;
    let over = replayed.over_baseline(case, spmvs).unwrap_or(1.0);
    Amortized { over, analysed, taken: replayed.candidate.filter(|_| !analysed) }
}

/// Returns the totals of matrices that are in the memory of a GPU, not of a host.
pub fn there(cases: &[Case], quick: &Quick, spmvs: &[u64]) -> Vec<Total> {
    let trees = Trees::default();
    let one = |&spmvs: &u64| {
        let one = |(i, case): (usize, &Case)| {
            let asked = Asked { trees: &trees, quick: Some(quick.of(i)), predicted: None };
            done(case, Place::Gpu, spmvs, &asked)
        };
        total(cases, spmvs, &cases.iter().enumerate().map(one).collect::<Vec<_>>())
    };
    spmvs.iter().map(one).collect()
}

/// Returns the totals of matrices on a host, for [`SPMVS`]. On a device that counts features, where
/// `quick` is given, the upload of the CSR arrays is not counted, since every product needs it.
pub fn on_host(
    cases: &[Case],
    predicted: &[Predicted],
    asked: &[Trees],
    quick: Option<&Quick>,
) -> Vec<Total> {
    let place = if quick.is_some() { Place::HostAndGpu } else { Place::Host };
    let one = |&spmvs: &u64| {
        let one = |(i, case): (usize, &Case)| {
            let (trees, predicted) = (&asked[i], Some(&predicted[i]));
            let asked = Asked { trees, quick: quick.map(|quick| quick.of(i)), predicted };
            done(case, place, spmvs, &asked)
        };
        total(cases, spmvs, &cases.iter().enumerate().map(one).collect::<Vec<_>>())
    };
    SPMVS.iter().map(one).collect()
}
