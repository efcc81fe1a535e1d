//! A whole round with the program as it is packaged: real matrices, a job, models, and a restart.
//!
//! `ELLECT_TEST_PROGRAM` names the program; by default it is the one that Cargo built.

mod service;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use ellect::model::Model;
use ellect::{Precision, Tuner, Workload, read};
use serde_json::{Value, json};
use service::{Service, sample, serve_by};

const SAMPLES: [&str; 3] = ["circuit", "convection_diffusion", "elasticity"];

fn program() -> PathBuf {
    let named = std::env::var_os("ELLECT_TEST_PROGRAM").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_BIN_EXE_ellect").into())
}

/// Returns the answer of the library for a matrix that ships.
fn by_library(name: &str, data: &Path, spmvs: u64) -> Value {
    let path = format!("{}/../tests/data/{name}.mtx", env!("CARGO_MANIFEST_DIR"));
    let csr = read::file::<f64>(Path::new(&path), &read::Limits::default()).expect("it is read");
    let tuner = Tuner::open_in("h200", data).expect("it ships");
    let workload = Workload { spmvs, ..Workload::default() };
    let choice = tuner.recommend(&csr, &workload).expect("a choice");
    let text = serde_json::to_string(&choice).expect("plain data");
    serde_json::from_str(&text).expect("its own text")
}

#[test]
fn a_service_answers_as_the_library_and_finds_everything_again() {
    let program = program();
    let service = serve_by(&program, &[]);
    let none = tempfile::tempdir().expect("a folder");
    for name in SAMPLES {
        for spmvs in [10, 100_000] {
            let query = format!("?device=h200&spmvs={spmvs}");
            let (status, answer) = service.recommend(&query, "", &sample(name));
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer, by_library(name, none.path(), spmvs), "{name}, {spmvs} products");
        }
    }

    // A job is streamed to its end.
    let query = "?device=cpu&effort=measure&budget=5&wait_ms=0";
    let (status, job) = service.recommend(query, "", &sample("circuit"));
    assert_eq!(status, 202, "{job}");
    let path = format!("/jobs/{}", job["id"]);
    let events = BufReader::new(service.begin("GET", &format!("{path}/events"), "", 0));
    let told: Vec<Value> = events
        .lines()
        .map(|line| line.expect("text"))
        .filter_map(|line| serde_json::from_str(line.split_once("data: ")?.1).ok())
        .collect();
    assert_eq!(told.last().map(|job| &job["status"]), Some(&json!("succeeded")), "{told:?}");
    assert!(told.iter().any(|job| job["progress"]["done"].as_u64() > Some(0)), "{told:?}");
    let result = service.get(&path).1["result"].clone();
    assert_eq!(result["ranking"][0]["source"], "measured", "{result}");
    let print = result["fingerprint"].as_str().expect("it was analysed").to_string();

    // A model of the data folder takes the place of the one that ships, once models are read again.
    let used = |service: &Service| {
        let (_, answer) = service.recommend("?device=h200", "", &sample("circuit"));
        answer["model"].clone()
    };
    let shipped = used(&service);
    let h200 = ellect::device::find("h200").expect("it ships");
    let model = Model::shipped(&h200, Precision::F64).expect("it is sound").expect("it ships");
    let other = Model { seed: model.seed + 1, ..model }.bytes().expect("memory");
    let folder = Path::new(&service.data).join("models");
    std::fs::create_dir_all(&folder).expect("writable");
    std::fs::write(folder.join("h200-f64.model"), other).expect("writable");
    let (status, models) = service.json("POST", "/models/reload", b"");
    assert_eq!(status, 200, "{models}");
    assert_ne!(used(&service), shipped);

    // Measurements, jobs and the model are there again after a restart.
    service.signal("TERM");
    let service = service.again_by(&program, &[]);
    let (status, structure) = service.get(&format!("/structures/{print}"));
    assert_eq!(status, 200, "{structure}");
    assert!(structure["measurements"].as_array().is_some_and(|all| all.len() > 1), "{structure}");
    let again = service.get(&path).1;
    assert_eq!((&again["status"], &again["result"]), (&json!("succeeded"), &result));
    assert_ne!(used(&service), shipped);
    let (_, answer) = service.recommend("?device=cpu", "", &sample("circuit"));
    assert_eq!(answer["ranking"][0]["source"], "measured", "{answer}");
}
