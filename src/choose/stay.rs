//! Staying in CSR without a look at the matrix: for few products, features and estimates take longer
//! than any other format would save.

use super::{Choice, Workload, incumbents, ranked, target};
use crate::cost::{Estimator, Sight};
use crate::device::Device;
use crate::features::Features;
use crate::format::{Candidate, Offsets, Work};

/// The choice of the incumbent, with `reasons` in words, and behind it what there is where its library
/// is not; their times are those of a matrix of this size whose rows are alike and whose columns lie
/// side by side. None for sizes that an incumbent may refuse.
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
    let estimator = Estimator::of(sight, &target);
    let entry = |candidate: Candidate| {
        let cost = estimator.cost(&candidate, &work);
        super::Entry { candidate, cost, estimate: None }
    };
    let entries: Vec<_> = incumbents(device.kind).map(entry).collect();
    let first = entries.first()?;
    let products = workload.spmvs;
    let reasons = match reasons {
        [] => String::new(),
        met => format!("where {}, ", met.join(" and ")),
    };
    let explanation = format!(
        "Stay in CSR ({}) for {products} products: {reasons}looking closer at a matrix takes longer \
         on {} than another format saves, as a tree found on its records; no other format was \
         looked at (effort measure does).",
        first.candidate, device.name
    );
    Some(Choice {
        ranking: entries.iter().map(|entry| ranked(entry, &first.cost, workload)).collect(),
        choice: first.candidate.clone(),
        refused: Vec::new(),
        features,
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: products,
        fingerprint: None,
        explanation: vec![explanation],
    })
}

#[cfg(test)]
mod tests {
    use super::super::INCUMBENTS;
    use super::*;
    use crate::csr::Csr;
    use crate::generate;
    use crate::structure::Structure;

    #[test]
    fn where_the_library_is_missing_there_is_csr() {
        let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
        let features = Features::of_size(&Structure::of(&csr));
        for (device, expected) in [("h200", &INCUMBENTS[..]), ("cpu", &INCUMBENTS[1..])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let choice = stay(features.clone(), &device, &workload, &[]).expect("entries");
            let ranking = choice.ranking.iter().map(|ranked| ranked.candidate.to_string());
            assert_eq!(ranking.collect::<Vec<_>>(), expected);
            assert_eq!(choice.choice, choice.ranking[0].candidate);
            assert!(choice.explanation[0].contains("products: looking"), "{choice:?}");
        }
    }
}
