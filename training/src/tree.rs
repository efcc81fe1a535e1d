//! A decision tree by linfa: which format wins, told by a few features. It explains choices, and
//! over row statistics alone it is what models are compared with.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use ellect::model::{Rule, Rules};
use linfa::prelude::*;
use linfa_trees::{DecisionTree, TreeNode};
use ndarray::{Array1, Array2};

use crate::case::{Case, Trial};
use crate::replay::least;

/// Features that need nothing but the lengths of rows.
pub const ROW_STATISTICS: [&str; 14] = [
    "nrows",
    "ncols",
    "nnz",
    "density",
    "row_nnz_mean",
    "row_nnz_sigma",
    "row_nnz_cv",
    "row_nnz_min",
    "row_nnz_q50",
    "row_nnz_q90",
    "row_nnz_q99",
    "row_nnz_max",
    "row_nnz_gini",
    "empty_rows",
];

/// Features that a person can see in a matrix: what rules are told in.
pub const EXPLAINING: [&str; 14] = [
    "nnz",
    "row_nnz_mean",
    "row_nnz_cv",
    "row_nnz_max",
    "ell_padding",
    "hll_padding_32",
    "hack_diagonals_256",
    "hdia_padding_256",
    "hub_share_14336",
    "block_fill_3",
    "x_alpha_f64",
    "hack_span_16bit",
    "part_share_16384",
    "bandwidth",
];

/// The depth of rules that are still read.
pub const EXPLAINING_DEPTH: usize = 4;

/// The candidate that wins.
fn winner(case: &Case) -> Option<&Trial> {
    least(case, |_, trial| trial.spmv_s)
}

/// A tree over features that says which format wins.
///
/// # Errors
/// What linfa says, of no cases for instance.
pub fn rules(cases: &[&Case], features: &[&str], depth: usize) -> Result<Rules> {
    let won: Vec<(&Case, &str)> =
        cases.iter().filter_map(|case| Some((*case, winner(case)?.format()))).collect();
    let mut formats: Vec<&str> = won.iter().map(|(_, format)| *format).collect();
    formats.sort_unstable();
    formats.dedup();
    let value = |(i, k): (usize, usize)| won[i].0.features.get(features[k]).copied().unwrap_or(0.0);
    let inputs = Array2::from_shape_fn((won.len(), features.len()), value);
    let label = |(_, format): &(&Case, &str)| formats.binary_search(format).unwrap_or(0);
    let labels: Array1<usize> = won.iter().map(label).collect();
    let data = Dataset::new(inputs, labels);
    let leaf = (won.len() as f32 / 60.0).max(2.0);
    let tree = DecisionTree::params().max_depth(Some(depth)).min_weight_leaf(leaf).fit(&data)?;
    let mut rules = Rules::default();
    flatten(tree.root_node(), features, &formats, &mut rules);
    Ok(rules)
}

/// Puts a node and all below it behind the others, and tells where it is.
fn flatten(
    node: &TreeNode<f64, usize>,
    features: &[&str],
    formats: &[&str],
    rules: &mut Rules,
) -> u32 {
    let at = rules.nodes.len();
    let children: Vec<_> = node.children().into_iter().flatten().collect();
    let (feature, below, _) = node.split();
    match children.as_slice() {
        [low, high] => {
            rules.nodes.push(Rule::Format(String::new()));
            let low = flatten(low, features, formats, rules);
            let high = flatten(high, features, formats, rules);
            let feature = features[feature].to_string();
            rules.nodes[at] = Rule::Split { feature, below, low, high };
        }
        _ => {
            let format = node.prediction().and_then(|label| formats.get(label));
            rules.nodes.push(Rule::Format(format.copied().unwrap_or_default().to_string()));
        }
    }
    at as u32
}

/// The candidate of each format that won most often.
pub fn usual(cases: &[&Case]) -> HashMap<&'static str, String> {
    let mut wins: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
    for case in cases {
        let mut best: BTreeMap<&'static str, &Trial> = BTreeMap::new();
        for trial in &case.trials {
            let kept = best.entry(trial.format()).or_insert(trial);
            if trial.spmv_s < kept.spmv_s {
                *kept = trial;
            }
        }
        for (format, trial) in best {
            *wins.entry((format, trial.name.clone())).or_default() += 1;
        }
    }
    let mut usual: HashMap<&'static str, (usize, String)> = HashMap::new();
    for ((format, name), count) in wins {
        let kept = usual.entry(format).or_default();
        if count > kept.0 {
            *kept = (count, name);
        }
    }
    usual.into_iter().map(|(format, (_, name))| (format, name)).collect()
}
