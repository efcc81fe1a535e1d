//! Graphs without weights: matrices with few distinct values.

use super::graph::{chung_lu, rmat, web};
use super::network::{road, triangles};
use super::optimization::linear_program;
use crate::assemble::by_rows;
use crate::csr::Csr;

/// Replaces every value by 1.
fn adjacency(csr: Csr<f64>) -> Csr<f64> {
    csr.map_values(|_| 1.0)
}

/// Generates the adjacency matrix of [`rmat`] with 16 edges per node: who follows whom.
pub fn followers(n: usize, seed: u64) -> Csr<f64> {
    adjacency(rmat(n, 16, !seed))
}

/// Generates the adjacency matrix of [`chung_lu`]: who knows whom. Symmetric.
pub fn friends(n: usize, seed: u64) -> Csr<f64> {
    adjacency(chung_lu(n, !seed))
}

/// Generates the adjacency matrix of [`web`]: which page links to which.
pub fn links(n: usize, seed: u64) -> Csr<f64> {
    adjacency(web(n, !seed))
}

/// Generates the Laplacian of the graph of [`triangles`]: -1 for each neighbour, and the number of
/// neighbours on the diagonal. Symmetric.
pub fn laplacian(edge: usize, seed: u64) -> Csr<f64> {
    let csr = triangles(edge, !seed);
    by_rows(csr.nrows(), csr.ncols(), |i, row| {
        let columns = csr.row(i).0;
        let of = |&j: &u32| (j, if j as usize == i { columns.len() as f64 - 1.0 } else { -1.0 });
        row.extend(columns.iter().map(of));
    })
}

/// Generates the incidence matrix of [`road`]: one row per road, -1 at the crossing where it begins
/// and 1 at the crossing where it ends. It is the gradient operator of a network's potentials.
pub fn incidence(edge: usize, seed: u64) -> Csr<f64> {
    let csr = road(edge, !seed);
    let ends: Vec<[u32; 2]> = (0..csr.nrows() as u32)
        .flat_map(|i| {
            let later = csr.row(i as usize).0.iter().copied().filter(move |&j| i < j);
            later.map(move |j| [i, j])
        })
        .collect();
    by_rows(ends.len(), csr.ncols(), |road, row| {
        let [from, to] = ends[road];
        row.extend([(from, -1.0), (to, 1.0)]);
    })
}

/// Generates the constraints of [`linear_program`] with coefficients of 1: which rows a column
/// covers.
pub fn cover(rows: usize, seed: u64) -> Csr<f64> {
    adjacency(linear_program(rows, !seed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;

    #[test]
    fn values_are_few() {
        let all = [
            (followers(2000, 1), 1),
            (friends(2000, 1), 1),
            (links(2000, 1), 1),
            (cover(2000, 1), 1),
            (incidence(40, 1), 2),
        ];
        for (i, (csr, count)) in all.iter().enumerate() {
            assert_eq!(Analysis::of(csr).value_count(), Some(*count), "{i}");
        }
        // Nodes have between 2 neighbours (in a corner) and 6 (inside).
        let count = Analysis::of(&laplacian(40, 1)).value_count().expect("few");
        assert!((4..=6).contains(&count), "{count}");
    }

    #[test]
    fn rows_of_a_laplacian_and_of_an_incidence_matrix_sum_to_nothing() {
        for csr in [laplacian(30, 2), incidence(30, 2)] {
            assert!((0..csr.nrows()).all(|i| csr.row(i).1.iter().sum::<f64>() == 0.0));
        }
    }
}
