//! The table of classes.

use std::hash::{Hash, Hasher};

use super::spec::Order::{self, Natural, Random, Rcm};
use super::{
    Coefficients::{Constant, Varying},
    Points::{Five, Nine, Seven, TwentySeven},
    banded, circuit, convection_diffusion, elasticity, heat, poisson, power_law, rmat, stencil,
    uniform,
};
use crate::csr::Csr;

/// A class of matrices.
#[derive(Debug)]
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub doc: &'static str,
    /// About the number of entries a row, of a large matrix.
    pub per_row: f64,
    /// The orders that it comes in.
    pub orders: &'static [Order],
    /// Makes the one of about this many rows.
    pub(super) make: fn(rows: usize, seed: u64) -> Csr<f64>,
}

impl PartialEq for Class {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Class {}

impl Hash for Class {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Problems on meshes: any order.
const MESH: &[Order] = &[Natural, Rcm, Random];
/// Graphs whose nodes have no natural order, or one by degree.
const GRAPH: &[Order] = &[Natural, Random];
/// Rectangular matrices, and entries anywhere, which no order changes.
const FIXED: &[Order] = &[Natural];

const fn class(
    name: &'static str,
    doc: &'static str,
    per_row: f64,
    orders: &'static [Order],
    make: fn(usize, u64) -> Csr<f64>,
) -> Class {
    Class { name, doc, per_row, orders, make }
}

/// Every class.
#[rustfmt::skip]
pub static CLASSES: &[Class] = &[
    class("stencil5", "Poisson problem on a square, 5 points", 5.0, MESH,
        |rows, seed| stencil(Five, Varying, edge(rows, 2), seed)),
    class("stencil9", "Poisson problem on a square, 9 points", 9.0, MESH,
        |rows, seed| stencil(Nine, Varying, edge(rows, 2), seed)),
    class("stencil7", "Poisson problem on a cube, 7 points", 7.0, MESH,
        |rows, seed| stencil(Seven, Varying, edge(rows, 3), seed)),
    class("stencil27", "Poisson problem on a cube, 27 points", 27.0, MESH,
        |rows, seed| stencil(TwentySeven, Varying, edge(rows, 3), seed)),
    class("constant5", "stencil5 with one coefficient", 5.0, FIXED,
        |rows, seed| stencil(Five, Constant, edge(rows, 2), seed)),
    class("constant9", "stencil9 with one coefficient", 9.0, FIXED,
        |rows, seed| stencil(Nine, Constant, edge(rows, 2), seed)),
    class("constant7", "stencil7 with one coefficient", 7.0, FIXED,
        |rows, seed| stencil(Seven, Constant, edge(rows, 3), seed)),
    class("constant27", "stencil27 with one coefficient", 27.0, FIXED,
        |rows, seed| stencil(TwentySeven, Constant, edge(rows, 3), seed)),
    class("convection_diffusion", "convection and diffusion in a cube (pde50 to pde100)",
        7.0, MESH, |rows, _| convection_diffusion(edge(rows, 3))),
    class("elasticity", "linear elasticity on jittered tetrahedra, 3 unknowns a node",
        45.0, MESH, |rows, seed| elasticity(edge(rows / 3, 3), seed)),
    class("heat", "heat conduction on jittered tetrahedra", 15.0, MESH,
        |rows, seed| heat(edge(rows, 3), seed)),
    class("circuit", "resistors between near nodes, and a few nodes that many share",
        6.0, MESH, circuit),
    class("rmat", "R-MAT graph, 16 edges a node", 14.0, GRAPH, |rows, seed| rmat(rows, 16, seed)),
    class("uniform", "16 entries a row, anywhere", 16.0, FIXED,
        |rows, seed| uniform(rows, 16, seed)),
    class("poisson", "a Poisson-distributed number of entries a row, 8 on average, anywhere",
        8.0, FIXED, |rows, seed| poisson(rows, 8.0, seed)),
    class("power_law", "row lengths of a power law, entries anywhere", 9.0, FIXED, power_law),
    class("banded", "half of the entries within 20 columns of the diagonal", 21.0, MESH,
        |rows, seed| banded(rows, 20, 0.5, seed)),
];

/// The edge of the square or cube with about so many points.
fn edge(points: usize, dimensions: i32) -> usize {
    (points as f64).powf(1.0 / f64::from(dimensions)).round().max(1.0) as usize
}
