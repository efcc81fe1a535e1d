//! Staying in CSR without a look at the matrix: for few products, features and estimates take longer
//! than any other format would save.

use super::{Choice, INCUMBENTS, Workload, ranked, target};
use crate::cost::{Estimator, Sight};
use crate::device::Device;
use crate::features::Features;
use crate::format::{Candidate, Offsets, Work, candidates};

/// The choice of the incumbent, with `reasons` in words; its time is that of a matrix of this size
/// whose rows are alike and whose columns lie side by side. None for sizes that an incumbent may
/// refuse.
///
/// Reads nothing of the matrix; `features` are what is known of it, its size at least.
pub fn stay(
    features: Features,
    device: &Device,
    workload: &Workload,
    reasons: &[String],
) -> Option<Choice> {
    let size = |name| features.get(name).map(|n| n as usize);
    let (nrows, ncols, nnz) = (size("nrows")?, size("ncols")?, size("nnz")?);
    // cuSPARSE is used with 32-bit offsets, and not for a matrix of no entries.
    i32::try_from(nnz).ok().filter(|&nnz| nnz > 0)?;
    let candidate = incumbent(device)?;
    let target = target(device, workload);
    let w = target.precision.bytes();
    let bytes = ((nrows + 1) * Offsets::width(nnz) + nnz * (4 + w)) as u64;
    let work = Work {
        layout_bytes: bytes,
        stream_bytes: bytes,
        entries: nnz as u64,
        x_sectors: (nnz * w).div_ceil(32) as f64,
        steps: nnz.div_ceil(32) as u64,
        launches: 1,
        ..Work::default()
    };
    let longest = nnz.div_ceil(nrows.max(1));
    let sight = Sight { nrows, ncols, nnz, longest, changes: 0, new_share: 1.0 };
    let cost = Estimator::of(sight, &target).cost(&candidate, &work);
    let entry = super::Entry { candidate, cost, estimate: None };
    let products = workload.spmvs;
    let explanation = format!(
        "Stay in CSR ({}) for {products} products: where {}, looking closer at a matrix takes longer \
         on {} than another format saves, as a tree found on its records; no other candidate was \
         looked at (effort measure does).",
        entry.candidate,
        reasons.join(" and "),
        device.name
    );
    Some(Choice {
        ranking: vec![ranked(&entry, &entry.cost, workload)],
        choice: entry.candidate,
        refused: Vec::new(),
        features,
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: products,
        fingerprint: None,
        explanation: vec![explanation],
    })
}

/// What a program has without a choice.
fn incumbent(device: &Device) -> Option<Candidate> {
    let all = candidates(device.kind);
    let named = |name: &str| all.iter().find(|candidate| candidate.to_string() == name);
    INCUMBENTS.into_iter().find_map(named).cloned()
}
