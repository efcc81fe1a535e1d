//! Estimates of every candidate of a matrix, with their inputs.

use ellect::analysis::Analysis;
use ellect::cost::{Cost, CostInputs};
use ellect::format::{Candidate, Refusal, Target, Work};
use ellect::unstable::cost::{Estimator, works};

/// A candidate that applies to the matrix.
#[derive(Clone, Debug)]
pub struct Suits {
    /// Inputs of the estimate.
    pub inputs: CostInputs,
    /// Estimated cost.
    pub cost: Cost,
}

/// Returns every candidate of the target's device with its estimate, or with the reason why it does
/// not apply.
pub fn estimates(
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> Vec<(Candidate, Result<Suits, String>)> {
    let estimator = Estimator::new(analysis, target);
    let one = |(candidate, work): (Candidate, Result<Work, Refusal>)| {
        let suits = work.map(|work| Suits {
            cost: estimator.cost(&candidate, &work),
            inputs: CostInputs { matrix: estimator.matrix_terms(), work },
        });
        (candidate, suits.map_err(|refusal| refusal.to_string()))
    };
    works(analysis, target).iter().cloned().map(one).collect()
}
