//! Finite elements on jittered tetrahedra.
//!
//! A cube of points is cut into small cubes, each into six tetrahedra around one of its diagonals
//! (H. W. Kuhn, Some combinatorial lemmas in topology, 1960). Inner points are moved by up to a
//! fifth of their distance. Shape functions are linear; each matrix row is assembled from the 24
//! tetrahedra around its point, without a list of elements.

use super::grid::Grid;
use super::random::{hash, signed};
use crate::assemble::{by_block_rows, by_rows};
use crate::csr::Csr;

/// Generates linear elasticity with Young's modulus 1 and Poisson's ratio 0.3, 3 unknowns per point
/// and springs at the points with x = 0: symmetric positive definite, with dense 3 x 3 blocks.
pub fn elasticity(edge: usize, seed: u64) -> Csr<f64> {
    let mesh = TetrahedralMesh { grid: Grid::cube(edge.max(2)), seed };
    let (lambda, mu) = (0.3 / (1.3 * 0.4), 0.5 / 1.3);
    by_block_rows::<f64, 3>(mesh.grid.points(), mesh.grid.points(), |i, row| {
        let spring = if mesh.grid.at(i)[0] == 0 { 1.0 } else { 0.0 };
        row.push((
            i as u32,
            std::array::from_fn(|p| std::array::from_fn(|q| if p == q { spring } else { 0.0 })),
        ));
        mesh.around(i, |j, volume, a, b| {
            let shared = dot(a, b);
            let block = std::array::from_fn(|p| {
                std::array::from_fn(|q| {
                    let same = if p == q { mu * shared } else { 0.0 };
                    volume * (lambda * a[p] * b[q] + mu * a[q] * b[p] + same)
                })
            });
            row.push((j as u32, block));
        });
    })
}

/// Generates heat conduction with conductivity 1 and heat loss at the points with x = 0: symmetric
/// positive definite.
pub fn heat(edge: usize, seed: u64) -> Csr<f64> {
    let mesh = TetrahedralMesh { grid: Grid::cube(edge.max(2)), seed };
    by_rows(mesh.grid.points(), mesh.grid.points(), |i, row| {
        row.push((i as u32, if mesh.grid.at(i)[0] == 0 { 1.0 } else { 0.0 }));
        mesh.around(i, |j, volume, a, b| row.push((j as u32, volume * dot(a, b))));
    })
}

struct TetrahedralMesh {
    grid: Grid,
    seed: u64,
}

type Point = [f64; 3];

/// The six orders of the three axes, one for each tetrahedron of a small cube.
pub(super) const ORDERS: [[usize; 3]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

impl TetrahedralMesh {
    /// Calls `f(j, volume, gradient of i, gradient of j)` for each point `j` of each tetrahedron
    /// around point `i`.
    fn around(&self, i: usize, mut f: impl FnMut(usize, f64, Point, Point)) {
        let at = self.grid.at(i);
        for cube in 0..8 {
            let low: [isize; 3] = std::array::from_fn(|axis| -((cube >> axis & 1) as isize));
            let high = low.map(|d| d + 1);
            let inside = |offset| self.grid.neighbour(at, offset).is_some();
            if !inside(low) || !inside(high) {
                continue;
            }
            for order in ORDERS {
                let mut corner = low;
                let mut points = [0; 4];
                for (k, point) in points.iter_mut().enumerate() {
                    if k > 0 {
                        corner[order[k - 1]] += 1;
                    }
                    *point = self.grid.neighbour(at, corner).expect("between two inner corners");
                }
                let Some(own) = points.iter().position(|&point| point == i) else { continue };
                let (volume, gradients) = gradients(points.map(|point| self.place(point)));
                for (&j, &gradient) in points.iter().zip(&gradients) {
                    f(j, volume, gradients[own], gradient);
                }
            }
        }
    }

    /// Returns the position of a point, in units of the grid.
    fn place(&self, point: usize) -> Point {
        let at = self.grid.at(point);
        let border = (0..3).any(|axis| {
            let forth: [isize; 3] = std::array::from_fn(|a| isize::from(a == axis));
            at[axis] == 0 || self.grid.neighbour(at, forth).is_none()
        });
        std::array::from_fn(|axis| {
            let moved = 0.2 * signed(hash(self.seed, point as u64, axis as u64));
            at[axis] as f64 + if border { 0.0 } else { moved }
        })
    }
}

fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

fn cross(a: Point, b: Point) -> Point {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Returns the volume of a tetrahedron and the gradients of its four linear shape functions.
fn gradients(corners: [Point; 4]) -> (f64, [Point; 4]) {
    let from_first = |k: usize| std::array::from_fn(|axis| corners[k][axis] - corners[0][axis]);
    let [a, b, c]: [Point; 3] = [from_first(1), from_first(2), from_first(3)];
    let six_volumes = dot(a, cross(b, c));
    let scaled = |v: Point| v.map(|x| x / six_volumes);
    let (ga, gb, gc) = (scaled(cross(b, c)), scaled(cross(c, a)), scaled(cross(a, b)));
    let first = std::array::from_fn(|axis| -(ga[axis] + gb[axis] + gc[axis]));
    (six_volumes.abs() / 6.0, [first, ga, gb, gc])
}

/// Asserts that rows of 3 unknowns per point, on a cube with `edge` points per side, sum to 0 in
/// each direction: a translation of the whole body costs no energy, except at the springs at x = 0.
#[cfg(test)]
pub(super) fn assert_moves_freely(csr: &Csr<f64>, edge: usize) {
    for i in (0..csr.nrows()).filter(|i| i / 3 % edge != 0) {
        let (columns, values) = csr.row(i);
        for direction in 0..3 {
            let along = columns.iter().zip(values).filter(|(c, _)| **c as usize % 3 == direction);
            assert!(along.map(|(_, value)| value).sum::<f64>().abs() < 1e-12);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_flows_only_where_temperature_differs() {
        let csr = heat(6, 4);
        for i in 0..csr.nrows() {
            let (columns, values) = csr.row(i);
            let sum: f64 = values.iter().sum();
            let outside = if i % 6 == 0 { 1.0 } else { 0.0 };
            assert!((sum - outside).abs() < 1e-12, "row {i}");
            assert!(columns.len() <= 15 && columns.len() >= 5, "row {i}");
        }
    }

    #[test]
    fn a_rigid_motion_costs_no_energy_away_from_the_springs() {
        let csr = elasticity(5, 4);
        assert_eq!(csr.nrows(), 375);
        assert_moves_freely(&csr, 5);
    }
}
