//! Choosing without an analysis. For few products, features and estimates take longer than another
//! format would save; the choice is then a baseline, or a candidate whose conversion takes about as
//! long as one product.

use super::rank::{Entry, baseline_of, ranked};
use super::{Baseline, Choice, Speedup, Workload};
use crate::cost::{Estimator, MatrixTerms};
use crate::features::Features;
use crate::format::{Candidate, Offsets, Target, Work, baselines, immediate};
use crate::model::GateReason;

/// Chooses the baseline, or the candidate that `reason` picks, and ranks behind it the other
/// candidates that need no analysis; `None` for sizes that a baseline may refuse.
///
/// Their times are estimates for a matrix of this size with equally long rows and adjacent columns.
///
/// Does not read the matrix; `features` are the known features, at least those of the size.
pub fn keep_baseline(
    features: Features,
    target: &Target<'_>,
    workload: &Workload,
    reason: &GateReason,
) -> Option<Choice> {
    let [nrows, ncols, nnz] = ["nrows", "ncols", "nnz"].map(|name| features.get(name));
    let size = [nrows? as usize, ncols? as usize, nnz? as usize];
    let mut entries: Vec<Entry> = entries(size, target, workload.vectors)?.collect();
    let (base, baseline) = {
        let entry = baseline_of(&entries)?;
        (entry.cost, Baseline::of(&entry.candidate, &entry.cost))
    };
    let first = entries.first()?.candidate.clone();
    let pick: Option<Candidate> = reason.pick.as_ref().and_then(|(name, _)| name.parse().ok());
    let place = entries.iter().position(|entry| Some(&entry.candidate) == pick.as_ref());
    // The rules were learned for one conversion and no updates of values.
    let fixed = workload.values.updates() == 0;
    if let Some(place) = place.filter(|&at| fixed || entries[at].candidate.is_baseline()) {
        entries[..=place].rotate_right(1);
    }
    let choice = entries.first()?.candidate.clone();
    let products = workload.spmvs;
    let taken = match choice.is_baseline() {
        true => "Keep CSR",
        false => "Use a format that converts in about one product",
    };
    let mut explanation = vec![format!(
        "{taken} ({choice}) for {products} products: {}an analysis of the matrix is expected to take \
         longer on {} than another format saves. The matrix was not analysed; effort measure times \
         other formats.",
        lead("because", &reason.gate),
        target.device.name
    )];
    if let Some((_, met)) = reason.pick.as_ref().filter(|_| choice != first) {
        explanation.push(format!(
            "{choice} instead of {first}: {}the model expects it to be faster; neither was timed on \
             this matrix.",
            lead("because", met)
        ));
    }
    let choice = Choice {
        ranking: entries.iter().map(|entry| ranked(entry, &base, workload)).collect(),
        candidate: choice,
        baseline,
        speedup: Speedup::NONE,
        confidence: None,
        model: None,
        refused: Vec::new(),
        features,
        device: target.device.name.clone(),
        precision: target.precision,
        spmvs: products,
        vectors: workload.vectors,
        transposed: None,
        fingerprint: None,
        explanation,
    };
    Some(choice.with_speedup(|_| target.device.margin))
}

/// Returns the comparisons after this word, with a comma; empty if there are none.
fn lead(word: &str, met: &[String]) -> String {
    match met {
        [] => String::new(),
        met => format!("{word} {}, ", met.join(" and ")),
    }
}

/// Returns the seconds of reading the lengths of `nrows` rows and computing their statistics, from
/// the benchmark `row_lengths` on one core of a virtual Intel Xeon.
pub fn row_scan_s(nrows: u64) -> f64 {
    const ALL_S: f64 = 1.3e-6;
    const ROW_S: f64 = 0.7e-9;
    ALL_S + ROW_S * nrows as f64
}

/// Seconds of [`Analysis::x_sectors_at_sight`](crate::analysis::Analysis::x_sectors_at_sight) if
/// no cache holds the matrix, from the benchmark `x_sectors_at_sight` on one core of a virtual
/// Intel Xeon.
pub const SAMPLE_S: f64 = 35e-6;

/// As [`baseline_product_s`], for products of one vector.
pub fn baseline_spmv_s(size: [usize; 3], target: &Target<'_>) -> Option<f64> {
    baseline_product_s(size, target, 1)
}

/// Estimates the seconds of one product of `vectors` vectors with the baseline, for a matrix with this
/// many rows, columns and nonzeros, equally long rows and adjacent columns; `None` for sizes that a
/// baseline may refuse.
pub fn baseline_product_s(size: [usize; 3], target: &Target<'_>, vectors: usize) -> Option<f64> {
    Some(entries(size, target, vectors)?.next()?.cost.spmv_s)
}

/// Returns the baselines, then the other candidates that need no analysis, with estimates from the
/// size.
pub(super) fn entries(
    size: [usize; 3],
    target: &Target<'_>,
    vectors: usize,
) -> Option<impl Iterator<Item = Entry>> {
    let [nrows, ncols, nnz] = size;
    // cuSPARSE is used with 32-bit indices, and not for a matrix without entries.
    if nnz == 0 || size.iter().any(|&n| i32::try_from(n).is_err()) {
        return None;
    }
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
    let estimator = Estimator::of(matrix, target).with_vectors(vectors);
    let entry = move |candidate: Candidate| {
        let convert_bytes = if candidate.is_baseline() { 0 } else { bytes };
        let cost = estimator.cost(&candidate, &Work { convert_bytes, ..work.clone() });
        Entry { candidate, cost, estimate: None }
    };
    let kind = target.device.kind;
    Some(baselines(kind).into_iter().chain(immediate(kind)).map(entry))
}

#[cfg(test)]
mod tests {
    use super::super::ValuesUse;
    use super::*;
    use crate::analysis::Analysis;
    use crate::csr::Csr;
    use crate::format::{BASELINES, CSR, PCSR};
    use crate::generate;
    use crate::scalar::Precision;

    fn features() -> Features {
        let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
        Features::of_size(&Analysis::of(&csr))
    }

    fn ranking(choice: &Choice) -> Vec<String> {
        choice.ranking.iter().map(|ranked| ranked.candidate.to_string()).collect()
    }

    #[test]
    fn where_the_library_is_missing_there_is_csr() {
        let gpu = [BASELINES[0], CSR, PCSR];
        for (device, expected) in [("h200", &gpu[..]), ("cpu", &[CSR])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let target = workload.target(&device, Precision::F64);
            let choice = keep_baseline(features(), &target, &workload, &GateReason::default())
                .expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!(choice.candidate, choice.ranking[0].candidate);
            assert_eq!(choice.explanation.len(), 1);
            assert!(choice.explanation[0].contains("products: an analysis"), "{choice:?}");
        }
    }

    #[test]
    fn csr_is_chosen_where_rules_pick_it() {
        let pick = Some((CSR.to_string(), vec!["row_nnz_max < 40".to_string()]));
        let reason = GateReason { gate: vec!["spmvs < 500".into()], pick };
        for (device, expected) in [("h200", &[CSR, BASELINES[0], PCSR][..]), ("cpu", &[CSR])] {
            let device = crate::device::find(device).expect("shipped");
            let workload = Workload::default();
            let target = workload.target(&device, Precision::F64);
            let choice = keep_baseline(features(), &target, &workload, &reason).expect("entries");
            assert_eq!(ranking(&choice), expected);
            assert_eq!((choice.candidate.to_string().as_str(), choice.fingerprint), ("csr", None));
            assert!(choice.explanation[0].starts_with("Keep CSR (csr) for"), "{choice:?}");
            assert!(
                choice.explanation[0].contains("because spmvs < 500, an analysis"),
                "{choice:?}"
            );
            // On a host the baseline is csr itself, so there is no second sentence.
            let stated =
                "csr instead of cusparse:alg=csr_alg1: because row_nnz_max < 40, the model";
            let second = choice.explanation.get(1);
            assert_eq!(second.is_some_and(|text| text.starts_with(stated)), expected.len() > 1);
        }
    }

    #[test]
    fn what_is_converted_at_once_counts_its_conversion() {
        let device = crate::device::find("h200").expect("shipped");
        let pick = Some((PCSR.to_string(), Vec::new()));
        let reason = GateReason { gate: Vec::new(), pick };
        let target = Workload::default().target(&device, Precision::F64);
        let choice =
            keep_baseline(features(), &target, &Workload::default(), &reason).expect("entries");
        assert_eq!(ranking(&choice), [PCSR, BASELINES[0], CSR]);
        let convert_s: Vec<f64> = choice.ranking.iter().map(|r| r.convert_s).collect();
        assert!(convert_s[0] > 0.0 && convert_s[1..] == [0.0, 0.0], "{convert_s:?}");
        assert!(choice.explanation[1].starts_with(PCSR), "{choice:?}");
        // If values change, a candidate that copies them is not chosen.
        let values = ValuesUse::Change(10);
        let workload = Workload { values, ..Workload::default() };
        let choice = keep_baseline(features(), &target, &workload, &reason).expect("entries");
        assert_eq!(ranking(&choice), [BASELINES[0], CSR, PCSR]);
        assert_eq!(choice.explanation.len(), 1);
    }

    #[test]
    fn a_product_is_estimated_of_the_size_alone() {
        let device = crate::device::find("h200").expect("shipped");
        let target = Workload::default().target(&device, Precision::F64);
        let seconds = |size| baseline_spmv_s(size, &target);
        let small = seconds([500, 500, 2500]).expect("an estimate");
        let large = seconds([1_000_000, 1_000_000, 20_000_000]).expect("an estimate");
        assert!(small > 1e-6 && large > 10.0 * small, "{small} {large}");
        assert_eq!((seconds([3, 3, 0]), seconds([3, 3, usize::MAX])), (None, None));
        // One pass over the rows takes less time than a product for small matrices, and more for
        // large ones.
        assert!(row_scan_s(500) < small && row_scan_s(1_000_000) > large, "{small} {large}");
    }
}
