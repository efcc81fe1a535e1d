//! Circuits, graphs and random matrices.

use rayon::prelude::*;

use super::random::{Stream, hash, hash_pair, signed, unit};
use crate::assemble::by_rows;
use crate::csr::Csr;
use crate::par;

/// Generates `per_row` entries in each of `n` rows, in random columns (fewer if two coincide).
pub fn uniform(n: usize, per_row: usize, seed: u64) -> Csr<f64> {
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        for _ in 0..per_row {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// Generates a Poisson-distributed number of entries in each of `n` rows, `mean` on average, in
/// random columns.
pub fn poisson(n: usize, mean: f64, seed: u64) -> Csr<f64> {
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        for _ in 0..stream.poisson(mean) {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// Generates rows of at least 2 entries whose lengths follow a power law with exponent 2.2, up to
/// `n / 20`.
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

/// Generates each entry within `half` columns of the diagonal with probability `density`; the
/// diagonal is always stored.
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

/// Generates a band as [`banded`] does, and in every other row one entry at a random place.
pub fn banded_outliers(n: usize, half: usize, density: f64, seed: u64) -> Csr<f64> {
    let band = banded(n, half, density, seed);
    by_rows(n, n, |i, row| {
        let (columns, values) = band.row(i);
        row.extend(columns.iter().copied().zip(values.iter().copied()));
        let mut stream = Stream::new(!seed, i);
        if stream.unit() < 0.5 {
            row.push((stream.below(n) as u32, stream.signed()));
        }
    })
}

/// Generates the conductances of a circuit of `n` nodes. Each node is joined to some near ones, and
/// one in three to a hub (supply, clock) with very many neighbours. Symmetric positive definite.
pub fn circuit(n: usize, seed: u64) -> Csr<f64> {
    let hubs = (n / 5000).max(2).min(n);
    let hub_at = |k: usize| (2 * k + 1) * n / (2 * hubs);
    let mut is_hub = vec![false; n];
    (0..hubs).for_each(|k| is_hub[hub_at(k)] = true);
    // The number of the hub that a node is joined to.
    let hub_of = |i: usize| {
        let bits = hash(seed, i as u64, u64::MAX);
        let joined = !is_hub[i] && bits.is_multiple_of(3);
        joined.then(|| (bits / 3 % hubs as u64) as usize)
    };
    // Sorted pairs (hub, node).
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
            // Hubs are sorted, so binary search finds how many precede this one.
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

/// Generates an R-MAT graph of `n` nodes with `edges_a_node` drawn edges per node and the
/// probabilities 0.57, 0.19, 0.19 and 0.05 (D. Chakrabarti, Y. Zhan, C. Faloutsos, R-MAT: A
/// Recursive Model for Graph Mining, 2004). Edges drawn twice are kept once. If `n` is not a power
/// of 2, edges of nonexistent nodes are drawn again.
pub fn rmat(n: usize, edges_a_node: usize, seed: u64) -> Csr<f64> {
    let levels = n.max(2).next_power_of_two().ilog2();
    let draw = |stream: &mut Stream| {
        let (mut row, mut column) = (0, 0);
        for _ in 0..levels {
            // Branch-free, because the branches would be mispredicted too often.
            let u = stream.unit();
            let (down, right) = (u >= 0.76, (0.57..0.76).contains(&u) | (u >= 0.95));
            row = 2 * row + usize::from(down);
            column = 2 * column + usize::from(right);
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

/// Returns the expected degrees of [`chung_lu`] for `n` nodes, falling: a power law with exponent
/// 2.1, at least 2 and at most twice the square root of `n`, so that no two nodes expect more than
/// one edge.
fn chung_lu_weights(n: usize) -> Vec<f64> {
    let most = 2.0 * (n as f64).sqrt();
    let weight = |i: usize| (2.0 * ((i as f64 + 0.5) / n as f64).powf(-1.0 / 1.1)).min(most);
    (0..n).into_par_iter().map(weight).collect()
}

/// Generates an undirected graph in which node `i` has the expected degree `w[i]`, and two nodes
/// are joined with probability `w[i] w[j] / sum(w)` (F. Chung, L. Lu, Connected components in
/// random graphs with given expected degree sequences, 2002). Degrees follow a power law with
/// exponent 2.1 and fall with the node's number. The edges of a node are drawn by skipping absent
/// ones (J. Miller, A. Hagberg, Efficient generation of networks with given expected degrees,
/// 2011). Symmetric.
pub fn chung_lu(n: usize, seed: u64) -> Csr<f64> {
    let weights = chung_lu_weights(n);
    let total: f64 = weights.iter().sum();
    let edges = (0..n).into_par_iter().flat_map_iter(|i| {
        let mut stream = Stream::new(seed, i);
        let chance = |j: usize| (weights[i] * weights[j] / total).min(1.0);
        let mut own = Vec::new();
        let mut j = i + 1;
        // Skip as if every edge were as likely as the next one, which is the most likely; then keep
        // the edge with the ratio of its own probability to that one.
        while j < n {
            let skipping = chance(j);
            if skipping < 1.0 {
                j += (stream.unit().ln() / (-skipping).ln_1p()) as usize;
            }
            if j < n && stream.unit() * skipping < chance(j) {
                own.extend([(i as u32, j as u32), (j as u32, i as u32)]);
            }
            j += 1;
        }
        own
    });
    of_edges(n, edges.collect(), |i, j| signed(hash_pair(seed, i, j)))
}

/// Pages per site.
const SITE: usize = 64;

/// Generates the links of a web crawl of `n` pages, in which the pages of a site have consecutive
/// numbers. Half of a page's links are the menu of its site, most others lead to near pages, and
/// one in ten to a popular page. Row lengths follow a power law with exponent 2.5.
pub fn web(n: usize, seed: u64) -> Csr<f64> {
    let anywhere = |bits: u64| (unit(bits) * n as f64) as usize;
    by_rows(n, n, |i, row| {
        let mut stream = Stream::new(seed, i);
        let length = (5.0 * stream.unit().powf(-1.0 / 1.5)).min(n as f64 / 20.0) as usize;
        for link in 0..length.max(2) {
            let page = match stream.unit() {
                u if u < 0.5 => {
                    let site = i / SITE;
                    let bits = hash(seed, site as u64, (link / 2) as u64);
                    (site * SITE + bits as usize % SITE).min(n - 1)
                }
                u if u < 0.9 => {
                    let away = (4.0 / stream.unit()) as usize;
                    if stream.signed() < 0.0 {
                        i.saturating_sub(away)
                    } else {
                        (i + away).min(n - 1)
                    }
                }
                // Popular pages have random numbers; the k-th most popular one is hashed from k.
                _ => anywhere(hash(seed, (stream.unit().powi(4) * n as f64) as u64, 2)),
            };
            row.push((page as u32, stream.unit()));
        }
    })
}

/// Returns the adjacency matrix of these edges (from, to); repeated edges are kept once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_a_chung_lu_graph_follow_the_weights() {
        let n = 20_000;
        let (csr, weights) = (chung_lu(n, 1), chung_lu_weights(n));
        let degree = |i: usize| csr.row(i).0.len() as f64;
        for nodes in [0..20, 20..200, 200..2000, 2000..n] {
            let expected: f64 = weights[nodes.clone()].iter().sum();
            let found: f64 = nodes.clone().map(degree).sum();
            let bound = 5.0 * expected.sqrt() + 0.01 * expected;
            assert!((found - expected).abs() < bound, "{nodes:?}: {found} for {expected}");
        }
        let heaviest = degree(0);
        assert!((heaviest - weights[0]).abs() < 5.0 * weights[0].sqrt(), "{heaviest}");
    }

    #[test]
    fn a_circuits_hubs_have_a_third_of_all_nodes() {
        let csr = circuit(20_000, 1);
        let mut lengths: Vec<usize> = csr.row_ptr().windows(2).map(|w| w[1] - w[0]).collect();
        lengths.sort_unstable();
        let hubs: usize = lengths[lengths.len() - 4..].iter().sum();
        assert!((6000..7300).contains(&hubs), "{hubs}");
        assert!(lengths[lengths.len() - 5] < 40);
    }

    #[test]
    fn rmat_takes_any_number_of_nodes() {
        let csr = rmat(1000, 16, 1);
        assert_eq!(csr.nrows(), 1000);
        assert!((8000..16_000).contains(&csr.nnz()), "{}", csr.nnz());
    }

    #[test]
    fn pages_link_mostly_to_near_ones() {
        let csr = web(20_000, 1);
        let near = |i: usize| csr.row(i).0.iter().filter(move |&&j| i.abs_diff(j as usize) < 100);
        let local: usize = (0..csr.nrows()).map(|i| near(i).count()).sum();
        assert!(
            local * 10 > csr.nnz() * 6 && local * 10 < csr.nnz() * 9,
            "{local} of {}",
            csr.nnz()
        );
    }

    #[test]
    fn outliers_are_few_and_anywhere() {
        let csr = banded_outliers(3000, 10, 0.8, 1);
        let outside = |i: usize| csr.row(i).0.iter().filter(move |&&j| i.abs_diff(j as usize) > 10);
        let far: usize = (0..csr.nrows()).map(|i| outside(i).count()).sum();
        assert!((1300..1700).contains(&far), "{far}");
    }
}
