//! Trials: short timings of the most promising candidates next to the baseline, before an operator
//! for a host is handed out.
//!
//! On a host, predictions err by more than formats differ, and a few products tell more. A trial may
//! take a small share of the time that all products are expected to take.

use super::policy::best_few;
use super::{Thought, Workload};
use crate::format::Candidate;

/// Share of the expected time of all products that a trial may take, with the analysis and the
/// conversions.
const SHARE: f64 = 0.02;

/// Time that a trial may take in any case, in seconds, if that is at most [`MOST_SHARE`]: shorter
/// timings are noise.
const LEAST_S: f64 = 20e-3;

/// Largest share of the expected time for [`LEAST_S`].
const MOST_SHARE: f64 = 0.04;

/// Numbers of candidates to try: the best by prediction, and the best by estimate.
pub const TRIED: [usize; 2] = [2, 1];

/// Ratio of a candidate's expected total to the baseline's up to which it is worth a trial:
/// predictions may be wrong by this much.
const HOPE: f64 = 1.2;

/// Number of products for which a candidate has to be timed at least.
pub const PRODUCTS: f64 = 6.0;

/// Expected time of all products, in seconds, below which nothing is tried: a trial of 4 % could
/// then time nothing.
pub const LEAST_TOTAL_S: f64 = 20e-3;

/// Ratio of the baseline's time to a candidate's from which on the candidate is taken: smaller
/// differences are noise.
pub const CLEAR: f64 = 1.03;

/// Returns the seconds that a trial may take if all products take `all_s` seconds with the baseline.
pub fn trial_budget_s(all_s: f64) -> f64 {
    f64::max(SHARE * all_s, LEAST_S.min(MOST_SHARE * all_s))
}

/// A candidate that a trial may time.
#[derive(Clone, Copy, Debug)]
pub struct Hopeful<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// Expected totals.
    pub thought: Thought,
    /// Expected time of the conversion, in seconds.
    pub convert_s: f64,
    /// Expected time of one product, in seconds.
    pub spmv_s: f64,
}

/// Returns the candidates to try within `left_s` seconds, most promising first; none if the products
/// are too few to pay for their conversions and timings.
///
/// `baseline_s` is the time of one product with the baseline, in seconds.
pub fn tried<'a>(
    all: &[Hopeful<'a>],
    baseline_s: f64,
    left_s: f64,
    workload: &Workload,
) -> Vec<&'a Candidate> {
    let baseline_total_s = workload.spmvs as f64 * baseline_s;
    let thoughts = all.iter().map(|one| (one.candidate, one.thought));
    let mut spent_s = PRODUCTS * baseline_s;
    let mut tried = Vec::new();
    for candidate in best_few(thoughts, TRIED).into_iter().filter(|c| !c.is_baseline()) {
        let Some(one) = all.iter().find(|one| one.candidate == candidate) else { continue };
        let best_s = one.thought.predicted_s.min(one.thought.estimated_s);
        let cost_s = one.convert_s + PRODUCTS * one.spmv_s;
        if best_s <= HOPE * baseline_total_s && spent_s + cost_s <= left_s {
            spent_s += cost_s;
            tried.push(candidate);
        }
    }
    tried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_takes_a_small_share() {
        // At 10 s, 2 %; at 0.5 s, 20 ms; below that, 4 %.
        let budgets = [10.0, 1.0, 0.5, 0.1].map(trial_budget_s);
        assert_eq!(budgets, [0.2, 0.02, 0.02, 0.004]);
    }

    #[test]
    fn what_cannot_pay_is_not_tried() {
        let names = ["csr", "hll", "ellr", "jad"];
        let all: Vec<Candidate> = names.map(|name| name.parse().expect("a candidate")).into();
        let spmvs = 10_000;
        let hopeful = |(candidate, us): (&'static str, f64)| {
            let candidate = all.iter().find(|c| c.format.name == candidate).expect("listed");
            let (convert_s, spmv_s) = (10e-3, us * 1e-6);
            let total_s = convert_s + spmvs as f64 * spmv_s;
            let thought = Thought { predicted_s: total_s, estimated_s: total_s };
            Hopeful { candidate, thought, convert_s, spmv_s }
        };
        let hopefuls = [("csr", 400.0), ("hll", 380.0), ("ellr", 420.0), ("jad", 900.0)];
        let hopefuls = hopefuls.map(hopeful);
        let workload = Workload { spmvs, ..Workload::default() };
        let tried = |left_s: f64| -> Vec<&str> {
            let tried = tried(&hopefuls, 400e-6, left_s, &workload);
            tried.into_iter().map(|candidate| candidate.format.name).collect()
        };
        assert_eq!(tried(80e-3), ["hll", "ellr"], "jad is expected to take over twice as long");
        assert_eq!(tried(20e-3), ["hll"], "the time ends");
        assert_eq!(tried(5e-3), Vec::<&str>::new());
    }
}
