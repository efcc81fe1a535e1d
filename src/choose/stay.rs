//! Staying in CSR without a look at the matrix: for few products, features and estimates take longer
//! than any other format would save.

use super::{CSR, Choice, Entry, Workload, incumbent, incumbents, ranked, target};
use crate::cost::{Estimator, Sight};
use crate::device::Device;
use crate::features::Features;
use crate::format::{Candidate, Offsets, Work};

/// Why a matrix is not looked at, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stays {
    /// The comparisons by which looking closer does not pay.
    pub look: Vec<String>,
    /// The comparisons by which [`CSR`] takes less than the incumbent; none where nothing says so.
    pub csr: Option<Vec<String>>,
}

/// The choice of the incumbent, or of [`CSR`] where `stays` tells so, and behind it the other one
/// where there is one; their times are those of a matrix of this size whose rows are alike and whose
/// columns lie side by side. None for sizes that an incumbent may refuse.
///
/// Reads nothing of the matrix; `features` are what is known of it, its size at least.
pub fn stay(
    features: Features,
    device: &Device,
    workload: &Workload,
    stays: &Stays,
) -> Option<Choice> {
    let [nrows, ncols, nnz] = ["nrows", "ncols", "nnz"].map(|name| features.get(name));
    let size = [nrows? as usize, ncols? as usize, nnz? as usize];
    let mut entries = entries(size, device, workload)?;
    let base = incumbent(&entries)?.cost;
    let incumbent = entries.first()?.candidate.clone();
    let csr = entries.iter().position(|entry| entry.candidate.to_string() == CSR);
    if let (Some(_), Some(csr)) = (&stays.csr, csr) {
        entries[..=csr].rotate_right(1);
    }
    let choice = entries.first()?.candidate.clone();
    let products = workload.spmvs;
    let mut explanation = vec![format!(
        "Stay in CSR ({choice}) for {products} products: {}looking closer at a matrix takes longer \
         on {} than another format saves, as a tree found on its records; no other format was \
         looked at (effort measure does).",
        lead("where", &stays.look),
        device.name
    )];
    if let Some(met) = stays.csr.as_deref().filter(|_| choice != incumbent) {
        explanation.push(format!(
            "{choice} instead of {incumbent}: {}it takes less there, as another tree found; neither \
             was timed on this matrix.",
            lead("where", met)
        ));
    }
    Some(Choice {
        ranking: entries.iter().map(|entry| ranked(entry, &base, workload)).collect(),
        choice,
        refused: Vec::new(),
        features,
        device: device.name.clone(),
        precision: workload.precision,
        spmvs: products,
        fingerprint: None,
        explanation,
    })
}

/// Comparisons behind this word, with a comma; nothing where there are none.
fn lead(word: &str, met: &[String]) -> String {
    match met {
        [] => String::new(),
        met => format!("{word} {}, ", met.join(" and ")),
    }
}

/// Seconds of counting the lengths of so many rows, and of their statistics: the benchmark
/// `row_lengths` on one core of a virtual Intel Xeon.
pub fn read_s(nrows: u64) -> f64 {
    const ALL_S: f64 = 1.3e-6;
    const ROW_S: f64 = 0.7e-9;
    ALL_S + ROW_S * nrows as f64
}

/// Seconds of one product with the incumbent, by estimate, of a matrix of so many rows, columns and
/// nonzeros whose rows are alike and whose columns lie side by side. None for sizes that an incumbent
/// may refuse.
pub fn stay_s(size: [usize; 3], device: &Device, workload: &Workload) -> Option<f64> {
    Some(entries(size, device, workload)?.first()?.cost.spmv_s)
}

/// The incumbents with estimates at sight.
fn entries(size: [usize; 3], device: &Device, workload: &Workload) -> Option<Vec<Entry>> {
    let [nrows, ncols, nnz] = size;
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
        Entry { candidate, cost, estimate: None }
    };
    Some(incumbents(device.kind).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::super::INCUMBENTS;
    use super::*;
    use crate::csr::Csr;
    use crate::generate;
    use crate::structure::Structure;

    fn features() -> Features {
        let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
        Features::of_size(&Structure::of(&csr))
    }

    fn ranking(choice: &Choice) -> Vec<String> {
        choice.ranking.iter().map(|ranked| ranked.candidate.to_string()).collect()
    }

    #[test]
    fn where_the_library_is_missing_there_is_csr() {
        for (device, expected) in [("h200", &INCUMBENTS[..]), ("cpu", &INCUMBENTS[1..])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let choice = stay(features(), &device, &workload, &Stays::default()).expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!(choice.choice, choice.ranking[0].candidate);
            assert_eq!(choice.explanation.len(), 1);
            assert!(choice.explanation[0].contains("products: looking"), "{choice:?}");
        }
    }

    #[test]
    fn csr_is_taken_where_it_is_told_to_take_less() {
        let csr = Some(vec!["row_nnz_max < 40.0000".to_string()]);
        let stays = Stays { look: vec!["spmvs < 500.0000".into()], csr };
        for (device, expected) in [("h200", &["csr", INCUMBENTS[0]][..]), ("cpu", &["csr"])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let choice = stay(features(), &device, &workload, &stays).expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!((choice.choice.to_string().as_str(), choice.fingerprint), ("csr", None));
            assert!(choice.explanation[0].starts_with("Stay in CSR (csr) for"), "{choice:?}");
            assert!(
                choice.explanation[0].contains("where spmvs < 500.0000, looking"),
                "{choice:?}"
            );
            // A host's incumbent is csr: there is nothing to tell.
            let told =
                "csr instead of cusparse:alg=csr_alg1: where row_nnz_max < 40.0000, it takes";
            let second = choice.explanation.get(1);
            assert_eq!(second.is_some_and(|text| text.starts_with(told)), expected.len() > 1);
        }
    }

    #[test]
    fn a_product_is_estimated_of_the_size_alone() {
        let device = crate::device::find("h200").expect("shipped");
        let workload = Workload::default();
        let seconds = |size| stay_s(size, &device, &workload);
        let small = seconds([500, 500, 2500]).expect("an estimate");
        let large = seconds([1_000_000, 1_000_000, 20_000_000]).expect("an estimate");
        assert!(small > 1e-6 && large > 10.0 * small, "{small} {large}");
        assert_eq!((seconds([3, 3, 0]), seconds([3, 3, usize::MAX])), (None, None));
        // Of small matrices one pass over the rows takes as long as a product, of large ones longer.
        assert!(read_s(500) < small && read_s(1_000_000) > large, "{small} {large}");
    }
}
