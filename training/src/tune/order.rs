//! The order in which the candidates of a matrix are timed.

use std::collections::{BTreeSet, HashSet};

use ellect::format::Candidate;

use super::{Earlier, Survey, Tuning};
use crate::estimates::Suits;

/// The candidates of a matrix, sorted by their treatment in a run.
#[derive(Default)]
pub struct Order<'s> {
    /// Candidates to time: first the baselines, then the best estimate of each format, then the
    /// rest.
    pub timed: Vec<(&'s Candidate, &'s Suits)>,
    /// Candidates whose estimates are too far from the best one, and by how much.
    pub hopeless: Vec<(&'s Candidate, &'s Suits, String)>,
    /// Candidates that do not apply to the matrix, and why.
    pub refused: Vec<(&'s Candidate, &'s String)>,
}

impl<'s> Order<'s> {
    /// Sorts the candidates of a survey, except those in `kept`, which are not measured again, and
    /// those outside the run's prefixes.
    pub fn of(
        survey: &'s Survey,
        tuning: &Tuning<'_>,
        earlier: &Earlier,
        kept: &HashSet<&str>,
    ) -> Self {
        let mut order = Order::default();
        let best_s = survey
            .iter()
            .filter_map(|(_, suits)| suits.as_ref().ok())
            .map(|suits| suits.cost.spmv_s)
            .fold(f64::INFINITY, f64::min);
        for (candidate, suits) in survey {
            let text = candidate.to_string();
            match suits {
                _ if kept.contains(text.as_str()) => {}
                _ if !candidate.is_among(tuning.only) => {}
                Err(reason) => order.refused.push((candidate, reason)),
                Ok(suits) => {
                    let over = suits.cost.spmv_s / best_s;
                    // A candidate that was timed and is near the best is not hopeless, whatever its
                    // estimate.
                    let spared = earlier.0.contains_key(&text) || candidate.is_baseline();
                    if over > tuning.cut && !spared {
                        let reason = format!(
                            "its estimate is {over:.1} times the best one, over the limit of {}",
                            tuning.cut
                        );
                        order.hopeless.push((candidate, suits, reason));
                    } else {
                        order.timed.push((candidate, suits));
                    }
                }
            }
        }
        order.timed.sort_by(|a, b| a.1.cost.spmv_s.total_cmp(&b.1.cost.spmv_s));
        let mut formats = BTreeSet::new();
        let mut rank = |candidate: &Candidate| -> u8 {
            let first = formats.insert(candidate.format.name);
            if candidate.is_baseline() { 0 } else { 1 + u8::from(!first) }
        };
        let ranked = order.timed.into_iter().map(|pair| (rank(pair.0), pair));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        order.timed = ranked.into_iter().map(|(_, pair)| pair).collect();
        order
    }
}
