//! The quick model predicts the costs of a few candidates in stages, each from more of the matrix:
//! from its size, from its row lengths and a few entries, and from all cheap features.
//!
//! A GPU finds out about a matrix in its memory in about the time of a few products, whereas the
//! contents of all layouts are computed only on the host, which takes milliseconds. For a matrix on
//! a GPU, trees over features therefore predict the times of the candidates that are most often the
//! best, and only matrices with very many products are analysed. A stage is entered if finding out
//! takes a small share of the time of the products to come.

use serde::{Deserialize, Serialize};

use super::{Forest, InputNeeds, LoadFault, needs};
use crate::features::SAMPLED;
use crate::format::Candidate;

/// A model that predicts costs in stages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "QuickFile")]
pub struct QuickModel {
    /// Stages in ascending order of knowledge, at most one for each.
    pub stages: Vec<QuickStage>,
}

/// Part of a matrix that a stage predicts from; each includes the ones before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The size.
    #[default]
    Size,
    /// Statistics of the row lengths, and the columns of a few entries:
    /// [`Features::sampled`](crate::features::Features::sampled).
    Sampled,
    /// All cheap features: [`Features::of`](crate::features::Features::of).
    Counted,
}

impl Stage {
    /// All stages, in ascending order.
    pub const ALL: [Stage; 3] = [Stage::Size, Stage::Sampled, Stage::Counted];

    /// Returns `size`, `sampled` or `counted`.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Size => "size",
            Stage::Sampled => "sampled",
            Stage::Counted => "counted",
        }
    }

    /// Tells whether a stage predicts from this feature.
    pub fn knows(self, feature: &str) -> bool {
        let of_size = needs(feature) == InputNeeds::Size;
        match self {
            Stage::Size => of_size,
            Stage::Sampled => of_size || SAMPLED.contains(&feature),
            Stage::Counted => true,
        }
    }
}

/// A stage of the quick model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuickStage {
    /// Part of the matrix that is known.
    pub stage: Stage,
    /// The stage is entered if finding out takes at most this share of the expected time of all
    /// products with the baseline.
    pub share: f64,
    /// Share by which the baseline must be expected to take longer than a candidate that is chosen
    /// instead.
    pub margin: f64,
    /// Candidates, including the baselines.
    pub candidates: Vec<QuickCandidate>,
}

/// The quick model in a file. Earlier files have a single stage, with rules in place of a share.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuickFile {
    #[serde(default)]
    stages: Vec<QuickStage>,
    #[serde(default)]
    candidates: Vec<QuickCandidate>,
    #[serde(default, rename = "look")]
    _gate: serde::de::IgnoredAny,
}

impl From<QuickFile> for QuickModel {
    fn from(file: QuickFile) -> Self {
        /// Share and margin of files with rules, at which few of their choices lost.
        const SHARE: f64 = 0.02;
        const MARGIN: f64 = 0.1;
        let QuickFile { mut stages, candidates, .. } = file;
        if !candidates.is_empty() {
            let stage = Stage::Counted;
            stages.push(QuickStage { stage, share: SHARE, margin: MARGIN, candidates });
        }
        QuickModel { stages }
    }
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
    /// Set if the time is divided by the predicted time with `csr` instead: errors of the features that
    /// both share then cancel out in comparisons. Models made before 30 November 2026 have no such trees.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub over_csr: bool,
}

impl QuickModel {
    /// Returns the stage with the most knowledge up to `known`.
    pub fn stage(&self, known: Stage) -> Option<&QuickStage> {
        self.stages.iter().rev().find(|stage| stage.stage <= known)
    }

    /// Tells whether the model has this stage, and enters it if finding out takes this share of the
    /// expected time of all products.
    pub fn enters(&self, stage: Stage, share: f64) -> bool {
        self.stages.iter().any(|one| one.stage == stage && share <= one.share)
    }

    /// Returns the candidates of all stages.
    pub(super) fn candidates_mut(&mut self) -> impl Iterator<Item = &mut QuickCandidate> {
        self.stages.iter_mut().flat_map(|stage| &mut stage.candidates)
    }

    /// Checks that all names are known and all numbers are valid, for this number of features.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, features: usize) -> Result<(), LoadFault> {
        let damaged = |part: &str, what| LoadFault::Damaged { part: part.to_string(), what };
        if !self.stages.is_sorted_by(|a, b| a.stage < b.stage) {
            return Err(damaged("by_features", "its stages are not in ascending order".into()));
        }
        for QuickStage { stage, share, margin, candidates } in &self.stages {
            if ![share, margin].into_iter().all(|value| value.is_finite() && *value >= 0.0) {
                let what = format!("share {share} and margin {margin}");
                return Err(damaged(stage.name(), what));
            }
            for candidate in candidates {
                candidate.check(features)?;
            }
        }
        Ok(())
    }
}

impl QuickCandidate {
    fn check(&self, features: usize) -> Result<(), LoadFault> {
        let QuickCandidate { candidate, conversion, forest, over_csr: _ } = self;
        let damaged = |what| LoadFault::Damaged { part: candidate.clone(), what };
        if candidate.parse::<Candidate>().is_err() {
            return Err(LoadFault::Name { what: "candidate", name: candidate.clone() });
        }
        let ConversionTime { least_s, products } = *conversion;
        if ![least_s, products].into_iter().all(|value| value.is_finite() && value >= 0.0) {
            let what = format!("its conversion takes {least_s} seconds and {products} products");
            return Err(damaged(what));
        }
        forest.check(features).map_err(damaged)
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

    fn of(candidate: &str, least_s: f64) -> QuickCandidate {
        let conversion = ConversionTime { least_s, products: 2.0 };
        let candidate = candidate.into();
        QuickCandidate { candidate, conversion, forest: Forest::default(), over_csr: false }
    }

    fn stage(stage: Stage, candidate: QuickCandidate) -> QuickStage {
        QuickStage { stage, share: 0.02, margin: 0.1, candidates: vec![candidate] }
    }

    #[test]
    fn damage_is_reported() {
        let with = |candidate| QuickModel { stages: vec![stage(Stage::Size, candidate)] }.check(3);
        assert_eq!(with(of("csr", 0.0)), Ok(()));
        assert!(matches!(with(of("csr:x=1", 0.0)), Err(LoadFault::Name { .. })));
        assert!(matches!(with(of("csr", f64::NAN)), Err(LoadFault::Damaged { .. })));
        assert!(matches!(with(of("csr", -1.0)), Err(LoadFault::Damaged { .. })));
        let conversion = ConversionTime { least_s: 0.0, products: f64::INFINITY };
        let never = QuickCandidate { conversion, ..of("csr", 0.0) };
        assert!(matches!(with(never), Err(LoadFault::Damaged { .. })));
        assert_eq!(of("csr", 1.0).conversion.seconds(3.0), 7.0);
        let sound = || stage(Stage::Sampled, of("csr", 0.0));
        for (share, margin) in [(-0.1, 0.1), (f64::NAN, 0.1), (0.1, f64::INFINITY)] {
            let damaged = QuickModel { stages: vec![QuickStage { share, margin, ..sound() }] };
            assert!(matches!(damaged.check(3), Err(LoadFault::Damaged { .. })));
        }
        let twice = QuickModel { stages: vec![sound(), sound()] };
        assert!(matches!(twice.check(3), Err(LoadFault::Damaged { .. })), "one for each");
    }

    #[test]
    fn a_stage_predicts_from_what_is_known() {
        let stages = [Stage::Size, Stage::Counted].map(|known| stage(known, of("csr", 0.0)));
        let model = QuickModel { stages: stages.into() };
        let at = |known| model.stage(known).map(|stage| stage.stage);
        let expected = [Stage::Size, Stage::Size, Stage::Counted].map(Some);
        assert_eq!(Stage::ALL.map(at), expected);
        assert_eq!(QuickModel::default().stage(Stage::Counted), None);
    }

    #[test]
    fn a_file_with_rules_is_read_as_the_last_stage() {
        let csr = serde_json::to_value(of("csr", 0.0)).expect("plain data");
        let file = serde_json::json!({ "look": [{ "answer": "look" }], "candidates": [csr] });
        let model: QuickModel = serde_json::from_value(file).expect("an earlier file");
        assert_eq!(model.stages.len(), 1);
        assert_eq!(model.stages[0].stage, Stage::Counted);
        assert_eq!(model.stages[0].candidates, [of("csr", 0.0)]);
        let text = serde_json::to_string(&model).expect("plain data");
        assert_eq!(serde_json::from_str::<QuickModel>(&text).expect("own text"), model);
    }
}
