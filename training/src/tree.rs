//! Decision trees by linfa: which format wins, predicted from a few features. They explain choices;
//! over row statistics alone, a tree is the rule that models are compared with.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use ellect::features::{Needs, of_rows_alone};
use ellect::unstable::choose::{SAMPLE_S, row_scan_s};
use ellect::unstable::format::sort_key;
use ellect::unstable::model::{GateInputs, KEEP, LONGEST, READING, Rule, Rules, SAMPLING};
use linfa::prelude::*;
use linfa_trees::{DecisionTree, TreeNode};
use ndarray::{Array1, Array2};

use crate::case::{Case, Trial, least};

/// Features that a person can check in a matrix by eye, used in rules of thumb.
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

/// Depth up to which rules remain readable.
pub const EXPLAINING_DEPTH: usize = 4;

/// Returns the fastest candidate.
fn winner(case: &Case) -> Option<&Trial> {
    least(case, |_, trial| trial.spmv_s)
}

/// Fits a tree over features that predicts the winning format.
///
/// # Errors
/// Fails where linfa fails, for instance without cases.
pub fn rules(cases: &[&Case], features: &[&str], depth: usize) -> Result<Rules> {
    let won = cases.iter().filter_map(|case| {
        let value = |name: &&str| case.features.get(*name).copied().unwrap_or(0.0);
        let inputs: Vec<f64> = features.iter().map(value).collect();
        Some(Example { inputs, label: winner(case)?.format(), weight: 1.0 })
    });
    grow(&won.collect::<Vec<_>>(), features, depth, None)
}

/// Returns the names of the features that need only the lengths of rows.
pub fn row_statistics() -> Vec<&'static str> {
    of_rows_alone().map(|feature| feature.name).collect()
}

/// Returns the names of the features that need only the size of the matrix.
pub fn size() -> Vec<&'static str> {
    let of_size = of_rows_alone().filter(|feature| feature.needs() < Needs::Rows);
    of_size.map(|feature| feature.name).collect()
}

/// Returns an input of [`agreed`]: a gate input known without an analysis, or a feature.
pub fn input(case: &Case, known: &GateInputs, name: &str) -> f64 {
    known.input(name, |name| case.features.get(name).copied()).unwrap_or(0.0)
}

/// Returns the gate inputs of a case that are known without an analysis.
pub fn known(case: &Case, spmvs: u64) -> GateInputs {
    let row_scan_s = row_scan_s(case.nrows);
    GateInputs { spmvs, baseline_spmv_s: case.baseline_estimate_s, row_scan_s, sample_s: SAMPLE_S }
}

/// An example for one case and number of products: a bold answer, and its time relative to the
/// cautious answer.
#[derive(Clone, Copy, Debug)]
pub struct Tried<'a> {
    /// Case of the example.
    pub case: &'a Case,
    /// Number of products.
    pub spmvs: u64,
    /// Time of the bold answer divided by the time of the cautious one.
    pub over: f64,
}

/// A bold answer pays where its time is at most this share of the other's: a smaller gain may be
/// chance.
const PAYS: f64 = 0.95;

/// Share of the products' time that reading row lengths may take.
const READ_SHARE: f64 = 0.0125;

/// InputRange within which row lengths are read: reading takes less than `READ_SHARE` of the products'
/// time.
pub const READ: InputRange = InputRange { input: READING, least: 0.0, below: READ_SHARE };

/// InputRange within which row lengths are not read: reading takes `READ_SHARE` of the products' time or
/// more.
pub const UNREAD: InputRange = InputRange { input: READING, least: READ_SHARE, below: f64::MAX };

/// InputRange of matrices that no cache holds: times of similar matrices predict theirs better than
/// those of smaller matrices.
pub const LARGE: InputRange = InputRange { input: "nnz", least: 4e6, below: f64::MAX };

/// InputRange within which entries are sampled: sampling takes less than this share of the products'
/// time.
pub const SAMPLE: InputRange = InputRange { input: SAMPLING, least: 0.0, below: 0.0075 };

/// InputRange on the longest row for which `csr` is trusted, in entries per microsecond of a product. In
/// the records of an H200, `csr` loses on one matrix in ten with up to 12, on three in ten from 12
/// to 24, on six in ten from 24 to 48, and on nearly all from 100 on, by up to a factor of 100.
pub const SHORT: InputRange = InputRange { input: LONGEST, least: 0.0, below: 16.0 };

/// A range that an input known without an analysis must lie in for a bold answer: at least `least`,
/// and less than `below`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputRange {
    input: &'static str,
    least: f64,
    below: f64,
}

/// Returns the seconds spent on a case to evaluate inputs within these bounds.
pub fn asking_s(case: &Case, bounds: &[InputRange]) -> f64 {
    let seconds = |(bound, seconds)| if bounds.contains(&bound) { seconds } else { 0.0 };
    [(READ, row_scan_s(case.nrows)), (SAMPLE, SAMPLE_S)].into_iter().map(seconds).sum()
}

/// Growth parameters of a tree of [`agreed`].
struct Growth {
    depth: usize,
    /// Minimum weight of a leaf.
    leaf: f32,
    /// Lower bound of the logarithm that weights an example: with 1, nearly every example counts
    /// the same.
    least: f64,
}

/// Unit of weights, which are whole multiples of it.
const WEIGHT: f64 = 1.0 / 32.0;

/// Upper bound of the logarithm that weights an example: matrices with rows of a thousand times the
/// mean length are no example for others.
const MOST: f64 = 2.0;

/// The trees of [`agreed`]: one with large leaves that counts examples, and one that weighs gains.
const TREES: [Growth; 2] =
    [Growth { depth: 5, leaf: 80.0, least: 1.0 }, Growth { depth: 5, leaf: 20.0, least: 0.05 }];

/// A bold answer and the inputs that it is predicted from.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The bold answer.
    pub bold: &'a str,
    /// Names of the inputs.
    pub names: Vec<&'a str>,
    /// Bounds on inputs, which are compared first.
    pub bounds: Vec<InputRange>,
    /// Weight factor of losing examples: a gain counts by its logarithm, a loss by this many times
    /// its logarithm.
    pub caution: f64,
}

/// Learns rules that give the bold answer where two trees agree on it, and [`KEEP`] elsewhere,
/// including where an input is out of bounds.
///
/// # Errors
/// As [`rules`].
pub fn agreed(tried: &[Tried<'_>], question: &Question<'_>) -> Result<Rules> {
    let Question { bold, names, bounds, caution } = question;
    let without_analysis =
        |tried: &Tried<'_>, name: &str| input(tried.case, &known(tried.case, tried.spmvs), name);
    let answer = |word: &str| Rule::Answer(word.to_string());
    let within = |tried: &Tried<'_>| {
        let met = |bound: &InputRange| {
            let input = without_analysis(tried, bound.input);
            bound.least <= input && input < bound.below
        };
        bounds.iter().all(met)
    };
    let mut rules = Rules { nodes: vec![answer(bold)] };
    for InputRange { input, least, below } in bounds {
        // Inputs are never negative, and always finite.
        let ends = [(*least, [KEEP, bold]), (*below, [bold, KEEP])];
        for (end, [low, high]) in ends.into_iter().filter(|(end, _)| *end > 0.0 && *end < f64::MAX)
        {
            let split = Rule::Split { feature: input.to_string(), below: end, low: 1, high: 2 };
            rules = both(rules, Rules { nodes: vec![split, answer(low), answer(high)] }, bold);
        }
    }
    let tried = tried.iter().filter(|tried| within(tried) && tried.over.is_finite());
    let tried: Vec<&Tried<'_>> = tried.collect();
    if tried.is_empty() {
        return Ok(keep());
    }
    for Growth { depth, leaf, least } in TREES {
        let example = |tried: &&Tried<'_>| {
            let pays = tried.over < PAYS;
            let (label, caution) = if pays { (*bold, 1.0) } else { (KEEP, *caution) };
            let weight = caution * tried.over.ln().abs().clamp(least, MOST);
            let input = |name: &&str| without_analysis(tried, name);
            // Sums of multiples of `WEIGHT` are exact, in whatever order linfa's hash tables hold
            // them.
            let weight = (weight / WEIGHT).round().max(1.0) * WEIGHT;
            Example { inputs: names.iter().map(input).collect(), label, weight: weight as f32 }
        };
        let examples: Vec<_> = tried.iter().map(example).collect();
        let tree = grow(&examples, names, depth, Some(leaf))?;
        if !tree.nodes.contains(&answer(bold)) {
            return Ok(keep());
        }
        rules = both(rules, tree, bold);
    }
    Ok(rules)
}

/// Returns rules that ask nothing and answer [`KEEP`].
pub fn keep() -> Rules {
    Rules { nodes: vec![Rule::Answer(KEEP.to_string())] }
}

/// Returns rules that give the answer `word` where both do: the second rules follow where the first
/// give it.
fn both(first: Rules, second: Rules, word: &str) -> Rules {
    let (said, behind) = (Rule::Answer(word.to_string()), first.nodes.len() as u32);
    if first.nodes.first() == Some(&said) {
        return second;
    }
    let here = |next: u32| if first.nodes[next as usize] == said { behind } else { next };
    let there = |next: u32| behind + next;
    let asked = first.nodes.iter().map(|rule| moved(rule.clone(), here));
    Rules { nodes: asked.chain(second.nodes.into_iter().map(|rule| moved(rule, there))).collect() }
}

/// Returns a rule with the indices of its successors moved.
fn moved(rule: Rule, place: impl Fn(u32) -> u32) -> Rule {
    match rule {
        Rule::Split { feature, below, low, high } => {
            Rule::Split { feature, below, low: place(low), high: place(high) }
        }
        answer @ Rule::Answer(_) => answer,
    }
}

/// A row of a tree's training table.
struct Example<'a> {
    inputs: Vec<f64>,
    label: &'a str,
    weight: f32,
}

/// Fits a tree to examples with inputs of these names. Leaves have at least the weight `leaf`, by
/// default a sixtieth of all and at least 2.
fn grow(
    examples: &[Example<'_>],
    names: &[&str],
    depth: usize,
    leaf: Option<f32>,
) -> Result<Rules> {
    let mut words: Vec<&str> = examples.iter().map(|example| example.label).collect();
    // Of several words with the same weight, their order decides.
    words.sort_unstable_by_key(|word| sort_key(word));
    words.dedup();
    let value = |(i, k): (usize, usize)| examples[i].inputs[k];
    let inputs = Array2::from_shape_fn((examples.len(), names.len()), value);
    let place: HashMap<&str, usize> =
        words.iter().enumerate().map(|(i, word)| (*word, i)).collect();
    let label = |example: &Example<'_>| place[example.label];
    let labels: Array1<usize> = examples.iter().map(label).collect();
    let weights: Array1<f32> = examples.iter().map(|example| example.weight).collect();
    let leaf = leaf.unwrap_or((weights.sum() / 60.0).max(2.0));
    let data = Dataset::new(inputs, labels).with_weights(weights);
    let tree = DecisionTree::params().max_depth(Some(depth)).min_weight_leaf(leaf).fit(&data)?;
    let mut rules = Rules::default();
    flatten(tree.root_node(), names, &words, &mut rules);
    Ok(rules)
}

/// Appends a node and its descendants to the rules, and returns the index of the node.
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

/// Returns for each format the candidate that was its fastest most often.
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
    use ellect::format::CSR;
    use ellect::unstable::model::ANALYZE;

    use super::*;
    use crate::sample_cases::case;

    #[test]
    fn a_matrix_is_analysed_where_both_trees_say_so() {
        let split =
            |feature: &str| Rule::Split { feature: feature.into(), below: 1.0, low: 1, high: 2 };
        let answer = |word: &str| Rule::Answer(word.into());
        let tree = |feature| Rules { nodes: vec![split(feature), answer(KEEP), answer(ANALYZE)] };
        let rules = both(tree("nrows"), tree("nnz"), ANALYZE);
        rules
            .check(|name| !name.is_empty(), |word| [KEEP, ANALYZE].contains(&word))
            .expect("sound");
        for (nrows, nnz, expected) in [(0.0, 2.0, KEEP), (2.0, 0.0, KEEP), (2.0, 2.0, ANALYZE)] {
            let value = |name: &str| Some(if name == "nrows" { nrows } else { nnz });
            assert_eq!(rules.walk(value).expect("an answer").1, expected);
        }
        let always = Rules { nodes: vec![answer(ANALYZE)] };
        assert_eq!(both(always.clone(), tree("nnz"), ANALYZE), tree("nnz"));
        assert_eq!(both(tree("nnz"), always, ANALYZE).nodes.len(), 4);
    }

    /// Returns the number of rules met and the answer for a case.
    pub fn says<'a>(rules: &'a Rules, case: &Case, spmvs: u64) -> (usize, &'a str) {
        let input = |name: &str| Some(super::input(case, &known(case, spmvs), name));
        let (met, answer) = rules.walk(input).expect("a tree");
        (met.len(), answer)
    }

    #[test]
    fn an_answer_is_refused_where_similar_matrices_lose() {
        let cases: Vec<Case> = (0..200).map(|i| case("stencil5", 400 + (i % 2))).collect();
        let question = Question {
            bold: CSR,
            names: row_statistics(),
            bounds: vec![READ, SHORT],
            caution: 30.0,
        };
        for (losing, expected) in [(0, CSR), (5, CSR), (20, KEEP)] {
            let over = |i: usize| if i < losing { 1.5 } else { 0.5 };
            let tried = cases.iter().enumerate();
            let tried = tried.map(|(i, case)| Tried { case, spmvs: 1000, over: over(i) });
            let tried: Vec<_> = tried.collect();
            let rules = agreed(&tried, &question).expect("examples");
            assert_eq!(says(&rules, &cases[0], 1000).1, expected, "{losing} lose");
            assert_eq!(rules == keep(), expected == KEEP);
        }
        assert_eq!(agreed(&[], &question).expect("nothing to learn"), keep());
    }
}
