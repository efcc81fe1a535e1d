//! Matrices of optimisation: saddle points, linear programs, least squares.

use super::grid::{Grid, offsets};
use super::random::{Stream, hash, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;

/// Generates the optimality conditions of an optimal control problem on a cube with `edge` points
/// per side: states, controls on the six faces, multipliers. Symmetric, indefinite:
///
/// ```text
///     | H  .  A'|     H, R: diagonal
///     | .  R  B'|     A: 27 points
///     | A  B  . |     B: the 9 controls near a point of a face
/// ```
///
/// The numbers of rows and entries equal those of the matrices nlpkkt80 (`edge` 80), nlpkkt120 and
/// so on of the SuiteSparse collection: `2 n^3 + 6 n^2` and `2 (3n - 2)^3 + n^3 + 12 (3n - 2)^2 + 6
/// n^2`.
pub fn kkt(edge: usize, seed: u64) -> Csr<f64> {
    let (cube, face) = (Grid::cube(edge), Grid::square(edge));
    let near = offsets(1, |_| true);
    let near_face = offsets(1, |o| o[2] == 0);
    let (states, on_face) = (cube.points(), face.points());
    let multipliers = states + 6 * on_face;
    let a = |j: usize, i: usize| match i == j {
        true => 26.0,
        false => -0.5 - unit(hash(seed, i as u64, j as u64)),
    };
    let b = |j: usize, k: usize| -unit(hash(!seed, j as u64, k as u64));
    let weight = |i: usize| 0.1 + unit(hash(seed, u64::MAX, i as u64));
    // Face f holds the points whose coordinate f / 2 is 0 (f even) or the last (f odd).
    let side = |f: usize| [0, edge - 1][f % 2];
    let size = multipliers + states;
    by_rows(size, size, |i, row| {
        if i < states {
            row.push((i as u32, weight(i)));
            let at = cube.at(i);
            for j in near.iter().filter_map(|&offset| cube.neighbour(at, offset)) {
                row.push(((multipliers + j) as u32, a(j, i)));
            }
        } else if i < multipliers {
            let control = i - states;
            let f = control / on_face;
            row.push((i as u32, weight(i)));
            let [u, v, _] = face.at(control % on_face);
            for offset in &near_face {
                let Some(point) = face.neighbour([u, v, 0], *offset) else { continue };
                let [u, v, _] = face.at(point);
                let mut at = [0; 3];
                at[f / 2] = side(f);
                at[(f / 2 + 1) % 3] = u;
                at[(f / 2 + 2) % 3] = v;
                let j = cube.number(at);
                row.push(((multipliers + j) as u32, b(j, control)));
            }
        } else {
            let j = i - multipliers;
            let at = cube.at(j);
            for i in near.iter().filter_map(|&offset| cube.neighbour(at, offset)) {
                row.push((i as u32, a(j, i)));
            }
            for f in (0..6).filter(|&f| at[f / 2] == side(f)) {
                let on = [at[(f / 2 + 1) % 3], at[(f / 2 + 2) % 3], 0];
                for point in near_face.iter().filter_map(|&offset| face.neighbour(on, offset)) {
                    let control = f * on_face + point;
                    row.push(((states + control) as u32, b(j, control)));
                }
            }
        }
    })
}

/// Generates the constraints of a linear program in stages: `nrows` rows and two and a half times
/// as many columns. Each row has a slack, 8 entries near its stage, and sometimes one in a few
/// shared columns; 8 rows sum one column in 16.
pub fn linear_program(nrows: usize, seed: u64) -> Csr<f64> {
    let ncols = (nrows * 5 / 2).max(2);
    let stage = 200.min(ncols);
    let structural = ncols - nrows.min(ncols - 1);
    let dense = |i: usize| nrows > 80 && i % (nrows / 8) == nrows / 16;
    by_rows(nrows, ncols, |i, row| {
        let mut stream = Stream::new(seed, i);
        row.push((((structural + i) % ncols) as u32, 1.0));
        if dense(i) {
            for _ in 0..ncols / 16 {
                row.push((stream.below(ncols) as u32, 1.0 + stream.unit()));
            }
            return;
        }
        let first = (i * structural / nrows).min(ncols - stage);
        for _ in 0..8 {
            // Few distinct coefficients, as in real models.
            let value = [1.0, -1.0, 1.0, 0.5, -2.5, stream.signed()][stream.below(6)];
            row.push(((first + stream.below(stage)) as u32, value));
        }
        if stream.unit() < 0.125 {
            row.push((stream.below(8.min(ncols)) as u32, -stream.unit()));
        }
    })
}

/// Generates observations of few unknowns each: `nrows` rows and a quarter as many columns; 3
/// adjacent entries per row and one or two at random places.
pub fn least_squares(nrows: usize, seed: u64) -> Csr<f64> {
    let ncols = (nrows / 4).max(1);
    by_rows(nrows, ncols, |i, row| {
        let mut stream = Stream::new(seed, i);
        let near = i * ncols / nrows;
        for j in near..(near + 3).min(ncols) {
            row.push((j as u32, stream.signed()));
        }
        for _ in 0..1 + stream.below(2) {
            row.push((stream.below(ncols) as u32, stream.signed()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows and entries by the formulas in the documentation of [`kkt`].
    fn sizes(n: usize) -> (usize, usize) {
        let wide = 3 * n - 2;
        (2 * n.pow(3) + 6 * n.pow(2), 2 * wide.pow(3) + n.pow(3) + 12 * wide.pow(2) + 6 * n.pow(2))
    }

    #[test]
    fn the_control_problem_has_the_collections_sizes() {
        assert_eq!(sizes(80), (1_062_400, 28_192_672));
        assert_eq!(sizes(120), (3_542_400, 95_117_792));
        for edge in [2, 5, 8] {
            let csr = kkt(edge, 1);
            assert_eq!((csr.nrows(), csr.nnz()), sizes(edge), "edge {edge}");
        }
    }

    #[test]
    fn multipliers_have_no_entries_among_themselves() {
        let csr = kkt(4, 1);
        let multipliers = 64 + 96;
        for i in multipliers..csr.nrows() {
            assert!(csr.row(i).0.iter().all(|&j| (j as usize) < multipliers));
        }
    }

    #[test]
    fn a_linear_program_is_wide_with_a_few_dense_rows_and_columns() {
        let csr = linear_program(4000, 1);
        assert_eq!((csr.nrows(), csr.ncols()), (4000, 10_000));
        let long = (0..4000).filter(|&i| csr.row(i).0.len() > 400).count();
        assert_eq!(long, 8);
        let shared = csr.col_idx().iter().filter(|&&j| j < 8).count();
        assert!((350..800).contains(&shared), "{shared}");
        let tall = least_squares(4000, 1);
        assert_eq!((tall.nrows(), tall.ncols()), (4000, 1000));
    }
}
