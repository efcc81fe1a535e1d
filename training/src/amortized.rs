//! Totals of so many products with all that comes before them, replayed on cases: looking at the
//! matrix, or not, and its conversion.

use ellect::choose::{CSR, PCSR, looks_closer};
use serde::Serialize;

use crate::case::{Case, incumbent};
use crate::crossval::Predicted;
use crate::replay::{AtAGlance, look_over_stay};
use crate::stats::{Counted, LOSS, geometric_mean};
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

/// Totals of matrices that a GPU holds: of those whose features are not counted nothing is known but
/// the size, and they stay with the incumbent.
pub fn there(cases: &[Case], counted: &Counted, spmvs: &[u64]) -> Vec<Total> {
    let done = |over: &Option<f64>| Done {
        over: over.unwrap_or(1.0),
        looked: over.is_some(),
        taken: None,
    };
    let one = |(counted, &spmvs): (&Vec<_>, _)| {
        total(cases, spmvs, &counted.iter().map(done).collect::<Vec<_>>())
    };
    counted.iter().zip(spmvs).map(one).collect()
}

/// Totals of matrices that a host holds, for [`SPMVS`]. On a GPU features are `counted`, once the
/// matrix was uploaded as it is for every product, unless so many products are to come that the host
/// looks closer, and of matrices whose features are not, trees tell what is taken without a look. On
/// a host they also tell whether to look.
pub fn on_host(
    cases: &[Case],
    predicted: &[Predicted],
    asked: &[Trees],
    counted: Option<&Counted>,
) -> Vec<Total> {
    let done = |k: usize, i: usize| {
        let (case, spmvs) = (&cases[i], SPMVS[k]);
        if counted.is_some() && looks_closer(case.nnz, case.stay_s, spmvs) {
            let over = look_over_stay(case, &predicted[i], spmvs);
            return Done { over: over.unwrap_or(1.0), looked: true, taken: None };
        }
        if let Some(over) = counted.and_then(|counted| counted[k][i]) {
            return Done { over, looked: true, taken: None };
        }
        let glance = match counted {
            Some(_) => AtAGlance::of(&asked[i].without_look(), case, spmvs),
            None => AtAGlance::of(&asked[i], case, spmvs),
        };
        let over = match glance.looks {
            true => look_over_stay(case, &predicted[i], spmvs),
            false => glance.over_stay(case, spmvs),
        };
        Done { over: over.unwrap_or(1.0), looked: glance.looks, taken: glance.taken }
    };
    let one = |(k, &spmvs): (usize, &u64)| {
        total(cases, spmvs, &(0..cases.len()).map(|i| done(k, i)).collect::<Vec<_>>())
    };
    SPMVS.iter().enumerate().map(one).collect()
}
