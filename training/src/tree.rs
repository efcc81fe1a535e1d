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
    let won = cases.iter().filter_map(|case| {
        let value = |name: &&str| case.features.get(*name).copied().unwrap_or(0.0);
        let inputs: Vec<f64> = features.iter().map(value).collect();
        Some(Example { inputs, label: winner(case)?.format(), weight: 1.0 })
    });
    grow(&won.collect::<Vec<_>>(), features, depth)
}

/// What is known of a matrix before it is looked at, and the products that are to come.
pub const AT_SIGHT: [&str; 4] = ["nrows", "nnz", "row_nnz_mean", "spmvs"];

/// The inputs named by [`AT_SIGHT`].
pub fn at_sight(case: &Case, spmvs: u64) -> [f64; 4] {
    let (nrows, nnz) = (case.nrows as f64, case.nnz as f64);
    [nrows, nnz, nnz / nrows.max(1.0), spmvs as f64]
}

/// The word of [`worth`] for a matrix that is worth looking at.
pub const LOOK: &str = "look";

/// A look that does not pay counts as much as so many that would have paid.
const CAUTION: f32 = 20.0;

/// A tree that says of a matrix at sight whether looking at it will pay: its features, estimates
/// and conversion in what the products save. `pays` tells it of cases for numbers of products.
///
/// # Errors
/// As [`rules`].
pub fn worth(cases: &[&Case], spmvs: &[u64], pays: impl Fn(&Case, u64) -> bool) -> Result<Rules> {
    let example = |(case, spmvs): (&&Case, u64)| {
        let (label, weight) = if pays(case, spmvs) { (LOOK, 1.0) } else { ("stay", CAUTION) };
        Example { inputs: at_sight(case, spmvs).to_vec(), label, weight }
    };
    let all = cases.iter().flat_map(|case| spmvs.iter().map(move |&spmvs| (case, spmvs)));
    grow(&all.map(example).collect::<Vec<_>>(), &AT_SIGHT, DEPTH)
}

/// The depth of the tree of [`worth`].
const DEPTH: usize = 6;

/// A row of a tree's table.
struct Example<'a> {
    inputs: Vec<f64>,
    label: &'a str,
    weight: f32,
}

/// Fits a tree to examples with inputs of these names.
fn grow(examples: &[Example<'_>], names: &[&str], depth: usize) -> Result<Rules> {
    let mut words: Vec<&str> = examples.iter().map(|example| example.label).collect();
    words.sort_unstable();
    words.dedup();
    let value = |(i, k): (usize, usize)| examples[i].inputs[k];
    let inputs = Array2::from_shape_fn((examples.len(), names.len()), value);
    let label = |example: &Example<'_>| words.binary_search(&example.label).unwrap_or(0);
    let labels: Array1<usize> = examples.iter().map(label).collect();
    let weights: Array1<f32> = examples.iter().map(|example| example.weight).collect();
    let leaf = (weights.sum() / 60.0).max(2.0);
    let data = Dataset::new(inputs, labels).with_weights(weights);
    let tree = DecisionTree::params().max_depth(Some(depth)).min_weight_leaf(leaf).fit(&data)?;
    let mut rules = Rules::default();
    flatten(tree.root_node(), names, &words, &mut rules);
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
