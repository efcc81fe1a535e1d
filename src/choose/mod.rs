//! The choice: every candidate ranked by what it costs the caller, and why.

mod workload;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cost::{Cost, Estimator, Source};
use crate::device::Device;
use crate::fingerprint::Fingerprint;
use crate::format::{Candidate, Params, Refusal, Target, candidates};
use crate::scalar::Precision;
use crate::structure::Structure;
pub use workload::{Effort, ValuesUse, Verify, Workload};

/// One candidate's place in a [`Choice`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The candidate.
    pub candidate: Candidate,
    /// The name of its format.
    pub format: &'static str,
    /// Its parameters.
    pub parameters: Params,
    /// Time of one product, in microseconds.
    pub spmv_us: f64,
    /// Time of the conversion, in microseconds.
    pub convert_us: f64,
    /// Conversion, updates of values and all products together, in microseconds.
    pub total_us: f64,
    /// Bytes of the layout.
    pub bytes: u64,
    /// Where the times come from.
    pub source: Source,
    /// Products from which on it is cheaper than staying in CSR: 0 where it always is (CSR itself
    /// among them), none where it never is.
    pub break_even_spmvs: Option<u64>,
}

/// A candidate that does not suit, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Refused {
    /// The candidate.
    pub candidate: Candidate,
    /// Needed and allowed figures.
    pub reason: Refusal,
}

/// A ranking of all candidates with the one to take; serializes to the answer of
/// `recommend --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The candidate to take.
    pub choice: Candidate,
    /// Every candidate that suits, cheapest first.
    pub ranking: Vec<Ranked>,
    /// Every candidate that does not.
    pub refused: Vec<Refused>,
    /// Features of the matrix, by name.
    pub features: BTreeMap<String, f64>,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Products that the choice was made for.
    pub spmvs: u64,
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// The reasons, in sentences.
    pub explanation: Vec<String>,
}

/// A cost that is known better than by estimate.
pub type Known = (Candidate, Cost);

/// Ranks every candidate for a device of `device`'s kind; a cost in `known` replaces the estimate.
///
/// Pure: the same arguments give the same answer, with no clock, disk or GPU.
pub fn choose(
    structure: &Structure<'_>,
    device: &Device,
    workload: &Workload,
    known: &[Known],
) -> Choice {
    let target = target(device, workload);
    let estimator = Estimator::new(structure, &target);
    let mut costs = Vec::new();
    let mut refused = Vec::new();
    for candidate in candidates(device.kind) {
        match candidate.work(structure, &target) {
            Ok(work) => {
                let known = known.iter().find(|(known, _)| *known == candidate);
                let cost =
                    known.map_or_else(|| estimator.cost(&candidate, &work), |&(_, cost)| cost);
                costs.push((candidate, cost));
            }
            Err(reason) => refused.push(Refused { candidate, reason }),
        }
    }
    let mut ranking: Vec<Ranked> = costs
        .into_iter()
        .map(|(candidate, cost)| Ranked {
            format: candidate.format.name(),
            parameters: candidate.params.clone(),
            candidate,
            spmv_us: cost.spmv_s * 1e6,
            convert_us: cost.convert_s * 1e6,
            total_us: cost.total_s(workload) * 1e6,
            bytes: cost.bytes,
            source: cost.source,
            break_even_spmvs: None,
        })
        .collect();
    ranking.sort_by(|a, b| a.total_us.total_cmp(&b.total_us));
    Choice {
        choice: ranking[0].candidate.clone(),
        ranking,
        refused,
        features: BTreeMap::new(),
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: workload.spmvs,
        fingerprint: Fingerprint::of(structure.pattern()),
        explanation: Vec::new(),
    }
}

/// What candidates are made for under this workload.
pub fn target<'a>(device: &'a Device, workload: &Workload) -> Target<'a> {
    Target {
        device,
        precision: workload.precision,
        basis: workload.basis,
        memory_limit: workload.memory_limit.unwrap_or(device.memory_bytes),
    }
}
