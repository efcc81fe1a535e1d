//! Trials on a host, and operators for devices that are not on this machine.

use ellect::choose::{Trials, Workload};
use ellect::cost::Source;
use ellect::device::{self, Kind};
use ellect::{Csr, Error, Tuner, generate};

/// A matrix whose products are worth a trial: 10,000 of them take far over 20 ms.
fn matrix() -> Csr<f64> {
    generate::by_name("elasticity", 20_000, 1).expect("a class")
}

#[test]
fn many_products_on_a_host_are_worth_a_trial() {
    let csr = matrix();
    let tuner = Tuner::without_models(device::find("cpu").expect("it ships"));
    let workload = Workload { spmvs: 100_000, ..Workload::default() };
    let operator = tuner.prepare(&csr, &workload).expect("something applies");
    let choice = operator.choice().expect("a choice was made");
    let timed = |candidate: &str| {
        let candidate = candidate.parse().expect("a candidate");
        choice.ranked(&candidate).is_some_and(|ranked| ranked.source == Source::Measured)
    };
    assert!(timed("csr") && timed(&choice.candidate.to_string()), "{choice:?}");
    let count = choice.ranking.iter().filter(|r| r.source == Source::Measured).count();
    assert!((2..=4).contains(&count), "{count}");
    assert!(choice.explanation[0].contains("timed here against"), "{:?}", choice.explanation);
    assert_eq!(operator.candidate(), &choice.candidate);
    assert!(choice.speedup.low <= choice.speedup.value);
    operator.verify(&csr, 1).expect("the product is right");
    // Nothing is slower than csr, as timed.
    let csr_s = choice.ranked(&choice.baseline.candidate).expect("csr is ranked").spmv_s;
    assert!(choice.ranking[0].spmv_s <= csr_s);
}

#[test]
fn nothing_is_tried_for_few_products_or_where_the_caller_says_so() {
    let csr = matrix();
    let tuner = Tuner::without_models(device::find("cpu").expect("it ships"));
    let measured = |workload: &Workload| {
        let operator = tuner.prepare(&csr, workload).expect("something applies");
        let choice = operator.choice().expect("a choice was made");
        choice.ranking.iter().any(|ranked| ranked.source == Source::Measured)
    };
    let never = Workload { spmvs: 100_000, trials: Trials::Never, ..Workload::default() };
    assert!(!measured(&never));
    assert!(!measured(&Workload { spmvs: 2, ..Workload::default() }));
}

#[test]
fn an_absent_gpu_is_recommended_for_but_not_prepared_for_in_silence() {
    let csr = matrix();
    let tuner = || Tuner::without_models(device::find("H200").expect("it ships"));
    let workload = Workload::default();
    assert_eq!(tuner().recommend(&csr, &workload).expect("an estimate").device, "h200");
    let error = tuner().prepare(&csr, &workload).expect_err("it is absent");
    assert!(matches!(error, Error::AbsentDevice { .. }), "{error}");
    assert!(error.to_string().contains("host_emulation"), "{error}");
    let operator = tuner().host_emulation().prepare(&csr, &workload).expect("on the host");
    assert_eq!(operator.runs_on(), Kind::Host);
}
