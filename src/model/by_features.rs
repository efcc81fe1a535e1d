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
    /// Time of its conversion.
    pub conversion: Conversion,
    /// Logarithm of the time of a product over that of one with the incumbent as it is estimated at
    /// sight ([`stay_s`](crate::choose::stay_s)).
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
        for OfCandidate { candidate, conversion, forest } in &self.candidates {
            if candidate.parse::<Candidate>().is_err() {
                return Err(LoadFault::Name { what: "candidate", name: candidate.clone() });
            }
            let Conversion { least_s, products } = *conversion;
            if ![least_s, products].into_iter().all(|value| value.is_finite() && value >= 0.0) {
                let what =
                    format!("its conversion takes {least_s} seconds and {products} products");
                return Err(damaged(candidate, what));
            }
            forest.check(features).map_err(|what| damaged(candidate, what))?;
        }
        Ok(())
    }
}

/// What a conversion takes; nothing where the CSR arrays are multiplied as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversion {
    /// Seconds at least.
    pub least_s: f64,
    /// What it takes beyond, in products with the incumbent as they are estimated at sight: the
    /// median.
    pub products: f64,
}

impl Conversion {
    /// Seconds where a product with the incumbent is estimated to take `stay_s`.
    pub fn seconds(self, stay_s: f64) -> f64 {
        self.least_s + self.products * stay_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{READING, Rule};

    #[test]
    fn what_is_damaged_is_told() {
        let answer = |word: &str| Rules { nodes: vec![Rule::Answer(word.into())] };
        let of = |candidate: &str, least_s| OfCandidate {
            candidate: candidate.into(),
            conversion: Conversion { least_s, products: 2.0 },
            forest: Forest::default(),
        };
        let sound = ByFeatures { look: answer(LOOK), candidates: vec![of("csr", 0.0)] };
        assert_eq!(sound.check(3), Ok(()));
        let with = |candidate| ByFeatures { candidates: vec![candidate], ..sound.clone() }.check(3);
        assert!(matches!(with(of("csr:x=1", 0.0)), Err(LoadFault::Name { .. })));
        assert!(matches!(with(of("csr", f64::NAN)), Err(LoadFault::Damaged { .. })));
        assert!(matches!(with(of("csr", -1.0)), Err(LoadFault::Damaged { .. })));
        let conversion = Conversion { least_s: 0.0, products: f64::INFINITY };
        let never = OfCandidate { conversion, ..of("csr", 0.0) };
        assert!(matches!(with(never), Err(LoadFault::Damaged { .. })));
        assert_eq!(of("csr", 1.0).conversion.seconds(3.0), 7.0);
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
