//! Decisions as the command line tells them, and plans of measurements.

use assert_cmd::Command;
use serde_json::Value;

/// Returns the exit code and the standard output of `ellect` with these arguments, without data of
/// the user.
fn ellect(arguments: &[&str]) -> (i32, String) {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("ellect"));
    let output = command.arg("--data").arg(data.path()).args(arguments).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    (output.status.code().expect("it ends"), text)
}

const RECOMMEND: [&str; 5] = ["recommend", "--generate", "elasticity:7777", "--device", "H200"];

#[test]
fn a_recommendation_leads_with_the_decision() {
    let (code, text) = ellect(&RECOMMEND);
    assert_eq!(code, 0, "{text}");
    let (decision, _) = text.split_once("\n\n").expect("a table follows");
    assert!(decision.lines().count() <= 6, "three sentences, wrapped: {decision}");
    assert!(decision.starts_with("Use ") && decision.contains("times as fast as"), "{decision}");
    assert!(decision.contains("pays from"), "{decision}");
    assert!(decision.contains("predicted by model ") && decision.contains("confidence"), "{text}");
    assert_eq!(text.matches("a launch is not counted").count(), 1, "{text}");
    assert!(!text.contains("Rule of thumb") && text.contains("--why says more"), "{text}");
    let (_, reasons) = ellect(&[&RECOMMEND[..], &["--why"]].concat());
    assert!(reasons.contains("Next best format"), "{reasons}");
}

#[test]
fn an_answer_names_its_model_and_its_baseline() {
    let answer = |more: &[&str]| -> Value {
        let (code, text) = ellect(&[&RECOMMEND[..], &["--json"], more].concat());
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let all = answer(&[]);
    assert_eq!(all["model"]["device"], "h200");
    assert!(all["model"]["id"].as_str().is_some_and(|id| id.len() == 8), "{}", all["model"]);
    assert!(all["model"]["matrices"].as_u64().is_some_and(|matrices| matrices > 100));
    assert!(all["baseline"]["candidate"].as_str().is_some_and(|c| c.starts_with("cusparse")));
    let speedup = |key: &str| all["speedup"][key].as_f64().expect("a number");
    assert!(speedup("low") < speedup("value") && speedup("value") < speedup("high"));
    assert!(all["confidence"].as_f64().is_some_and(|c| (0.0..=1.0).contains(&c)));
    // Lists are limited alike, and keys are picked.
    let few = answer(&["--top", "2", "--fields", "ranking,refused"]);
    assert_eq!(few.as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(few["ranking"].as_array().map(Vec::len), Some(2));
    assert!(few["refused"].as_array().is_some_and(|refused| refused.len() <= 2));
}

#[test]
fn other_gpus_are_known_by_their_data_sheets() {
    let recommend = ["recommend", "--generate", "elasticity:6000", "--device"];
    for (name, source) in [("A100", "estimated"), ("h100", "predicted")] {
        let (code, text) = ellect(&[&recommend[..], &[name, "--json"]].concat());
        assert_eq!(code, 0, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(answer["device"], name.to_lowercase());
        assert_eq!(answer["ranking"][0]["source"], source, "{name}");
    }
    let (_, devices) = ellect(&["devices"]);
    assert!(devices.contains("not measured: a100, b200, h100, l40s, rtx4090"), "{devices}");
}

#[test]
fn products_that_need_an_absent_gpu_are_not_said_to_be_right() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/circuit.mtx");
    let (code, text) = ellect(&["verify", file, "--device", "h200"]);
    assert_eq!(code, 0, "{text}");
    let vendor: Vec<&str> = text.lines().filter(|line| line.starts_with("cusparse")).collect();
    assert!(!vendor.is_empty() && vendor.iter().all(|line| line.contains("not run")), "{text}");
    assert!(text.trim_end().ends_with(&format!(", {} not run", vendor.len())), "{text}");
}

#[test]
fn a_dry_run_measures_nothing() {
    let tune = ["tune", "--device", "cpu", "--generate", "small", "--class", "banded"];
    let (code, text) = ellect(&[&tune[..], &["--budget", "80s", "--dry-run"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 matrix in 2 precisions on cpu"), "{text}");
    assert!(text.trim_end().ends_with("to 1 min"), "{text}");
    let (code, models) = ellect(&["models", "list", "--json"]);
    let models: Value = serde_json::from_str(&models).expect("JSON");
    let states = models.as_array().expect("a list").iter().map(|row| row["state"].clone());
    assert_eq!((code, states.collect::<Vec<_>>()), (0, vec!["in use".into(); 6]));
    assert_eq!(ellect(&["models", "rollback"]).0, 1, "nothing was installed");
}

#[test]
fn several_vectors_are_chosen_for_verified_and_timed() {
    let ask = |more: &[&str]| ellect(&[&RECOMMEND[..], more].concat());
    let (code, text) = ask(&["--vectors", "4", "--json"]);
    assert_eq!(code, 0, "{text}");
    let four: Value = serde_json::from_str(&text).expect("JSON");
    let one: Value = serde_json::from_str(&ask(&["--json"]).1).expect("JSON");
    assert_eq!((&four["vectors"], one.get("vectors")), (&4.into(), None));
    // They have a model of their own.
    assert_eq!(four["ranking"][0]["source"], "predicted", "{four}");
    assert!(four["model"]["id"].is_string() && four["model"] != one["model"], "{four}");
    let (_, text) = ask(&["--vectors", "4", "--why"]);
    assert!(text.contains("1000 products of 4 vectors take"), "{text}");
    let (code, _) = ask(&["--vectors", "0"]);
    assert_eq!(code, 2);

    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/circuit.mtx");
    let (code, text) = ellect(&["verify", file, "--vectors", "5"]);
    assert!(code == 0 && text.contains(", 0 wrong"), "{text}");
    let measure = ["measure", file, "--only", "csr", "--only", "coo", "--vectors", "3", "--json"];
    let (code, text) = ellect(&measure);
    let timed: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!((code, timed.len()), (0, 3), "{text}");
    for record in &timed[1..] {
        assert_eq!(
            (&record["outcome"], &record["protocol"]["vectors"]),
            (&"timed".into(), &3.into())
        );
    }
}

#[test]
fn both_directions_are_chosen_for() {
    let ask = |more: &[&str]| ellect(&[&["recommend", "--device", "h200"][..], more].concat());
    let wide = ["--generate", "linear_program:3000", "--spmvs", "3000", "--transposed", "40"];
    let (code, text) = ask(&[&wide[..], &["--json", "--top", "3"]].concat());
    assert_eq!(code, 0, "{text}");
    let both: Value = serde_json::from_str(&text).expect("JSON");
    let turned = &both["transposed"];
    assert_eq!((&both["spmvs"], &turned["spmvs"]), (&3000.into(), &40.into()));
    assert_eq!(
        (both["ranking"].as_array().map(Vec::len), turned.get("transposed")),
        (Some(3), None)
    );
    assert_eq!(turned["ranking"].as_array().map(Vec::len), Some(3));
    assert_ne!(both["fingerprint"], turned["fingerprint"]);
    assert_eq!(both["features"]["nrows"], turned["features"]["ncols"]);
    let (_, text) = ask(&[&wide[..], &["--why"]].concat());
    assert!(text.contains("Products with the transpose:"), "{text}");
    assert!(text.contains("The transpose has a layout of its own"), "{text}");
    let (_, text) = ask(&[&wide[..], &["--json", "--fields", "choice,transposed"]].concat());
    let two: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(two.as_object().map(serde_json::Map::len), Some(2));

    let symmetric = ["--generate", "constant7:3000", "--spmvs", "3000", "--transposed", "40"];
    let (_, text) = ask(&[&symmetric[..], &["--json"]].concat());
    let one: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&one["spmvs"], one.get("transposed")), (&3040.into(), Some(&Value::Null)));
    let (_, text) = ask(&symmetric);
    assert!(text.contains("this layout serves its transpose too"), "{text}");
}
