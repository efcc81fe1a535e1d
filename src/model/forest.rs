//! Forests: sums of binary decision trees in flat arrays.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Value of [`Forest::feature`] that marks a leaf.
pub const LEAF: u16 = u16::MAX;

/// Largest absolute sum of a forest. Sums are logarithms of ratios of times, and a time multiplied
/// by e^100 is still finite.
const MOST: f64 = 100.0;

/// A sum of binary trees; node by node in flat arrays, every child after its parent.
///
/// ```text
/// input 3 <= 1.5 ?        node     0    1    2
///   yes: 0.25             feature  3    LEAF LEAF
///   no:  0.75             value    1.5  0.25 0.75      child  1 0 0
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forest {
    /// Constant that is added to the sum of the leaves.
    pub bias: f64,
    /// Factor that the leaves are multiplied by.
    pub scale: f64,
    /// Root node of every tree.
    pub roots: Vec<u32>,
    /// Index of the input that a node compares; [`LEAF`] for a leaf.
    pub feature: Vec<u16>,
    /// Threshold of a node, or value of a leaf.
    pub value: Vec<f32>,
    /// Child for inputs up to the threshold; the child for larger inputs is the next node.
    pub child: Vec<u32>,
}

impl Forest {
    /// Returns the sum for these inputs; allocates nothing.
    ///
    /// # Panics
    /// If there are fewer inputs than were passed to [`Forest::check`].
    pub fn sum(&self, inputs: &[f32]) -> f64 {
        let leaf = |&root: &u32| {
            let mut node = root as usize;
            while self.feature[node] != LEAF {
                let beyond = inputs[usize::from(self.feature[node])] > self.value[node];
                node = self.child[node] as usize + usize::from(beyond);
            }
            f64::from(self.value[node])
        };
        self.bias + self.scale * self.roots.iter().map(leaf).sum::<f64>()
    }

    /// Returns the forest with the nodes of every tree in the order of their levels, in which model
    /// files hold them.
    pub fn by_levels(&self) -> Forest {
        let Forest { bias, scale, .. } = *self;
        let mut sorted = Forest { bias, scale, ..Forest::default() };
        for &root in &self.roots {
            sorted.roots.push(sorted.feature.len() as u32);
            let mut queue = VecDeque::from([root as usize]);
            while let Some(node) = queue.pop_front() {
                let inner = self.feature[node] != LEAF;
                // The children come after this node and all that wait.
                let child = if inner { sorted.feature.len() + queue.len() + 1 } else { 0 };
                sorted.feature.push(self.feature[node]);
                sorted.value.push(self.value[node]);
                sorted.child.push(child as u32);
                if inner {
                    let child = self.child[node] as usize;
                    queue.extend([child, child + 1]);
                }
            }
        }
        sorted
    }

    /// Checks that every walk with this number of inputs ends in a leaf, and that no sum exceeds
    /// the bound for logarithms of times.
    ///
    /// # Errors
    /// A description of the first fault.
    pub fn check(&self, inputs: usize) -> Result<(), String> {
        let nodes = self.feature.len();
        if self.value.len() != nodes || self.child.len() != nodes {
            return Err(format!("arrays of {nodes}, {} nodes", self.value.len()));
        }
        if let Some(root) = self.roots.iter().find(|&&root| root as usize >= nodes) {
            return Err(format!("root {root} of {nodes} nodes"));
        }
        for node in 0..nodes {
            let child = self.child[node] as usize;
            let leaf = self.feature[node] == LEAF;
            if !self.value[node].is_finite() {
                return Err(format!("node {node} holds no number"));
            }
            if !leaf && (child <= node || child + 1 >= nodes) {
                return Err(format!("child {child} of node {node} of {nodes}"));
            }
            if !leaf && usize::from(self.feature[node]) >= inputs {
                return Err(format!("input {} of {inputs}", self.feature[node]));
            }
        }
        let leaves = (0..nodes).filter(|&node| self.feature[node] == LEAF);
        let leaf = leaves.map(|node| f64::from(self.value[node].abs())).fold(0.0, f64::max);
        let sum = self.bias.abs() + self.scale.abs() * self.roots.len() as f64 * leaf;
        // NaN fails this comparison too.
        if sum <= MOST { Ok(()) } else { Err(format!("sums of up to {sum:e}, over {MOST}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_beyond_any_time_are_reported() {
        let stump = |bias, scale, leaf| Forest {
            bias,
            scale,
            roots: vec![0, 0],
            feature: vec![0, LEAF, LEAF],
            value: vec![3e38, 0.5, leaf],
            child: vec![1, 0, 0],
        };
        // The threshold does not count; two trees count twice the largest leaf.
        stump(4.0, 0.5, -96.0).check(1).expect("100 is the most");
        let what = stump(4.0, 0.5, -97.0).check(1).expect_err("one more");
        assert_eq!(what, "sums of up to 1.01e2, over 100");
        for forest in
            [stump(f64::MAX, 0.0, 0.0), stump(0.0, f64::INFINITY, 0.0), stump(0.0, 1.0, 3e38)]
        {
            forest.check(1).expect_err("no time");
        }
    }
}
