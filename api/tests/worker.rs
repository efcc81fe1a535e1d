//! Tests that the caller survives whatever happens to the measuring worker process.
//!
//! They run on this host, and on the GPU that `ELLECT_TEST_DEVICE` names.
#![allow(clippy::print_stdout, reason = "says what ran where")]

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ellect::analysis::Analysis;
use ellect::choose::{Effort, Workload};
use ellect::cost::Source;
use ellect::device::{Device, Kind};
use ellect::format::{Candidate, candidates};
use ellect::measure::{Backend, Measurement, Outcome, Protocol, Worker};
use ellect::{Csr, Precision, Result, Tuner};

/// Returns the devices to test: this host, and the GPU that `ELLECT_TEST_DEVICE` names.
///
/// If it names none and `REQUIRE_GPU` is set, the GPU is `cuda:0`.
fn devices() -> Vec<String> {
    let required = cfg!(feature = "cuda") && std::env::var_os("REQUIRE_GPU").is_some();
    let named = std::env::var("ELLECT_TEST_DEVICE").ok();
    let named = named.or_else(|| required.then(|| "cuda:0".into()));
    if named.is_none() {
        println!("not run on a GPU: ELLECT_TEST_DEVICE is not set");
    }
    std::iter::once("cpu".to_string()).chain(named).collect()
}

fn start(device: &str) -> Worker {
    let arguments = ["worker", "--device", device].map(Into::into);
    Worker::start(env!("CARGO_BIN_EXE_ellect").into(), arguments.into()).expect("it starts")
}

fn protocol() -> Protocol {
    Protocol { min_sample_s: 1e-5, max_samples: 6, max_copies: 2, ..Protocol::default() }
}

fn tridiagonal(n: usize) -> Csr<f64> {
    let entries = (0..n)
        .flat_map(|i| (i.saturating_sub(1)..(i + 2).min(n)).map(move |j| (i, j, (i + j) as f64)));
    Csr::from_triplets(n, n, entries).expect("indices are in range")
}

fn measure(worker: &mut Worker, csr: &Csr<f64>, candidate: &str) -> Result<Measurement> {
    let device: Device = worker.device().clone();
    let target = Workload::default().target(&device, Precision::F64);
    worker.measure(csr, candidate, &target, &protocol(), None)
}

#[track_caller]
fn assert_timed(measurement: &Measurement) {
    assert!(matches!(measurement.outcome, Outcome::Timed(_)), "{measurement:?}");
}

#[track_caller]
fn failure(measurement: Measurement) -> String {
    match measurement.outcome {
        Outcome::Failed { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_finds_what_measuring_in_this_process_finds() {
    let (mut worker, csr) = (start("cpu"), tridiagonal(300));
    let there = measure(&mut worker, &csr, "csr").expect("it runs");
    assert_timed(&there);
    let device = worker.device().clone();
    let target = Workload::default().target(&device, Precision::F64);
    let (analysis, candidate) = (Analysis::sampled(&csr), "csr".parse().expect("a format"));
    let here = Backend::of(device.clone());
    let here = here.measure(&csr, &analysis, &candidate, &target, &protocol(), None);
    let here = here.expect("a host");
    assert!(here.inputs.is_some(), "what its estimate needs is noted");
    assert_eq!(
        Measurement { outcome: here.outcome.clone(), provenance: here.provenance.clone(), ..there },
        here
    );
    for n in [0, 1] {
        let empty = Csr::from_triplets(n, n, []).expect("no entries");
        assert_timed(&measure(&mut worker, &empty, "csr").expect("it runs"));
    }
}

#[test]
fn other_values_of_the_same_pattern_are_sent_again() {
    let (mut worker, mut csr) = (start("cpu"), tridiagonal(50));
    for _ in 0..2 {
        assert_timed(&measure(&mut worker, &csr, "csr").expect("it runs"));
        csr.values_mut().fill(2.0);
    }
}

#[cfg(debug_assertions)]
#[test]
fn candidates_that_end_the_process_are_failed_and_the_others_carried_on() {
    for device in devices() {
        let mut worker = start(&device).with_time_limit(Duration::from_secs(30));
        let csr = tridiagonal(300);
        let fault = match worker.device().kind {
            Kind::Host => "signal: 6",
            Kind::Gpu => "CUDA error",
        };
        for (candidate, stated) in
            [("debug:abort", "signal: 6"), ("debug:exit", "exit status: 3"), ("debug:fault", fault)]
        {
            let first = worker.process_id();
            let failed = measure(&mut worker, &csr, candidate).expect("it is recorded");
            assert_eq!(failed.candidate, candidate);
            let reason = failure(failed);
            assert!(reason.contains(stated), "{device}: {reason}");
            for next in ["csr", "hll"] {
                assert_timed(&measure(&mut worker, &csr, next).expect("it starts again"));
            }
            assert_ne!(worker.process_id(), first);
        }
    }
}

#[test]
fn what_misbehaves_for_tests_is_never_listed() {
    for kind in [Kind::Host, Kind::Gpu] {
        assert!(candidates(kind).iter().all(|c| !c.to_string().starts_with("debug")));
    }
    assert!("debug:fault".parse::<Candidate>().is_err());
}

#[cfg(debug_assertions)]
#[test]
fn a_candidate_that_hangs_is_failed_after_its_time() {
    for device in devices() {
        let worker = start(&device);
        let (mut worker, csr) = (worker.with_time_limit(Duration::from_secs(1)), tridiagonal(300));
        let reason = failure(measure(&mut worker, &csr, "debug:hang").expect("it is recorded"));
        assert_eq!(reason, "it timed out after 1 s");
        let mut worker = worker.with_time_limit(Duration::from_secs(60));
        assert_timed(&measure(&mut worker, &csr, "csr").expect("it starts again"));
        let (device, short) = (worker.device().clone(), Some(Duration::from_millis(300)));
        let target = Workload::default().target(&device, Precision::F64);
        // However often the shorter limit cuts a candidate, the device does not count as broken.
        for _ in 0..10 {
            let cut = worker.measure(&csr, "debug:hang", &target, &protocol(), short);
            assert_eq!(failure(cut.expect("it is recorded")), "it timed out after 0.3 s");
        }
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_process_that_every_candidate_ends_is_an_error() {
    let (mut worker, csr) = (start("cpu"), tridiagonal(3));
    let error = (0..100).find_map(|_| measure(&mut worker, &csr, "debug:exit").err());
    let error = error.expect("not without end").to_string();
    assert!(error.contains("in a row"), "{error}");
}

#[cfg(unix)]
fn kill(process: u32) {
    let killed = Command::new("kill").args(["-9", &process.to_string()]).status();
    assert!(killed.expect("kill is there").success());
}

#[cfg(unix)]
#[test]
fn a_process_killed_between_jobs_costs_no_candidate() {
    for device in devices() {
        let (mut worker, csr) = (start(&device), tridiagonal(300));
        kill(worker.process_id().expect("it runs"));
        std::thread::sleep(Duration::from_millis(200));
        assert_timed(&measure(&mut worker, &csr, "csr").expect("it starts again"));
    }
}

#[cfg(unix)]
#[test]
fn a_process_killed_at_work_fails_that_candidate_alone() {
    for name in devices() {
        let (mut worker, csr) = (start(&name), tridiagonal(300));
        let device = worker.device().clone();
        let target = Workload::default().target(&device, Precision::F64);
        let process = worker.process_id().expect("it runs");
        // A measurement that takes far longer than the 500 ms until its process is killed.
        let long =
            Protocol { min_samples: 1_000_000, max_samples: 1_000_000, max_s: 60.0, ..protocol() };
        let failed = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(500));
                kill(process);
            });
            worker.measure(&csr, "csr", &target, &long, None).expect("it is recorded")
        });
        let reason = failure(failed);
        assert!(reason.contains("signal: 9"), "{name}: {reason}");
        for next in ["csr", "hll"] {
            assert_timed(&measure(&mut worker, &csr, next).expect("it starts again"));
        }
        assert_ne!(worker.process_id(), Some(process));
    }
}

#[test]
fn a_budget_that_is_spent_leaves_the_first_candidate_measured_and_the_others_estimated() {
    let tuner = Tuner::without_models(Backend::through(start("cpu"))).with_protocol(protocol());
    let (effort, budget_s) = (Effort::Exhaustive, Some(1e-6));
    let workload = Workload { effort, budget_s, ..Workload::default() };
    let choice = tuner.recommend(&tridiagonal(300), &workload).expect("it runs");
    let measured = choice.ranking.iter().filter(|ranked| ranked.source == Source::Measured);
    assert_eq!(measured.map(|ranked| ranked.format).collect::<Vec<_>>(), ["csr"]);
    assert!(choice.refused.iter().all(|refused| !refused.reason.to_string().contains("timed out")));
}

#[test]
fn a_program_that_is_no_worker_is_an_error() {
    for (program, argument) in [("/no/such/program", ""), (env!("CARGO_BIN_EXE_ellect"), "formats")]
    {
        Worker::start(program.into(), vec![argument.into()]).expect_err("it says no hello");
    }
    let unknown = ["worker", "--device", "nosuch"].map(Into::into);
    let error = Worker::start(env!("CARGO_BIN_EXE_ellect").into(), unknown.into());
    assert!(error.expect_err("no such device").to_string().contains("nosuch"));
}

#[track_caller]
fn assert_ends(mut child: Child) {
    let start = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            let _ = child.kill();
            panic!("it goes on without its parent");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_process_ends_with_its_parent_also_at_work() {
    let spawn = || {
        Command::new(env!("CARGO_BIN_EXE_ellect"))
            .args(["worker", "--device", "cpu"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the program starts")
    };
    let mut idle = spawn();
    drop(idle.stdin.take());
    assert_ends(idle);
    let mut stuck = spawn();
    let mut input = stuck.stdin.take().expect("piped");
    let protocol = serde_json::to_string(&protocol()).expect("plain data");
    input
        .write_all(
            format!(
                "{{\"Matrix\":{{\"nrows\":0,\"ncols\":0,\"nnz\":0,\"precision\":\"f64\"}}}}\n\
                 {}{{\"Job\":{{\"candidate\":\"debug:hang\",\"basis\":\"original\",\
                 \"memory_limit\":1000,\"protocol\":{protocol}}}}}\n",
                "\0".repeat(8)
            )
            .as_bytes(),
        )
        .expect("it reads");
    drop(input);
    assert_ends(stuck);
}
