//! The work of all candidates for a matrix, and known costs that replace estimates.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::Cost;
use crate::analysis::{Analysis, probes};
use crate::device::Device;
use crate::format::{Basis, Candidate, Refusal, StoredValues, Target, Value, Work, candidates_for};
use crate::scalar::Precision;

/// A known cost of a candidate, which replaces the estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The candidate.
    pub candidate: Candidate,
    /// Cost of the candidate, or the reason why it must not be chosen, for instance a wrong
    /// product.
    pub cost: std::result::Result<Cost, Refusal>,
}

/// The work of every candidate, or the reason why it does not apply, in table order.
pub type Works = Arc<[(Candidate, std::result::Result<Work, Refusal>)]>;

/// Key of computed works: device, precision, basis, memory limit, storage of values, and whether METIS
/// may run.
type Aim = (Device, Precision, Basis, u64, StoredValues, bool);

probes! {
    /// Works of all candidates, for each target requested so far.
    AllWorks() -> Arc<Mutex<Vec<(Aim, Works)>>>;
}

/// Returns the work of every candidate of the target's device, or the reason why it does not apply,
/// in table order; for values in f32, without formats that store values of f64 in f32.
///
/// Candidates that analyse the matrix in different ways run in parallel on rayon's threads. The
/// analysis keeps the result.
pub fn works(analysis: &Analysis<'_>, target: &Target<'_>) -> Works {
    let Target { device, precision, basis, memory_limit, stored } = *target;
    let may_partition = analysis.may_partition();
    let aim = (device.clone(), precision, basis, memory_limit, stored, may_partition);
    let kept = analysis.memo().get(AllWorks(), Arc::default);
    let lock = || kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, works)) = lock().iter().find(|(known, _)| *known == aim) {
        return works.clone();
    }
    let works = find_works(analysis, target);
    lock().push((aim, works.clone()));
    works
}

fn find_works(analysis: &Analysis<'_>, target: &Target<'_>) -> Works {
    let all = candidates_for(target);
    let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (i, candidate) in all.iter().enumerate() {
        groups.entry((candidate.format.name, analysis_of(candidate))).or_default().push(i);
    }
    let work = |i: usize| {
        let candidate = &all[i];
        (i, (candidate.clone(), candidate.work(analysis, &candidate.target(target))))
    };
    let groups: Vec<Vec<usize>> = groups.into_values().collect();
    let groups = groups.into_par_iter().with_max_len(1);
    let mut works: Vec<_> = groups.flat_map_iter(|group| group.into_iter().map(work)).collect();
    works.sort_by_key(|(i, _)| *i);
    works.into_iter().map(|(_, work)| work).collect()
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
