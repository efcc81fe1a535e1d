//! Learners: tree ensembles grown by smartcore, converted to flat arrays.

use anyhow::{Context, Result, bail};
use ellect::unstable::model::{Forest, ForestArrays, LEAF, coordinate};
use serde::Serialize;
use serde_json::Value;
use smartcore::ensemble::extra_trees_regressor::{
    ExtraTreesRegressor, ExtraTreesRegressorParameters,
};
use smartcore::ensemble::random_forest_regressor::{
    RandomForestRegressor, RandomForestRegressorParameters,
};
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::xgboost::{XGRegressor, XGRegressorParameters};

/// A method of growing trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Learner {
    /// Trees over random rows and features, averaged.
    RandomForest,
    /// Trees with random thresholds, averaged.
    ExtraTrees,
    /// Trees that each correct the sum of the preceding ones.
    Boosting,
}

/// Number of trees of an averaging ensemble, and their depth. More trees predict little better and
/// take longer.
const TREES: usize = 30;
const DEPTH: u16 = 14;
/// Minimum number of rows of a leaf of extra trees; rows near the best occur several times.
const LEAF_ROWS: usize = 3;
/// Number of trees of a boosted ensemble.
const ROUNDS: usize = 60;

impl Learner {
    /// Every learner.
    pub const ALL: [Learner; 3] = [Learner::RandomForest, Learner::ExtraTrees, Learner::Boosting];

    /// Returns `random_forest`, `extra_trees` or `boosting`.
    pub const fn name(self) -> &'static str {
        match self {
            Learner::RandomForest => "random_forest",
            Learner::ExtraTrees => "extra_trees",
            Learner::Boosting => "boosting",
        }
    }

    /// Fits trees to rows of inputs, all finite; the same arguments give the same trees. Their nodes
    /// are in the order in which model files hold them.
    ///
    /// Trees are grown over [`coordinate`]s of the inputs: inputs span many powers of ten, which
    /// random thresholds and midpoints between neighbours would not. The resulting thresholds are
    /// converted back to apply to the inputs themselves.
    ///
    /// # Errors
    /// Fails where smartcore fails.
    pub fn fit(self, rows: &[Vec<f64>], targets: &[f64], seed: u64) -> Result<Forest> {
        self.grown(rows, targets, seed)?.try_into().map_err(anyhow::Error::msg)
    }

    fn grown(self, rows: &[Vec<f64>], targets: &[f64], seed: u64) -> Result<ForestArrays> {
        let width = rows.first().map_or(0, Vec::len);
        if rows.len() < 2 {
            // With one row the forest is its target; with none it is the base itself.
            return Ok(ForestArrays {
                bias: targets.first().copied().unwrap_or(0.0),
                ..ForestArrays::default()
            });
        }
        let x = grown_over(rows)?;
        let y = targets.to_vec();
        match self {
            Learner::RandomForest => {
                let parameters = RandomForestRegressorParameters::default()
                    .with_n_trees(TREES)
                    .with_max_depth(DEPTH)
                    .with_m((width / 3).max(1))
                    .with_seed(seed);
                averaged(&RandomForestRegressor::fit(&x, &y, parameters)?)
            }
            Learner::ExtraTrees => {
                let parameters = ExtraTreesRegressorParameters::default()
                    .with_n_trees(TREES)
                    .with_max_depth(DEPTH)
                    .with_min_samples_leaf(LEAF_ROWS)
                    .with_m((4 * width / 5).max(1))
                    .with_seed(seed);
                averaged(&ExtraTreesRegressor::fit(&x, &y, parameters)?)
            }
            Learner::Boosting => {
                let mean = targets.iter().sum::<f64>() / targets.len() as f64;
                let rate = 0.1;
                let parameters = XGRegressorParameters::default()
                    .with_n_estimators(ROUNDS)
                    .with_max_depth(4)
                    .with_learning_rate(rate)
                    .with_base_score(mean)
                    .with_subsample(0.8)
                    .with_seed(seed);
                let value = serde_json::to_value(XGRegressor::fit(&x, &y, parameters)?)?;
                let mut forest =
                    ForestArrays { bias: mean, scale: rate, ..ForestArrays::default() };
                for tree in list(&value["regressors"])? {
                    let root = grow(&mut forest, 1);
                    forest.roots.push(root as u32);
                    nested(&mut forest, root, tree)?;
                }
                Ok(forest)
            }
        }
    }
}

fn grown_over(rows: &[Vec<f64>]) -> Result<DenseMatrix<f64>> {
    let row = |row: &Vec<f64>| row.iter().map(|&value| coordinate(value)).collect();
    Ok(DenseMatrix::from_2d_vec(&rows.iter().map(row).collect())?)
}

/// Returns the largest f32 whose coordinate is at most `threshold`: f32 inputs compare with it as
/// their coordinates compare with `threshold`.
fn below(threshold: f64) -> f32 {
    let most = f64::from(f32::MAX);
    let near = (threshold.signum() * threshold.abs().exp_m1()).clamp(-most, most) as f32;
    let fits = |value: f32| coordinate(f64::from(value)) <= threshold;
    match fits(near) {
        true if fits(near.next_up()) => near.next_up(),
        true => near,
        false => near.next_down(),
    }
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("smartcore's form of trees is another one")
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("smartcore's form of nodes is another one")
}

/// Adds `count` nodes, as leaves of value 0, and returns the index of the first one.
fn grow(forest: &mut ForestArrays, count: usize) -> usize {
    let first = forest.feature.len();
    forest.feature.resize(first + count, LEAF);
    forest.value.resize(first + count, 0.0);
    forest.child.resize(first + count, 0);
    first
}

/// Turns a node into a split and returns the index of the first of its two children.
fn split(
    forest: &mut ForestArrays,
    node: usize,
    feature: &Value,
    threshold: &Value,
) -> Result<usize> {
    let child = grow(forest, 2);
    forest.feature[node] = u16::try_from(feature.as_u64().context("a split without feature")?)?;
    forest.value[node] = below(number(threshold)?);
    forest.child[node] = child as u32;
    Ok(child)
}

/// Converts the trees of an averaging ensemble, whose nodes are lists.
fn averaged(model: &impl Serialize) -> Result<ForestArrays> {
    let value = serde_json::to_value(model)?;
    let trees = list(&value["forest_regressor"]["trees"])?;
    if trees.is_empty() {
        bail!("an ensemble without trees");
    }
    let scale = 1.0 / trees.len() as f64;
    let mut forest = ForestArrays { scale, ..ForestArrays::default() };
    for tree in trees {
        let nodes = list(&tree["nodes"])?;
        let root = grow(&mut forest, 1);
        forest.roots.push(root as u32);
        let mut open = vec![(root, 0usize)];
        while let Some((at, from)) = open.pop() {
            let node = nodes.get(from).context("a child that is not there")?;
            match (node["true_child"].as_u64(), node["false_child"].as_u64()) {
                (Some(yes), Some(no)) => {
                    let threshold = &node["split_value"];
                    let child = split(&mut forest, at, &node["split_feature"], threshold)?;
                    open.push((child, yes as usize));
                    open.push((child + 1, no as usize));
                }
                _ => forest.value[at] = number(&node["output"])? as f32,
            }
        }
    }
    Ok(forest)
}

/// Converts a boosted tree, whose nodes hold their children.
fn nested(forest: &mut ForestArrays, at: usize, node: &Value) -> Result<()> {
    if node["left"].is_null() {
        forest.value[at] = number(&node["value"])? as f32;
        return Ok(());
    }
    let child = split(forest, at, &node["split_feature_idx"], &node["threshold"])?;
    nested(forest, child, &node["left"])?;
    nested(forest, child + 1, &node["right"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rows of f32 numbers and a rough function of them.
    fn data() -> (Vec<Vec<f64>>, Vec<f64>) {
        let row = |i: usize| -> Vec<f64> {
            (1..5).map(|k| f64::from(((i * k * 7919) % 101) as f32 / 10.0)).collect()
        };
        let rows: Vec<_> = (0..80).map(row).collect();
        let targets = rows.iter().map(|r| r[0] * 0.3 + f64::from(u8::from(r[1] > 4.0))).collect();
        (rows, targets)
    }

    fn inputs(row: &[f64]) -> Vec<f32> {
        row.iter().map(|&value| value as f32).collect()
    }

    #[test]
    fn flat_trees_say_what_smartcores_say() {
        let (rows, targets) = data();
        let x = grown_over(&rows).expect("rows of one width");
        let parameters = RandomForestRegressorParameters::default().with_n_trees(7).with_seed(3);
        let model = RandomForestRegressor::fit(&x, &targets, parameters).expect("finite");
        let forest = averaged(&model).expect("smartcore 0.7.0");
        let forest = Forest::try_from(forest).expect("trees");
        forest.check(4).expect("sound");
        let theirs: Vec<f64> = model.predict(&x).expect("fitted");
        for (row, theirs) in rows.iter().zip(theirs) {
            assert!((forest.sum(&inputs(row)) - theirs).abs() < 1e-6);
        }
    }

    #[test]
    fn inputs_compare_with_thresholds_as_their_coordinates_do() {
        let values =
            [-3e4, -0.7, 0.0, 1e-9, 0.3, 1.0, 77.0, 12_345.678, 3e9, 1e30].map(|v| v as f32);
        for value in values {
            let own = coordinate(f64::from(value));
            assert_eq!(below(own), value);
            for threshold in values.map(|other| (own + coordinate(f64::from(other))) / 2.0) {
                assert_eq!(value <= below(threshold), own <= threshold, "{value} {threshold}");
            }
        }
    }

    #[test]
    fn every_learner_learns_and_repeats_itself() {
        let (rows, targets) = data();
        for learner in Learner::ALL {
            let forest = learner.fit(&rows, &targets, 1).expect("finite rows");
            forest.check(4).expect("sound");
            let off = |(row, y): (&Vec<f64>, &f64)| (forest.sum(&inputs(row)) - y).abs();
            let mean = rows.iter().zip(&targets).map(off).sum::<f64>() / rows.len() as f64;
            assert!(mean < 0.3, "{}: {mean}", learner.name());
            assert_eq!(forest, learner.fit(&rows, &targets, 1).expect("the same"));
        }
    }
}
