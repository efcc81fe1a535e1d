//! METIS (feature `metis`; without it, `cut_none.rs` is compiled instead).

use std::sync::{Mutex, PoisonError};

use metis::option::{Seed, UFactor};
use metis::{Graph as MetisGraph, Idx};

use crate::refusal::Refusal;
use crate::reorder::Adjacency;

/// METIS keeps its random state in a static variable: only one call at a time is reproducible.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Excess of a part's weight over the mean that METIS may leave, in thousandths, where vertices have weights.
const UNEVEN: Idx = 2;

/// Returns the part of each vertex of a graph with edges, as METIS's k-way partitioning assigns it: parts of
/// nearly equal weight if the vertices have weights, otherwise of at most 3 % more vertices than the mean.
///
/// # Errors
/// [`Refusal`] if the graph has more edges than METIS's 32-bit indices can count.
pub(super) fn parts_of_rows(
    graph: &Adjacency,
    parts: usize,
    weights: Option<Vec<usize>>,
) -> Result<Vec<usize>, Refusal> {
    let edges = graph.neighbours.len();
    if Idx::try_from(edges).is_err() {
        return Err(Refusal::new(format!(
            "the graph has {edges} edges in both directions; METIS takes at most {}",
            Idx::MAX
        )));
    }
    let first: Vec<Idx> = graph.first.iter().map(|&i| i as Idx).collect();
    let neighbours: Vec<Idx> = graph.neighbours.iter().map(|&i| i as Idx).collect();
    let mut part = vec![0; first.len() - 1];
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = |error: &dyn std::fmt::Display| Refusal::new(format!("METIS: {error}"));
    // METIS adds the weights up in 32 bits; vertices have none where the sum does not fit.
    let weights = weights.filter(|all| Idx::try_from(all.iter().sum::<usize>()).is_ok());
    let weights: Option<Vec<Idx>> =
        weights.map(|all| all.into_iter().map(|weight| weight as Idx).collect());
    let mut graph = MetisGraph::new(1, parts as Idx, &first, &neighbours)
        .map_err(|error| failed(&error))?
        .set_option(Seed(1));
    if let Some(weights) = &weights {
        graph = graph.set_vwgt(weights).set_option(UFactor(UNEVEN));
    }
    graph.part_kway(&mut part).map_err(|error| failed(&error))?;
    Ok(part.into_iter().map(|part| part as usize).collect())
}
