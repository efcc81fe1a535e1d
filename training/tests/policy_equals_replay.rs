//! One policy drives both the replay in training and the tuner: they decide alike on the same
//! matrix.

use std::collections::{BTreeMap, BTreeSet};

use ellect::analysis::Analysis;
use ellect::choose::{Choice, Trials, Workload};
use ellect::device::Device;
use ellect::features::Features;
use ellect::format::Candidate;
use ellect::model::Predictor;
use ellect::unstable::choose::Place;
use ellect::unstable::choose::baseline_product_s;
use ellect::unstable::cost::{Estimator, relate, terms, works};
use ellect::unstable::model::Stage;
use ellect::{Csr, Precision, Tuner, generate};
use ellect_training::Case;
use ellect_training::case::Trial;
use ellect_training::crossval::predict;
use ellect_training::policy_replay::{Asked, QuickAsked, Replayed, StageCosts, Way, replay};
use ellect_training::trees::Trees;

/// Small matrices, whose recorded features equal those that the gates see.
const SOURCES: [&str; 6] = ["stencil5", "uniform", "banded", "power_law", "blocks4", "circuit"];

/// Numbers of products, from those for which nothing pays to those for which an analysis pays.
const SPMVS: [u64; 6] = [1, 100, 1000, 10_000, 100_000, 1_000_000];

/// Returns a case in which the measured time of every candidate equals its estimate.
fn case(csr: &Csr<f64>, device: &Device) -> Case {
    let analysis = Analysis::sampled(csr);
    let target = Workload::default().target(device, Precision::F64);
    let estimator = Estimator::new(&analysis, &target);
    let trial = |(candidate, work): &(Candidate, Result<_, _>)| {
        let work = work.as_ref().ok()?;
        let estimate = estimator.cost(candidate, work);
        Some(Trial {
            candidate: candidate.clone(),
            name: candidate.to_string(),
            terms: terms(work, &estimator.times(candidate, work), &estimator.matrix_terms()),
            estimate,
            convert_s: if work.convert_bytes == 0 { 0.0 } else { estimate.convert_s },
            spmv_s: estimate.spmv_s,
            conversion_is_known: false,
            runs_s: Vec::new(),
        })
    };
    // Records hold no variant of csr that a model has not seen.
    let works = works(&analysis, &target);
    let is_new = |candidate: &Candidate| candidate.format.name == "csr" && !candidate.is_csr();
    let known = works.iter().filter(|(candidate, _)| !is_new(candidate));
    let mut trials: Vec<Trial> = known.filter_map(trial).collect();
    relate(trials.iter_mut().map(|trial| (&trial.candidate, &mut trial.terms)));
    let size = [csr.nrows(), csr.ncols(), csr.nnz()];
    let features = Features::of(&analysis);
    Case {
        vectors: 1,
        source: String::new(),
        family: String::new(),
        fingerprint: analysis.fingerprint(),
        device: device.name.clone(),
        kind: device.kind,
        margin: device.margin,
        precision: Precision::F64,
        nrows: csr.nrows() as u64,
        nnz: csr.nnz() as u64,
        baseline_estimate_s: baseline_product_s(size, &target, 1).unwrap_or(0.0),
        analysis_s: 1e-3,
        features: features.iter().map(|(f, value)| (f.name.to_string(), value)).collect(),
        trials,
        untimed: BTreeMap::new(),
    }
}

/// Returns the way in which a choice was reached.
fn way(choice: &Choice, place: Place) -> Way {
    let of_sample = Features::sampled(&Analysis::of(
        &Csr::from_triplets(1, 1, [(0, 0, 1.0)]).expect("one entry"),
    ));
    let [size, sampled] =
        [Features::at_size([1; 3]), of_sample].map(|features| features.iter().count());
    match (choice.fingerprint, choice.features.iter().count()) {
        (Some(_), _) => Way::Analysed,
        (None, _) if place == Place::Host => Way::Kept,
        (None, known) if known == size => Way::Quick(Stage::Size),
        (None, known) if known == sampled => Way::Quick(Stage::Sampled),
        (None, _) => Way::Quick(Stage::Counted),
    }
}

/// Returns the ways in which both the replay and the tuner reached the same choice on this device.
fn ways(device_name: &str, place: Place) -> BTreeSet<String> {
    let devices = Device::shipped();
    let device = devices.into_iter().find(|d| d.name == device_name).expect("shipped");
    let data = tempfile::tempdir().expect("a folder");
    let open = || Predictor::open(data.path(), &device, Precision::F64).expect("it is sound");
    let predictor = open().expect("it ships");
    let tuner = Tuner::without_models(device.clone()).host_emulation();
    let tuner = tuner.with_model(open().expect("it ships"));
    let model = predictor.model();
    let trees = Trees { gate_rules: model.gate.clone(), quick_picks: model.quick_picks.clone() };
    let mut ways = BTreeSet::new();
    for source in SOURCES {
        let csr: Csr<f64> = generate::by_name(source, 500, 1).expect("a class");
        // F32 holds no value, because cases do not tell whether it does.
        let csr = csr.map_values(|value| value * (1.0 + 1e-12));
        let case = case(&csr, &device);
        let predicted = predict(&predictor, &case);
        let analysis = Analysis::sampled(&csr);
        let few_values = analysis.few_values().is_some();
        let size = Features::of_size(&analysis);
        let features = [size, Features::sampled(&analysis), Features::of(&analysis)];
        let costs = |(stage, features): (Stage, Features)| -> StageCosts {
            let values = model.features_of(&features);
            let costs = predictor.quick_costs(stage, &values, case.baseline_estimate_s).into_iter();
            let costs = costs.filter(|(candidate, _)| few_values || !candidate.format.by_values);
            costs.map(|(candidate, cost)| (candidate.clone(), cost)).collect()
        };
        let costs: BTreeMap<Stage, StageCosts> =
            Stage::ALL.into_iter().zip(features).map(|of| (of.0, costs(of))).collect();
        let costs: Vec<StageCosts> = model
            .quick
            .iter()
            .flat_map(|quick| &quick.stages)
            .map(|stage| costs[&stage.stage].clone())
            .collect();
        let quick = model.quick.as_ref().map(|model| QuickAsked { model, costs: &costs });
        let asked = Asked { trees: &trees, quick, predicted: Some(&predicted) };
        for spmvs in SPMVS {
            // A trial on a host may choose otherwise.
            let trials = Trials::Never;
            let workload = Workload { spmvs, trials, ..Workload::default() };
            let choice = tuner.decide(&csr, &workload).expect("a choice");
            let what = format!("{source} on {device_name} for {spmvs}: {choice:?}");
            let replayed =
                replay(&case, place, spmvs, trials, &asked).expect("the baseline was timed");
            let Replayed { way: replayed_way, candidate, total_s, spent_s: _ } = replayed;
            assert_eq!(replayed_way, way(&choice, place), "{what}");
            let base = ellect::format::baselines(device.kind)[0].to_string();
            assert_eq!(candidate.unwrap_or(base), choice.candidate.to_string(), "{what}");
            assert!(total_s > 0.0, "{what}");
            // The tuner prepares the candidate that it decides on.
            let operator = tuner.prepare(&csr, &workload).expect("CSR suits");
            assert_eq!(operator.choice(), Some(&choice), "{what}");
            ways.insert(format!("{replayed_way:?}"));
        }
    }
    ways
}

#[test]
fn the_tuner_and_the_replay_decide_alike_on_a_host() {
    assert_eq!(ways("cpu", Place::Host), ["Analysed", "Kept"].map(String::from).into());
}

#[test]
fn the_tuner_and_the_replay_decide_alike_for_a_gpu_whose_features_the_host_finds() {
    let all = ["Analysed", "Quick(Counted)", "Quick(Sampled)", "Quick(Size)"];
    let all = all.map(String::from).into();
    assert_eq!(ways("h200", Place::HostAndGpu), all);
}
