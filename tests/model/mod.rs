//! A model as large as training makes one, with synthetic numbers.

use std::collections::BTreeMap;

use ellect::Precision;
use ellect::device::Kind;
use ellect::features::FEATURES;
use ellect::format::{Param, Value, candidates};
use ellect::model::Model;
use ellect::unstable::cost::TERMS;
use ellect::unstable::model::{
    Applicability, Forest, ForestArrays, LEAF, Regressor, Rules, SCHEMA,
};

/// Trees per regressor and depth: the maximum that training produces.
const TREES: u32 = 30;
const DEPTH: u32 = 10;

/// Returns full trees that test the inputs in turn.
fn forest(inputs: usize, seed: u32) -> Forest {
    let scale = 1.0 / f64::from(TREES);
    let mut forest = ForestArrays { bias: 0.1, scale, ..ForestArrays::default() };
    for tree in 0..TREES {
        let first = forest.feature.len() as u32;
        forest.roots.push(first);
        let inner = (1u32 << DEPTH) - 1;
        for node in 0..(2 << DEPTH) - 1 {
            let mixed = (node ^ tree ^ seed).wrapping_mul(2_654_435_761) >> 8;
            let leaf = node >= inner;
            forest.feature.push(if leaf { LEAF } else { (mixed as usize % inputs) as u16 });
            forest.value.push(if leaf { (mixed % 100) as f32 / 100.0 } else { (mixed % 7) as f32 });
            forest.child.push(if leaf { 0 } else { first + 2 * node + 1 });
        }
    }
    forest.try_into().expect("trees")
}

/// Returns a model with one regressor per format and 400 points.
pub fn model() -> Model {
    let features: Vec<String> = FEATURES.iter().map(|f| f.name.to_string()).collect();
    let width = features.len();
    let mut formats = BTreeMap::new();
    for candidate in candidates(Kind::Gpu) {
        let inputs = |param: &'static Param| {
            param.values.iter().map(|value| match value {
                Value::Int(_) => param.name.to_string(),
                Value::Word(word) => format!("{}={word}", param.name),
            })
        };
        let mut parameters: Vec<String> = candidate.format.params.iter().flat_map(inputs).collect();
        parameters.dedup();
        let inputs = width + TERMS.len() + parameters.len();
        let name = candidate.format.name;
        let seed = formats.len() as u32;
        let regressor = || Regressor { forest: forest(inputs, seed), parameters };
        formats.entry(name.to_string()).or_insert_with(regressor);
    }
    Model {
        several: false,
        schema: SCHEMA,
        device: "h200".into(),
        precision: Precision::F64,
        data: String::new(),
        seed: 1,
        commit: String::new(),
        trained_at: None,
        plan: "random forest over the estimate".into(),
        scores: BTreeMap::new(),
        terms: TERMS.map(String::from).to_vec(),
        floor_share: 1.0,
        formats,
        applicability: Applicability {
            mean: vec![0.0; width],
            scale: vec![1.0; width],
            points: (0..400 * width).map(|i| (i % 13) as f32).collect(),
            radius: 1.0,
        },
        rules: Rules::default(),
        gate: Rules::default(),
        quick_picks: Vec::new(),
        quick: None,
        features,
    }
}
