//! Model files. Names and single numbers are JSON; the nodes of forests and the points of the
//! training set are plain arrays. A file that is not compressed loads without parsing: forests are
//! evaluated where its bytes are.
//!
//! ```text
//! bytes   content, all numbers in little-endian order
//! 8       MAGIC
//! 4       length of the JSON text
//!         JSON text: the model, with empty forests and no points
//!         for each forest, formats by name and then the candidates of the quick model, stage by
//!         stage:
//!   4       number of trees
//!   4 each  number of nodes of a tree
//!   8 each  node of a Forest, all trees after each other
//! 4       number of coordinates of all points
//! 4 each  coordinate
//! ```
//!
//! Earlier files are read too. Before layout 2, a node was its feature and its value alone, 2 bytes
//! for each node and then 4 bytes for each, because the children of inner nodes follow each other in
//! the order of their parents. Before layout 1, the whole model was JSON. Each may be one zstd frame.

use std::io;

use bytes::Bytes;
use serde::Deserialize;

use super::forest::{Forest, NODE_BYTES};
use super::{LoadFault, Model, SCHEMA};
use crate::{compress, par};

/// First bytes of a model's file; the version of the layout follows.
const MAGIC: [u8; 7] = *b"ellect\0";

/// Version of the layout that is written.
const LAYOUT: u8 = 2;

/// First bytes of a zstd file.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Returns the contents of a file with this model.
///
/// # Errors
/// If the JSON text cannot be written.
pub(super) fn encode(model: &Model) -> io::Result<Vec<u8>> {
    let mut head = model.clone();
    let mut arrays = Vec::new();
    for forest in forests(&mut head) {
        put_forest(&mut arrays, forest);
        *forest = Forest { bias: forest.bias, scale: forest.scale, ..Forest::default() };
    }
    let points = std::mem::take(&mut head.applicability.points);
    put_length(&mut arrays, points.len());
    arrays.extend(points.iter().flat_map(|value| value.to_le_bytes()));
    let text = serde_json::to_vec(&head)?;
    let mut all = MAGIC.to_vec();
    all.push(LAYOUT);
    put_length(&mut all, text.len());
    all.extend(text);
    all.extend(arrays);
    Ok(all)
}

/// Reads a model from the contents of a file. The numbers are not checked, except that all arrays
/// are complete.
///
/// # Errors
/// [`LoadFault::Text`], [`LoadFault::Schema`] and [`LoadFault::Damaged`].
pub(super) fn decode(bytes: Bytes) -> Result<Model, LoadFault> {
    let bytes = match bytes.starts_with(&ZSTD) {
        true => compress::decode(&bytes).map_err(|e| LoadFault::Text(e.to_string()))?.into(),
        false => bytes,
    };
    let Some((&layout, rest)) = bytes.strip_prefix(&MAGIC).and_then(<[u8]>::split_first) else {
        return head(&bytes);
    };
    if layout == 0 || layout > LAYOUT {
        let stated = format!("its layout is {layout}, this program reads up to {LAYOUT}");
        return Err(LoadFault::Text(stated));
    }
    let mut rest = Rest(bytes.slice_ref(rest));
    let length = rest.length()?;
    let mut model = head(&rest.take(length)?)?;
    let trees = forests(&mut model).map(|forest| {
        let trees = rest.trees(layout)?;
        Ok((forest, trees, None))
    });
    let mut trees = trees.collect::<Result<Vec<_>, LoadFault>>()?;
    // Each forest of an earlier layout takes time in proportion to its nodes.
    par::for_each(&mut trees, 1, |_, (forest, trees, fault)| *fault = trees.read(forest).err());
    if let Some(fault) = trees.into_iter().find_map(|(.., fault)| fault) {
        return Err(LoadFault::Text(fault));
    }
    let points = rest.length()?;
    let points = rest.take(points.saturating_mul(4))?;
    model.applicability.points = numbers(&points, f32::from_le_bytes);
    match rest.0.len() {
        0 => Ok(model),
        more => Err(LoadFault::Text(format!("{more} bytes follow its end"))),
    }
}

/// Parses the JSON text of a model.
fn head(text: &[u8]) -> Result<Model, LoadFault> {
    #[derive(Deserialize)]
    struct Head {
        schema: u32,
    }
    let fault = |e: serde_json::Error| LoadFault::Text(e.to_string());
    let model = serde_json::from_slice::<Model>(text);
    // A file with another schema may not parse as a model, so its schema is read alone.
    let schema = match &model {
        Ok(model) => model.schema,
        Err(_) => serde_json::from_slice::<Head>(text).map_err(fault)?.schema,
    };
    if schema != SCHEMA {
        return Err(LoadFault::Schema { got: schema });
    }
    model.map_err(|e| LoadFault::Damaged { part: "JSON".into(), what: e.to_string() })
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

/// Appends the trees of a forest.
fn put_forest(bytes: &mut Vec<u8>, forest: &Forest) {
    put_length(bytes, forest.roots.len());
    forest.sizes().for_each(|size| put_length(bytes, size as usize));
    bytes.extend(&forest.nodes);
}

/// Returns the numbers that these bytes hold, of `N` bytes each.
fn numbers<const N: usize, T>(bytes: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    let (numbers, _) = bytes.as_chunks::<N>();
    numbers.iter().map(|bytes| number(*bytes)).collect()
}

/// The part of a file that was not read yet.
struct Rest(Bytes);

impl Rest {
    /// Returns the next `count` bytes, without copying them.
    fn take(&mut self, count: usize) -> Result<Bytes, LoadFault> {
        match count <= self.0.len() {
            true => Ok(self.0.split_to(count)),
            false => Err(LoadFault::Text("it ends early".into())),
        }
    }

    fn length(&mut self) -> Result<usize, LoadFault> {
        Ok(numbers(&self.take(4)?, u32::from_le_bytes)[0] as usize)
    }

    /// Returns the next trees.
    fn trees(&mut self, layout: u8) -> Result<Trees, LoadFault> {
        let trees = self.length()?;
        let sizes = numbers(&self.take(trees.saturating_mul(4))?, u32::from_le_bytes);
        let nodes = sizes.iter().try_fold(0u32, |sum, &size| sum.checked_add(size));
        let nodes = nodes.ok_or(LoadFault::Text("it ends early".into()))? as usize;
        let mut array = |bytes: usize| self.take(nodes.saturating_mul(bytes));
        let nodes = match layout {
            1 => Nodes::Split { features: array(2)?, values: array(4)? },
            _ => Nodes::Packed(array(NODE_BYTES)?),
        };
        Ok(Trees { sizes, nodes })
    }
}

/// The trees of a forest in a file.
struct Trees {
    /// Number of nodes of each tree.
    sizes: Vec<u32>,
    nodes: Nodes,
}

/// The nodes of all trees of a forest in a file.
enum Nodes {
    /// As a [`Forest`] holds them.
    Packed(Bytes),
    /// As layout 1 holds them.
    Split { features: Bytes, values: Bytes },
}

impl Trees {
    /// Sets the trees of a forest.
    ///
    /// # Errors
    /// A description of the first tree whose nodes do not form a tree.
    fn read(&self, forest: &mut Forest) -> Result<(), String> {
        let Trees { sizes, nodes } = self;
        match nodes {
            Nodes::Packed(nodes) => {
                let starts = sizes.iter().scan(0, |end, &size| {
                    let start = *end;
                    *end += size;
                    Some(start)
                });
                forest.roots = starts.collect();
                forest.nodes = nodes.clone();
            }
            Nodes::Split { features, values } => {
                let (features, values) = (features.as_chunks().0, values.as_chunks().0);
                let nodes = features.iter().zip(values);
                let nodes = nodes.map(|(f, v)| (u16::from_le_bytes(*f), f32::from_le_bytes(*v)));
                *forest = Forest::of_levels([forest.bias, forest.scale], sizes, nodes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::forest::{ForestArrays, LEAF};

    /// Returns two trees: one of three levels whose right branch splits again, and a single leaf.
    fn forest() -> Forest {
        let arrays = ForestArrays {
            bias: 0.5,
            scale: 2.0,
            roots: vec![0, 5],
            feature: vec![1, LEAF, 0, LEAF, LEAF, LEAF],
            value: vec![3.5, 0.25, 1.5, 0.75, 1.0, -0.5],
            child: vec![1, 0, 3, 0, 0, 0],
        };
        arrays.try_into().expect("two trees")
    }

    /// Returns a forest as layout 1 held it.
    fn split(forest: &Forest) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_length(&mut bytes, forest.roots.len());
        forest.sizes().for_each(|size| put_length(&mut bytes, size as usize));
        let arrays = ForestArrays::from(forest.clone());
        bytes.extend(arrays.feature.iter().flat_map(|feature| feature.to_le_bytes()));
        bytes.extend(arrays.value.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn packed(forest: &Forest) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_forest(&mut bytes, forest);
        bytes
    }

    fn read(bytes: &[u8], layout: u8) -> Result<Forest, LoadFault> {
        let mut forest = Forest { bias: 0.5, scale: 2.0, ..Forest::default() };
        let mut rest = Rest(Bytes::copy_from_slice(bytes));
        rest.trees(layout)?.read(&mut forest).map_err(LoadFault::Text)?;
        assert!(rest.0.is_empty(), "all bytes are read");
        Ok(forest)
    }

    #[test]
    fn a_forest_is_read_as_it_was_written() {
        let none = Forest { bias: 0.5, scale: 2.0, ..Forest::default() };
        for forest in [forest(), none] {
            assert_eq!(read(&packed(&forest), 2), Ok(forest.clone()));
            assert_eq!(read(&split(&forest), 1), Ok(forest));
        }
    }

    #[test]
    fn no_damage_is_read_as_a_forest() {
        for (layout, bytes) in [(1, split(&forest())), (2, packed(&forest()))] {
            for length in 0..bytes.len() {
                let fault = read(&bytes[..length], layout).expect_err("it ends early");
                assert_eq!(fault, LoadFault::Text("it ends early".into()), "{length}");
            }
            let many = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
            assert_eq!(read(&many, layout), Err(LoadFault::Text("it ends early".into())));
        }
        // A leaf more, and a leaf less, in the first tree: features follow three lengths.
        for (node, feature) in [(0, LEAF), (1, 0)] {
            let mut bytes = split(&forest());
            bytes[12 + 2 * node..][..2].copy_from_slice(&feature.to_le_bytes());
            let fault = read(&bytes, 1).expect_err("its nodes do not form a tree");
            assert!(fault.to_string().contains("a tree of 5 nodes is incomplete"), "{fault}");
        }
    }

    #[test]
    fn a_layout_of_a_later_program_is_refused() {
        for layout in [0, LAYOUT + 1] {
            let bytes = [&MAGIC[..], &[layout]].concat();
            let fault = decode(bytes.into()).expect_err("unknown").to_string();
            assert!(fault.contains(&format!("its layout is {layout}")), "{fault}");
        }
    }
}
