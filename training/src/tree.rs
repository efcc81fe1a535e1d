//! A decision tree by linfa: which format wins, told by a few features. It explains choices, and
//! over row statistics alone it is what models are compared with.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use ellect::choose::{SAMPLE_S, row_scan_s};
use ellect::features::{Needs, of_rows_alone};
use ellect::model::{GateInputs, KEEP, LONGEST, READING, Rule, Rules, SAMPLING};
use linfa::prelude::*;
use linfa_trees::{DecisionTree, TreeNode};
use ndarray::{Array1, Array2};

use crate::case::{Case, Trial, least};

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

/// The names of features that need nothing but the size.
pub fn size() -> Vec<&'static str> {
    let of_size = of_rows_alone().filter(|feature| feature.needs() < Needs::Rows);
    of_size.map(|feature| feature.name).collect()
}

/// An input of [`agreed`]: what is known at sight, or a feature.
pub fn input(case: &Case, known: &GateInputs, name: &str) -> f64 {
    known.input(name, |name| case.features.get(name).copied()).unwrap_or(0.0)
}

/// What is known of a case at sight.
pub fn known(case: &Case, spmvs: u64) -> GateInputs {
    let row_scan_s = row_scan_s(case.nrows);
    GateInputs { spmvs, baseline_spmv_s: case.stay_s, row_scan_s, sample_s: SAMPLE_S }
}

/// What was tried of a case for so many products: a bold answer, and how many times as long as the
/// cautious one it took.
#[derive(Clone, Copy, Debug)]
pub struct Tried<'a> {
    /// The case.
    pub case: &'a Case,
    /// The products.
    pub spmvs: u64,
    /// The time of the bold answer over that of the cautious one.
    pub over: f64,
}

/// A bold answer pays where it takes at most this part of the other's time: less is left to chance.
const PAYS: f64 = 0.95;

/// The part of the products' time that reading the lengths of rows may take.
const READ_SHARE: f64 = 0.0125;

/// The lengths of rows are read where that takes no more...
pub const READ: Bound = Bound { input: READING, least: 0.0, below: READ_SHARE };

/// ...and not where it does.
pub const UNREAD: Bound = Bound { input: READING, least: READ_SHARE, below: f64::MAX };

/// Matrices that no cache holds: what others take of their kind tells more than of smaller ones.
pub const LARGE: Bound = Bound { input: "nnz", least: 4e6, below: f64::MAX };

/// Entries are sampled where that takes at most this part of it.
pub const SAMPLE: Bound = Bound { input: SAMPLING, least: 0.0, below: 0.0075 };

/// Features are counted where that takes no more: whatever they tell may be wrong.
pub const COUNTED: Bound = Bound { input: READING, least: 0.0, below: 0.08 };

/// The longest rows that `csr` is trusted with: of an H200's records, with up to 12 entries a
/// microsecond it loses on one matrix in ten, from 12 to 24 on three of ten, from 24 to 48 on six of
/// ten, from 100 on, on nearly all, up to a hundredfold.
pub const SHORT: Bound = Bound { input: LONGEST, least: 0.0, below: 16.0 };

/// An input at sight that has to be at least, and below, something for a bold answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    input: &'static str,
    least: f64,
    below: f64,
}

/// Seconds of what is asked of a case where these bounds are kept.
pub fn asking_s(case: &Case, bounds: &[Bound]) -> f64 {
    let seconds = |(bound, seconds)| if bounds.contains(&bound) { seconds } else { 0.0 };
    [(READ, row_scan_s(case.nrows)), (SAMPLE, SAMPLE_S)].into_iter().map(seconds).sum()
}

/// How a tree of [`agreed`] is grown.
struct Growth {
    depth: usize,
    /// The least weight of a leaf.
    leaf: f32,
    /// The least that a logarithm counts: with 1, nearly every example counts the same.
    least: f64,
}

/// What weights are whole numbers of.
const WEIGHT: f64 = 1.0 / 32.0;

/// The most that a logarithm counts: rows of a thousand times the mean length are no example for
/// others.
const MOST: f64 = 2.0;

/// The trees of [`agreed`]: one of large leaves that counts examples, one that counts gains.
const TREES: [Growth; 2] =
    [Growth { depth: 5, leaf: 80.0, least: 1.0 }, Growth { depth: 5, leaf: 20.0, least: 0.05 }];

/// A bold answer and what it is told by.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The answer.
    pub bold: &'a str,
    /// The inputs.
    pub names: Vec<&'a str>,
    /// What inputs have to be within: they are compared first.
    pub bounds: Vec<Bound>,
    /// What gains an example counts by its logarithm, what loses so many times that.
    pub caution: f64,
    /// What is known of a case and so many products.
    pub known: fn(&Case, u64) -> GateInputs,
}

/// Rules that give the bold answer where two trees agree on it, and [`KEEP`] elsewhere, also where an
/// input is out of bounds.
///
/// # Errors
/// As [`rules`].
pub fn agreed(tried: &[Tried<'_>], question: &Question<'_>) -> Result<Rules> {
    let Question { bold, names, bounds, caution, known } = question;
    let at_sight =
        |tried: &Tried<'_>, name: &str| input(tried.case, &known(tried.case, tried.spmvs), name);
    let answer = |word: &str| Rule::Answer(word.to_string());
    let within = |tried: &Tried<'_>| {
        let met = |bound: &Bound| {
            let input = at_sight(tried, bound.input);
            bound.least <= input && input < bound.below
        };
        bounds.iter().all(met)
    };
    let mut rules = Rules { nodes: vec![answer(bold)] };
    for Bound { input, least, below } in bounds {
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
        return Ok(stay());
    }
    for Growth { depth, leaf, least } in TREES {
        let example = |tried: &&Tried<'_>| {
            let pays = tried.over < PAYS;
            let (label, caution) = if pays { (*bold, 1.0) } else { (KEEP, *caution) };
            let weight = caution * tried.over.ln().abs().clamp(least, MOST);
            let input = |name: &&str| at_sight(tried, name);
            // Sums of these are exact, in whatever order linfa's hash tables have them.
            let weight = (weight / WEIGHT).round().max(1.0) * WEIGHT;
            Example { inputs: names.iter().map(input).collect(), label, weight: weight as f32 }
        };
        let examples: Vec<_> = tried.iter().map(example).collect();
        let tree = grow(&examples, names, depth, Some(leaf))?;
        if !tree.nodes.contains(&answer(bold)) {
            return Ok(stay());
        }
        rules = both(rules, tree, bold);
    }
    Ok(rules)
}

/// Rules that ask nothing and say [`KEEP`].
pub fn stay() -> Rules {
    Rules { nodes: vec![Rule::Answer(KEEP.to_string())] }
}

/// Rules that give this answer where both do: the second are asked where the first say so.
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

/// Rules that say this word where an input is less than this, and what `rules` say where it is not.
pub fn or_below(rules: Rules, input: &str, below: f64, word: &str) -> Rules {
    let first = Rule::Split { feature: input.to_string(), below, low: 1, high: 2 };
    let rest = rules.nodes.into_iter().map(|rule| moved(rule, |next| next + 2));
    Rules { nodes: [first, Rule::Answer(word.to_string())].into_iter().chain(rest).collect() }
}

/// A rule whose next ones were moved.
fn moved(rule: Rule, place: impl Fn(u32) -> u32) -> Rule {
    match rule {
        Rule::Split { feature, below, low, high } => {
            Rule::Split { feature, below, low: place(low), high: place(high) }
        }
        answer @ Rule::Answer(_) => answer,
    }
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
    use ellect::format::CSR;
    use ellect::model::ANALYZE;

    use super::*;
    use crate::sample_cases::case;

    #[test]
    fn a_matrix_is_looked_at_where_both_trees_say_so() {
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

        let rules = or_below(tree("nnz"), "nrows", 3.0, ANALYZE);
        rules
            .check(|name| !name.is_empty(), |word| [KEEP, ANALYZE].contains(&word))
            .expect("sound");
        for (nrows, nnz, expected) in [(2.0, 0.0, ANALYZE), (4.0, 0.0, KEEP), (4.0, 2.0, ANALYZE)] {
            let value = |name: &str| Some(if name == "nrows" { nrows } else { nnz });
            assert_eq!(rules.walk(value).expect("an answer").1, expected);
        }
    }

    /// What the rules say of a case.
    pub fn says<'a>(rules: &'a Rules, case: &Case, spmvs: u64) -> (usize, &'a str) {
        let input = |name: &str| Some(super::input(case, &known(case, spmvs), name));
        let (met, answer) = rules.walk(input).expect("a tree");
        (met.len(), answer)
    }

    #[test]
    fn a_bold_answer_is_not_given_where_few_that_look_alike_lose() {
        let cases: Vec<Case> = (0..200).map(|i| case("stencil5", 400 + (i % 2))).collect();
        let question = Question {
            bold: CSR,
            names: row_statistics(),
            bounds: vec![READ, SHORT],
            caution: 30.0,
            known,
        };
        for (losing, expected) in [(0, CSR), (5, CSR), (20, KEEP)] {
            let over = |i: usize| if i < losing { 1.5 } else { 0.5 };
            let tried = cases.iter().enumerate();
            let tried = tried.map(|(i, case)| Tried { case, spmvs: 1000, over: over(i) });
            let tried: Vec<_> = tried.collect();
            let rules = agreed(&tried, &question).expect("examples");
            assert_eq!(says(&rules, &cases[0], 1000).1, expected, "{losing} lose");
            assert_eq!(rules == stay(), expected == KEEP);
        }
        assert_eq!(agreed(&[], &question).expect("nothing to learn"), stay());
    }
}
