//! Tests that models learn from a user's own measurements without the files of their matrices.

use std::path::Path;
use std::process::Command;

use ellect::choose::{Effort, Workload};
use ellect::device::{self, Device};
use ellect::measure::{Outcome, Protocol};
use ellect::unstable::wisdom::Record;
use ellect::{Tuner, Wisdom, generate, write};
use ellect_training::Records;

/// Runs `ellect --data DATA` in the folder DATA; returns its standard output and standard error.
fn ellect(data: &Path, arguments: &[&str]) -> (String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ellect"));
    let output = command.arg("--data").arg(data).args(arguments).current_dir(data).output();
    let output = output.expect("it runs");
    let [out, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
    assert!(output.status.success(), "{arguments:?}: {error}");
    (out, error)
}

/// Writes a small matrix of each class to a file.
fn files(data: &Path, classes: &[&str]) {
    for class in classes {
        let csr = generate::by_name(class, 400, 1).expect("a class");
        let file = std::fs::File::create(data.join(format!("{class}.mtx"))).expect("writable");
        write::matrix_market(&csr, file).expect("writable");
    }
}

fn cpu() -> Device {
    device::find("cpu").expect("shipped")
}

/// Asserts that record lines contain timed candidates, and that the training cases made from the
/// lines have all of them and features.
#[track_caller]
fn assert_all_are_learned_from(lines: &str) {
    let mut records = Records::default();
    records.read(lines).expect("own lines");
    let cases = records.cases(&cpu());
    let trials: usize = cases.iter().map(|case| case.trials.len()).sum();
    let timed = lines.lines().filter(|line| line.contains("\"outcome\":\"timed\"")).count();
    assert!(timed > 0, "{lines}");
    assert_eq!(trials, timed);
    assert!(cases.iter().all(|case| !case.features.is_empty()));
}

/// Candidates that can be estimated without a graph partition, and ehyb, which needs one that only
/// measuring computes.
const SOME: [&str; 6] = ["--only", "csr", "--only", "hll:hack=32,sort=none", "--only", "ehyb"];

#[test]
fn what_measure_and_recommend_remember_holds_all_that_training_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    files(data, &["heat", "banded"]);
    let (lines, _) = ellect(data, &[&["measure", "heat.mtx", "--json"][..], &SOME].concat());
    assert!(lines.contains("\"candidate\":\"ehyb"), "{lines}");
    // These keys must not change: records have had them since they were first written.
    assert!(lines.contains("\"seen\":{\"sight\":{\"nrows\":"), "{lines}");
    assert_all_are_learned_from(&lines);
    ellect(data, &["recommend", "banded.mtx", "--effort", "measure"]);
    let (exported, _) = ellect(data, &["wisdom", "export"]);
    assert!(["heat.mtx", "banded.mtx"].iter().all(|source| exported.contains(source)));
    assert_all_are_learned_from(&exported);
}

#[test]
fn what_bench_prints_holds_all_that_training_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = ["bench", "--class", "heat:400", "--json"];
    let (lines, _) = ellect(folder.path(), &[&bench[..], &SOME].concat());
    assert_all_are_learned_from(&lines);
}

#[test]
fn what_the_library_measures_holds_all_that_training_needs() {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = std::sync::Arc::new(Wisdom::open(folder.path()).expect("a new database"));
    let protocol = Protocol { min_sample_s: 1e-5, max_samples: 5, ..Protocol::default() };
    let tuner = Tuner::without_models(cpu()).with_protocol(protocol).with_wisdom(wisdom.clone());
    let csr = generate::by_name("heat", 400, 1).expect("a class");
    let workload = Workload { effort: Effort::Measure, ..Workload::default() };
    tuner.with_source("heat:400").recommend(&csr, &workload).expect("a choice");
    let (mut lines, mut timed) = (Vec::new(), 0);
    wisdom
        .each(|record| {
            if let Record::Measurement(measurement) = &record {
                timed += usize::from(matches!(measurement.outcome, Outcome::Timed(_)));
            }
            lines.extend([record.line(), b"\n".to_vec()].concat());
            Ok(())
        })
        .expect("a sound database");
    assert!(timed >= 3, "{timed}");
    assert_all_are_learned_from(&String::from_utf8(lines).expect("text"));
}

#[test]
fn a_model_is_trained_when_the_matrices_are_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let classes = ["heat", "banded", "uniform"];
    files(data, &classes);
    for class in classes {
        let file = format!("{class}.mtx");
        ellect(data, &[&["measure", &file][..], &SOME].concat());
        std::fs::remove_file(data.join(file)).expect("it is there");
    }
    let train = ["train", "--device", "cpu", "--precision", "f64", "--out", "models"];
    let (stated, notes) = ellect(data, &train);
    assert!(stated.contains("3 matrices of 3 families"), "{stated}");
    assert!(!notes.contains("left out"), "{notes}");
    assert!(data.join("models/cpu-f64.model").is_file());
}

#[test]
fn a_timing_of_few_values_is_not_remembered_for_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    // Two tridiagonal matrices of one pattern: with 2 values, and with a value of its own for each
    // entry, which the formats that share values refuse.
    let write = |name: &str, value: &dyn Fn(usize, usize) -> f64| {
        let near = |i: usize| i.saturating_sub(1)..(i + 2).min(2000);
        let entries = (0..2000).flat_map(|i| near(i).map(move |j| (i, j)));
        let entries = entries.map(|(i, j)| (i, j, value(i, j)));
        let csr = ellect::Csr::from_triplets(2000, 2000, entries).expect("in range");
        let file = std::fs::File::create(data.join(name)).expect("writable");
        write::matrix_market(&csr, file).expect("writable");
    };
    write("few.mtx", &|i, j| if i == j { 2.0 } else { -1.0 });
    write("many.mtx", &|i, j| (3 * i + j) as f64 + 0.5);
    let measure =
        |name: &str| ellect(data, &["measure", name, "--only", "cdia", "--only", "csr"]).0;
    let few = measure("few.mtx");
    assert!(
        few.lines().any(|line| line.starts_with("cdia ") && !line.contains("refused")),
        "{few}"
    );
    let many = measure("many.mtx");
    assert!(
        many.lines().any(|line| line.starts_with("cdia") && line.contains("refused")),
        "{many}"
    );
}
