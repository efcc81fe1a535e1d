//! Circuits, graphs and random matrices.

use rayon::prelude::*;

use super::random::{Stream, hash, hash_pair, signed, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;
use crate::par;

/// `per_row` entries in each of `n` rows, in columns drawn anywhere (fewer where two coincide).
pub fn uniform(n: usize, per_row: usize, seed: u64) -> Csr<f64> {
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        for _ in 0..per_row {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// A Poisson-distributed number of entries in each of `n` rows, `mean` on average, anywhere.
pub fn poisson(n: usize, mean: f64, seed: u64) -> Csr<f64> {
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        for _ in 0..stream.poisson(mean) {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// Rows of at least 2 entries, whose lengths fall off with the power 2.2 up to a twentieth of `n`.
pub fn power_law(n: usize, seed: u64) -> Csr<f64> {
    let most = (n as f64 / 20.0).max(2.0);
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        let length = (2.0 * stream.unit().powf(-1.0 / 1.2)).min(most) as usize;
        for _ in 0..length {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// Each entry within `half` columns of the diagonal with probability `density`, the diagonal always.
pub fn banded(n: usize, half: usize, density: f64, seed: u64) -> Csr<f64> {
    by_rows(n, n, |i, row| {
        for j in i.saturating_sub(half)..(i + half + 1).min(n) {
            let bits = hash(seed, i as u64, j as u64);
            if i == j || unit(bits) < density {
                row.push((j as u32, signed(bits.rotate_left(32))));
            }
        }
    })
}

/// The conductances of a circuit of `n` nodes: each is joined to some near ones, and one in three
/// to one of a few nodes that many share (supplies, clocks). Symmetric positive definite.
pub fn circuit(n: usize, seed: u64) -> Csr<f64> {
    let hubs = (n / 5000).max(2).min(n);
    let hub_at = |k: usize| (2 * k + 1) * n / (2 * hubs);
    let mut is_hub = vec![false; n];
    (0..hubs).for_each(|k| is_hub[hub_at(k)] = true);
    // The hub that a node is joined to, by number.
    let hub_of = |i: usize| {
        let bits = hash(seed, i as u64, u64::MAX);
        let joined = !is_hub[i] && bits.is_multiple_of(3);
        joined.then(|| (bits / 3 % hubs as u64) as usize)
    };
    // (hub, node) in order.
    let mut leads: Vec<(usize, usize)> =
        (0..n).into_par_iter().filter_map(|i| Some((hub_of(i)?, i))).collect();
    leads.par_sort_unstable();
    let joined = |i: usize, j: usize| {
        let chance = match i.abs_diff(j) {
            1 => 0.8,
            2..=8 => 0.1,
            9..=64 => 0.01,
            _ => 0.0,
        };
        !is_hub[i] && !is_hub[j] && unit(hash_pair(seed, i, j)) < chance
    };
    by_rows(n, n, |i, row| {
        let mut sum = 1e-3;
        let mut join = |j: usize| {
            let conductance = 0.1 + unit(hash_pair(!seed, i, j));
            sum += conductance;
            row.push((j as u32, -conductance));
        };
        if is_hub[i] {
            // Hubs are in order, so as many are before it as its number says.
            let hub = par::partition_point(hubs, |k| hub_at(k) < i);
            let first = leads.partition_point(|lead| lead.0 < hub);
            let own = leads[first..].iter().take_while(|lead| lead.0 == hub);
            own.for_each(|&(_, j)| join(j));
        } else {
            let near = i.saturating_sub(64)..(i + 65).min(n);
            near.filter(|&j| j != i && joined(i, j)).for_each(&mut join);
            hub_of(i).map(hub_at).into_iter().for_each(&mut join);
        }
        row.push((i as u32, sum));
    })
}

/// An R-MAT graph of `n` nodes and `edges_a_node` times as many drawn edges, with the
/// probabilities 0.57, 0.19, 0.19 and 0.05 (D. Chakrabarti, Y. Zhan, C. Faloutsos, R-MAT: A
/// Recursive Model for Graph Mining, 2004); edges drawn twice are kept once. Where `n` is not a
/// power of 2, edges of nodes that there are not are drawn again.
pub fn rmat(n: usize, edges_a_node: usize, seed: u64) -> Csr<f64> {
    let levels = n.max(2).next_power_of_two().ilog2();
    let draw = |stream: &mut Stream| {
        let (mut row, mut column) = (0, 0);
        for _ in 0..levels {
            let (down, right) = match stream.unit() {
                u if u < 0.57 => (0, 0),
                u if u < 0.76 => (0, 1),
                u if u < 0.95 => (1, 0),
                _ => (1, 1),
            };
            row = 2 * row + down;
            column = 2 * column + right;
        }
        (row, column)
    };
    let edges = (0..edges_a_node * n).into_par_iter().map(|edge| {
        let mut stream = Stream::new(seed, edge);
        loop {
            let (row, column) = draw(&mut stream);
            if row < n && column < n {
                return (row as u32, column as u32);
            }
        }
    });
    of_edges(n, edges.collect(), |i, j| signed(hash(seed, i as u64, j as u64)))
}

/// The adjacency matrix of these edges (from, to), those given twice kept once.
fn of_edges(
    n: usize,
    mut edges: Vec<(u32, u32)>,
    value: impl Fn(usize, usize) -> f64 + Sync,
) -> Csr<f64> {
    edges.par_sort_unstable();
    edges.dedup();
    by_rows(n, n, |i, row| {
        let first = edges.partition_point(|edge| (edge.0 as usize) < i);
        let own = edges[first..].iter().take_while(|edge| edge.0 as usize == i);
        row.extend(own.map(|&(_, j)| (j, value(i, j as usize))));
    })
}
