//! Systems with several unknowns per point: dense blocks on grids and graphs.

use super::grid::{Grid, offsets};
use super::random::{Stream, hash, hash_pair, unit};
use crate::assemble::by_block_rows;
use crate::csr::Csr;

/// The grid points that a block row couples.
///
/// ```
/// use ellect::generate::{Neighbours, block_system};
///
/// let csr = block_system::<3>(Neighbours::Cells, 4, 1);
/// assert_eq!(csr.nrows(), 3 * 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// 2-D: cells that share a side; 5 blocks per row.
    Cells,
    /// 3-D: points of a common tetrahedron, where each cube is cut into tetrahedra; 15 blocks per
    /// row.
    Tetrahedra,
    /// 3-D: neighbours in tetrahedra and their neighbours; 65 blocks per row.
    TwiceTetrahedra,
    /// 3-D: points of a common cube; 27 blocks per row.
    Cubes,
}

impl Neighbours {
    fn grid(self, edge: usize) -> (Grid, Vec<[isize; 3]>) {
        let along = |o: [isize; 3]| o.iter().all(|&d| d >= 0) || o.iter().all(|&d| d <= 0);
        let tetrahedra = offsets(1, along);
        match self {
            Neighbours::Cells => {
                let near = |o: [isize; 3]| o[2] == 0 && o[0].abs() + o[1].abs() <= 1;
                (Grid::square(edge), offsets(1, near))
            }
            Neighbours::Tetrahedra => (Grid::cube(edge), tetrahedra),
            Neighbours::TwiceTetrahedra => {
                let rest = |o: [isize; 3], a: &[isize; 3]| std::array::from_fn(|k| o[k] - a[k]);
                let near = |o| tetrahedra.iter().any(|a| tetrahedra.contains(&rest(o, a)));
                (Grid::cube(edge), offsets(2, near))
            }
            Neighbours::Cubes => (Grid::cube(edge), offsets(1, |_| true)),
        }
    }
}

/// Generates `B` coupled equations at each point of a grid with `edge` points per side, as in flow
/// with energy and turbulence: dense blocks of random entries, unsymmetric, diagonally dominant.
pub fn block_system<const B: usize>(neighbours: Neighbours, edge: usize, seed: u64) -> Csr<f64> {
    let (grid, offsets) = neighbours.grid(edge);
    let dominant = (B * offsets.len()) as f64;
    by_block_rows::<f64, B>(grid.points(), grid.points(), |i, row| {
        let at = grid.at(i);
        for &offset in &offsets {
            let Some(j) = grid.neighbour(at, offset) else { continue };
            let mut block = random_block(hash(seed, i as u64, j as u64));
            if i == j {
                (0..B).for_each(|k| block[k][k] = dominant * (1.0 + 0.5 * block[k][k]));
            }
            row.push((j as u32, block));
        }
    })
}

fn random_block<const B: usize>(seed: u64) -> [[f64; B]; B] {
    let mut stream = Stream::new(seed, 0);
    std::array::from_fn(|_| std::array::from_fn(|_| stream.signed()))
}

/// Generates the normal equations of a robot's `poses` in the plane. Each pose is tied to the next,
/// and some poses to one of a lap or a few laps earlier. Symmetric positive definite, with dense 3
/// x 3 blocks.
pub fn pose_graph(poses: usize, seed: u64) -> Csr<f64> {
    let lap = poses.isqrt().max(3);
    let ties = [(1, 1.0), (lap - 1, 0.2), (lap, 0.6), (lap + 1, 0.2), (7 * lap, 0.1)];
    let seen = |i: usize, j: usize, chance: f64| unit(hash_pair(!seed, i, j)) < chance;
    by_block_rows::<f64, 3>(poses, poses, |i, row| {
        for (back, chance) in ties {
            if let Some(j) = i.checked_sub(back).filter(|&j| seen(i, j, chance)) {
                let block: [[f64; 3]; 3] = random_block(hash_pair(seed, i, j));
                let mirrored = |r: usize| std::array::from_fn(|c| block[c][r]);
                row.push((j as u32, std::array::from_fn(mirrored)));
            }
            if i + back < poses && seen(i, i + back, chance) {
                row.push(((i + back) as u32, random_block(hash_pair(seed, i, i + back))));
            }
        }
        let own: [[f64; 3]; 3] = random_block(hash(seed, i as u64, i as u64));
        let dominant = 3.0 * (row.len() + 1) as f64;
        let entry = |r: usize, c: usize| match r == c {
            true => dominant + own[r][r],
            false => own[r.min(c)][r.max(c)],
        };
        row.push((i as u32, std::array::from_fn(|r| std::array::from_fn(|c| entry(r, c)))));
    })
}

/// Generates linear elasticity on a cube with `edge` points per side: trilinear hexahedra, Young's
/// modulus between 0.5 and 2 in each, Poisson's ratio 0.3, springs at the points with x = 0.
/// Symmetric positive definite, with dense 3 x 3 blocks.
pub fn elasticity_hex(edge: usize, seed: u64) -> Csr<f64> {
    let grid = Grid::cube(edge.max(2));
    let bits = |corner: usize| [0, 1, 2].map(|axis| (corner >> axis & 1) as isize);
    let stiffness: Vec<Vec<_>> =
        (0..8).map(|a| (0..8).map(|b| coupling(bits(a), bits(b))).collect()).collect();
    by_block_rows::<f64, 3>(grid.points(), grid.points(), |i, row| {
        let at = grid.at(i);
        if at[0] == 0 {
            let spring = |p| std::array::from_fn(|q| if p == q { 1.0 } else { 0.0 });
            row.push((i as u32, std::array::from_fn(spring)));
        }
        for (own, couplings) in stiffness.iter().enumerate() {
            let (low, high) = (bits(own).map(|bit| -bit), bits(own).map(|bit| 1 - bit));
            let Some(cell) = grid.neighbour(at, low) else { continue };
            if grid.neighbour(at, high).is_none() {
                continue;
            }
            let modulus = 0.5 + 1.5 * unit(hash(seed, cell as u64, 0));
            for (other, coupling) in couplings.iter().enumerate() {
                let offset = std::array::from_fn(|axis| low[axis] + bits(other)[axis]);
                let j = grid.neighbour(at, offset).expect("a corner of a cell that is inside");
                let block = coupling.map(|r: [f64; 3]| r.map(|v| modulus * v));
                row.push((j as u32, block));
            }
        }
    })
}

/// Returns the stiffness between two corners of the unit cube, from products of integrals along the
/// axes.
fn coupling(a: [isize; 3], b: [isize; 3]) -> [[f64; 3]; 3] {
    let (lambda, mu) = (0.3 / (1.3 * 0.4), 0.5 / 1.3);
    let slope = |corner: isize| corner as f64 - 0.5;
    // Integral of the derivative of a's function along p times the derivative of b's function along
    // q.
    let integral = |p: usize, q: usize| -> f64 {
        let along = |axis: usize| match (axis == p, axis == q) {
            (true, true) => 4.0 * slope(a[axis]) * slope(b[axis]),
            (true, false) => slope(a[axis]),
            (false, true) => slope(b[axis]),
            (false, false) => {
                if a[axis] == b[axis] {
                    1.0 / 3.0
                } else {
                    1.0 / 6.0
                }
            }
        };
        (0..3).map(along).product()
    };
    let shared: f64 = (0..3).map(|axis| integral(axis, axis)).sum();
    std::array::from_fn(|p| {
        std::array::from_fn(|q| {
            let same = if p == q { mu * shared } else { 0.0 };
            lambda * integral(p, q) + mu * integral(q, p) + same
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if the entries fill whole blocks of `b` x `b`.
    fn is_of_blocks(csr: &Csr<f64>, b: usize) -> bool {
        (0..csr.nrows()).all(|i| {
            let columns = csr.row(i).0;
            columns == csr.row(i / b * b).0
                && columns.chunks(b).all(|block| {
                    (block[0] as usize).is_multiple_of(b)
                        && (block[0]..).zip(block).all(|(c, &j)| c == j)
                })
        })
    }

    #[test]
    fn systems_are_of_dense_blocks_and_inner_rows_have_all_neighbours() {
        let longest = |csr: &Csr<f64>| csr.row_ptr().windows(2).map(|w| w[1] - w[0]).max();
        for (csr, b, blocks) in [
            (block_system::<4>(Neighbours::Cells, 7, 1), 4, 5),
            (block_system::<5>(Neighbours::Tetrahedra, 5, 1), 5, 15),
            (block_system::<5>(Neighbours::TwiceTetrahedra, 6, 1), 5, 65),
            (block_system::<6>(Neighbours::Cubes, 4, 1), 6, 27),
            (elasticity_hex(4, 1), 3, 27),
        ] {
            assert!(is_of_blocks(&csr, b));
            assert_eq!(longest(&csr), Some(b * blocks));
            assert!(csr.values().iter().all(|&value| value != 0.0));
        }
        assert!(is_of_blocks(&pose_graph(500, 1), 3));
        assert!(!is_of_blocks(&elasticity_hex(4, 1), 2));
    }

    #[test]
    fn block_systems_are_diagonally_dominant() {
        let csr = block_system::<5>(Neighbours::Tetrahedra, 4, 2);
        for i in 0..csr.nrows() {
            let (columns, values) = csr.row(i);
            let at = columns.binary_search(&(i as u32)).expect("a diagonal");
            let sum: f64 = values.iter().map(|value| value.abs()).sum();
            assert!(2.0 * values[at] > sum, "row {i}");
        }
    }

    #[test]
    fn moving_a_hexahedral_body_as_a_whole_costs_no_energy_away_from_the_springs() {
        super::super::mesh::assert_moves_freely(&elasticity_hex(5, 4), 5);
    }
}
