//! Partitions of a matrix's rows, and METIS, which finds partitions that cut few entries.

#[cfg_attr(not(feature = "metis"), path = "partition/cut_none.rs")]
mod cut;
mod routes;

use std::ops::Range;

use crate::csr::{Pattern, accumulate};
use crate::refusal::Refusal;
use crate::reorder::Adjacency;
pub(crate) use routes::{Agreed, Needs, Routes, Tell, Told, WORD};

/// The elements that one part sends to another.
pub(crate) struct Sent<'a> {
    /// The part that owns the elements, and the part that needs them.
    pub from: usize,
    pub to: usize,
    /// Place of the owner's first own element in its vector, and positions of the elements behind
    /// it.
    pub first: u32,
    pub elements: &'a [u32],
    /// Position of the first of them in the other part's vector.
    pub place: usize,
}

/// The entries of its rows that a group multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entries {
    All,
    /// The entries in the part's own columns.
    Own,
    /// The entries in columns of other parts; the product is added to that of [`Entries::Own`].
    Foreign,
}

/// Neighbouring rows of a part whose products are one operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The rows, counted from the part's first one.
    pub rows: Range<usize>,
    /// Set if the rows may need elements of other parts.
    pub needs_halo: bool,
    pub entries: Entries,
}

impl Group {
    /// Returns a group of all entries of these rows.
    pub fn all(rows: Range<usize>, needs_halo: bool) -> Self {
        Group { rows, needs_halo, entries: Entries::All }
    }

    /// Tells whether the group's product is added to y, which another group has written.
    pub fn adds(&self) -> bool {
        self.entries == Entries::Foreign
    }
}

/// A partition of the rows: part `p` has the rows `order[bounds[p]..bounds[p + 1]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Old row of each new one: `order[new] = old`.
    pub order: Vec<u32>,
    /// First new row of each part, followed by the number of rows.
    pub bounds: Vec<usize>,
}

impl Partition {
    /// Divides rows into parts of neighbours with these bounds.
    pub fn of_neighbours(bounds: Vec<usize>) -> Self {
        let nrows = bounds.last().copied().unwrap_or(0);
        Partition { order: (0..nrows as u32).collect(), bounds }
    }

    /// Divides rows into `parts` parts, given the part of each row.
    pub fn of_owners(owners: Vec<usize>, parts: usize) -> Self {
        gather(owners, parts)
    }

    /// Returns the number of parts.
    pub fn parts(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Returns the rows of a part, in its order.
    pub fn of(&self, part: usize) -> &[u32] {
        &self.order[self.bounds[part]..self.bounds[part + 1]]
    }
}

/// Partitions the graph of A + A^T into `parts` parts of at most `most` rows with few edges between
/// them.
///
/// Uses METIS, k-way (G. Karypis, V. Kumar, A Fast and High Quality Multilevel Scheme for
/// Partitioning Irregular Graphs, 1998), on one thread; the result is reproducible.
///
/// # Errors
/// [`Refusal`] if the pattern is not square or exceeds METIS's 32-bit indices, or if this build has
/// no METIS (feature `metis`).
///
/// # Panics
/// If `parts` parts of `most` rows cannot hold all rows.
pub fn metis(pattern: Pattern<'_>, parts: usize, most: usize) -> Result<Partition, Refusal> {
    divided(pattern, parts, None, |part| {
        assert!(parts.saturating_mul(most) >= part.len(), "the parts do not hold all rows");
        fit(part, parts, most)
    })
}

/// As [`metis()`], with about as many entries in each part: the largest has at most 0.2 % more than the mean,
/// where METIS finds such a partition.
///
/// # Errors
/// As [`metis()`].
pub(crate) fn metis_by_entries(pattern: Pattern<'_>, parts: usize) -> Result<Partition, Refusal> {
    // A row weighs one entry more than it has, because its y is written too.
    let weights = (0..pattern.nrows()).map(|row| pattern.row_nnz(row) + 1).collect();
    divided(pattern, parts, Some(weights), |part| part)
}

fn divided(
    pattern: Pattern<'_>,
    parts: usize,
    weights: Option<Vec<usize>>,
    mend: impl FnOnce(Vec<usize>) -> Vec<usize>,
) -> Result<Partition, Refusal> {
    let (nrows, ncols) = (pattern.nrows(), pattern.ncols());
    if nrows != ncols {
        return Err(Refusal::new(format!(
            "METIS partitions square matrices; this one has {nrows} rows and {ncols} columns"
        )));
    }
    if parts < 2 || nrows == 0 {
        return Ok(Partition { order: (0..nrows as u32).collect(), bounds: vec![0, nrows] });
    }
    let graph = Adjacency::of(pattern);
    let part = match graph.neighbours.len() {
        0 => vec![0; nrows],
        _ => cut::parts_of_rows(&graph, parts, weights)?,
    };
    Ok(gather(mend(part), parts))
}

/// Moves the last rows of parts with more than `most` rows to parts that have room.
fn fit(mut part: Vec<usize>, parts: usize, most: usize) -> Vec<usize> {
    let mut rows = vec![0; parts];
    part.iter().for_each(|&part| rows[part] += 1);
    let mut room = 0;
    for part in part.iter_mut().rev() {
        if rows[*part] > most {
            while rows[room] >= most {
                room += 1;
            }
            rows[*part] -= 1;
            *part = room;
            rows[room] += 1;
        }
    }
    part
}

fn gather(part: Vec<usize>, parts: usize) -> Partition {
    let mut bounds = vec![0; parts + 1];
    part.iter().for_each(|&part| bounds[part + 1] += 1);
    accumulate(&mut bounds);
    let mut next = bounds.clone();
    let mut order = vec![0; part.len()];
    for (old, part) in part.into_iter().enumerate() {
        order[next[part]] = old as u32;
        next[part] += 1;
    }
    Partition { order, bounds }
}

/// Divides the rows into `parts` windows of neighbouring rows whose lengths differ by at most one.
pub fn windows(nrows: usize, parts: usize) -> Vec<usize> {
    (0..=parts).map(|part| (nrows as u128 * part as u128 / parts as u128) as usize).collect()
}

#[cfg(all(test, feature = "metis"))]
mod tests {
    use super::*;
    use crate::generate::{self, Coefficients, Points};

    #[track_caller]
    fn check(pattern: Pattern<'_>, parts: usize, most: usize) -> Partition {
        let partition = metis(pattern, parts, most).expect("it suits");
        let mut rows = partition.order.clone();
        rows.sort_unstable();
        assert!(rows.iter().enumerate().all(|(i, &row)| i == row as usize), "every row once");
        assert!(partition.bounds.windows(2).all(|w| w[0] <= w[1] && w[1] - w[0] <= most));
        assert_eq!(metis(pattern, parts, most).expect("it suits"), partition, "the same again");
        partition
    }

    #[test]
    fn a_shuffled_grid_is_cut_at_few_entries() {
        let grid = generate::stencil(Points::Five, Coefficients::Constant, 40, 0);
        let order = generate::random_order(1600, 3);
        let shuffled = crate::reorder::permute_symmetric(&grid, &order);
        let partition = check(shuffled.pattern(), 8, 210);
        let mut part = vec![0; 1600];
        for (p, w) in partition.bounds.windows(2).enumerate() {
            partition.order[w[0]..w[1]].iter().for_each(|&row| part[row as usize] = p);
        }
        let inside = |i: usize| {
            let columns = shuffled.row(i).0.iter();
            columns.filter(|&&j| part[j as usize] == part[i]).count()
        };
        let inside: usize = (0..1600).map(inside).sum();
        assert!(inside as f64 > 0.9 * shuffled.nnz() as f64, "{inside} of {}", shuffled.nnz());
    }

    #[test]
    fn odd_graphs_are_partitioned_too() {
        check(generate::circuit(900, 1).pattern(), 7, 129);
        check(generate::poisson(300, 0.4, 1).pattern(), 4, 75);
        let csr = crate::Csr::<f64>::from_triplets(50, 50, [(3, 3, 1.0)]).expect("in range");
        check(csr.pattern(), 5, 10);
        check(csr.pattern(), 1, 50);
        let wide = crate::Csr::<f64>::from_triplets(5, 6, [(3, 3, 1.0)]).expect("in range");
        assert!(metis(wide.pattern(), 2, 3).is_err());
    }

    fn from(n: usize, entries: impl IntoIterator<Item = (usize, usize)>) -> crate::Csr<f64> {
        let entries = entries.into_iter().map(|(i, j)| (i, j, 1.0));
        crate::Csr::from_triplets(n, n, entries).expect("in range")
    }

    #[test]
    fn graphs_without_edges_hubs_and_separate_pieces_are_partitioned() {
        check(from(0, []).pattern(), 1, 32);
        check(from(40, (0..40).map(|i| (i, i))).pattern(), 4, 10);
        check(from(100, (0..100).flat_map(|i| [(50, i), (i, 50)])).pattern(), 7, 15);
        check(from(100, (0..30).map(|i| (3 * i, 3 * i + 4))).pattern(), 10, 10);
        // Two triangles that share no edge stay whole.
        let triangles = [(0, 2), (2, 4), (4, 0), (1, 3), (3, 5), (5, 1)];
        let order = check(from(6, triangles).pattern(), 2, 3).order;
        assert!(order == [0, 2, 4, 1, 3, 5] || order == [1, 3, 5, 0, 2, 4], "{order:?}");
    }

    #[test]
    fn rows_over_the_most_of_a_part_go_where_there_is_room() {
        let part = fit(vec![0; 64], 4, 16);
        assert!((0..4).all(|p| part.iter().filter(|&&part| part == p).count() == 16), "{part:?}");
        assert_eq!(fit(vec![1, 0, 1, 2], 3, 2), [1, 0, 1, 2], "nothing moves without need");
    }

    #[test]
    fn windows_share_rows_evenly() {
        assert_eq!(windows(10, 4), [0, 2, 5, 7, 10]);
        assert_eq!(windows(0, 3), [0, 0, 0, 0]);
    }
}
