//! Forests: sums of binary decision trees in flat arrays.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Value of [`ForestArrays::feature`] that marks a leaf.
pub const LEAF: u16 = u16::MAX;

/// Largest absolute sum of a forest. Sums are logarithms of ratios of times, and a time multiplied
/// by e^100 is still finite.
const MOST: f64 = 100.0;

/// Size of a node, in bytes.
pub(super) const NODE_BYTES: usize = 8;

/// Largest number of nodes of a tree; nodes hold distances of 16 bits.
const MOST_NODES: usize = 1 << 16;

/// Number of trees that are walked together, step by step, so that no walk waits for the memory
/// accesses of another.
const TOGETHER: usize = 8;

/// A sum of binary trees, whose nodes are evaluated where a model file holds them.
///
/// ```text
/// bytes   content of a node, in little-endian order
/// 4       f32: threshold of the compared input; value of a leaf
/// 2       u16: index of the compared input; LEAF for a leaf
/// 2       u16: child for inputs up to the threshold, as its distance from the root of the tree;
///         the child for larger inputs is the next node. A leaf leads to itself.
/// ```
///
/// The nodes of a tree follow each other in the order of their levels, and the trees in the order of
/// their roots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ForestArrays", into = "ForestArrays")]
pub struct Forest {
    /// Constant that is added to the sum of the leaves.
    pub bias: f64,
    /// Factor that the leaves are multiplied by.
    pub scale: f64,
    /// Root node of every tree.
    pub(super) roots: Vec<u32>,
    /// Nodes of all trees.
    pub(super) nodes: Bytes,
}

/// A node of a [`Forest`].
#[derive(Clone, Copy, Debug)]
struct Node {
    value: f32,
    feature: u16,
    child: u16,
}

impl Node {
    fn read([a, b, c, d, e, f, g, h]: [u8; NODE_BYTES]) -> Node {
        Node {
            value: f32::from_le_bytes([a, b, c, d]),
            feature: u16::from_le_bytes([e, f]),
            child: u16::from_le_bytes([g, h]),
        }
    }

    fn bytes(self) -> [u8; NODE_BYTES] {
        let Node { value, feature, child } = self;
        let ([a, b, c, d], [e, f]) = (value.to_le_bytes(), feature.to_le_bytes());
        let [g, h] = child.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

impl Forest {
    /// Builds a forest from the nodes of its trees, in the order of their levels: for each tree its
    /// number of nodes, and for each node its feature and its value.
    ///
    /// # Errors
    /// A description of the first tree whose nodes do not form a tree, or are too many.
    pub(super) fn of_levels(
        [bias, scale]: [f64; 2],
        sizes: &[u32],
        mut nodes: impl Iterator<Item = (u16, f32)>,
    ) -> Result<Forest, String> {
        let (mut roots, mut packed) = (Vec::with_capacity(sizes.len()), Vec::new());
        for &size in sizes {
            if size as usize > MOST_NODES {
                return Err(format!("a tree of {size} nodes, over {MOST_NODES}"));
            }
            roots.push((packed.len() / NODE_BYTES) as u32);
            // The children of inner nodes follow each other in the order of their parents.
            let mut next = 1;
            for (own, (feature, value)) in nodes.by_ref().take(size as usize).enumerate() {
                let inner = feature != LEAF;
                let child = if inner { next } else { own } as u16;
                next += if inner { 2 } else { 0 };
                packed.extend(Node { value, feature, child }.bytes());
            }
            if next != size as usize {
                return Err(format!("a tree of {size} nodes is incomplete"));
            }
        }
        Ok(Forest { bias, scale, roots, nodes: packed.into() })
    }

    /// Returns the sum for these inputs; allocates nothing. An input that is missing counts as one
    /// below all thresholds.
    pub fn sum(&self, inputs: &[f32]) -> f64 {
        let (nodes, _) = self.nodes.as_chunks::<NODE_BYTES>();
        let mut sum = 0.0;
        for roots in self.roots.chunks(TOGETHER) {
            let mut at = [0u32; TOGETHER];
            let at = &mut at[..roots.len()];
            at.copy_from_slice(roots);
            let mut moved = true;
            while std::mem::take(&mut moved) {
                for (at, root) in at.iter_mut().zip(roots) {
                    let node = Node::read(nodes[*at as usize]);
                    // No input has the index of a leaf.
                    let input = inputs.get(usize::from(node.feature));
                    let beyond = input.is_some_and(|&input| input > node.value);
                    let next = root + u32::from(node.child) + u32::from(beyond);
                    moved |= next != *at;
                    *at = next;
                }
            }
            let leaf = |&leaf: &u32| f64::from(Node::read(nodes[leaf as usize]).value);
            sum += at.iter().map(leaf).sum::<f64>();
        }
        self.bias + self.scale * sum
    }

    /// Checks that every walk with this number of inputs ends in a leaf, and that no sum exceeds
    /// the bound for logarithms of times.
    ///
    /// # Errors
    /// A description of the first fault.
    pub fn check(&self, inputs: usize) -> Result<(), String> {
        let mut largest = 0f32;
        for (root, tree) in self.trees() {
            if tree.is_empty() {
                return Err(format!("the tree at {root} has no nodes"));
            }
            for (own, node) in tree.iter().enumerate() {
                let Node { value, feature, child } = Node::read(*node);
                let child = usize::from(child);
                if !value.is_finite() {
                    return Err(format!("node {own} of tree {root} holds no number"));
                }
                let leads_on = child > own && child + 1 < tree.len();
                match feature {
                    LEAF if child == own => largest = largest.max(value.abs()),
                    LEAF => return Err(format!("leaf {own} of tree {root} leads to {child}")),
                    _ if !leads_on => {
                        return Err(format!("child {child} of node {own} of {}", tree.len()));
                    }
                    _ if usize::from(feature) >= inputs => {
                        return Err(format!("input {feature} of {inputs}"));
                    }
                    _ => {}
                }
            }
        }
        let trees = self.roots.len() as f64;
        let sum = self.bias.abs() + self.scale.abs() * trees * f64::from(largest);
        // NaN fails this comparison too.
        if sum <= MOST { Ok(()) } else { Err(format!("sums of up to {sum:e}, over {MOST}")) }
    }

    /// Returns the root and the nodes of each tree.
    fn trees(&self) -> impl Iterator<Item = (u32, &[[u8; NODE_BYTES]])> {
        let (nodes, _) = self.nodes.as_chunks::<NODE_BYTES>();
        let ends = self.roots.iter().skip(1).copied().chain([nodes.len() as u32]);
        let tree = |(&root, end): (&u32, u32)| (root, &nodes[root as usize..end as usize]);
        self.roots.iter().zip(ends).map(tree)
    }

    /// Returns the number of nodes of each tree.
    pub(super) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.trees().map(|(_, tree)| tree.len() as u32)
    }
}

/// A forest in one array for each part of a node, as training grows it and JSON holds it; every
/// child comes after its parent.
///
/// ```text
/// input 3 <= 1.5 ?        node     0    1    2
///   yes: 0.25             feature  3    LEAF LEAF
///   no:  0.75             value    1.5  0.25 0.75      child  1 0 0
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForestArrays {
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

impl ForestArrays {
    /// Checks that every walk stays within the arrays and ends in a leaf.
    fn check(&self) -> Result<(), String> {
        let nodes = self.feature.len();
        if self.value.len() != nodes || self.child.len() != nodes {
            return Err(format!("arrays of {nodes}, {} nodes", self.value.len()));
        }
        if let Some(root) = self.roots.iter().find(|&&root| root as usize >= nodes) {
            return Err(format!("root {root} of {nodes} nodes"));
        }
        let inner = (0..nodes).filter(|&node| self.feature[node] != LEAF);
        let fault = inner.map(|node| (node, self.child[node] as usize));
        let fault = fault.into_iter().find(|&(node, child)| child <= node || child + 1 >= nodes);
        match fault {
            Some((node, child)) => Err(format!("child {child} of node {node} of {nodes}")),
            None => Ok(()),
        }
    }

    /// Returns the nodes of a tree in the order of their levels; not all of them if there are more
    /// than [`MOST_NODES`], as nodes with several parents may be reached very often.
    fn by_levels(&self, root: u32) -> Vec<(u16, f32)> {
        let mut sorted = Vec::new();
        let mut queue = VecDeque::from([root as usize]);
        while sorted.len() <= MOST_NODES
            && let Some(node) = queue.pop_front()
        {
            sorted.push((self.feature[node], self.value[node]));
            if self.feature[node] != LEAF {
                let child = self.child[node] as usize;
                queue.extend([child, child + 1]);
            }
        }
        sorted
    }
}

impl TryFrom<ForestArrays> for Forest {
    type Error = String;

    fn try_from(arrays: ForestArrays) -> Result<Forest, String> {
        arrays.check()?;
        let trees: Vec<_> = arrays.roots.iter().map(|&root| arrays.by_levels(root)).collect();
        let sizes: Vec<u32> = trees.iter().map(|tree| tree.len() as u32).collect();
        Forest::of_levels([arrays.bias, arrays.scale], &sizes, trees.into_iter().flatten())
    }
}

impl From<Forest> for ForestArrays {
    fn from(forest: Forest) -> ForestArrays {
        let Forest { bias, scale, ref roots, .. } = forest;
        let mut arrays = ForestArrays { bias, scale, roots: roots.clone(), ..Self::default() };
        for (root, tree) in forest.trees() {
            for node in tree {
                let Node { value, feature, child } = Node::read(*node);
                arrays.feature.push(feature);
                arrays.value.push(value);
                arrays.child.push(if feature == LEAF { 0 } else { root + u32::from(child) });
            }
        }
        arrays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a tree with the deeper branch on the left, so depth first and levels differ.
    fn deep() -> ForestArrays {
        ForestArrays {
            bias: 0.5,
            scale: 2.0,
            roots: vec![0, 5],
            feature: vec![0, 1, LEAF, LEAF, LEAF, LEAF],
            value: vec![1.0, 2.0, 3.0, 5.0, 7.0, 0.25],
            child: vec![1, 3, 0, 0, 0, 0],
        }
    }

    #[test]
    fn sums_of_arrays_and_of_packed_nodes_are_equal() {
        let forest = Forest::try_from(deep()).expect("sound");
        forest.check(2).expect("sound");
        let cases = [([0.0, 0.0], 5.0), ([0.0, 4.0], 7.0), ([2.0, 0.0], 3.0), ([1.0, 2.0], 5.0)];
        for (inputs, leaf) in cases {
            assert_eq!(forest.sum(&inputs), 0.5 + 2.0 * (leaf + 0.25), "{inputs:?}");
        }
        assert_eq!(forest.sum(&[f32::NAN, 4.0]), 0.5 + 2.0 * 7.25, "NaN is not beyond");
        let copy = Forest::try_from(ForestArrays::from(forest.clone()));
        assert_eq!(copy, Ok(forest));
        assert_eq!(Forest::try_from(ForestArrays::default()), Ok(Forest::default()));
        assert_eq!(Forest::default().sum(&[]), 0.0);
    }

    #[test]
    fn arrays_that_are_no_trees_are_refused() {
        let fault = |change: fn(&mut ForestArrays)| {
            let mut arrays = deep();
            change(&mut arrays);
            Forest::try_from(arrays).expect_err("no forest")
        };
        assert_eq!(fault(|of| of.roots.push(6)), "root 6 of 6 nodes");
        assert_eq!(fault(|of| of.child[1] = 1), "child 1 of node 1 of 6");
        assert_eq!(fault(|of| of.child[1] = 5), "child 5 of node 1 of 6");
        assert_eq!(fault(|of| of.value.truncate(5)), "arrays of 6, 5 nodes");
        // A chain of splits, each with a leaf on the left.
        let many = MOST_NODES / 2 + 1;
        let chain = ForestArrays {
            roots: vec![0],
            feature: [0, LEAF].repeat(many).into_iter().chain([LEAF]).collect(),
            value: vec![0.0; 2 * many + 1],
            child: (0..=2 * many as u32).map(|node| node + 1).collect(),
            ..ForestArrays::default()
        };
        let mut small = chain.clone();
        small.feature[2] = LEAF;
        Forest::try_from(small).expect("three nodes are reached");
        let what = Forest::try_from(chain).expect_err("too many nodes");
        assert!(what.contains("over 65536"), "{what}");
    }

    #[test]
    fn damaged_nodes_are_reported() {
        let sound = Forest::try_from(deep()).expect("sound");
        let fault = |node: usize, change: fn(&mut Node)| {
            let mut nodes = sound.nodes.to_vec();
            let (all, _) = nodes.as_chunks_mut::<NODE_BYTES>();
            let mut changed = Node::read(all[node]);
            change(&mut changed);
            all[node] = changed.bytes();
            Forest { nodes: nodes.into(), ..sound.clone() }.check(2).expect_err("damaged")
        };
        assert_eq!(fault(0, |node| node.child = 0), "child 0 of node 0 of 5");
        assert_eq!(fault(0, |node| node.child = 4), "child 4 of node 0 of 5");
        assert_eq!(fault(2, |node| node.child = 1), "leaf 2 of tree 0 leads to 1");
        assert_eq!(fault(0, |node| node.feature = 2), "input 2 of 2");
        assert_eq!(fault(5, |node| node.value = f32::NAN), "node 0 of tree 5 holds no number");
        for root in [5, 6] {
            let roots = vec![0, 5, root];
            let what = Forest { roots, ..sound.clone() }.check(2).expect_err("an empty tree");
            assert!(what.ends_with("has no nodes"), "{what}");
        }
    }

    #[test]
    fn sums_beyond_any_time_are_reported() {
        let stump = |bias, scale, leaf| {
            let arrays = ForestArrays {
                bias,
                scale,
                roots: vec![0, 0],
                feature: vec![0, LEAF, LEAF],
                value: vec![3e38, 0.5, leaf],
                child: vec![1, 0, 0],
            };
            Forest::try_from(arrays).expect("trees")
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
