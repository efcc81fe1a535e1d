//! A decision tree by linfa: which format wins, told by a few features. It explains choices, and
//! over row statistics alone it is what models are compared with.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use ellect::features::of_rows_alone;
use ellect::model::{LOOK, Rule, Rules, SPMVS, STAY};
use linfa::prelude::*;
use linfa_trees::{DecisionTree, TreeNode};
use ndarray::{Array1, Array2};

use crate::case::{Case, Trial};
use crate::replay::least;

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
    grow(&won.collect::<Vec<_>>(), features, depth, None)
}

/// The names of features that need nothing but the lengths of rows.
pub fn row_statistics() -> Vec<&'static str> {
    of_rows_alone().map(|feature| feature.name).collect()
}

/// An input of [`worth`]: the products that are to come, or a feature.
pub fn at_sight(case: &Case, spmvs: u64, name: &str) -> f64 {
    match name {
        SPMVS => spmvs as f64,
        name => case.features.get(name).copied().unwrap_or(0.0),
    }
}

/// The trees of [`worth`], which have to agree: how deep each is, and how many looks that would have
/// paid count as much to it as one that does not pay.
const TREES: [(usize, f32); 2] = [(5, 40.0), (4, 100.0)];

/// The least weight of their leaves.
const LEAST_LEAF: f32 = 20.0;

/// Trees that say of a matrix, by the lengths of its rows and the products to come, whether looking
/// closer will pay: its features, estimates and conversion in what the products save. Learned from
/// cases, each with a number of products and whether it paid.
///
/// # Errors
/// As [`rules`].
pub fn worth(paid: &[(&Case, u64, bool)]) -> Result<Rules> {
    let names: Vec<&str> = row_statistics().into_iter().chain([SPMVS]).collect();
    let tree = |(depth, caution): (usize, f32)| {
        let example = |&(case, spmvs, paid): &(&Case, u64, bool)| {
            let (label, weight) = if paid { (LOOK, 1.0) } else { (STAY, caution) };
            let inputs = names.iter().map(|name| at_sight(case, spmvs, name)).collect();
            Example { inputs, label, weight }
        };
        grow(&paid.iter().map(example).collect::<Vec<_>>(), &names, depth, Some(LEAST_LEAF))
    };
    let [first, second] = TREES.map(tree);
    Ok(both(first?, second?))
}

/// Rules that say to look where both do: the second are asked where the first say so.
fn both(first: Rules, second: Rules) -> Rules {
    let (looks, behind) = (Rule::Answer(LOOK.into()), first.nodes.len() as u32);
    if first.nodes.first() == Some(&looks) {
        return second;
    }
    let here = |next: u32| if first.nodes[next as usize] == looks { behind } else { next };
    let there = |next: u32| behind + next;
    let moved = |rule: &Rule, place: &dyn Fn(u32) -> u32| match rule.clone() {
        Rule::Split { feature, below, low, high } => {
            Rule::Split { feature, below, low: place(low), high: place(high) }
        }
        answer @ Rule::Answer(_) => answer,
    };
    let asked = first.nodes.iter().map(|rule| moved(rule, &here));
    Rules { nodes: asked.chain(second.nodes.iter().map(|rule| moved(rule, &there))).collect() }
}

/// A row of a tree's table.
struct Example<'a> {
    inputs: Vec<f64>,
    label: &'a str,
    weight: f32,
}

/// Fits a tree to examples with inputs of these names, with leaves of at least this weight or a
/// sixtieth of all.
fn grow(
    examples: &[Example<'_>],
    names: &[&str],
    depth: usize,
    leaf: Option<f32>,
) -> Result<Rules> {
    let mut words: Vec<&str> = examples.iter().map(|example| example.label).collect();
    words.sort_unstable();
    words.dedup();
    let value = |(i, k): (usize, usize)| examples[i].inputs[k];
    let inputs = Array2::from_shape_fn((examples.len(), names.len()), value);
    let label = |example: &Example<'_>| words.binary_search(&example.label).unwrap_or(0);
    let labels: Array1<usize> = examples.iter().map(label).collect();
    let weights: Array1<f32> = examples.iter().map(|example| example.weight).collect();
    let leaf = leaf.unwrap_or((weights.sum() / 60.0).max(2.0));
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
            rules.nodes.push(Rule::Answer(String::new()));
            let low = flatten(low, features, formats, rules);
            let high = flatten(high, features, formats, rules);
            let feature = features[feature].to_string();
            rules.nodes[at] = Rule::Split { feature, below, low, high };
        }
        _ => {
            let format = node.prediction().and_then(|label| formats.get(label));
            rules.nodes.push(Rule::Answer(format.copied().unwrap_or_default().to_string()));
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

#[cfg(test)]
pub(crate) mod tests {
    use ellect::Precision;
    use ellect::features::Features;
    use ellect::structure::Structure;

    use super::*;
    use crate::replay::Glance;

    #[test]
    fn a_matrix_is_looked_at_where_both_trees_say_so() {
        let split =
            |feature: &str| Rule::Split { feature: feature.into(), below: 1.0, low: 1, high: 2 };
        let answer = |word: &str| Rule::Answer(word.into());
        let tree = |feature| Rules { nodes: vec![split(feature), answer(STAY), answer(LOOK)] };
        let rules = both(tree("nrows"), tree("nnz"));
        rules.check(|name| !name.is_empty(), |word| [STAY, LOOK].contains(&word)).expect("sound");
        for (nrows, nnz, expected) in [(0.0, 2.0, STAY), (2.0, 0.0, STAY), (2.0, 2.0, LOOK)] {
            let value = |name: &str| Some(if name == "nrows" { nrows } else { nnz });
            assert_eq!(rules.walk(value).expect("an answer").1, expected);
        }
        let always = Rules { nodes: vec![answer(LOOK)] };
        assert_eq!(both(always.clone(), tree("nnz")), tree("nnz"));
        assert_eq!(both(tree("nnz"), always).nodes.len(), 4);
    }

    /// A case without trials of a generated matrix.
    pub fn case(class: &str, rows: usize) -> Case {
        let csr = ellect::generate::by_name(class, rows, 1).expect("a class");
        let structure = Structure::of(&csr);
        let features = Features::of(&structure);
        Case {
            source: class.into(),
            family: class.into(),
            fingerprint: structure.fingerprint(),
            device: "cpu".into(),
            precision: Precision::F64,
            nrows: csr.nrows() as u64,
            nnz: csr.nnz() as u64,
            analysis_s: 0.0,
            features: features.iter().map(|(f, value)| (f.name.to_string(), value)).collect(),
            trials: Vec::new(),
        }
    }

    #[test]
    fn a_tree_finds_when_a_look_pays_and_reads_rows_only_where_it_must() {
        let cases: Vec<Case> =
            (0..100).map(|i| case(["stencil5", "power_law"][i % 2], 200 + 2 * i)).collect();
        // Of many products, a look pays where rows differ.
        let pays = |case: &Case, spmvs| spmvs > 1000 && case.features["row_nnz_cv"] > 0.6;
        let paid: Vec<_> = cases
            .iter()
            .flat_map(|case| [10, 100, 10_000].map(|n| (case, n, pays(case, n))))
            .collect();
        let rules = worth(&paid).expect("examples");
        for (case, spmvs, pays) in paid {
            assert_eq!(Glance::of(&rules, case, spmvs).looks, pays, "{} {spmvs}", case.source);
        }
        let (stencil, graph) = (&cases[0], &cases[1]);
        assert!(
            Glance::of(&rules, graph, 10_000).looks && !Glance::of(&rules, stencil, 10_000).looks
        );
        let input = |name: &str| Some(at_sight(stencil, 10, name));
        let (met, answer) = rules.walk(input).expect("a tree");
        assert_eq!((met.len(), answer), (1, STAY), "{met:?}");
        assert_eq!(Glance::of(&rules, stencil, 10).read_s, 0.0, "products decide alone");
        assert!(Glance::of(&rules, stencil, 10_000).read_s > 0.0);
    }
}
