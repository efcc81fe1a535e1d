//! Model files. Names and single numbers are JSON; the nodes of forests and the points of the
//! training set are plain arrays, which load without parsing.
//!
//! ```text
//! bytes   content, all numbers in little-endian order; one zstd frame around it
//! 8       MAGIC
//! 4       length of the JSON text
//!         JSON text: the model, with empty forests and no points
//!         for each forest, formats by name and then the candidates of the quick model, stage by
//!         stage:
//!   4       number of trees
//!   4 each  number of nodes of a tree
//!   2 each  feature of a node, all trees after each other
//!   4 each  value of a node
//! 4       number of coordinates of all points
//! 4 each  coordinate
//! ```
//!
//! The nodes of a tree are in the order of their levels. The children of inner nodes therefore
//! follow each other in the order of their parents, and are not stored.

use std::io;

use serde::Deserialize;

use super::forest::{Forest, LEAF};
use super::{LoadFault, Model, SCHEMA};
use crate::{compress, par};

/// First bytes of a model's file after decompression; the last one is the version of the layout.
const MAGIC: [u8; 8] = *b"ellect\0\x01";

/// First bytes of a zstd file.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Level of compression: models are written once and read often.
const LEVEL: i32 = 19;

/// Returns the contents of a file with this model.
///
/// # Errors
/// If compression fails.
pub(super) fn encode(model: &Model) -> io::Result<Vec<u8>> {
    let mut head = model.clone();
    let mut arrays = Vec::new();
    for forest in forests(&mut head) {
        put_forest(&mut arrays, &forest.by_levels());
        *forest = Forest { bias: forest.bias, scale: forest.scale, ..Forest::default() };
    }
    let points = std::mem::take(&mut head.applicability.points);
    put_length(&mut arrays, points.len());
    arrays.extend(points.iter().flat_map(|value| value.to_le_bytes()));
    let text = serde_json::to_vec(&head)?;
    let mut all = MAGIC.to_vec();
    put_length(&mut all, text.len());
    all.extend(text);
    all.extend(arrays);
    compress::encode(&all, LEVEL)
}

/// Reads a model from the contents of a file: in this layout, or the whole model as JSON, each
/// plain or compressed. The numbers are not checked, except that all arrays are complete.
///
/// # Errors
/// [`LoadFault::Text`] and [`LoadFault::Schema`].
pub(super) fn decode(bytes: &[u8]) -> Result<Model, LoadFault> {
    let plain;
    let bytes = match bytes.starts_with(&ZSTD) {
        true => {
            plain = compress::decode(bytes).map_err(|e| LoadFault::Text(e.to_string()))?;
            plain.as_slice()
        }
        false => bytes,
    };
    let Some(rest) = bytes.strip_prefix(&MAGIC) else { return head(bytes) };
    let mut rest = Rest(rest);
    let length = rest.length()?;
    let mut model = head(rest.take(length)?)?;
    let trees = forests(&mut model).map(|forest| Ok((forest, rest.trees()?)));
    let mut trees = trees.collect::<Result<Vec<_>, LoadFault>>()?;
    // Each forest takes time in proportion to its nodes.
    par::for_each(&mut trees, 1, |_, (forest, trees)| trees.read(forest));
    trees.iter().try_for_each(|(forest, trees)| trees.check(forest))?;
    let points = rest.length()?;
    model.applicability.points = numbers(rest.take(points.saturating_mul(4))?, f32::from_le_bytes);
    match rest.0 {
        [] => Ok(model),
        more => Err(LoadFault::Text(format!("{} bytes follow its end", more.len()))),
    }
}

/// Parses the JSON text of a model.
fn head(text: &[u8]) -> Result<Model, LoadFault> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let fault = |e: serde_json::Error| LoadFault::Text(e.to_string());
    let model = serde_json::from_slice::<Model>(text).map_err(fault);
    // A file with another schema may not parse as a model, so its schema is read alone.
    let schema = match &model {
        Ok(model) => model.schema,
        Err(_) => serde_json::from_slice::<Head>(text).map_err(fault)?.schema,
    };
    if schema != SCHEMA {
        return Err(LoadFault::Schema { got: schema });
    }
    model
}

/// Returns all forests of a model in the order of the file.
fn forests(model: &mut Model) -> impl Iterator<Item = &mut Forest> {
    let of_formats = model.formats.values_mut().map(|regressor| &mut regressor.forest);
    let quick = model.quick.iter_mut().flat_map(super::QuickModel::candidates_mut);
    of_formats.chain(quick.map(|of| &mut of.forest))
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    bytes.extend((length as u32).to_le_bytes());
}

/// Appends a forest whose nodes are in the order of their levels.
fn put_forest(bytes: &mut Vec<u8>, forest: &Forest) {
    put_length(bytes, forest.roots.len());
    let ends = forest.roots.iter().skip(1).copied().chain([forest.feature.len() as u32]);
    for (root, end) in forest.roots.iter().zip(ends) {
        put_length(bytes, (end - root) as usize);
    }
    bytes.extend(forest.feature.iter().flat_map(|feature| feature.to_le_bytes()));
    bytes.extend(forest.value.iter().flat_map(|value| value.to_le_bytes()));
}

/// Returns the numbers that these bytes hold, of `N` bytes each.
fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(|bytes| number(*bytes)).collect()
}

/// The part of a file that was not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Returns the next `count` bytes.
    fn take(&mut self, count: usize) -> Result<&'a [u8], LoadFault> {
        let ends_early = || LoadFault::Text("it ends early".into());
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(ends_early)?;
        self.0 = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, LoadFault> {
        Ok(numbers(self.take(4)?, u32::from_le_bytes)[0] as usize)
    }

    /// Returns the next trees.
    fn trees(&mut self) -> Result<Trees<'a>, LoadFault> {
        let trees = self.length()?;
        let sizes = numbers(self.take(trees.saturating_mul(4))?, u32::from_le_bytes);
        let nodes: usize = sizes.iter().map(|&size| size as usize).sum();
        let features = self.take(nodes.saturating_mul(2))?;
        let values = self.take(nodes.saturating_mul(4))?;
        Ok(Trees { sizes, features, values })
    }
}

/// The trees of a forest in a file.
struct Trees<'a> {
    /// Number of nodes of each tree.
    sizes: Vec<u32>,
    features: &'a [u8],
    values: &'a [u8],
}

impl Trees<'_> {
    /// Sets the nodes of a forest, and computes the children of inner nodes.
    fn read(&self, forest: &mut Forest) {
        forest.feature = numbers(self.features, u16::from_le_bytes);
        forest.value = numbers(self.values, f32::from_le_bytes);
        forest.roots = Vec::with_capacity(self.sizes.len());
        forest.child = Vec::with_capacity(forest.feature.len());
        let mut features = forest.feature.iter();
        for &size in &self.sizes {
            let root = forest.child.len() as u32;
            forest.roots.push(root);
            let mut next = root + 1;
            for &feature in features.by_ref().take(size as usize) {
                let inner = feature != LEAF;
                forest.child.push(if inner { next } else { 0 });
                next += if inner { 2 } else { 0 };
            }
        }
    }

    /// Checks that the nodes of each tree of this forest form one tree.
    fn check(&self, forest: &Forest) -> Result<(), LoadFault> {
        let mut features = forest.feature.iter();
        for &size in &self.sizes {
            let own = features.by_ref().take(size as usize);
            let inner = own.filter(|&&feature| feature != LEAF).count();
            if 2 * inner + 1 != size as usize {
                return Err(LoadFault::Text(format!("a tree of {size} nodes is incomplete")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two trees: one of three levels whose right branch splits again, and a single leaf.
    fn forest() -> Forest {
        Forest {
            bias: 0.5,
            scale: 2.0,
            roots: vec![0, 5],
            feature: vec![1, LEAF, 0, LEAF, LEAF, LEAF],
            value: vec![3.5, 0.25, 1.5, 0.75, 1.0, -0.5],
            child: vec![1, 0, 3, 0, 0, 0],
        }
    }

    fn read(bytes: &[u8]) -> Result<Forest, LoadFault> {
        let mut forest = Forest::default();
        let mut rest = Rest(bytes);
        let trees = rest.trees()?;
        trees.read(&mut forest);
        trees.check(&forest)?;
        assert!(rest.0.is_empty(), "all bytes are read");
        Ok(forest)
    }

    #[test]
    fn a_forest_is_read_as_it_was_written() {
        // The left child of the root has children here, so depth first and levels differ.
        let deep = Forest {
            roots: vec![0],
            feature: vec![0, 1, LEAF, LEAF, LEAF],
            value: vec![1.0, 2.0, 10.0, 20.0, 30.0],
            child: vec![1, 3, 0, 0, 0],
            ..Forest::default()
        };
        for forest in [forest(), deep, Forest::default()] {
            let mut bytes = Vec::new();
            put_forest(&mut bytes, &forest.by_levels());
            let copy = read(&bytes).expect("complete");
            copy.check(2).expect("sound");
            let copy = Forest { bias: forest.bias, scale: forest.scale, ..copy };
            for inputs in [[0.0, 0.0], [0.0, 4.0], [2.0, 0.0], [2.0, 4.0]] {
                assert_eq!(copy.sum(&inputs), forest.sum(&inputs), "{inputs:?}");
            }
        }
    }

    #[test]
    fn no_damage_is_read_as_a_forest() {
        let mut bytes = Vec::new();
        put_forest(&mut bytes, &forest().by_levels());
        for length in 0..bytes.len() {
            let fault = read(&bytes[..length]).expect_err("it ends early");
            assert_eq!(fault, LoadFault::Text("it ends early".into()), "{length}");
        }
        // A leaf more, and a leaf less, in the first tree: features follow three lengths.
        for (node, feature) in [(0, LEAF), (1, 0)] {
            let mut bytes = bytes.clone();
            bytes[12 + 2 * node..][..2].copy_from_slice(&feature.to_le_bytes());
            let fault = read(&bytes).expect_err("its nodes do not form a tree");
            assert!(fault.to_string().contains("a tree of 5 nodes is incomplete"), "{fault}");
        }
        let many = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
        assert_eq!(read(&many), Err(LoadFault::Text("it ends early".into())));
    }
}
