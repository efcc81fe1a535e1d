//! Choosing by a stage of the quick model, for a matrix that a GPU holds.

use super::explain::quick_values;
use super::gate::entries;
use super::rank::{By, Entry, baseline_of, choice_first, ranked};
use super::{Baseline, Choice, Speedup, Workload};
use crate::cost::{Cost, saved_s};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::model::Stage;

/// Ranks the candidates that a stage of the quick model knows by predicted total cost; `None` for
/// sizes that a baseline may refuse.
///
/// `margin` is the larger one of the stage's and the device's. A candidate that refuses the matrix
/// is found only when it is converted.
///
/// No layout is computed, so all entries have the number of bytes of CSR.
pub fn rank_quick(
    stage: Stage,
    features: Features,
    target: &Target<'_>,
    workload: &Workload,
    predicted: &[(&Candidate, Cost)],
    margin: f64,
) -> Option<Choice> {
    let [nrows, ncols, nnz] = ["nrows", "ncols", "nnz"].map(|name| features.get(name));
    let size = [nrows? as usize, ncols? as usize, nnz? as usize];
    // Baselines are always ranked, even if the quick model does not know them.
    let all = entries(size, target, workload.vectors)?;
    let mut all: Vec<Entry> = all.filter(|entry| entry.candidate.is_baseline()).collect();
    let bytes = all.first()?.cost.bytes;
    for &(candidate, cost) in predicted {
        let cost = Cost { bytes, ..cost };
        match all.iter_mut().find(|entry| entry.candidate == *candidate) {
            Some(entry) => entry.cost = Cost { convert_s: 0.0, update_s: 0.0, ..cost },
            None => all.push(Entry { candidate: candidate.clone(), cost, estimate: None }),
        }
    }
    let all = choice_first(all, By::Features, margin, workload);
    let (base, winner) = (baseline_of(&all)?, all.first()?);
    let known = match stage {
        Stage::Size => "from the size of the matrix alone".to_string(),
        Stage::Sampled => {
            format!("from the row lengths and a few entries, read on {}", target.device.name)
        }
        Stage::Counted => format!("from features counted on {}", target.device.name),
    };
    let against = match winner.candidate == base.candidate {
        true => String::new(),
        false => format!(" against {:.2} us with {}", base.cost.spmv_s * 1e6, base.candidate),
    };
    let conversion = match winner.candidate.is_baseline() {
        true => "it needs no conversion".to_string(),
        false => format!("conversion takes {:.0} us", winner.cost.convert_s * 1e6),
    };
    let explanation = format!(
        "Use {} for {} products, chosen {known}: predicted {:.2} us a product{against}; {conversion}. \
         To find out more is expected to cost more than it saves; bytes are those of CSR.",
        winner.candidate,
        workload.spmvs,
        winner.cost.spmv_s * 1e6,
    );
    let choice = Choice {
        candidate: winner.candidate.clone(),
        baseline: Baseline::of(&base.candidate, &base.cost),
        speedup: Speedup::NONE,
        confidence: None,
        model: None,
        ranking: all.iter().map(|entry| ranked(entry, &base.cost, workload)).collect(),
        refused: Vec::new(),
        features,
        device: target.device.name.clone(),
        precision: target.precision,
        spmvs: workload.spmvs,
        vectors: workload.vectors,
        transposed: None,
        fingerprint: None,
        explanation: [Some(explanation), quick_values(&winner.candidate, target)]
            .into_iter()
            .flatten()
            .collect(),
    };
    Some(choice.with_speedup(|_| target.device.margin))
}

/// Returns the costs of candidates that store in fewer bits what candidates of the quick model store as it
/// is, if one of them has the least total of all; none otherwise, and if values are to change and may
/// not be rounded.
///
/// The time of a product beyond its launch is expected to shrink with the bytes that it moves, if columns
/// take 32 bits ([`saved_s`]). The conversion also reads all values once, and waits. Values are searched
/// before the choice, too; unless they may be rounded, f32 often does not hold them, so the saving must
/// be worth several searches.
pub fn narrow_costs(
    features: &Features,
    target: &Target<'_>,
    workload: &Workload,
    predicted: &[(&Candidate, Cost)],
) -> Vec<(Candidate, Cost)> {
    const WAIT_S: f64 = 10e-6;
    const CHANCE: f64 = 5.0;
    let [nrows, ncols, nnz] = ["nrows", "ncols", "nnz"].map(|name| features.get(name));
    let (Some(nrows), Some(ncols), Some(nnz)) = (nrows, ncols, nnz) else { return Vec::new() };
    let Some(stores) = target.narrower() else { return Vec::new() };
    let device = target.device;
    let width = target.precision.bytes() as f64;
    let vectors = (nrows + ncols) * width;
    let bytes = |of_value: f64| nnz * (4.0 + of_value) + vectors;
    // A value takes half of its bytes.
    let share = bytes(width / 2.0) / bytes(width);
    let search_s = WAIT_S + nnz * width / device.read_gbps / 1e9;
    let cost = |&(wide, cost): &(&Candidate, Cost)| {
        let narrow = wide.narrowed(stores)?;
        let changes = workload.values.updates() > 0 && narrow.rounding(target) == 0.0;
        let beyond_s = (cost.spmv_s - device.launch_s).max(0.0);
        let spmv_s = device.launch_s + saved_s(narrow.format, beyond_s, share);
        let own_s = match wide.is_baseline() {
            // Its arrays are there; only the values are converted.
            true => [search_s; 2],
            false => [cost.convert_s, cost.update_s],
        };
        let [convert_s, update_s] = own_s.map(|own_s| own_s + search_s);
        let cost = Cost { spmv_s: spmv_s.min(cost.spmv_s), convert_s, update_s, ..cost };
        (!changes).then_some((narrow, cost))
    };
    let narrow: Vec<(Candidate, Cost)> = predicted.iter().filter_map(cost).collect();
    let least = |costs: &mut dyn Iterator<Item = Cost>| {
        costs.map(|cost| cost.total_s(workload)).fold(f64::INFINITY, f64::min)
    };
    let margin_s = if target.stored.is_exact() { CHANCE * search_s } else { 0.0 };
    let least_narrow_s = least(&mut narrow.iter().map(|(_, cost)| *cost));
    match least_narrow_s + margin_s < least(&mut predicted.iter().map(|(_, cost)| *cost)) {
        true => narrow,
        false => Vec::new(),
    }
}

/// Returns the seconds until a GPU that holds the matrix has read the lengths of `nrows` rows and
/// sampled the columns of a few entries, and the quick model has predicted.
///
/// Measured on an H200 (`tests/results/features.md`): 15 us for the sample, and 10 us for the
/// prediction of 10 candidates, of which there are 12 now.
pub fn feature_sample_s(nrows: u64) -> f64 {
    const ALL_S: f64 = 27e-6;
    const ROW_S: f64 = 2.3e-12;
    ALL_S + ROW_S * nrows as f64
}

/// Returns the seconds until a GPU that holds the matrix has counted the features and the quick
/// model has predicted.
///
/// Measured on an H200 (`tests/results/features.md`): 45 us for the counts of small matrices, and 17 us
/// for the prediction of 16 candidates, of which there are 22 now; counting takes up to 45 us longer if `cv`, the standard deviation
/// of the row lengths over their mean, exceeds 0.5.
pub fn feature_count_s(nnz: u64, cv: f64) -> f64 {
    const ALL_S: f64 = 71e-6;
    const ENTRY_S: f64 = 1.5e-12;
    const UNEVEN_S: f64 = 45e-6;
    ALL_S + ENTRY_S * nnz as f64 + if cv > 0.5 { UNEVEN_S } else { 0.0 }
}

/// Tells whether an analysis by the host may pay in addition to the features that a GPU counts, for
/// a matrix of `nnz` nonzeros whose baseline takes `baseline_spmv_s` seconds a product.
///
/// The pattern is copied to the host, which computes the contents of all layouts. Over the matrices
/// that ship, the time is the median on 16 processors and the saving is the mean.
pub fn analysis_pays(nnz: u64, baseline_spmv_s: f64, spmvs: u64) -> bool {
    const ALL_S: f64 = 4.5e-3;
    const ENTRY_S: f64 = 1e-9;
    const SAVES: f64 = 0.03;
    spmvs as f64 * baseline_spmv_s * SAVES > ALL_S + ENTRY_S * nnz as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Precision;
    use crate::cost::Source;
    use crate::format::{BASELINES, CSR};

    fn predicted(spmv_us: f64, convert_us: f64) -> Cost {
        let [spmv_s, convert_s] = [spmv_us, convert_us].map(|us| us * 1e-6);
        Cost { convert_s, update_s: convert_s, spmv_s, bytes: 0, source: Source::Predicted }
    }

    #[test]
    fn the_least_total_is_chosen_and_csr_is_always_there() {
        let device = crate::device::find("h200").expect("shipped");
        let hll: Candidate = "hll:hack=32,sort=none,tpr=1,col=32".parse().expect("a candidate");
        let csr: Candidate = CSR.parse().expect("a candidate");
        let costs = [(&hll, predicted(4.0, 300.0)), (&csr, predicted(6.0, 500.0))];
        for (spmvs, first) in [(100, CSR), (1000, &hll.to_string())] {
            let workload = Workload { spmvs, ..Workload::default() };
            let features = Features::at_size([30_000, 30_000, 2_000_000]);
            let target = workload.target(&device, Precision::F64);
            let choice = rank_quick(Stage::Counted, features, &target, &workload, &costs, 0.1)
                .expect("entries");
            assert_eq!(choice.candidate.to_string(), first, "{choice:?}");
            assert_eq!((choice.ranking.len(), choice.fingerprint), (3, None));
            assert_eq!(choice.ranking[0].candidate, choice.candidate);
            assert!(choice.ranking.iter().any(|r| r.candidate.to_string() == BASELINES[0]));
            let csr = choice.ranked(&csr).expect("it is there");
            assert_eq!(csr.convert_s, 0.0, "the arrays are there already");
            assert!(choice.explanation[0].contains("chosen from features"), "{choice:?}");
        }
        let ranked = |size, stage, margin| {
            let (features, workload) = (Features::at_size(size), Workload::default());
            let target = workload.target(&device, Precision::F64);
            rank_quick(stage, features, &target, &workload, &costs, margin)
        };
        assert_eq!(ranked([1 << 20, 1 << 20, 1 << 40], Stage::Counted, 0.1), None);
        // cuSPARSE, which the model does not know, has its estimate.
        let size = [30_000, 30_000, 2_000_000];
        for (margin, first) in [(0.1, &hll), (9.0, &BASELINES[0].parse().expect("a candidate"))] {
            let choice = ranked(size, Stage::Size, margin).expect("entries");
            assert_eq!(choice.candidate, *first, "{margin}");
            let text = &choice.explanation[0];
            assert!(text.contains("from the size of the matrix alone"), "{text}");
            assert_eq!(text.contains("needs no conversion"), choice.candidate.is_baseline());
        }
    }

    #[test]
    fn an_analysis_beside_counted_features_is_for_many_products() {
        assert!(
            !analysis_pays(2_000_000, 12e-6, 10_000) && analysis_pays(2_000_000, 12e-6, 100_000)
        );
        assert!(
            !analysis_pays(30_000_000, 100e-6, 1000) && analysis_pays(30_000_000, 100e-6, 20_000)
        );
        assert!(feature_count_s(1000, 2.0) > feature_count_s(1000, 0.1));
    }
}
