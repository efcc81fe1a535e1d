//! Totals of so many products with all that comes before them, replayed on cases: looking at the
//! matrix, or not, and its conversion.

use ellect::choose::policy::Place;
use ellect::format::{CSR, PCSR};
use serde::Serialize;

use crate::case::{Case, incumbent};
use crate::crossval::Predicted;
use crate::policy_replay::{Asked, Quick, Way, replay};
use crate::stats::{LOSS, geometric_mean};
use crate::trees::Trees;

/// The products that totals are reported for.
pub const SPMVS: [u64; 3] = [100, 1000, 10_000];

/// Totals with analysis and conversion against staying with the incumbent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    /// Products.
    pub spmvs: u64,
    /// Geometric mean of the incumbent's total over the total of the choice.
    pub speedup: f64,
    /// The same of the least total of all candidates, as if that were known without a look.
    pub best: f64,
    /// Share of the matrices whose total is worse by over 2 %.
    pub losses: f64,
    /// Share of the matrices that are looked at, or whose features a GPU counts: of the others a tree
    /// says that this would not pay.
    pub looked: f64,
    /// Share of the matrices that are not, and that another tree gives to [`CSR`].
    pub csr: f64,
    /// The same of [`PCSR`].
    pub pcsr: f64,
}

/// What was done with a case.
struct Done {
    /// Seconds of all over those of staying with the incumbent.
    over: f64,
    looked: bool,
    /// What is taken without a look, but for the incumbent.
    taken: Option<String>,
}

fn total(cases: &[Case], spmvs: u64, done: &[Done]) -> Total {
    let share = |counts: &dyn Fn(&Done) -> bool| {
        done.iter().filter(|done| counts(done)).count() as f64 / done.len().max(1) as f64
    };
    Total {
        spmvs,
        speedup: geometric_mean(done.iter().map(|done| 1.0 / done.over)),
        best: geometric_mean(cases.iter().filter_map(|case| best(case, spmvs))),
        losses: share(&|done| done.over > 1.0 + LOSS),
        looked: share(&|done| done.looked),
        csr: share(&|done| done.taken.as_deref() == Some(CSR)),
        pcsr: share(&|done| done.taken.as_deref() == Some(PCSR)),
    }
}

/// The incumbent's total over the least one.
fn best(case: &Case, spmvs: u64) -> Option<f64> {
    let n = spmvs as f64;
    let least_s = case.trials.iter().map(|trial| trial.total_s(n)).fold(f64::INFINITY, f64::min);
    Some(n * incumbent(case)?.spmv_s / least_s)
}

/// What the policy does with a case, over what the baseline takes.
fn done(case: &Case, place: Place, spmvs: u64, asked: &Asked<'_>) -> Done {
    let kept = Done { over: 1.0, looked: false, taken: None };
    let Some(replayed) = replay(case, place, spmvs, asked) else { return kept };
    let looked = replayed.way != Way::Kept;
    let over = replayed.over_baseline(case, spmvs).unwrap_or(1.0);
    Done { over, looked, taken: replayed.candidate.filter(|_| !looked) }
}

/// Totals of matrices that a GPU holds, and no host.
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

/// Totals of matrices that a host holds, for [`SPMVS`]; on a device that counts features, where `quick`
/// is given, they were uploaded as they are for every product.
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
