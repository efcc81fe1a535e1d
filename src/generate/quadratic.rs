//! Second-order finite elements on triangles and tetrahedra: rows of corners are long, rows of edge
//! midpoints are short.
//!
//! Each cell of a square or cube is cut along its diagonals. On a grid twice as fine, corners are
//! the points with even coordinates, and all other points are edge midpoints.

use super::grid::Grid;
use super::mesh::ORDERS;
use super::random::{hash, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;

/// Generates anisotropic heat conduction on a cube of second-order tetrahedra with `cells` cells
/// per side. Each tetrahedron has its own conductivity; points at x = 0 lose heat. Symmetric
/// positive definite.
pub fn p2(cells: usize, seed: u64) -> Csr<f64> {
    let mesh = QuadraticMesh::new(Grid::cube(2 * cells + 1), 3, cells);
    let points = mesh.fine.points();
    by_rows(points, points, |i, row| {
        row.push((i as u32, if mesh.fine.at(i)[0] == 0 { 1.0 } else { 0.0 }));
        mesh.around(i, |element, nodes, own, key| {
            let conductivity = 0.5 + 1.5 * unit(hash(seed, key, 0));
            let couplings = nodes.iter().zip(&element.stiffness[own]);
            row.extend(couplings.map(|(&j, k)| (j as u32, conductivity * k)));
        });
    })
}

/// Generates the Stokes problem on a square of triangles with `cells` cells per side: both
/// velocities of second order, then pressure of first order (C. Taylor, P. Hood, A numerical
/// solution of the Navier-Stokes equations using the finite element technique, 1973). Symmetric,
/// indefinite:
///
/// ```text
///     | K  .  Bx |     K: viscosity between nodes
///     | .  K  By |     B: pressure of corners, and what flows to or from the nodes
///     | Bx'By'.  |
/// ```
pub fn taylor_hood(cells: usize, seed: u64) -> Csr<f64> {
    let mesh = QuadraticMesh::new(Grid::square(2 * cells + 1), 2, cells);
    let nodes = mesh.fine.points();
    let corners = Grid::square(cells + 1);
    // The column of the pressure at a corner node.
    let pressure =
        |node: usize| (2 * nodes + corners.number(mesh.fine.at(node).map(|half| half / 2))) as u32;
    let size = 2 * nodes + corners.points();
    by_rows(size, size, |i, row| match i / nodes {
        axis @ (0 | 1) => mesh.around(i % nodes, |element, nodes_of, own, key| {
            let viscosity = 0.5 + 1.5 * unit(hash(seed, key, 0));
            let velocities = nodes_of.iter().zip(&element.stiffness[own]);
            row.extend(velocities.map(|(&j, k)| ((axis * nodes + j) as u32, viscosity * k)));
            let flows = element.corners.iter().zip(&element.flow[axis]);
            row.extend(flows.map(|(&corner, flow)| (pressure(nodes_of[corner]), flow[own])));
        }),
        _ => {
            let node = mesh.fine.number(corners.at(i - 2 * nodes).map(|whole| 2 * whole));
            mesh.around(node, |element, nodes_of, own, _| {
                let corner = element.corners.iter().position(|&corner| corner == own);
                let corner = corner.expect("whole coordinates are those of corners");
                for (axis, flow) in element.flow.iter().enumerate().take(2) {
                    let velocities = nodes_of.iter().zip(&flow[corner]);
                    row.extend(velocities.map(|(&j, flow)| ((axis * nodes + j) as u32, *flow)));
                }
            });
        }
    })
}

/// One of the simplices that a cell is cut into, with its integrals.
struct Simplex {
    /// The order of axes along which a path runs from corner to corner.
    order: [usize; 3],
    /// The two corners of which each node is the midpoint; a corner is the midpoint of itself and
    /// itself.
    pairs: Vec<(usize, usize)>,
    /// Indices of the nodes that are corners.
    corners: Vec<usize>,
    /// Stiffness between nodes: `stiffness[node][node]`.
    stiffness: Vec<Vec<f64>>,
    /// Divergence terms: `flow[axis][corner][node]`.
    flow: [Vec<Vec<f64>>; 3],
}

/// Conductivity along and across the axes; a full tensor, so that no coupling vanishes.
const TENSOR: [[f64; 3]; 3] = [[1.0, 0.2, 0.1], [0.2, 1.3, 0.15], [0.1, 0.15, 0.8]];

impl Simplex {
    fn new(order: [usize; 3], dimensions: usize) -> Self {
        let n = dimensions + 1;
        // The function of corner k rises along the k-th step of the path and falls along the next.
        let gradient = |k: usize| {
            let mut gradient = [0.0; 3];
            if k > 0 {
                gradient[order[k - 1]] += 1.0;
            }
            if k < dimensions {
                gradient[order[k]] -= 1.0;
            }
            gradient
        };
        let pairs: Vec<_> = (0..n).flat_map(|a| (a..n).map(move |b| (a, b))).collect();
        // The gradient of a node's function is the sum of these factors times the functions of the
        // corners k: for a corner, f (2 f - 1) has the gradient (4 f - 1) grad f; for a midpoint,
        // the function is 4 f g.
        let part = |(a, b): (usize, usize), k: usize| -> [f64; 3] {
            let is = |corner: usize| if corner == k { 1.0 } else { 0.0 };
            let (ga, gb) = (gradient(a), gradient(b));
            std::array::from_fn(|axis| match a == b {
                true => (4.0 * is(a) - 1.0) * ga[axis],
                false => 4.0 * (is(a) * gb[axis] + is(b) * ga[axis]),
            })
        };
        // Integral of the product of two corner functions.
        let volume = if dimensions == 2 { 0.5 } else { 1.0 / 6.0 };
        let mass = |k: usize, l: usize| {
            let twice = if k == l { 2.0 } else { 1.0 };
            volume * twice / (n * (n + 1)) as f64
        };
        let across = |g: [f64; 3], h: [f64; 3]| -> f64 {
            (0..3).flat_map(|p| (0..3).map(move |q| g[p] * TENSOR[p][q] * h[q])).sum()
        };
        let stiffness = |p: &(usize, usize), q: &(usize, usize)| -> f64 {
            let both = (0..n).flat_map(|k| (0..n).map(move |l| (k, l)));
            both.map(|(k, l)| mass(k, l) * across(part(*p, k), part(*q, l))).sum()
        };
        let flow = |axis: usize, corner: usize, p: &(usize, usize)| -> f64 {
            -(0..n).map(|k| mass(corner, k) * part(*p, k)[axis]).sum::<f64>()
        };
        let to_nodes =
            |axis, corner| pairs.iter().map(|p| flow(axis, corner, p)).collect::<Vec<_>>();
        Simplex {
            order,
            corners: (0..pairs.len()).filter(|&node| pairs[node].0 == pairs[node].1).collect(),
            stiffness: (pairs.iter())
                .map(|p| pairs.iter().map(|q| stiffness(p, q)).collect())
                .collect(),
            flow: [0, 1, 2].map(|axis| (0..n).map(|corner| to_nodes(axis, corner)).collect()),
            pairs,
        }
    }
}

struct QuadraticMesh {
    /// All nodes; corners have even coordinates.
    fine: Grid,
    dimensions: usize,
    cells: usize,
    elements: Vec<Simplex>,
}

impl QuadraticMesh {
    fn new(fine: Grid, dimensions: usize, cells: usize) -> Self {
        let flat = |order: &[usize; 3]| dimensions == 3 || order[2] == 2;
        let elements = ORDERS.into_iter().filter(flat).map(|o| Simplex::new(o, dimensions));
        QuadraticMesh { fine, dimensions, cells, elements: elements.collect() }
    }

    /// Calls `f(element, its nodes, index of i among them, key of the element)` for each element
    /// around node `i`.
    fn around(&self, i: usize, mut f: impl FnMut(&Simplex, &[usize], usize, u64)) {
        let at = self.fine.at(i);
        let mut nodes = Vec::new();
        for side in 0..1 << self.dimensions {
            // The cell on this side along each axis; a node inside a cell belongs to the lower one
            // only.
            let mut low = [0; 3];
            let is_cell = (0..self.dimensions).all(|axis| {
                let back = side >> axis & 1;
                low[axis] = (at[axis] / 2).wrapping_sub(back);
                (back == 0 || at[axis].is_multiple_of(2)) && low[axis] < self.cells
            });
            if !is_cell {
                continue;
            }
            let cell = self.fine.number(low.map(|whole| 2 * whole)) as u64;
            for (k, element) in self.elements.iter().enumerate() {
                let mut corners = [low.map(|whole| 2 * whole); 4];
                for step in 0..self.dimensions {
                    corners[step + 1] = corners[step];
                    corners[step + 1][element.order[step]] += 2;
                }
                let middle = |&(a, b): &(usize, usize)| {
                    std::array::from_fn(|axis| (corners[a][axis] + corners[b][axis]) / 2)
                };
                nodes.clear();
                nodes.extend(element.pairs.iter().map(|pair| self.fine.number(middle(pair))));
                if let Some(own) = nodes.iter().position(|&node| node == i) {
                    f(element, &nodes, own, 6 * cell + k as u64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_corners_are_long_and_rows_of_middles_short() {
        let cells = 5;
        let csr = p2(cells, 1);
        assert_eq!(csr.nrows(), 11 * 11 * 11);
        let fine = Grid::cube(11);
        let (corner, middle) = (fine.number([4, 4, 4]), fine.number([5, 4, 4]));
        assert!(csr.row(corner).0.len() > 2 * csr.row(middle).0.len());
        let longest = csr.row_ptr().windows(2).map(|w| w[1] - w[0]).max();
        assert_eq!(longest, Some(csr.row(corner).0.len()));
    }

    #[test]
    fn heat_of_order_2_flows_only_where_temperature_differs() {
        let csr = p2(3, 2);
        for i in 0..csr.nrows() {
            let sum: f64 = csr.row(i).1.iter().sum();
            let outside = if i % 7 == 0 { 1.0 } else { 0.0 };
            assert!((sum - outside).abs() < 1e-12, "row {i}: {sum}");
        }
    }

    #[test]
    fn a_flow_that_is_the_same_everywhere_is_free_of_sources_inside() {
        let cells = 4;
        let csr = taylor_hood(cells, 3);
        let (nodes, corners) = (81, Grid::square(5));
        assert_eq!(csr.nrows(), 2 * nodes + 25);
        for i in 0..25 {
            let at = corners.at(i);
            let (columns, values) = csr.row(2 * nodes + i);
            let all = columns.iter().zip(values);
            let along_x: f64 = all.filter(|(j, _)| (**j as usize) < nodes).map(|(_, v)| v).sum();
            assert!(along_x.abs() < 1e-12, "{at:?}: {along_x}");
            assert!(
                columns.iter().all(|&j| (j as usize) < 2 * nodes),
                "no pressure in the last rows"
            );
        }
        // A velocity that grows with x has a divergence of 1 everywhere. Times the function of an
        // inner corner, it integrates to a third of the six triangles around it.
        let inner = corners.number([2, 2, 0]);
        let (columns, values) = csr.row(2 * nodes + inner);
        let fine = Grid::square(9);
        let grown: f64 = (columns.iter().zip(values))
            .filter(|(j, _)| (**j as usize) < nodes)
            .map(|(&j, value)| 0.5 * fine.at(j as usize)[0] as f64 * value)
            .sum();
        assert!((grown + 1.0).abs() < 1e-12, "{grown}");
    }
}
