//! The work of all candidates of a matrix, and what is known of their costs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::Cost;
use crate::format::{Candidate, Refusal, Target, Value, Work, candidates};
use crate::structure::Structure;

/// The cost of a candidate as it is known better than by estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The candidate.
    pub candidate: Candidate,
    /// Its cost; or why it must not be chosen, a wrong product for instance.
    pub cost: std::result::Result<Cost, Refusal>,
}

/// The work of every candidate of the target's device, or why it does not apply, in table order.
///
/// Candidates that analyse the matrix in different ways run in parallel on rayon's threads. The
/// structure caches the result.
pub fn works(
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> Arc<[(Candidate, std::result::Result<Work, Refusal>)]> {
    structure.works(target, || {
        let all = candidates(target.device.kind);
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (i, candidate) in all.iter().enumerate() {
            groups.entry((candidate.format.name(), analysis_of(candidate))).or_default().push(i);
        }
        let work = |i: usize| {
            let candidate = &all[i];
            (i, (candidate.clone(), candidate.work(structure, &candidate.target(target))))
        };
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        let groups = groups.into_par_iter().with_max_len(1);
        let mut works: Vec<_> = groups.flat_map_iter(|group| group.into_iter().map(work)).collect();
        works.sort_by_key(|(i, _)| *i);
        works.into_iter().map(|(_, work)| work).collect()
    })
}

/// The parameters that decide which analyses a candidate needs: candidates of one format that are
/// equal in these share cached results.
fn analysis_of(candidate: &Candidate) -> Vec<(&'static str, Value)> {
    let of = |names: &[&str]| -> Vec<_> {
        candidate.params.iter().filter(|(name, _)| names.contains(name)).collect()
    };
    // Blocks are found once for all orders of rows.
    let blocks = of(&["b"]);
    if blocks.is_empty() { of(&["sort", "tpr", "tile"]) } else { blocks }
}
