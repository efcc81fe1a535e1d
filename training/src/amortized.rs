//! Totals, replayed on cases: the time of a number of products with everything that precedes them,
//! which is the analysis, if any, and the conversion.

use std::collections::BTreeMap;

use ellect::choose::Trials;
use ellect::unstable::choose::Place;
use ellect::unstable::model::Stage;
use rayon::prelude::*;
use serde::Serialize;

use crate::case::{Case, baseline_trial, counted_in_totals};
use crate::crossval::Predicted;
use crate::policy_replay::{Asked, Quick, Way, replay};
use crate::stats::{LOSS, geometric_mean};
use crate::trees::Trees;

/// Numbers of products that totals are reported for.
pub const SPMVS: [u64; 7] = [1, 10, 30, 100, 300, 1000, 10_000];

/// Totals with analysis and conversion, compared with keeping the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Total {
    /// Number of products.
    pub spmvs: u64,
    /// Geometric mean of the baseline's total over the total of the choice.
    pub speedup: f64,
    /// As `speedup`, if gathering information took no time.
    pub informed: f64,
    /// Geometric mean of the baseline's total over the least total of all candidates, as if the
    /// fastest were known without an analysis.
    pub best: f64,
    /// The best fixed choice: the candidate with the largest `fixed_speedup`.
    pub fixed: String,
    /// Geometric mean of the baseline's total over the total of the best fixed choice; the baseline
    /// replaces it on matrices that it refuses.
    pub fixed_speedup: f64,
    /// Share of the matrices whose total exceeds the baseline's by more than 2 %.
    pub losses: f64,
    /// Share of the matrices for which the quick model chose by the size alone.
    pub by_size: f64,
    /// Share of the matrices whose row lengths and a few entries were read.
    pub sampled: f64,
    /// Share of the matrices whose features were counted.
    pub counted: f64,
    /// Share of the matrices that were analysed on the host. For the rest, a gate kept the baseline
    /// or picked a candidate.
    pub analysed: f64,
}

impl Total {
    /// Returns the geometric mean of the least total over the total of the choice.
    pub fn of_least(&self) -> f64 {
        self.speedup / self.best
    }
}

/// Totals of all matrices, and of small and large ones by themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Totals of all matrices.
    pub all: Vec<Total>,
    /// Totals of the matrices with fewer than [`LARGE_NNZ`](crate::case::LARGE_NNZ) nonzeros.
    pub small: Vec<Total>,
    /// Totals of the other matrices.
    pub large: Vec<Total>,
}

impl Totals {
    /// Computes the totals from the outcome of the policy for a case and a number of products, over
    /// the cases that [`counted_in_totals`] names.
    fn of(
        cases: &[Case],
        spmvs: &[u64],
        outcome: impl Fn(usize, u64) -> Amortized + Sync,
    ) -> Totals {
        let every: Vec<usize> = (0..cases.len()).collect();
        let done = |&spmvs: &u64| every.par_iter().map(|&i| outcome(i, spmvs)).collect();
        let done: Vec<Vec<Amortized>> = spmvs.iter().map(done).collect();
        let counted = counted_in_totals(cases);
        let rows = |counts: &dyn Fn(&Case) -> bool| -> Vec<Total> {
            let own = (0..cases.len()).filter(|&i| counted[i] && counts(&cases[i]));
            let own: Vec<usize> = own.collect();
            if own.is_empty() {
                return Vec::new();
            }
            let own_cases: Vec<&Case> = own.iter().map(|&i| &cases[i]).collect();
            let row = |(&spmvs, done): (&u64, &Vec<Amortized>)| {
                total(&own_cases, spmvs, &own.iter().map(|&i| &done[i]).collect::<Vec<_>>())
            };
            spmvs.iter().zip(&done).map(row).collect()
        };
        Totals {
            all: rows(&|_| true),
            small: rows(&|case| !case.is_large()),
            large: rows(&Case::is_large),
        }
    }
}

/// The outcome for one case.
struct Amortized {
    /// Seconds of the total, divided by those of keeping the baseline.
    over: f64,
    /// `over` without gathering information.
    informed: f64,
    way: Way,
}

fn total(cases: &[&Case], spmvs: u64, done: &[&Amortized]) -> Total {
    let share = |counts: &dyn Fn(&Amortized) -> bool| {
        done.iter().filter(|done| counts(done)).count() as f64 / done.len().max(1) as f64
    };
    let by = |way: Way| share(&|done| done.way == way);
    let (fixed, fixed_speedup) = best_fixed(cases, spmvs);
    Total {
        spmvs,
        speedup: geometric_mean(done.iter().map(|done| 1.0 / done.over)),
        informed: geometric_mean(done.iter().map(|done| 1.0 / done.informed)),
        best: geometric_mean(cases.iter().filter_map(|case| best(case, spmvs))),
        fixed,
        fixed_speedup,
        losses: share(&|done| done.over > 1.0 + LOSS),
        by_size: by(Way::Quick(Stage::Size)),
        sampled: by(Way::Quick(Stage::Sampled)),
        counted: by(Way::Quick(Stage::Counted)),
        analysed: by(Way::Analysed),
    }
}

/// Returns the baseline's total divided by the least total.
fn best(case: &Case, spmvs: u64) -> Option<f64> {
    let n = spmvs as f64;
    let least_s = case.trials.iter().map(|trial| trial.total_s(n)).fold(f64::INFINITY, f64::min);
    Some(n * baseline_trial(case)?.spmv_s / least_s)
}

/// Returns the candidate that would be the best choice for all of these cases, with its speed-up.
fn best_fixed(cases: &[&Case], spmvs: u64) -> (String, f64) {
    let n = spmvs as f64;
    let mut logarithms: BTreeMap<&str, f64> = BTreeMap::new();
    for case in cases {
        let Some(baseline) = baseline_trial(case) else { continue };
        for trial in &case.trials {
            let speedup = n * baseline.spmv_s / trial.total_s(n);
            *logarithms.entry(&trial.name).or_default() += speedup.ln();
        }
    }
    let most = logarithms.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    let (name, sum) = most.unwrap_or_default();
    (name.to_string(), (sum / cases.len().max(1) as f64).exp())
}

/// Returns the outcome of the policy for a case, relative to the baseline.
fn done(case: &Case, place: Place, spmvs: u64, asked: &Asked<'_>) -> Amortized {
    let kept = Amortized { over: 1.0, informed: 1.0, way: Way::Kept };
    let Some(replayed) = replay(case, place, spmvs, Trials::default(), asked) else { return kept };
    let over = replayed.over_baseline(case, spmvs).unwrap_or(1.0);
    let informed = over * (1.0 - replayed.spent_s / replayed.total_s);
    Amortized { over, informed, way: replayed.way }
}

/// Returns the totals of matrices that are in the memory of a GPU, not of a host.
pub fn there(cases: &[Case], quick: &Quick, spmvs: &[u64]) -> Totals {
    let trees = Trees::default();
    Totals::of(cases, spmvs, |i, spmvs| {
        let asked = Asked { trees: &trees, quick: Some(quick.of(i)), predicted: None };
        done(&cases[i], Place::Gpu, spmvs, &asked)
    })
}

/// Returns the totals of matrices on a host, for [`SPMVS`]. On a device that counts features, where
/// `quick` is given, the upload of the CSR arrays is not counted, since every product needs it.
pub fn on_host(
    cases: &[Case],
    predicted: &[Predicted],
    asked: &[Trees],
    quick: Option<&Quick>,
) -> Totals {
    let place = if quick.is_some() { Place::HostAndGpu } else { Place::Host };
    Totals::of(cases, &SPMVS, |i, spmvs| {
        let (trees, predicted) = (&asked[i], Some(&predicted[i]));
        let asked = Asked { trees, quick: quick.map(|quick| quick.of(i)), predicted };
        done(&cases[i], place, spmvs, &asked)
    })
}

#[cfg(test)]
mod tests {
    use ellect::format::{BASELINES, CSR};

    use super::*;
    use crate::sample_cases::{case, trial};

    #[test]
    fn totals_name_the_best_fixed_choice_and_split_by_size() {
        let of = |rows, hll_us| {
            let mut case = case("stencil5", rows);
            let mut hll = trial("hll", hll_us);
            hll.convert_s = 10e-6;
            case.trials = vec![trial(BASELINES[0], 4.0), trial(CSR, 5.0), hll];
            case
        };
        // hll saves 2 us a product of the small matrix; the large one refuses it.
        let mut cases = [of(400, 2.0), of(300_000, 2.0)];
        cases[1].trials.pop();
        let outcome = |i: usize, spmvs: u64| Amortized {
            over: if i == 0 && spmvs > 5 { 0.5 } else { 1.03 },
            informed: if i == 0 && spmvs > 5 { 0.4 } else { 1.0 },
            way: [Way::Analysed, Way::Quick(Stage::Size)][i],
        };
        let Totals { all, small, large } = Totals::of(&cases, &[1, 10], outcome);
        assert_eq!((all.len(), small.len(), large.len()), (2, 2, 2));
        assert_eq!((all[0].fixed.as_str(), all[0].fixed_speedup), (BASELINES[0], 1.0));
        // 40 us against 10 us + 20 us.
        assert_eq!(small[1].fixed, "hll");
        assert!((small[1].fixed_speedup - 4.0 / 3.0).abs() < 1e-12, "{small:?}");
        assert!((all[1].fixed_speedup - (4.0f64 / 3.0).sqrt()).abs() < 1e-12, "{all:?}");
        assert!((small[1].of_least() - 1.5).abs() < 1e-12, "{small:?}");
        assert_eq!((all[1].losses, small[1].losses, large[1].losses), (0.5, 0.0, 1.0));
        assert_eq!((all[1].analysed, all[1].by_size, large[0].by_size), (0.5, 0.5, 1.0));
        assert_eq!(large[0].fixed, BASELINES[0]);
    }
}
