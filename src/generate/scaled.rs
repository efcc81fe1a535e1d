//! Enlarging a real matrix to a wanted number of entries.

use rayon::prelude::*;

use super::random::{hash, signed, unit};
use crate::assemble::by_rows;
use crate::csr::{Csr, MAX_DIMENSION};
use crate::error::{Error, Result};

/// One row in this many is joined to its copy in the next and in the previous copy of the matrix.
const ROWS_A_JOINT: usize = 200;

/// Places copies of `csr` along the diagonal until there are at least `nnz` entries, and joins them
/// so that they form one problem.
///
/// ```text
///     | A  .     |     the dots are the joints: row r of one copy reads column r of its
///     | .  A  .  |     neighbours (column r * ncols / nrows where A is rectangular)
///     |    .  A  |
/// ```
///
/// Every copy but the first has its values multiplied by its own factor within 2 % of 1, so that
/// values that are equal within A stay equal and values that are equal only because they were
/// copied do not. If all values of A are equal, as in a graph without weights, they stay equal. A
/// symmetric matrix stays symmetric. A matrix that is empty or large enough already is returned
/// unchanged. Linear time, on rayon's current threads.
///
/// # Errors
/// [`Error::Argument`] if the copies would have more than [`MAX_DIMENSION`] rows or columns.
pub fn scaled(csr: &Csr<f64>, nnz: usize, seed: u64) -> Result<Csr<f64>> {
    if csr.nnz() == 0 || csr.nnz() >= nnz {
        return Ok(csr.clone());
    }
    let copies = nnz.div_ceil(csr.nnz());
    let (nrows, ncols) = (csr.nrows(), csr.ncols());
    let most = MAX_DIMENSION / nrows.max(ncols);
    if copies > most {
        return Err(Error::argument(format!(
            "{copies} copies of a matrix of {nrows} x {ncols} have more than {MAX_DIMENSION} rows \
             or columns; ask for at most {} nonzeros",
            most.saturating_mul(csr.nnz())
        )));
    }
    let one = csr.values()[0];
    let unweighted = csr.values().par_iter().all(|&value| value == one);
    let mean = csr.values().iter().map(|value| value.abs()).sum::<f64>() / csr.nnz() as f64;
    let joint = |low: usize, r: usize| match unweighted {
        true => one,
        false => -0.01 * mean * (0.5 + unit(hash(!seed, low as u64, r as u64))),
    };
    let factor = |copy: usize| match copy {
        _ if unweighted => 1.0,
        0 => 1.0,
        _ => 1.0 + 0.02 * signed(hash(seed, copy as u64, 0)),
    };
    Ok(by_rows(copies * nrows, copies * ncols, |i, row| {
        let (copy, r) = (i / nrows, i % nrows);
        let joined = r % ROWS_A_JOINT == nrows.min(ROWS_A_JOINT) / 2;
        let column = |copy: usize, column: usize| (copy * ncols + column) as u32;
        let same = r * ncols / nrows;
        if joined && copy > 0 {
            row.push((column(copy - 1, same), joint(copy - 1, r)));
        }
        let (columns, values) = csr.row(r);
        let factor = factor(copy);
        row.extend(
            columns
                .iter()
                .zip(values)
                .map(|(&j, value)| (column(copy, j as usize), factor * value)),
        );
        if joined && copy + 1 < copies {
            row.push((column(copy + 1, same), joint(copy, r)));
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, Coefficients, Points};
    use crate::reorder::Adjacency;

    /// Returns the number of nodes that a walk from node 0 reaches.
    fn reached(csr: &Csr<f64>) -> usize {
        let graph = Adjacency::of(csr.pattern());
        let mut seen = vec![false; csr.nrows()];
        seen[0] = true;
        let mut found = vec![0];
        while let Some(node) = found.pop() {
            for &next in &graph.neighbours[graph.first[node]..graph.first[node + 1]] {
                if !std::mem::replace(&mut seen[next as usize], true) {
                    found.push(next as usize);
                }
            }
        }
        seen.iter().filter(|&&seen| seen).count()
    }

    #[test]
    fn copies_are_joined_and_symmetric_and_hold_the_first() {
        let one = generate::stencil(Points::Five, Coefficients::Constant, 30, 1);
        let many = scaled(&one, 50_000, 3).expect("it fits");
        let copies = 50_000usize.div_ceil(one.nnz());
        assert_eq!((many.nrows(), many.ncols()), (copies * 900, copies * 900));
        // Rows 100, 300, 500 and 700 of neighbouring copies are joined in both directions.
        assert_eq!(many.nnz(), copies * one.nnz() + 8 * (copies - 1));
        assert_eq!(reached(&many), many.nrows());
        assert_eq!(many.row(3), one.row(3));
        for i in 0..many.nrows() {
            let (columns, values) = many.row(i);
            for (&j, &value) in columns.iter().zip(values) {
                let (back, mirrored) = many.row(j as usize);
                let at = back.binary_search(&(i as u32)).expect("a symmetric pattern");
                assert_eq!(mirrored[at], value, "{i}, {j}");
            }
        }
    }

    #[test]
    fn values_of_a_copy_keep_their_ratios_and_differ_from_another_copy() {
        let one = generate::stencil(Points::Five, Coefficients::Constant, 20, 1);
        let many = scaled(&one, 3 * one.nnz(), 1).expect("it fits");
        let diagonal = |i: usize| {
            let (columns, values) = many.row(i);
            values[columns.binary_search(&(i as u32)).expect("a diagonal")]
        };
        assert_eq!(diagonal(401), diagonal(477), "one copy");
        assert_ne!(diagonal(401), diagonal(801), "two copies");
        assert!((diagonal(401) / 4.0 - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_graph_without_weights_stays_so() {
        let one = generate::followers(200, 1).map_values(|_| 3.0);
        let many = scaled(&one, 5 * one.nnz(), 1).expect("it fits");
        assert!(many.nnz() > 5 * one.nnz() && many.values().iter().all(|&value| value == 3.0));
    }

    #[test]
    fn a_rectangular_matrix_grows_both_ways() {
        let csr = Csr::from_triplets(3, 7, [(0, 0, 1.0), (1, 6, 2.0), (2, 3, 4.0)]).expect("valid");
        let many = scaled(&csr, 9, 1).expect("it fits");
        assert_eq!((many.nrows(), many.ncols(), many.nnz()), (9, 21, 9 + 4));
        assert_eq!(many.row(4).0, [2, 13, 16], "row 1, joined to column 2 of its neighbours");
        let tall = Csr::from_triplets(7, 3, [(0, 0, 1.0), (6, 2, 2.0)]).expect("valid");
        assert_eq!(scaled(&tall, 4, 1).expect("it fits").row(3).0, [4], "joined at column 1");
    }

    #[test]
    fn large_sizes_are_kept_and_too_large_ones_are_an_error() {
        let csr = Csr::from_triplets(2, 1 << 31, [(0, 1 << 30, 1.0)]).expect("valid");
        assert_eq!(scaled(&csr, 1, 1).expect("enough"), csr);
        let error = scaled(&csr, 2, 1).expect_err("2^32 columns").to_string();
        assert!(error.contains("at most 1 nonzeros"), "{error}");
        let empty = Csr::from_triplets(4, 4, []).expect("valid");
        assert_eq!(scaled(&empty, 100, 1).expect("nothing to copy"), empty);
    }
}
