//! Choices: the chosen candidate and its explanation.

mod corpus;

use ellect::analysis::Analysis;
use ellect::choose::{Choice, Effort, Ranked, ValuesUse, Workload};
use ellect::cost::{Cost, Source};
use ellect::device::Device;
use ellect::format::{Basis, Candidate, Refusal};
use ellect::generate::{Coefficients, Points};
use ellect::measure::Protocol;
use ellect::model::Predictor;
use ellect::unstable::choose::{self, Thought};
use ellect::unstable::cost::Known;
use ellect::{Csr, Precision, Tuner, generate};

fn device(name: &str) -> Device {
    Device::shipped().into_iter().find(|device| device.name == name).expect("shipped")
}

fn choice(csr: &Csr<f64>, device_name: &str, workload: &Workload, known: &[Known]) -> Choice {
    let analysis = Analysis::new(csr.pattern());
    let device = device(device_name);
    choose::choose(&analysis, &workload.target(&device, Precision::F64), workload, known)
}

fn matrix(class: &str, rows: usize) -> Csr<f64> {
    generate::by_name(class, rows, 1).expect("a class")
}

fn measured(candidate: &str, convert_s: f64, spmv_s: f64) -> Known {
    let cost = Cost { convert_s, update_s: 0.0, spmv_s, bytes: 1000, source: Source::Measured };
    Known { candidate: candidate.parse().expect("a candidate"), cost: Ok(cost) }
}

#[test]
fn predictions_are_scaled_by_what_was_measured() {
    let csr = matrix("elasticity", 5000);
    let workload = Workload { spmvs: 100_000, ..Workload::default() };
    let hll = "hll:hack=32,sort=none,tpr=1,col=32";
    let predicted = |candidate: &str, spmv_s: f64| {
        let Known { candidate, cost } = measured(candidate, 1e-4, spmv_s);
        let cost = cost.map(|cost| Cost { source: Source::Predicted, ..cost });
        Known { candidate, cost }
    };
    let spmv_us = |choice: &Choice, candidate: &str| {
        let candidate = candidate.parse().expect("a candidate");
        1e6 * choice.ranked(&candidate).expect("it applies").spmv_s
    };
    // Products take twice as long as predicted here.
    let (twice, ell) = ([("csr", 20e-6), ("ellr", 30e-6)], ("ell", 9e-6));
    let mut known: Vec<Known> = twice.iter().map(|(name, s)| measured(name, 0.0, *s)).collect();
    known.extend(twice.iter().map(|(name, s)| predicted(name, s / 2.0)));
    known.extend([predicted(hll, 8e-6), predicted(ell.0, ell.1)]);
    let found = choice(&csr, "cpu", &workload, &known);
    assert!((spmv_us(&found, hll) - 16.0).abs() < 1e-6, "{}", spmv_us(&found, hll));
    assert!((spmv_us(&found, ell.0) - 18.0).abs() < 1e-6, "{}", spmv_us(&found, ell.0));
    // An untimed candidate seems better; the explanation says why it is not taken.
    assert_eq!(found.candidate.to_string(), "csr");
    let stated = |sentence: &String| sentence.contains("but it was not timed");
    assert!(found.explanation.iter().any(stated), "{:?}", found.explanation);
    // The error of a candidate of the same format counts more.
    let other = "hll:hack=32,sort=512,tpr=1,col=32";
    let four_times = [measured(other, 0.0, 40e-6), predicted(other, 10e-6)];
    let found = choice(&csr, "cpu", &workload, &[&four_times[..], &known].concat());
    assert!(spmv_us(&found, hll) / 8.0 > spmv_us(&found, ell.0) / 9.0 + 0.1);
}

#[test]
fn every_matrix_gets_a_choice_with_csr_in_it() {
    for (name, csr) in corpus::small() {
        for device in ["h200", "cpu"] {
            for basis in [Basis::Original, Basis::Permuted] {
                let workload = Workload { basis, ..Workload::default() };
                let choice = choice(&csr, device, &workload, &[]);
                assert_eq!(choice.ranking[0].candidate, choice.candidate, "{name}");
                assert!(choice.ranking.iter().any(|r| r.candidate.to_string() == "csr"), "{name}");
                for sentence in &choice.explanation {
                    assert!(sentence.ends_with('.'), "{name}: {sentence}");
                    assert!(!sentence.contains("NaN") && !sentence.contains("inf "), "{sentence}");
                }
                let rest = &choice.ranking[1..];
                assert!(rest.is_sorted_by(|a, b| a.total_s <= b.total_s), "{name}");
            }
        }
    }
}

#[test]
fn what_suits_by_values_is_refused_where_they_are_to_change() {
    let csr = matrix("constant27", 60_000);
    let (analysis, h200) = (Analysis::of(&csr), device("h200"));
    let choose = |values: ValuesUse| {
        let workload = Workload { spmvs: 1_000_000, values, ..Workload::default() };
        let target = workload.target(&h200, Precision::F64);
        choose::choose(&analysis, &target, &workload, &[])
    };
    let (stay, change) = (choose(ValuesUse::Fixed), choose(ValuesUse::Change(3)));
    assert!(stay.candidate.format.by_values, "{}", stay.candidate);
    assert!(!change.ranking.iter().any(|ranked| ranked.candidate.format.by_values));
    let refused = change.refused.iter().find(|refused| refused.candidate == stay.candidate);
    let reason = refused.expect("it was the best").reason.to_string();
    assert!(reason.starts_with("values are to change"), "{reason}");
}

#[test]
fn without_products_csr_is_kept() {
    let workload = Workload { spmvs: 0, ..Workload::default() };
    for device in ["h200", "cpu"] {
        let choice = choice(&matrix("stencil7", 20_000), device, &workload, &[]);
        assert_eq!(choice.candidate.to_string(), "csr");
        assert_eq!(choice.ranking[0].convert_s, 0.0);
    }
}

#[test]
fn a_measured_candidate_wins_over_estimates_and_pays_from_its_own_times() {
    let csr = matrix("stencil7", 20_000);
    // The measured CSR operator copied its arrays; keeping CSR must not be charged for that.
    let known = [measured("csr", 1e-3, 100e-6), measured("hdia:hack=32", 1e-3, 50e-6)];
    let choice = choice(&csr, "cpu", &Workload::default(), &known);
    assert_eq!(choice.candidate.to_string(), "hdia:hack=32");
    let place = |text: &str| {
        let candidate: Candidate = text.parse().expect("a candidate");
        choice.ranked(&candidate).expect("ranked").clone()
    };
    assert_eq!((place("csr").convert_s, place("csr").break_even_spmvs), (0.0, Some(0)));
    assert_eq!(place("hdia:hack=32").break_even_spmvs, Some(20));
    assert_eq!(
        choice.explanation[0],
        "Use hdia:hack=32: 50.0 us a product against 100 us with csr (2.00x); conversion takes 1.00 ms, \
         and pays from product 20; 1000 products take 51.0 ms in total against 100 ms."
    );
}

#[test]
fn near_ties_go_to_the_cheaper_conversion_then_to_the_smaller_memory() {
    const HLL: &str = "hll:hack=32,sort=none,tpr=1,col=32";
    let csr = matrix("stencil7", 20_000);
    let take = |candidates: [(&str, f64, f64, u64); 2]| {
        let known = candidates.map(|(name, convert_s, spmv_s, bytes)| {
            let known = measured(name, convert_s, spmv_s);
            Known { cost: known.cost.map(|cost| Cost { bytes, ..cost }), ..known }
        });
        let known = [&known[..], &[measured("csr", 0.0, 100e-6)]].concat();
        choice(&csr, "cpu", &Workload::default(), &known).candidate.to_string()
    };
    // 51.0 ms and 51.5 ms for all products: within 2 %.
    assert_eq!(take([(HLL, 1e-3, 50e-6, 10), ("ell", 5e-4, 51e-6, 99)]), "ell");
    assert_eq!(take([(HLL, 1e-3, 50e-6, 99), ("ell", 1e-3, 50.5e-6, 10)]), "ell");
    assert_eq!(take([(HLL, 1e-3, 50e-6, 10), ("ell", 1e-3, 50.5e-6, 99)]), HLL);
    // 53.5 ms exceed the tie margin.
    assert_eq!(take([(HLL, 1e-3, 50e-6, 99), ("ell", 5e-4, 53e-6, 10)]), HLL);
}

#[test]
fn an_estimate_puts_no_variant_of_csr_before_csr() {
    for class in ["stencil27", "circuit", "rmat", "elasticity", "links"] {
        let csr = matrix(class, 4000);
        let slow = [&[][..], &[Known { cost: predicted(1.0), ..measured("csr", 0.0, 1.0) }]];
        for known in slow {
            let choice = choice(&csr, "h200", &Workload::default(), known);
            let place = |text: &str| {
                let candidate: Candidate = text.parse().expect("a candidate");
                choice.ranked(&candidate).expect("every matrix").clone()
            };
            let least_s = place("csr").spmv_s;
            for kernel in ["scalar", "vector", "adaptive"] {
                let variant = place(&format!("csr:kernel={kernel}"));
                assert!(variant.spmv_s >= least_s, "{class}: {variant:?}");
            }
        }
        let timed = measured("csr:kernel=vector", 0.0, 1e-9);
        let choice = choice(&csr, "h200", &Workload::default(), &[timed]);
        assert_eq!(choice.candidate.to_string(), "csr:kernel=vector");
    }
}

/// True if the model predicted this candidate, or never saw its variant of CSR.
fn is_predicted(ranked: &Ranked) -> bool {
    ranked.source == Source::Predicted || ranked.candidate.is_csr_variant()
}

fn predicted(spmv_s: f64) -> Result<Cost, Refusal> {
    let source = Source::Predicted;
    Ok(Cost { convert_s: 0.0, update_s: 0.0, spmv_s, bytes: 1000, source })
}

#[test]
fn where_cusparse_is_missing_what_was_timed_beside_csr_counts() {
    const HLL: &str = "hll:hack=32,sort=none,tpr=1,col=32";
    let csr = matrix("stencil7", 20_000);
    let missing = Known {
        candidate: "cusparse:alg=csr_alg1".parse().expect("a candidate"),
        cost: Err(Refusal::new("cuSPARSE is not on this machine")),
    };
    let known = [missing, measured("csr", 0.0, 20e-6), measured(HLL, 1e-3, 15e-6)];
    let choice = choice(&csr, "h200", &Workload::default(), &known);
    assert_eq!(
        (choice.candidate.to_string(), choice.ranking[0].source),
        (HLL.into(), Source::Measured)
    );
    let named = |name: &str| choice.ranking.iter().any(|r| r.candidate.to_string() == name);
    assert!(named("csr") && !named("cusparse:alg=csr_alg1"));
}

#[test]
fn what_was_measured_over_the_memory_limit_is_refused() {
    let csr = matrix("stencil7", 20_000);
    let workload = Workload { memory_limit: Some(3_000_000), ..Workload::default() };
    let mut large = measured("ell", 0.0, 1e-6);
    large.cost = large.cost.map(|cost| Cost { bytes: 3_000_001, ..cost });
    let of_csr = measured("csr", 0.0, 100e-6);
    let of_csr = Known { cost: of_csr.cost.map(|cost| Cost { bytes: u64::MAX, ..cost }), ..of_csr };
    let choice = choice(&csr, "cpu", &workload, &[large, of_csr]);
    let refused = choice.refused.iter().find(|refused| refused.candidate.to_string() == "ell");
    let reason = refused.expect("it is too large").reason.to_string();
    assert_eq!(reason, "the layout takes 3000001 bytes; 3000000 are allowed");
    assert!(choice.ranking.iter().any(|ranked| ranked.candidate.to_string() == "csr"));
}

#[test]
fn what_was_not_timed_must_beat_csr_by_the_margin_of_the_device() {
    let csr = matrix("stencil7", 20_000);
    let analysis = Analysis::new(csr.pattern());
    let predicted = |candidate: &str, spmv_s: f64| {
        let known = measured(candidate, 0.0, spmv_s);
        let cost = known.cost.map(|cost| Cost { source: Source::Predicted, ..cost });
        Known { cost, ..known }
    };
    let take = |margin: f64, known: &[Known]| {
        let device = Device { margin, ..device("cpu") };
        let workload = Workload::default();
        let target = workload.target(&device, Precision::F64);
        let choice = choose::choose(&analysis, &target, &workload, known);
        (choice.candidate.to_string(), choice.explanation[0].clone())
    };
    // All other candidates are too slow to matter.
    let device = device("cpu");
    let workload = Workload::default();
    let target = workload.target(&device, Precision::F64);
    let all = choose::choose(&analysis, &target, &workload, &[]).ranking;
    let slow = all.iter().map(|ranked| predicted(&ranked.candidate.to_string(), 1.0));
    let mut known: Vec<Known> = slow.collect();
    let mut set = |known_now: Known| {
        known.retain(|known| known.candidate != known_now.candidate);
        known.push(known_now);
    };
    set(predicted("csr", 100e-6));
    set(predicted("ell", 75e-6));
    let taken = |margin| take(margin, &known);
    assert_eq!(taken(0.0).0, "ell");
    assert_eq!(taken(0.3).0, "ell");
    let (stays, stated) = taken(0.5);
    assert_eq!(stays, "csr");
    assert_eq!(
        stated,
        "Keep CSR (csr): ell is expected to take 75.0 ms in total against 100 ms, but it was not timed, \
         and a prediction may be off by up to 50 % on cpu. Effort measure times it."
    );
    // Measured times need no margin.
    let timed = [measured("csr", 0.0, 100e-6), measured("ell", 0.0, 95e-6)];
    assert_eq!(take(0.5, &timed).0, "ell");
}

#[test]
fn keeping_csr_is_explained_with_the_times_of_the_fastest_kernel() {
    let csr = matrix("stencil7", 20_000);
    let known = [measured("cusparse:alg=csr_alg1", 1e-3, 10e-6), measured("csr", 0.0, 20e-6)];
    let workload = Workload { spmvs: 10, memory_limit: Some(1000), ..Workload::default() };
    let choice = choice(&csr, "h200", &workload, &known);
    assert_eq!(
        choice.explanation[0],
        "Keep CSR (csr) for 10 products: cusparse:alg=csr_alg1 takes 10.0 us a product against 20.0 us, \
         but its conversion takes 1.00 ms and pays only from product 100."
    );
    assert!(choice.explanation.iter().any(|s| s.contains("memory limit of 1.00 kB excludes")));
}

#[test]
fn what_an_estimate_may_not_try_is_ranked_once_it_was_measured() {
    let csr = matrix("stencil5", 30_000);
    let effort = Effort::Estimate;
    let workload = Workload { spmvs: 1_000_000, effort, ..Workload::default() };
    let metis = "ehyb:part=metis,share=2";
    let estimated = choice(&csr, "h200", &workload, &[]);
    let refused = |choice: &Choice| {
        let refused = choice.refused.iter().find(|r| r.candidate.to_string() == metis);
        refused.map(|refused| refused.reason.clone())
    };
    assert!(refused(&estimated).is_some_and(|reason| reason.is_untried()));
    let known = [measured("cusparse:alg=csr_alg1", 0.0, 1e-4), measured(metis, 1.0, 1e-5)];
    let found = choice(&csr, "h200", &workload, &known);
    assert_eq!(found.candidate.to_string(), metis);
    assert_eq!((found.ranking[0].source, refused(&found)), (Source::Measured, None));
    // A memory limit still refuses a layout that exceeds it.
    let limited = Workload { memory_limit: Some(1), ..workload };
    assert!(refused(&choice(&csr, "h200", &limited, &known)).is_some());
}

#[test]
fn exhaustive_effort_times_what_an_estimate_may_not_try() {
    let csr = generate::stencil(Points::Five, Coefficients::Constant, 150, 0);
    let quick = Protocol {
        min_sample_s: 1e-6,
        min_samples: 1,
        max_samples: 1,
        max_copies: 1,
        ..Protocol::default()
    };
    let tuner = Tuner::without_models(device("cpu")).with_protocol(quick);
    let effort = Effort::Exhaustive;
    let workload = Workload { effort, basis: Basis::Permuted, ..Workload::default() };
    let found = tuner.recommend(&csr, &workload).expect("a host");
    assert!(
        found.refused.iter().all(|refused| !refused.reason.is_untried()),
        "{:?}",
        found.refused
    );
    let reordered = found.ranking.iter().find(|r| r.candidate.to_string().contains("sort=rcm"));
    assert_eq!(reordered.expect("it suits").source, Source::Measured);
}

/// Returns a tuner with the shipped models of this device.
fn predicting(name: &str) -> Tuner {
    let data = tempfile::tempdir().expect("a folder");
    let model = Predictor::open(data.path(), &device(name), Precision::F64).expect("it is sound");
    let tuner = Tuner::without_models(device(name)).host_emulation();
    tuner.with_model(model.expect("it ships"))
}

#[test]
fn a_gpu_without_a_model_is_predicted_by_that_of_its_kin() {
    let csr = matrix("stencil7", 20_000);
    let data = tempfile::tempdir().expect("a folder");
    let other = |capability: &str| {
        let (name, capability) = ("h100".to_string(), Some(capability.to_string()));
        let own = Device { name, capability, read_gbps: 3000.0, margin: 0.1, ..device("h200") };
        let tuner = Tuner::without_models(own).with_models(data.path()).expect("it is sound");
        tuner.recommend(&csr, &Workload::default()).expect("a choice")
    };
    let proxy = other("9.0");
    assert!(proxy.ranking.iter().all(is_predicted));
    let stated =
        |choice: &Choice| choice.explanation.iter().any(|s| s.contains("No model of h100"));
    assert!(stated(&proxy), "{:?}", proxy.explanation);
    let stranger = other("8.0");
    assert!(stranger.ranking.iter().all(|ranked| ranked.source == Source::Estimated));
    assert!(!stated(&stranger), "{:?}", stranger.explanation);
}

#[test]
fn who_asks_has_all_candidates_ranked_by_the_model_for_few_products_too() {
    let csr = matrix("stencil7", 20_000);
    let tuner = predicting("h200");
    for spmvs in [1, 10, 1000] {
        let workload = Workload { spmvs, ..Workload::default() };
        let all = choice(&csr, "h200", &workload, &[]).ranking.len();
        let asked = tuner.recommend(&csr, &workload).expect("a prediction");
        assert_eq!(asked.ranking.len(), all);
        assert!(asked.ranking.iter().all(is_predicted));
        assert!(asked.fingerprint.is_some() && asked.explanation.len() > 2, "{asked:?}");
        let stated = "Times on h200 are predictions of a trained model, or estimates for formats it does not \
                    know.";
        assert!(asked.explanation.iter().any(|sentence| sentence == stated), "{asked:?}");
    }
    // In `prepare`, reading the matrix would take longer than the products: the size decides.
    let few = Workload { spmvs: 10, ..Workload::default() };
    let operator = tuner.prepare(&csr, &few).expect("CSR suits");
    let of_size = operator.choice().expect("a choice was made");
    assert!(
        of_size.fingerprint.is_none() && of_size.explanation[0].contains("size"),
        "{of_size:?}"
    );
    assert!((2..10).contains(&of_size.ranking.len()), "{of_size:?}");
    assert!(of_size.ranking.iter().all(is_predicted) && of_size.candidate.is_csr(), "{of_size:?}");
}

#[test]
fn without_a_model_predictions_are_estimates_and_said_to_be() {
    let csr = matrix("stencil7", 5000);
    let tuner = Tuner::without_models(device("h200"));
    let asked = tuner.recommend(&csr, &Workload::default()).expect("an estimate");
    assert!(asked.ranking.iter().all(|ranked| ranked.source == Source::Estimated));
    let stated = "No trained model of this device is loaded";
    assert!(asked.explanation.iter().any(|sentence| sentence.contains(stated)), "{asked:?}");
    let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
    let estimated = tuner.recommend(&csr, &workload).expect("an estimate");
    assert_eq!(estimated.ranking, asked.ranking);
    assert!(!estimated.explanation.iter().any(|sentence| sentence.contains(stated)), "{asked:?}");
}

#[test]
fn nothing_is_timed_that_was_not_asked_for_however_strange_the_matrix() {
    let csr = Csr::from_triplets(3, 3, [(0, 0, 1.0), (2, 0, 2.0)]).expect("in range");
    let tuner = predicting("cpu");
    let asked = tuner.recommend_with(&csr, &Workload::default(), &mut |_| panic!("it was timed"));
    let asked = asked.expect("a prediction");
    assert_eq!(asked.ranking[0].source, Source::Predicted);
    let stated = "not trained on similar matrices";
    assert!(asked.explanation.iter().any(|sentence| sentence.contains(stated)), "{asked:?}");
}

#[test]
fn few_that_are_timed_are_csr_and_the_best_of_several_formats() {
    let candidates: Vec<Candidate> = [
        "hll:hack=32,sort=none,tpr=1,col=16",
        "hll:hack=64,sort=none,tpr=1,col=16",
        "hll:hack=32,sort=none,tpr=2,col=16",
        "st_csr:tile=1024",
        "cusparse:alg=csr_alg1",
        "csr",
        "coo",
    ]
    .map(|name| name.parse().expect("a candidate"))
    .into();
    let thought = |predicted: [f64; 7], estimated: [f64; 7]| -> Vec<String> {
        let both = predicted.into_iter().zip(estimated);
        let both = both.map(|(predicted_s, estimated_s)| Thought { predicted_s, estimated_s });
        let timed = choose::best_few(candidates.iter().zip(both), choose::FEW);
        timed.into_iter().map(|candidate| candidate.to_string()).collect()
    };
    let few = |seconds: [f64; 7]| thought(seconds, seconds);
    let csr = ["cusparse:alg=csr_alg1", "csr"];
    // A variant of the best format ranks before a format that is far slower, and after a format
    // that is about as fast.
    let [a, b, c, st, coo] = [0, 1, 2, 3, 6].map(|i| candidates[i].to_string());
    assert_eq!(few([1.0, 1.01, 1.02, 1.05, 9.0, 8.0, 3.0])[..2], csr);
    assert_eq!(few([1.0, 1.01, 1.02, 1.05, 9.0, 8.0, 3.0])[2..], [&*a, &*st, &*b, &*c]);
    assert_eq!(few([1.0, 1.01, 1.02, 1.3, 9.0, 8.0, 3.0])[2..], [&*a, &*b, &*c, &*st]);
    assert_eq!(few([3.0, 3.0, 2.0, 1.2, 9.0, 8.0, 1.3])[2..], [&*st, &*coo, &*c, &*a]);
    // The last candidate is the best remaining one by the estimate.
    let predicted = [1.0, 1.01, 1.02, 1.05, 9.0, 8.0, 3.0];
    let estimated = [1.0, 1.1, 1.1, 1.05, 9.0, 8.0, 0.9];
    assert_eq!(thought(predicted, estimated)[2..], [&*a, &*st, &*b, &*coo]);
}
