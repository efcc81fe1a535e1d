//! Ways to divide the rows of a matrix among parts.

use std::convert::Infallible;

use crate::csr::{Csr, Pattern};
use crate::error::{Error, Result};
use crate::partition::{Partition, metis_by_entries, windows};

/// A way to divide the rows of a matrix among parts.
///
/// ```
/// use ellect::sharded::Split;
/// use ellect::{Tuner, Workload, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 900, 1)?;
/// let tuners = Tuner::open_all(&["cpu"; 3])?;
/// let owners: Vec<u32> = (0..csr.nrows() as u32).map(|row| row % 3).collect();
/// let a = tuners.prepare_sharded(&csr, &Workload::default(), Split::Owners(&owners))?;
/// assert_eq!(a.parts()[0].rows(), csr.nrows().div_ceil(3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split<'a> {
    /// Neighbouring rows, as many in each part, up to a few so that rows with equal columns stay together:
    /// PCSR-I of G. He, J. Gao, A Novel CSR-Based Sparse Matrix-Vector Multiplication on GPUs, 2016,
    /// section 5.3.
    EqualRows,
    /// Neighbouring rows, about as many entries in each part: PCSR-II there.
    EqualNonzeros,
    /// Neighbouring rows whose products take about equal times on the devices of the parts, as their
    /// tuners predict them: for devices of different speed, and for matrices whose rows differ. Each of
    /// up to four divisions costs a prediction for each part. Not for ranks, which know no tuner but
    /// their own.
    EqualTimes,
    /// Parts with few entries between them and about as many entries in each, found by METIS (feature
    /// `metis`). The matrix must be square.
    FewCuts,
    /// The part of each row, given by the caller.
    Owners(&'a [u32]),
}

impl Split<'_> {
    /// Returns the name of the way, without owners.
    pub(super) fn name(self) -> &'static str {
        match self {
            Split::EqualRows => "Split::EqualRows",
            Split::EqualNonzeros => "Split::EqualNonzeros",
            Split::EqualTimes => "Split::EqualTimes",
            Split::FewCuts => "Split::FewCuts",
            Split::Owners(_) => "Split::Owners",
        }
    }

    /// Divides the rows of a matrix among `parts` parts.
    ///
    /// # Errors
    /// [`Error::Shape`] unless each row has an owner; [`Error::Argument`] if an owner does not
    /// exist or METIS does not apply.
    pub(super) fn partition(self, pattern: Pattern<'_>, parts: usize) -> Result<Partition> {
        let nrows = pattern.nrows();
        match self {
            Split::EqualRows => {
                let bounds = between_nodes(pattern, windows(nrows, parts));
                Ok(Partition::of_neighbours(bounds))
            }
            Split::EqualNonzeros => {
                Ok(Partition::of_neighbours(by_shares(pattern, &vec![1.0; parts])))
            }
            Split::EqualTimes => Err(Error::argument(
                "a rank knows no tuner but its own, so it cannot predict the times of other parts; \
                 divide the matrix by equal nonzeros instead",
            )),
            // METIS makes a single part of nothing.
            Split::FewCuts if nrows == 0 => Split::EqualRows.partition(pattern, parts),
            Split::FewCuts => {
                let cut = |pattern: Pattern<'_>| {
                    metis_by_entries(pattern, parts).map_err(|refusal| {
                        Error::argument(format!("{refusal}; divide it by equal nonzeros instead"))
                    })
                };
                match rows_of_a_node(pattern) {
                    rows if rows == 1 || nrows / rows < NODE * parts => cut(pattern),
                    rows => Ok(of_rows(&cut(of_nodes(pattern, rows)?.pattern())?, rows)),
                }
            }
            Split::Owners(owners) => {
                if owners.len() != nrows {
                    return Err(Error::Shape { what: "owners", got: owners.len(), needed: nrows });
                }
                if let Some(row) = owners.iter().position(|&owner| owner as usize >= parts) {
                    let owner = owners[row];
                    return Err(Error::argument(format!(
                        "row {row} belongs to part {owner}, but there are {parts} parts, counted \
                         from 0; open more devices or change the owners"
                    )));
                }
                let owners = owners.iter().map(|&owner| owner as usize).collect();
                Ok(Partition::of_owners(owners, parts))
            }
        }
    }
}

/// Returns the bounds of parts whose entries are in proportion to these positive shares; a row weighs
/// one entry more than it has, because its y is written too.
pub(super) fn by_shares(pattern: Pattern<'_>, shares: &[f64]) -> Vec<usize> {
    let row_ptr = pattern.row_ptr();
    let start = |row: usize| Ok::<_, Infallible>(row_ptr[row]);
    let Ok(bounds) = bounds_by_shares([pattern.nrows(), pattern.nnz()], shares, start);
    between_nodes(pattern, bounds)
}

/// Returns the bounds of [`by_shares`], which may cut nodes. `start` returns the number of entries before a
/// row.
///
/// # Errors
/// Of `start`.
pub(super) fn bounds_by_shares<E>(
    [nrows, nnz]: [usize; 2],
    shares: &[f64],
    start: impl Fn(usize) -> std::result::Result<usize, E>,
) -> std::result::Result<Vec<usize>, E> {
    let weight = (nnz + nrows) as f64;
    let total: f64 = shares.iter().sum();
    let mut before = 0.0;
    let mut bounds = Vec::with_capacity(shares.len() + 1);
    for share in shares {
        let wanted = (weight * (before / total)) as usize;
        before += share;
        // The first row with this weight before it.
        let (mut low, mut high) = (0, nrows);
        while low < high {
            let row = low.midpoint(high);
            match start(row)? + row < wanted {
                true => low = row + 1,
                false => high = row,
            }
        }
        bounds.push(low);
    }
    bounds.push(nrows);
    Ok(bounds)
}

/// Most rows of a node, such as the unknowns of a finite element's corner.
const NODE: usize = 16;

/// A bound moves by at most a part's rows over this number.
const MOVES: usize = 8;

/// Returns the most rows by which a bound moves.
pub(super) fn most_moved(nrows: usize, parts: usize) -> usize {
    (nrows / parts.max(1) / MOVES).min(NODE - 1)
}

/// Moves the bounds between parts to the nearest earlier rows that begin a node, if these are near: rows of
/// one node have equal columns. A node that is cut would misplace the dense blocks of both parts.
fn between_nodes(pattern: Pattern<'_>, mut bounds: Vec<usize>) -> Vec<usize> {
    let most = most_moved(pattern.nrows(), bounds.len() - 1);
    bounds.iter_mut().for_each(|bound| *bound = begin_of_node(pattern, *bound, most));
    bounds
}

/// Returns the nearest row that begins a node and is at most `most` rows before `bound`, which may be the
/// number of rows; `bound` if there is none.
pub(super) fn begin_of_node(pattern: Pattern<'_>, bound: usize, most: usize) -> usize {
    let continues = |row: usize| {
        let is_within = row > 0 && row < pattern.nrows() && !pattern.row(row).is_empty();
        is_within && pattern.row(row) == pattern.row(row - 1)
    };
    let begins = (bound.saturating_sub(most)..=bound).rev().find(|&row| !continues(row));
    begins.unwrap_or(bound)
}

/// Returns the number of rows of each node if all nodes have as many, and their rows' columns are those of
/// whole nodes; 1 otherwise.
fn rows_of_a_node(pattern: Pattern<'_>) -> usize {
    let nrows = pattern.nrows();
    if nrows == 0 || nrows != pattern.ncols() {
        return 1;
    }
    let rows =
        (1..nrows.min(NODE)).take_while(|&row| pattern.row(row) == pattern.row(0)).count() + 1;
    let is_node = |first: usize| {
        let columns = pattern.row(first);
        let mut nodes = columns.chunks(rows);
        (first + 1..first + rows).all(|row| pattern.row(row) == columns)
            && nodes.all(|node| {
                let next = |(k, &column): (usize, &u32)| column as usize == node[0] as usize + k;
                node.len() == rows
                    && (node[0] as usize).is_multiple_of(rows)
                    && node.iter().enumerate().all(next)
            })
    };
    let fits = rows > 1 && nrows.is_multiple_of(rows) && (0..nrows).step_by(rows).all(is_node);
    if fits { rows } else { 1 }
}

/// Returns the pattern of the nodes of a matrix, of `rows` rows each, with values that mean nothing.
fn of_nodes(pattern: Pattern<'_>, rows: usize) -> Result<Csr<f32>> {
    let (mut row_ptr, mut nodes) = (vec![0], Vec::with_capacity(pattern.nnz() / (rows * rows)));
    for first in (0..pattern.nrows()).step_by(rows) {
        nodes.extend(pattern.row(first).iter().step_by(rows).map(|&column| column / rows as u32));
        row_ptr.push(nodes.len());
    }
    let (n, values) = (row_ptr.len() - 1, vec![0.0; nodes.len()]);
    Csr::new(n, n, row_ptr, nodes, values)
}

/// Returns the partition of the rows of a matrix whose nodes, of `rows` rows each, are divided.
fn of_rows(nodes: &Partition, rows: usize) -> Partition {
    let all = |&node: &u32| (0..rows as u32).map(move |k| node * rows as u32 + k);
    Partition {
        order: nodes.order.iter().flat_map(all).collect(),
        bounds: nodes.bounds.iter().map(|bound| bound * rows).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_row_gets_a_part_of_its_own() {
        let dense = (0..90).map(|j| (0, j, 1.0));
        let diagonal = (1..90).map(|i| (i, i, 1.0));
        let csr = Csr::<f64>::from_triplets(90, 90, dense.chain(diagonal)).expect("in range");
        let partition = Split::EqualNonzeros.partition(csr.pattern(), 3).expect("it applies");
        assert_eq!(partition.bounds, [0, 1, 45, 90]);
        let partition = Split::EqualRows.partition(csr.pattern(), 3).expect("it applies");
        assert_eq!(partition.bounds, [0, 30, 60, 90]);
    }

    #[test]
    fn shares_divide_the_entries() {
        let csr =
            Csr::<f64>::from_triplets(90, 90, (0..90).map(|i| (i, i, 1.0))).expect("in range");
        assert_eq!(by_shares(csr.pattern(), &[1.0, 2.0, 6.0]), [0, 10, 30, 90]);
        assert_eq!(by_shares(csr.pattern(), &[1.0; 4]), [0, 23, 45, 68, 90]);
    }

    #[test]
    fn rows_of_a_node_stay_together() {
        let csr: Csr<f64> = crate::generate::by_name("elasticity", 2000, 1).expect("a class");
        for parts in [2, 3, 7, 64] {
            for split in [Split::EqualRows, Split::EqualNonzeros] {
                let bounds = split.partition(csr.pattern(), parts).expect("it applies").bounds;
                assert!(bounds.iter().all(|bound| bound % 3 == 0), "{split:?}: {bounds:?}");
                assert!(bounds.is_sorted() && bounds[0] == 0 && bounds[parts] == csr.nrows());
            }
        }
        // All rows have the same columns, so no row near a bound begins a node.
        for n in [12, 60, 900] {
            let dense = (0..n).flat_map(|i| (0..n).map(move |j| (i, j, 1.0)));
            let csr = Csr::<f64>::from_triplets(n, n, dense).expect("in range");
            let bounds = Split::EqualRows.partition(csr.pattern(), 3).expect("it applies").bounds;
            assert_eq!(bounds, [0, n / 3, 2 * n / 3, n]);
        }
    }

    #[cfg(feature = "metis")]
    #[test]
    fn metis_finds_parts_of_equal_work() {
        let heat: Csr<f64> = crate::generate::by_name("heat", 40_000, 1).expect("a class");
        for parts in [2, 3, 4, 7] {
            let partition = Split::FewCuts.partition(heat.pattern(), parts).expect("it applies");
            let entries = |part: usize| {
                partition.of(part).iter().map(|&row| heat.pattern().row_nnz(row as usize)).sum()
            };
            let most: usize = (0..parts).map(entries).max().expect("there are parts");
            let over = (most * parts) as f64 / heat.nnz() as f64;
            assert!(over < 1.006, "{parts} parts: {over}");
        }
    }

    #[cfg(feature = "metis")]
    #[test]
    fn metis_divides_nodes_where_all_have_as_many_rows() {
        let csr: Csr<f64> = crate::generate::by_name("elasticity", 3000, 1).expect("a class");
        assert_eq!(rows_of_a_node(csr.pattern()), 3);
        let partition = Split::FewCuts.partition(csr.pattern(), 4).expect("it applies");
        assert!(partition.bounds.iter().all(|bound| bound % 3 == 0), "{:?}", partition.bounds);
        for node in partition.order.chunks(3) {
            assert!(node[0] % 3 == 0 && node[1] == node[0] + 1 && node[2] == node[0] + 2);
        }
        let mut rows = partition.order.clone();
        rows.sort_unstable();
        assert!(rows.iter().enumerate().all(|(i, &row)| i == row as usize), "every row once");
        let heat: Csr<f64> = crate::generate::by_name("heat", 900, 1).expect("a class");
        assert_eq!(rows_of_a_node(heat.pattern()), 1);
        let apart = Csr::<f64>::from_triplets(4, 4, (0..4).map(|i| (i, 0, 1.0))).expect("in range");
        assert_eq!(rows_of_a_node(apart.pattern()), 1, "the columns are not those of nodes");
        // A matrix of a few nodes is divided by rows.
        let dense = (0..12).flat_map(|i| (0..12).map(move |j| (i, j, 1.0)));
        let dense = Csr::<f64>::from_triplets(12, 12, dense).expect("in range");
        assert_eq!(rows_of_a_node(dense.pattern()), 12);
        let partition = Split::FewCuts.partition(dense.pattern(), 3).expect("it applies");
        assert!(partition.bounds.windows(2).all(|ends| ends[1] > ends[0]), "{partition:?}");
    }

    #[test]
    fn wrong_owners_are_named() {
        let csr = Csr::<f64>::from_triplets(3, 3, [(0, 0, 1.0)]).expect("in range");
        let error = Split::Owners(&[0, 2, 1]).partition(csr.pattern(), 2).expect_err("no part 2");
        assert!(error.to_string().starts_with("row 1 belongs to part 2, but there are 2 parts"));
        let error = Split::Owners(&[0]).partition(csr.pattern(), 2).expect_err("too few");
        assert_eq!(error.to_string(), "owners has length 1, the matrix needs 3");
    }
}
