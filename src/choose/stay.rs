//! Not looking at a matrix: for few products, features and estimates take longer than another format
//! would save. What is taken then stays in CSR or is converted in about one product.

use super::{Choice, Entry, Workload, incumbent, incumbents, is_csr, ranked, target};
use crate::cost::{Estimator, MatrixTerms};
use crate::device::Device;
use crate::features::Features;
use crate::format::{Candidate, Offsets, Work, candidates};

/// Fused PCSR, which may be taken without a look, as CSR is: its conversion finds where tiles begin,
/// and no more.
pub const PCSR: &str = "pcsr:kernel=fused,tile=1024";

/// Why a matrix is not looked at, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stays {
    /// The comparisons by which looking closer does not pay.
    pub look: Vec<String>,
    /// What takes less than the incumbent, and the comparisons by which it does; none where nothing
    /// says so.
    pub taken: Option<(String, Vec<String>)>,
}

/// The choice of the incumbent, or of what `stays` tells to take, and behind it the others that may
/// be taken so, CSR and [`PCSR`]; their times are those of a matrix of this size whose rows are alike
/// and whose columns lie side by side. None for sizes that an incumbent may refuse.
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
    let named = |name: &str| entries.iter().position(|entry| entry.candidate.to_string() == name);
    // Trees count one conversion, no updates of values.
    let once = |&place: &usize| workload.values.updates() == 0 || is_csr(&entries[place].candidate);
    let taken = stays.taken.as_ref().and_then(|(name, _)| named(name)).filter(once);
    if let Some(place) = taken {
        entries[..=place].rotate_right(1);
    }
    let choice = entries.first()?.candidate.clone();
    let products = workload.spmvs;
    let taken = match is_csr(&choice) {
        true => "Stay in CSR",
        false => "Take what is converted at once",
    };
    let mut explanation = vec![format!(
        "{taken} ({choice}) for {products} products: {}looking closer at a matrix takes longer \
         on {} than another format saves, as a tree found on its records; no other format was \
         looked at (effort measure does).",
        lead("where", &stays.look),
        device.name
    )];
    if let Some((_, met)) = stays.taken.as_ref().filter(|_| choice != incumbent) {
        explanation.push(format!(
            "{choice} instead of {incumbent}: {}it takes less there, as another tree found; neither \
             was timed on this matrix.",
            lead("where", met)
        ));
    }
    Some(Choice {
        ranking: entries.iter().map(|entry| ranked(entry, &base, workload)).collect(),
        candidate: choice,
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

/// Seconds of [`Structure::x_sectors_at_sight`](crate::structure::Structure::x_sectors_at_sight) where
/// no cache holds the matrix: the benchmark `x_sectors_at_sight` on one core of a virtual Intel Xeon.
pub const SAMPLE_S: f64 = 35e-6;

/// Seconds of one product with the incumbent, by estimate, of a matrix of so many rows, columns and
/// nonzeros whose rows are alike and whose columns lie side by side. None for sizes that an incumbent
/// may refuse.
pub fn stay_s(size: [usize; 3], device: &Device, workload: &Workload) -> Option<f64> {
    Some(entries(size, device, workload)?.first()?.cost.spmv_s)
}

/// The incumbents, then what else may be taken without a look, with estimates at sight.
pub(super) fn entries(
    size: [usize; 3],
    device: &Device,
    workload: &Workload,
) -> Option<Vec<Entry>> {
    let [nrows, ncols, nnz] = size;
    // cuSPARSE is used with 32-bit indices, and not for a matrix of no entries.
    if nnz == 0 || size.iter().any(|&n| i32::try_from(n).is_err()) {
        return None;
    }
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
    let matrix = MatrixTerms { nrows, ncols, nnz, longest, changes: 0, new_share: 1.0 };
    let estimator = Estimator::of(matrix, &target);
    let entry = |candidate: Candidate| {
        let convert_bytes = if is_csr(&candidate) { 0 } else { bytes };
        let cost = estimator.cost(&candidate, &Work { convert_bytes, ..work.clone() });
        Entry { candidate, cost, estimate: None }
    };
    let pcsr = candidates(device.kind).into_iter().filter(|other| other.to_string() == PCSR);
    Some(incumbents(device.kind).chain(pcsr).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{CSR, INCUMBENTS, ValuesUse};
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
        let gpu = [INCUMBENTS[0], CSR, PCSR];
        for (device, expected) in [("h200", &gpu[..]), ("cpu", &[CSR])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let choice = stay(features(), &device, &workload, &Stays::default()).expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!(choice.candidate, choice.ranking[0].candidate);
            assert_eq!(choice.explanation.len(), 1);
            assert!(choice.explanation[0].contains("products: looking"), "{choice:?}");
        }
    }

    #[test]
    fn csr_is_taken_where_it_is_told_to_take_less() {
        let taken = Some((CSR.to_string(), vec!["row_nnz_max < 40".to_string()]));
        let stays = Stays { look: vec!["spmvs < 500".into()], taken };
        for (device, expected) in [("h200", &[CSR, INCUMBENTS[0], PCSR][..]), ("cpu", &[CSR])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let choice = stay(features(), &device, &workload, &stays).expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!((choice.candidate.to_string().as_str(), choice.fingerprint), ("csr", None));
            assert!(choice.explanation[0].starts_with("Stay in CSR (csr) for"), "{choice:?}");
            assert!(choice.explanation[0].contains("where spmvs < 500, looking"), "{choice:?}");
            // A host's incumbent is csr: there is nothing to tell.
            let told = "csr instead of cusparse:alg=csr_alg1: where row_nnz_max < 40, it takes";
            let second = choice.explanation.get(1);
            assert_eq!(second.is_some_and(|text| text.starts_with(told)), expected.len() > 1);
        }
    }

    #[test]
    fn what_is_converted_at_once_counts_its_conversion() {
        let device = crate::device::find("h200").expect("shipped");
        let stays = Stays { look: Vec::new(), taken: Some((PCSR.to_string(), Vec::new())) };
        let choice = stay(features(), &device, &Workload::default(), &stays).expect("entries");
        assert_eq!(ranking(&choice), [PCSR, INCUMBENTS[0], CSR]);
        let convert_s: Vec<f64> = choice.ranking.iter().map(|r| r.convert_s).collect();
        assert!(convert_s[0] > 0.0 && convert_s[1..] == [0.0, 0.0], "{convert_s:?}");
        assert!(choice.explanation[1].starts_with(PCSR), "{choice:?}");
        // Where values change, what they are copied to is not taken.
        let values = ValuesUse::Change(10);
        let workload = Workload { values, ..Workload::default() };
        let choice = stay(features(), &device, &workload, &stays).expect("entries");
        assert_eq!(ranking(&choice), [INCUMBENTS[0], CSR, PCSR]);
        assert_eq!(choice.explanation.len(), 1);
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
