//! What features alone tell of a few candidates.
//!
//! A GPU counts the features of a matrix that it holds in less time than some products take; what
//! the layouts of all candidates would hold is found on the host alone, which takes milliseconds. So
//! for a matrix on a GPU trees over nothing but features tell the times of the candidates that are
//! best most often, and closer looks are left to those that are multiplied very often.

use serde::{Deserialize, Serialize};

use super::sight::is_known_by_size;
use super::{Forest, LOOK, LoadFault, Rules, STAY};
use crate::format::Candidate;

/// What features alone tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByFeatures {
    /// Whether counting features, and a conversion, pay for the products that are to come, told by
    /// them, the size of the matrix and the time of counting (as [`READING`](super::READING)): [`LOOK`]
    /// or [`STAY`].
    pub look: Rules,
    /// The candidates, what the CSR arrays are multiplied by among them.
    pub candidates: Vec<OfCandidate>,
}

/// What features alone tell of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCandidate {
    /// The candidate.
    pub candidate: String,
    /// Time of its conversion over that of a product with the incumbent as it is estimated at sight
    /// ([`stay_s`](crate::choose::stay_s)): the median; 0 where there is none.
    pub convert_products: f64,
    /// Logarithm of the time of a product over the same.
    pub forest: Forest,
}

impl ByFeatures {
    /// Whether names are known and all numbers make sense, for so many features.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, features: usize) -> Result<(), LoadFault> {
        let damaged = |part: &str, what| LoadFault::Damaged { part: part.to_string(), what };
        let looks = self.look.check(is_known_by_size, |answer| [LOOK, STAY].contains(&answer));
        looks.map_err(|what| damaged("by_features", what))?;
        for OfCandidate { candidate, convert_products, forest } in &self.candidates {
            if candidate.parse::<Candidate>().is_err() {
                return Err(LoadFault::Name { what: "candidate", name: candidate.clone() });
            }
            if !(convert_products.is_finite() && *convert_products >= 0.0) {
                let what = format!("its conversion takes {convert_products} products");
                return Err(damaged(candidate, what));
            }
            forest.check(features).map_err(|what| damaged(candidate, what))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{READING, Rule};

    #[test]
    fn what_is_damaged_is_told() {
        let answer = |word: &str| Rules { nodes: vec![Rule::Answer(word.into())] };
        let of = |candidate: &str, convert_products| OfCandidate {
            candidate: candidate.into(),
            convert_products,
            forest: Forest::default(),
        };
        let sound = ByFeatures { look: answer(LOOK), candidates: vec![of("csr", 0.0)] };
        assert_eq!(sound.check(3), Ok(()));
        let with = |candidate| ByFeatures { candidates: vec![candidate], ..sound.clone() }.check(3);
        assert!(matches!(with(of("csr:x=1", 0.0)), Err(LoadFault::Name { .. })));
        assert!(matches!(with(of("csr", f64::NAN)), Err(LoadFault::Damaged { .. })));
        assert!(matches!(with(of("csr", -1.0)), Err(LoadFault::Damaged { .. })));
        let looks = |look| ByFeatures { look, ..sound.clone() }.check(3);
        assert!(matches!(looks(answer("csr")), Err(LoadFault::Damaged { .. })));
        for (feature, known) in [("nnz", true), (READING, true), ("row_nnz_max", false)] {
            let split = Rule::Split { feature: feature.into(), below: 1.0, low: 1, high: 2 };
            let ends = [STAY, LOOK].map(|word| Rule::Answer(word.into()));
            let nodes = std::iter::once(split).chain(ends).collect();
            assert_eq!(looks(Rules { nodes }).is_ok(), known, "{feature} before a look");
        }
    }
}
