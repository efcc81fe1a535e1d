//! The quick model predicts the costs of a few candidates from features alone.
//!
//! A GPU counts the features of a matrix in its memory in less time than some products take. The
//! contents of all layouts, in contrast, are computed only on the host, which takes milliseconds.
//! For a matrix on a GPU, trees over features therefore predict the times of the candidates that
//! are most often the best, and only matrices with very many products are analysed.

use serde::{Deserialize, Serialize};

use super::gate::is_known_by_size;
use super::{ANALYZE, Forest, KEEP, LoadFault, Rules};
use crate::format::Candidate;

/// A model that predicts costs from features alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickModel {
    /// Rules that decide whether counting features and a conversion pay for the products to come:
    /// [`ANALYZE`] or [`KEEP`]. They use the number of products, the size of the matrix and the
    /// time of counting (as [`READING`](super::gate::READING)).
    #[serde(rename = "look")]
    pub gate: Rules,
    /// Candidates, including the baselines.
    pub candidates: Vec<QuickCandidate>,
}

/// A candidate of the quick model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickCandidate {
    /// Candidate, as text.
    pub candidate: String,
    /// Time of the candidate's conversion.
    pub conversion: ConversionTime,
    /// Logarithm of the time of one product divided by the estimated time with the baseline
    /// ([`baseline_spmv_s`](super::GateInputs::baseline_spmv_s)).
    pub forest: Forest,
}

impl QuickModel {
    /// Checks that all names are known and all numbers are valid, for this number of features.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, features: usize) -> Result<(), LoadFault> {
        let damaged = |part: &str, what| LoadFault::Damaged { part: part.to_string(), what };
        let gate = self.gate.check(is_known_by_size, |answer| [ANALYZE, KEEP].contains(&answer));
        gate.map_err(|what| damaged("by_features", what))?;
        for QuickCandidate { candidate, conversion, forest } in &self.candidates {
            if candidate.parse::<Candidate>().is_err() {
                return Err(LoadFault::Name { what: "candidate", name: candidate.clone() });
            }
            let ConversionTime { least_s, products } = *conversion;
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

/// Time of a conversion; 0 for a baseline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversionTime {
    /// Minimum time in seconds.
    pub least_s: f64,
    /// Time in addition to `least_s`, as a number of baseline products whose time is estimated from
    /// the size.
    pub products: f64,
}

impl ConversionTime {
    /// Returns the seconds of the conversion if one product with the baseline is estimated to take
    /// `baseline_spmv_s`.
    pub fn seconds(self, baseline_spmv_s: f64) -> f64 {
        self.least_s + self.products * baseline_spmv_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gate::READING;
    use crate::model::rules::Rule;

    #[test]
    fn damage_is_reported() {
        let answer = |word: &str| Rules { nodes: vec![Rule::Answer(word.into())] };
        let of = |candidate: &str, least_s| QuickCandidate {
            candidate: candidate.into(),
            conversion: ConversionTime { least_s, products: 2.0 },
            forest: Forest::default(),
        };
        let sound = QuickModel { gate: answer(ANALYZE), candidates: vec![of("csr", 0.0)] };
        assert_eq!(sound.check(3), Ok(()));
        let with = |candidate| QuickModel { candidates: vec![candidate], ..sound.clone() }.check(3);
        assert!(matches!(with(of("csr:x=1", 0.0)), Err(LoadFault::Name { .. })));
        assert!(matches!(with(of("csr", f64::NAN)), Err(LoadFault::Damaged { .. })));
        assert!(matches!(with(of("csr", -1.0)), Err(LoadFault::Damaged { .. })));
        let conversion = ConversionTime { least_s: 0.0, products: f64::INFINITY };
        let never = QuickCandidate { conversion, ..of("csr", 0.0) };
        assert!(matches!(with(never), Err(LoadFault::Damaged { .. })));
        assert_eq!(of("csr", 1.0).conversion.seconds(3.0), 7.0);
        let gated = |gate| QuickModel { gate, ..sound.clone() }.check(3);
        assert!(matches!(gated(answer("csr")), Err(LoadFault::Damaged { .. })));
        for (feature, known) in [("nnz", true), (READING, true), ("row_nnz_max", false)] {
            let split = Rule::Split { feature: feature.into(), below: 1.0, low: 1, high: 2 };
            let ends = [KEEP, ANALYZE].map(|word| Rule::Answer(word.into()));
            let nodes = std::iter::once(split).chain(ends).collect();
            assert_eq!(
                gated(Rules { nodes }).is_ok(),
                known,
                "{feature} before features are counted"
            );
        }
    }
}
