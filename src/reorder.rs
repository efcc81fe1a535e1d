//! Symmetric reordering P A P^T: it preserves the problem and changes how close the x entries of a
//! row are to each other.
//!
//! All orders are written `order[new] = old`.

use rayon::prelude::*;

use crate::assemble;
use crate::csr::{Csr, Pattern, transposed};
use crate::permutation::inverse;
use crate::scalar::Scalar;

/// Computes the reverse Cuthill-McKee order, in which neighbours have near numbers and the
/// bandwidth is small.
///
/// Works on the graph of A + A^T. Each connected component is numbered from a pseudo-peripheral
/// node. Sources: E. Cuthill and J. McKee, Reducing the bandwidth of sparse symmetric matrices
/// (1969); A. George and J. Liu, Computer Solution of Large Sparse Positive Definite Systems
/// (1981), section 4.3. About ten passes over the pattern, on one thread.
///
/// # Panics
/// If the pattern is not square.
pub fn rcm(pattern: Pattern<'_>) -> Vec<u32> {
    assert_eq!(pattern.nrows(), pattern.ncols(), "only a square matrix is reordered symmetrically");
    let graph = Adjacency::of(pattern);
    let n = pattern.nrows();
    let mut order: Vec<u32> = Vec::with_capacity(n);
    let mut level = vec![UNSEEN; n];
    let mut by_degree: Vec<u32> = (0..n as u32).collect();
    by_degree.sort_by_key(|&node| graph.degree(node));
    for start in by_degree {
        if level[start as usize] == UNSEEN {
            let start = graph.far_end(start, &mut level, &mut order);
            graph.breadth_first(start, &mut level, &mut order);
        }
    }
    order.reverse();
    order
}

const UNSEEN: u32 = u32::MAX;

/// Maximum number of attempts to find a node that is farther away.
const FAR_END_TRIES: usize = 6;

/// The graph of A + A^T: the neighbours of each node, without the node itself.
pub(crate) struct Adjacency {
    /// Offset of each node's neighbours, and the end.
    pub first: Vec<usize>,
    /// Neighbours of all nodes, rising for each node.
    pub neighbours: Vec<u32>,
}

impl Adjacency {
    /// Builds the graph of a square pattern.
    pub fn of(pattern: Pattern<'_>) -> Self {
        let turned = transposed(pattern, |_| ());
        let row_of = |i: usize| &turned.col_idx[turned.row_ptr[i]..turned.row_ptr[i + 1]];
        let mut first = vec![0];
        let mut neighbours = Vec::with_capacity(pattern.nnz());
        for i in 0..pattern.nrows() {
            merge(pattern.row(i), row_of(i), |j| {
                if j as usize != i {
                    neighbours.push(j);
                }
            });
            first.push(neighbours.len());
        }
        Adjacency { first, neighbours }
    }

    fn of_node(&self, node: u32) -> &[u32] {
        &self.neighbours[self.first[node as usize]..self.first[node as usize + 1]]
    }

    fn degree(&self, node: u32) -> usize {
        self.of_node(node).len()
    }

    /// Appends the connected component of `start` to `order`, level by level, with the children of
    /// a node sorted by degree; marks them in `level`. Returns the number of levels.
    fn breadth_first(&self, start: u32, level: &mut [u32], order: &mut Vec<u32>) -> u32 {
        let mut next = order.len();
        level[start as usize] = 0;
        order.push(start);
        let mut depth = 0;
        while next < order.len() {
            let node = order[next];
            next += 1;
            depth = level[node as usize] + 1;
            let children = order.len();
            for &neighbour in self.of_node(node) {
                if level[neighbour as usize] == UNSEEN {
                    level[neighbour as usize] = depth;
                    order.push(neighbour);
                }
            }
            order[children..].sort_by_key(|&child| self.degree(child));
        }
        depth
    }

    /// Finds a node of `start`'s component at the end of a long level structure; restores all
    /// marks.
    fn far_end(&self, mut start: u32, level: &mut [u32], order: &mut Vec<u32>) -> u32 {
        let kept = order.len();
        let mut deepest = 0;
        for _ in 0..FAR_END_TRIES {
            let depth = self.breadth_first(start, level, order);
            let last = order[kept..]
                .iter()
                .rev()
                .take_while(|&&node| level[node as usize] + 1 == depth)
                .min_by_key(|&&node| self.degree(node))
                .copied()
                .unwrap_or(start);
            for &node in &order[kept..] {
                level[node as usize] = UNSEEN;
            }
            order.truncate(kept);
            if depth <= deepest {
                break;
            }
            deepest = depth;
            start = last;
        }
        start
    }
}

/// Calls `f` with each element of the union of two increasing lists, in order.
fn merge(a: &[u32], b: &[u32], mut f: impl FnMut(u32)) {
    let (mut i, mut k) = (0, 0);
    while i < a.len() || k < b.len() {
        let next = match (a.get(i), b.get(k)) {
            (Some(&x), Some(&y)) => x.min(y),
            (Some(&x), None) | (None, Some(&x)) => x,
            (None, None) => return,
        };
        i += usize::from(a.get(i) == Some(&next));
        k += usize::from(b.get(k) == Some(&next));
        f(next);
    }
}

/// Computes P A P^T: row and column `new` of the result are row and column `order[new]` of `csr`.
///
/// # Panics
/// If `csr` is not square, or `order` is not a permutation of its rows.
pub fn permute_symmetric<T: Scalar>(csr: &Csr<T>, order: &[u32]) -> Csr<T> {
    let n = csr.nrows();
    assert_eq!(n, csr.ncols(), "only a square matrix is reordered symmetrically");
    assert_eq!(n, order.len(), "order and matrix differ in size");
    let new_of = inverse(order);
    assert!(
        order.par_iter().enumerate().all(|(new, &old)| new_of[old as usize] as usize == new),
        "the order names a row twice"
    );
    assemble::by_rows(n, n, |new, entries| {
        let (columns, values) = csr.row(order[new] as usize);
        entries.extend(columns.iter().map(|&old| new_of[old as usize]).zip(values.iter().copied()));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn a_scrambled_path_becomes_tridiagonal() {
        let n = 101;
        let path = assemble::by_rows(n, n, |i, row| {
            for j in i.saturating_sub(1)..(i + 2).min(n) {
                row.push((j as u32, (i * 1000 + j) as f64));
            }
        });
        let scrambled = permute_symmetric(&path, &generate::random_order(n, 5));
        assert!(bandwidth(&scrambled) > 10);
        assert_eq!(bandwidth(&permute_symmetric(&scrambled, &rcm(scrambled.pattern()))), 1);
    }

    #[test]
    fn every_node_is_numbered_once_in_a_graph_of_many_parts() {
        let csr = assemble::by_rows(200, 200, |i, row| {
            if i % 3 == 0 && i >= 60 {
                row.push((i as u32 - 60, 1.0));
            }
        });
        let mut order = rcm(csr.pattern());
        order.sort_unstable();
        assert!(order.iter().enumerate().all(|(i, &node)| i == node as usize));
        assert!(rcm(assemble::by_rows(0, 0, |_, _: &mut Vec<(u32, f64)>| {}).pattern()).is_empty());
    }

    #[test]
    fn a_permuted_matrix_permutes_back() {
        let csr = generate::uniform(300, 5, 9);
        let order = generate::random_order(300, 1);
        let there = permute_symmetric(&csr, &order);
        assert_ne!(there, csr);
        assert_eq!(permute_symmetric(&there, &inverse(&order)), csr);
    }

    fn bandwidth(csr: &Csr<f64>) -> usize {
        (0..csr.nrows())
            .flat_map(|i| csr.row(i).0.iter().map(move |&j| i.abs_diff(j as usize)))
            .max()
            .unwrap_or(0)
    }
}
