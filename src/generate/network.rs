//! Planar networks: roads, power grids, unstructured triangles. Points are numbered area by area,
//! without order within an area, as mesh generators and agencies number them.

use super::grid::Grid;
use super::random::{hash, hash_pair, ordered_by, signed, unit};
use crate::assemble::{by_block_rows, by_rows};
use crate::csr::Csr;
use crate::permutation::inverse;

/// Points per side of an area.
const AREA: usize = 32;

/// A network of links between near points of a square.
struct Network {
    grid: Grid,
    /// Steps in one of the two directions, and the probability of such a link.
    links: &'static [([isize; 3], f64)],
    /// The grid point of each number.
    point_of: Vec<u32>,
    number_of: Vec<u32>,
    seed: u64,
}

impl Network {
    fn new(edge: usize, links: &'static [([isize; 3], f64)], seed: u64) -> Self {
        let grid = Grid::square(edge);
        let areas = edge.div_ceil(AREA);
        let point_of = ordered_by(grid.points(), |point| {
            let [x, y, _] = grid.at(point);
            let area = (y / AREA * areas + x / AREA) as u64;
            area << 32 | hash(seed, point as u64, 1) >> 32
        });
        Network { grid, links, number_of: inverse(&point_of), point_of, seed }
    }

    /// Calls `f(neighbour, random bits of the link)` for each link of the point with this number.
    fn around(&self, number: usize, mut f: impl FnMut(u32, u64)) {
        let point = self.point_of[number] as usize;
        let at = self.grid.at(point);
        for &(step, chance) in self.links {
            for step in [step, step.map(|d| -d)] {
                let Some(other) = self.grid.neighbour(at, step) else { continue };
                let bits = hash_pair(self.seed, point, other);
                if unit(bits) < chance {
                    f(self.number_of[other], bits.rotate_left(32));
                }
            }
        }
    }
}

/// Generates the lengths of roads between the crossings of a square with `edge` crossings per side:
/// two and a half roads per crossing. Symmetric, with an empty diagonal.
pub fn road(edge: usize, seed: u64) -> Csr<f64> {
    let network = Network::new(edge, &[([1, 0, 0], 0.62), ([0, 1, 0], 0.62)], seed);
    by_rows(edge * edge, edge * edge, |i, row| {
        network.around(i, |j, bits| row.push((j, 0.1 + unit(bits))));
    })
}

/// Generates the Jacobian of the power flow in a grid with `edge` buses per side; the angle and
/// voltage of a bus are adjacent. Three to four dense 2 x 2 blocks per block row, unsymmetric.
pub fn power_flow(edge: usize, seed: u64) -> Csr<f64> {
    let links = &[([1, 0, 0], 0.65), ([0, 1, 0], 0.65), ([1, 1, 0], 0.05), ([5, 3, 0], 0.05)];
    let network = Network::new(edge, links, seed);
    by_block_rows::<f64, 2>(edge * edge, edge * edge, |i, row| {
        let mut own = [[0.1, 0.0], [0.0, 0.1]];
        network.around(i, |j, bits| {
            // Conductance and susceptance of a line, and the difference of the angles at its ends.
            let (g, b) = (0.1 * unit(bits), 1.0 + unit(bits.rotate_left(20)));
            let angle = 0.2 * if (i as u32) < j { signed(bits) } else { -signed(bits) };
            let (sin, cos) = angle.sin_cos();
            let (along, across) = (g * sin - b * cos, g * cos + b * sin);
            row.push((j, [[along, across], [-across, along]]));
            own[0][0] -= along;
            own[0][1] += across + 2.0 * g;
            own[1][0] += across - 2.0 * g;
            own[1][1] += 2.0 * b + along;
        });
        row.push((i as u32, own));
    })
}

/// Generates heat conduction on triangles whose corners have no particular order within an area, as
/// mesh generators number them: 7 entries per row, symmetric positive definite.
pub fn triangles(edge: usize, seed: u64) -> Csr<f64> {
    let links = &[([1, 0, 0], 1.0), ([0, 1, 0], 1.0), ([1, 1, 0], 1.0)];
    let network = Network::new(edge, links, seed);
    by_rows(edge * edge, edge * edge, |i, row| {
        let mut sum = if network.grid.at(network.point_of[i] as usize)[0] == 0 { 1.0 } else { 0.0 };
        network.around(i, |j, bits| {
            let conductance = 0.2 + unit(bits);
            sum += conductance;
            row.push((j, -conductance));
        });
        row.push((i as u32, sum));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roads_leave_a_crossing_in_two_or_three_directions() {
        let csr = road(100, 1);
        let mean = csr.nnz() as f64 / csr.nrows() as f64;
        assert!((2.3..2.6).contains(&mean), "{mean}");
        assert!(csr.row_ptr().windows(2).all(|w| w[1] - w[0] <= 4));
        assert!((0..csr.nrows()).all(|i| csr.row(i).0.binary_search(&(i as u32)).is_err()));
    }

    #[test]
    fn numbers_are_local_to_an_area() {
        let csr = triangles(96, 1);
        // Both ends in one area of 1024 points.
        let near = |i: usize| csr.row(i).0.iter().filter(move |&&j| i / 1024 == j as usize / 1024);
        let local: usize = (0..csr.nrows()).map(|i| near(i).count()).sum();
        assert!(local * 10 > csr.nnz() * 9, "{local} of {}", csr.nnz());
        // Points are not numbered as a grid: the next number is seldom a neighbour.
        let next = (0..csr.nrows()).filter(|&i| csr.row(i).0.contains(&(i as u32 + 1))).count();
        assert!(next * 20 < csr.nrows(), "{next}");
    }

    #[test]
    fn buses_have_dense_blocks_and_a_symmetric_pattern() {
        let csr = power_flow(40, 1);
        let mean = csr.nnz() as f64 / csr.nrows() as f64;
        assert!((7.0..8.5).contains(&mean), "{mean}");
        for i in (0..csr.nrows()).step_by(2) {
            assert_eq!(csr.row(i).0, csr.row(i + 1).0);
            for &j in csr.row(i).0 {
                assert!(csr.row(j as usize).0.binary_search(&(i as u32)).is_ok());
                assert!(csr.row(i).0.contains(&(j ^ 1)));
            }
        }
    }
}
