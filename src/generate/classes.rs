//! The table of matrix classes.

use std::hash::{Hash, Hasher};

use super::spec::Order::{self, Natural, Random, Rcm};
use super::{
    Coefficients::{Constant, Varying},
    Neighbours::{Cells, Cubes, Tetrahedra, TwiceTetrahedra},
    Points::{Five, Nine, Seven, TwentySeven},
    *,
};
use crate::csr::Csr;

/// A class of matrices.
///
/// ```
/// use ellect::generate::CLASSES;
///
/// let names: Vec<_> = CLASSES.iter().map(|class| class.name).collect();
/// assert!(names.contains(&"elasticity"));
/// ```
#[derive(Debug)]
pub struct Class {
    /// Name, as a spec writes it.
    pub name: &'static str,
    /// Description, in one phrase.
    pub doc: &'static str,
    /// Approximate number of entries per row of a large matrix.
    pub per_row: f64,
    /// The orders in which the class is available.
    pub orders: &'static [Order],
    /// The class with the same pattern, or from which this one is derived; `None` if there is none.
    pub like: Option<&'static str>,
    /// Generates a matrix with about `rows` rows.
    pub(super) make: fn(rows: usize, seed: u64) -> Csr<f64>,
}

impl Class {
    const fn like(self, class: &'static str) -> Self {
        Class { like: Some(class), ..self }
    }
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

/// Orders of problems on meshes: all of them make sense.
const MESH: &[Order] = &[Natural, Rcm, Random];
/// Orders of graphs whose nodes have no natural order, or one by degree.
const GRAPH: &[Order] = &[Natural, Random];
/// Orders of rectangular matrices, and of entries at random places, which no order improves.
const FIXED: &[Order] = &[Natural];

const fn class(
    name: &'static str,
    doc: &'static str,
    per_row: f64,
    orders: &'static [Order],
    make: fn(usize, u64) -> Csr<f64>,
) -> Class {
    Class { name, doc, per_row, orders, like: None, make }
}

/// All classes.
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
        |rows, seed| stencil(Five, Constant, edge(rows, 2), seed)).like("stencil5"),
    class("constant9", "stencil9 with one coefficient", 9.0, FIXED,
        |rows, seed| stencil(Nine, Constant, edge(rows, 2), seed)).like("stencil9"),
    class("constant7", "stencil7 with one coefficient", 7.0, FIXED,
        |rows, seed| stencil(Seven, Constant, edge(rows, 3), seed)).like("stencil7"),
    class("constant27", "stencil27 with one coefficient", 27.0, FIXED,
        |rows, seed| stencil(TwentySeven, Constant, edge(rows, 3), seed)).like("stencil27"),
    class("convection_diffusion", "convection and diffusion in a cube (pde50 to pde100)",
        7.0, MESH, |rows, _| convection_diffusion(edge(rows, 3))).like("stencil7"),
    class("elasticity", "linear elasticity on jittered tetrahedra, 3 unknowns a node",
        45.0, MESH, |rows, seed| elasticity(edge(rows / 3, 3), seed)),
    class("elasticity_hex", "linear elasticity on hexahedra, 3 unknowns a node",
        81.0, MESH, |rows, seed| elasticity_hex(edge(rows / 3, 3), seed)),
    class("heat", "heat conduction on jittered tetrahedra", 15.0, MESH,
        |rows, seed| heat(edge(rows, 3), seed)),
    class("triangles", "heat conduction on triangles, numbered area by area", 7.0, MESH,
        |rows, seed| triangles(edge(rows, 2), seed)),
    class("p2", "heat conduction on second-order tetrahedra: long and short rows", 28.0, MESH,
        |rows, seed| p2(halved(edge(rows, 3)), seed)),
    class("taylor_hood", "Stokes problem on triangles, velocities of order 2, pressure of order 1",
        18.0, MESH, |rows, seed| taylor_hood(halved(edge(rows * 4 / 9, 2)), seed)),
    class("blocks4", "flow in the plane: 4 x 4 blocks on cells that share a side", 20.0, MESH,
        |rows, seed| block_system::<4>(Cells, edge(rows / 4, 2), seed)),
    class("blocks5", "flow in space: 5 x 5 blocks on tetrahedra", 75.0, MESH,
        |rows, seed| block_system::<5>(Tetrahedra, edge(rows / 5, 3), seed)),
    class("blocks5_wide", "blocks5 with neighbours of neighbours, as DLR2", 325.0, MESH,
        |rows, seed| block_system::<5>(TwiceTetrahedra, edge(rows / 5, 3), seed)),
    class("blocks6", "flow with turbulence: 6 x 6 blocks on hexahedra, as DLR1", 162.0, MESH,
        |rows, seed| block_system::<6>(Cubes, edge(rows / 6, 3), seed)),
    class("dg", "second-order discontinuous Galerkin: 9 x 9 blocks on cells that share a side",
        45.0, MESH, |rows, seed| block_system::<9>(Cells, edge(rows / 9, 2), seed)),
    class("pose_graph", "poses of a robot with loop closures: 3 x 3 blocks", 15.6, MESH,
        |rows, seed| pose_graph((rows / 3).max(1), seed)),
    class("holstein_hubbard", "electrons and phonons on a ring, long far diagonals, as HMEp",
        14.0, MESH, holstein_hubbard),
    class("kkt", "optimal control of heat in a cube: a saddle point, as nlpkkt80", 26.5, MESH,
        |rows, seed| {
            let fits = |edge: &usize| 2 * edge * edge * (edge + 3) <= rows;
            kkt((1..).take_while(fits).last().unwrap_or(1), seed)
        }),
    class("linear_program",
        "constraints in stages, 5 columns per 2 rows, a few dense rows and columns",
        9.7, FIXED, linear_program),
    class("least_squares", "observations of 4 or 5 unknowns each, 4 rows per column", 4.4, FIXED,
        least_squares),
    class("power_flow", "Jacobian of a power grid: 2 x 2 blocks on a network in the plane",
        7.7, MESH, |rows, seed| power_flow(edge(rows / 2, 2), seed)),
    class("road", "roads between crossings", 2.5, MESH, |rows, seed| road(edge(rows, 2), seed)),
    class("circuit", "resistors between near nodes, and a few nodes with very many neighbours",
        6.0, MESH, circuit),
    class("rmat", "R-MAT graph, 16 edges per node", 14.0, GRAPH, |rows, seed| rmat(rows, 16, seed)),
    class("chung_lu", "undirected graph with power-law degrees", 12.0, GRAPH, chung_lu),
    class("web", "links of web pages, most within a site", 11.0, MESH, web),
    class("uniform", "16 entries per row at random places", 16.0, FIXED,
        |rows, seed| uniform(rows, 16, seed)),
    class("poisson", "Poisson-distributed row lengths, 8 on average, entries at random places",
        8.0, FIXED, |rows, seed| poisson(rows, 8.0, seed)),
    class("power_law", "power-law row lengths, entries at random places", 9.0, FIXED, power_law),
    class("banded", "half of the places within 20 columns of the diagonal", 21.0, MESH,
        |rows, seed| banded(rows, 20, 0.5, seed)),
    class("banded_outliers", "a dense band, and in every other row one entry at a random place",
        17.3, MESH, |rows, seed| banded_outliers(rows, 10, 0.8, seed)),
    class("followers", "rmat without weights: every entry is 1", 14.0, GRAPH, followers).like("rmat"),
    class("friends", "chung_lu without weights", 12.0, GRAPH, friends).like("chung_lu"),
    class("links", "web without weights", 11.0, MESH, links).like("web"),
    class("laplacian", "graph Laplacian of triangles: entries of -1, degrees of up to 6", 7.0, MESH,
        |rows, seed| laplacian(edge(rows, 2), seed)).like("triangles"),
    class("incidence", "incidence matrix of road: -1 and 1 at the ends of each road", 2.0, FIXED,
        |rows, seed| incidence(edge(rows * 4 / 5, 2), seed)).like("road"),
    class("cover", "linear_program with coefficients of 1", 9.7, FIXED, cover).like("linear_program"),
];

/// Returns the edge length of the square or cube with about this many points.
fn edge(points: usize, dimensions: i32) -> usize {
    (points as f64).powf(1.0 / f64::from(dimensions)).round().max(1.0) as usize
}

/// Returns the number of cells of second-order elements along a line with this many points.
fn halved(points: usize) -> usize {
    (points / 2).max(1)
}
