//! What estimates see of every candidate of a matrix: noted with its measurements, so that neither
//! estimates nor models need the matrix again.

use ellect::cost::{Cost, Estimator, works};
use ellect::format::{Candidate, Refusal, Target, Work};
use ellect::measure::Seen;
use ellect::structure::Structure;

/// A candidate that suits the matrix.
#[derive(Clone, Debug)]
pub struct Suits {
    /// What the estimate sees of it.
    pub seen: Seen,
    /// The estimate.
    pub cost: Cost,
}

/// Every candidate of the target's device; or why it does not suit.
pub fn survey(
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> Vec<(Candidate, Result<Suits, String>)> {
    let estimator = Estimator::new(structure, target);
    let one = |(candidate, work): (Candidate, Result<Work, Refusal>)| {
        let suits = work.map(|work| Suits {
            cost: estimator.cost(&candidate, &work),
            seen: Seen { sight: estimator.sight(), work },
        });
        (candidate, suits.map_err(|refusal| refusal.to_string()))
    };
    works(structure, target).iter().cloned().map(one).collect()
}
