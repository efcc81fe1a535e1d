//! `ellect bench --devices` with parts on hosts: modes side by side, each checked.

use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;

/// Returns the outcome of a bench of a small matrix on these devices.
fn bench(devices: &str, more: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("ellect").expect("the program is built");
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench_devices");
    let first = ["bench", "--devices", devices, "--class", "power_law:3000", "--precision", "f64"];
    command.env("ELLECT_DATA", data).args(first).args(more).output().expect("it starts")
}

#[test]
fn modes_are_listed_side_by_side() {
    let output = bench("cpu,cpu", &["--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("lines of text");
    let rows: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let told = |key: &str| rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
    assert_eq!(told("mode"), ["vector", "vector", "naive", "task", "pcsr-i", "pcsr-ii"]);
    assert_eq!(told("gpus"), [1, 2, 2, 2, 2, 2]);
    let splits = told("split");
    assert_eq!(splits[4..], ["equal-rows", "equal-nonzeros"], "the papers' divisions");
    assert_eq!(told("transport")[..2], ["none", "memory"]);
    for row in &rows {
        let positive = |key: &str| row[key].as_f64().is_some_and(|value| value > 0.0);
        assert!(positive("product_us") && positive("filled_us"), "{row}");
        assert!(positive("efficiency") && positive("filled_efficiency"), "{row}");
        assert!(row["expected_efficiency"].is_null(), "hosts are not predicted: {row}");
    }
}

#[test]
fn modes_may_be_named_and_wrong_ones_are_refused() {
    let output = bench("cpu,cpu", &["--mode", "overlap,pcsr-ii"]);
    let text = String::from_utf8(output.stdout).expect("a table");
    let modes: Vec<&str> =
        text.lines().skip(2).filter_map(|line| line.split(" | ").nth(6)).collect();
    assert_eq!(modes, ["vector", "overlap", "pcsr-ii"], "{text}");
    let columns = |line: &str| line.matches('|').count();
    let all: Vec<usize> = text.lines().map(columns).collect();
    assert!(all.windows(2).all(|two| two[0] == two[1]), "{text}");

    let refused = |devices: &str, more: &[&str]| {
        let output = bench(devices, more);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("errors are text")
    };
    let error = refused("cpu,cpu", &["--mode", "both"]);
    assert!(error.contains("no mode is named 'both'; there are: auto, vector"), "{error}");
    let error = refused("cpu,cpu", &["--solver"]);
    assert!(error.contains("a device is a host"), "{error}");
    let error = refused("cpu", &[]);
    assert!(error.contains("two or more devices"), "{error}");
}

/// The baseline of products with transposes is cuSPARSE's, which needs a GPU.
#[test]
fn transposes_are_timed_on_gpus_only() {
    let mut command = Command::cargo_bin("ellect").expect("the program is built");
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench_transposed");
    command.env("ELLECT_DATA", data).args(["bench", "--transposed", "--class", "heat:300"]);
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{text}");
    assert!(text.contains("--transposed compares with cuSPARSE, which needs a GPU"), "{text}");
    assert!(text.contains("cuda:0"), "{text}");
}
