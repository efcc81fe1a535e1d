//! Stencils on regular grids: Poisson problems and the convection-diffusion problem.

use super::random::{hash_pair, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;

/// A regular grid of points, numbered with x varying fastest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    edges: [usize; 3],
}

impl Grid {
    pub(super) fn square(edge: usize) -> Self {
        Grid { edges: [edge, edge, 1] }
    }

    pub(super) fn cube(edge: usize) -> Self {
        Grid { edges: [edge; 3] }
    }

    pub(super) fn points(&self) -> usize {
        self.edges.iter().product()
    }

    pub(super) fn at(&self, point: usize) -> [usize; 3] {
        let [nx, ny, _] = self.edges;
        [point % nx, point / nx % ny, point / nx / ny]
    }

    pub(super) fn number(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.edges[1] + y) * self.edges[0] + x
    }

    /// Returns the point at `offset` from `at`, or `None` if it is outside.
    pub(super) fn neighbour(&self, at: [usize; 3], offset: [isize; 3]) -> Option<usize> {
        let mut there = [0; 3];
        for axis in 0..3 {
            there[axis] =
                at[axis].checked_add_signed(offset[axis]).filter(|&i| i < self.edges[axis])?;
        }
        Some(self.number(there))
    }
}

/// Returns the offsets of up to `reach` in each direction for which `keep` is true, in the order of
/// the points' numbers.
pub(super) fn offsets(reach: isize, keep: impl Fn([isize; 3]) -> bool) -> Vec<[isize; 3]> {
    let range = || -reach..=reach;
    range()
        .flat_map(|z| range().flat_map(move |y| range().map(move |x| [x, y, z])))
        .filter(|&offset| keep(offset))
        .collect()
}

/// Returns the square of an offset's length.
pub(super) fn length2(offset: [isize; 3]) -> isize {
    offset.iter().map(|d| d * d).sum()
}

/// The points that a stencil couples.
///
/// ```
/// use ellect::generate::{Coefficients, Points, stencil};
///
/// let csr = stencil(Points::Five, Coefficients::Constant, 10, 1);
/// assert_eq!((csr.nrows(), csr.row(55).0.len()), (100, 5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// 2-D: the point and its 4 neighbours along the axes.
    Five,
    /// 3-D: the point and its 6 neighbours along the axes.
    Seven,
    /// 2-D: the point and all 8 around it.
    Nine,
    /// 3-D: the point and all 26 around it.
    TwentySeven,
}

/// The coefficients of a stencil.
///
/// ```
/// use ellect::generate::{Coefficients, Points, stencil};
///
/// let csr = stencil(Points::Seven, Coefficients::Constant, 4, 1);
/// assert!(csr.values().iter().all(|&value| value == 6.0 || value == -1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coefficients {
    /// Equal at every point: every diagonal holds one value.
    Constant,
    /// A random conductivity between 0.5 and 2 for each pair of points.
    Varying,
}

/// Generates the Poisson problem on a grid with `edge` points per side and fixed values outside it:
/// symmetric positive definite. The diagonal of a row is the sum of all its couplings, including
/// those to points outside.
pub fn stencil(points: Points, coefficients: Coefficients, edge: usize, seed: u64) -> Csr<f64> {
    let (grid, offsets) = match points {
        Points::Five => (Grid::square(edge), offsets(1, |o| o[2] == 0 && length2(o) <= 1)),
        Points::Nine => (Grid::square(edge), offsets(1, |o| o[2] == 0)),
        Points::Seven => (Grid::cube(edge), offsets(1, |o| length2(o) <= 1)),
        Points::TwentySeven => (Grid::cube(edge), offsets(1, |_| true)),
    };
    let coupling = |i: usize, j: usize| match coefficients {
        Coefficients::Constant => 1.0,
        Coefficients::Varying => 0.5 + 1.5 * unit(hash_pair(seed, i, j)),
    };
    by_rows(grid.points(), grid.points(), |i, row| {
        let at = grid.at(i);
        let (mut sum, mut diagonal) = (0.0, 0);
        for &offset in &offsets {
            if offset == [0; 3] {
                diagonal = row.len();
                row.push((i as u32, 0.0));
            } else if let Some(j) = grid.neighbour(at, offset) {
                let coupling = coupling(i, j);
                sum += coupling;
                row.push((j as u32, -coupling));
            } else {
                sum += 1.0;
            }
        }
        row[diagonal].1 = sum;
    })
}

/// Generates the convection-diffusion problem on the unit cube with 7-point centred differences and
/// `edge` points per side. The matrices pde50 to pde100 of the HLL and HDIA paper (V. Cardellini,
/// S. Filippone, D. Rouson, Design patterns for sparse-matrix computations on hybrid CPU/GPU
/// platforms) have these sizes and this pattern. Unsymmetric; the flow turns around the z axis and
/// rises, slowly enough that rows stay diagonally dominant.
pub fn convection_diffusion(edge: usize) -> Csr<f64> {
    let grid = Grid::cube(edge);
    let offsets = offsets(1, |o| length2(o) <= 1);
    let h = 1.0 / (edge + 1) as f64;
    by_rows(grid.points(), grid.points(), |i, row| {
        let at = grid.at(i);
        let [x, y, _] = at.map(|k| (k + 1) as f64 * h);
        let flow = [0.5 - y, x - 0.5, 0.25];
        for &offset in &offsets {
            if let Some(j) = grid.neighbour(at, offset) {
                let along: f64 = (0..3).map(|axis| flow[axis] * offset[axis] as f64).sum();
                let value = if j == i { 6.0 } else { -1.0 + 0.5 * h * along };
                row.push((j as u32, value));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stencils_have_their_points_inside_and_fewer_at_the_border() {
        use Points::*;
        for (points, inside, corner) in
            [(Five, 5, 3), (Nine, 9, 4), (Seven, 7, 4), (TwentySeven, 27, 8)]
        {
            let csr = stencil(points, Coefficients::Constant, 7, 0);
            let lengths = csr.row_ptr().windows(2).map(|w| w[1] - w[0]);
            assert_eq!(lengths.clone().max(), Some(inside));
            assert_eq!(lengths.clone().min(), Some(corner));
            assert_eq!(lengths.filter(|&n| n == inside).count(), {
                if csr.nrows() == 49 { 25 } else { 125 }
            });
        }
    }

    #[test]
    fn the_papers_pde_matrices_have_their_sizes() {
        for (edge, nnz) in
            [(50, 860_000), (60, 1_490_400), (80, 3_545_600), (90, 5_054_400), (100, 6_940_000)]
        {
            let csr = convection_diffusion(edge);
            assert_eq!((csr.nrows(), csr.nnz()), (edge * edge * edge, nnz));
        }
    }

    #[test]
    fn a_hand_sized_stencil_is_what_the_book_says() {
        let csr = stencil(Points::Five, Coefficients::Constant, 2, 0);
        assert_eq!(csr.row(0), (&[0, 1, 2][..], &[4.0, -1.0, -1.0][..]));
        assert_eq!(csr.row(3), (&[1, 2, 3][..], &[-1.0, -1.0, 4.0][..]));
    }
}
