//! Tuners that are opened by name: the models and the wisdom of a data folder, and what becomes of
//! files there that cannot be used.

use std::fs;
use std::path::Path;

use ellect::choose::{Choice, Effort, Workload};
use ellect::cost::Source;
use ellect::measure::Protocol;
use ellect::model::Predictor;
use ellect::{Csr, Error, Precision, Tuner, Wisdom, device, generate};

fn matrix() -> Csr<f64> {
    generate::by_name("heat", 3_000, 1).expect("a class")
}

fn open(data: &Path) -> Tuner {
    Tuner::open_in("cpu", data).expect("this machine")
}

fn recommended(tuner: &Tuner, effort: Effort) -> Choice {
    let workload = Workload { effort, ..Workload::default() };
    tuner.recommend(&matrix(), &workload).expect("a choice")
}

fn sources(choice: &Choice) -> Vec<Source> {
    let mut sources: Vec<_> = choice.ranking.iter().map(|ranked| ranked.source).collect();
    sources.dedup();
    sources
}

/// One short sample per candidate: the times do not matter here.
fn quick() -> Protocol {
    Protocol {
        min_sample_s: 1e-6,
        min_samples: 1,
        max_samples: 1,
        max_copies: 1,
        ..Protocol::default()
    }
}

#[test]
fn a_tuner_predicts_with_what_ships_and_writes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("none");
    let tuner = open(&data);
    let choice = recommended(&tuner, Effort::Predict);
    assert_eq!(sources(&choice), [Source::Predicted]);
    assert_eq!(tuner.warnings(), [""; 0]);
    let operator = tuner.prepare(&matrix(), &Workload::default()).expect("something applies");
    operator.verify(&matrix(), 1).expect("it multiplies right");
    assert!(!data.exists(), "choosing creates no files");
    assert_eq!(sources(&recommended(&tuner, Effort::Estimate)), [Source::Estimated]);
    let unknown = Tuner::open_in("h300", &data).expect_err("there is none");
    assert!(matches!(unknown, Error::UnknownDevice { .. }), "{unknown}");
}

#[test]
fn a_damaged_model_is_replaced_by_the_one_that_ships_and_the_choice_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let models = folder.path().join("models");
    fs::create_dir(&models).expect("writable");
    fs::write(models.join("cpu-f64.model"), "{\"schema\": 4").expect("writable");
    let tuner = open(folder.path());
    let choice = recommended(&tuner, Effort::Predict);
    assert_eq!(sources(&choice), [Source::Predicted]);
    let [warning] = &tuner.warnings()[..] else { panic!("{:?}", tuner.warnings()) };
    assert!(warning.contains("cpu-f64.model") && warning.contains("shipped model"), "{warning}");
    assert!(choice.explanation.contains(warning), "{:?}", choice.explanation);
    // Naming the model explicitly is an error.
    let strict = Tuner::without_models(device::find_in("cpu", folder.path()).expect("ships"));
    assert!(strict.with_models(folder.path()).is_err());
    // A model that the caller gives is used instead.
    let shipped = tempfile::tempdir().expect("a folder");
    let device = device::find_in("cpu", shipped.path()).expect("ships");
    let model = Predictor::open(shipped.path(), &device, Precision::F64).expect("it is sound");
    let tuner = open(folder.path()).with_model(model.expect("it ships"));
    assert_eq!(sources(&recommended(&tuner, Effort::Predict)), [Source::Predicted]);
    assert_eq!(tuner.warnings(), [""; 0]);
}

#[test]
fn beside_a_process_that_holds_the_database_measurements_are_stored_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let held = Wisdom::open(folder.path()).expect("a new database");
    let tuner = open(folder.path()).with_protocol(quick());
    for effort in [Effort::Predict, Effort::Measure] {
        recommended(&tuner, effort);
        assert_eq!(tuner.warnings(), [""; 0]);
    }
    assert_eq!(held.verify().expect("sound").measurements, 0);
    let next = recommended(&open(folder.path()), Effort::Predict);
    assert!(sources(&next).contains(&Source::Measured), "{next:?}");
    drop(tuner);
    held.upkeep().expect("taken over");
    assert!(held.verify().expect("sound").measurements > 1);
}

#[test]
fn measurements_are_stored_for_the_next_tuner() {
    let folder = tempfile::tempdir().expect("a folder");
    let tuner = open(folder.path()).with_protocol(quick());
    // A choice before the database exists, which measuring then creates.
    assert_eq!(sources(&recommended(&tuner, Effort::Predict)), [Source::Predicted]);
    let measured = recommended(&tuner, Effort::Measure);
    assert!(sources(&measured).contains(&Source::Measured), "{measured:?}");
    drop(tuner);
    let next = recommended(&open(folder.path()), Effort::Predict);
    assert!(sources(&next).contains(&Source::Measured), "{next:?}");
    assert_eq!(next.candidate, measured.candidate);
    // Measuring goes on if the results cannot be stored.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("wisdom"), "not a folder").expect("writable");
    let tuner = open(folder.path()).with_protocol(quick());
    let measured = recommended(&tuner, Effort::Measure);
    assert!(sources(&measured).contains(&Source::Measured), "{measured:?}");
    assert_eq!(tuner.warnings().len(), 1);
}
