//! The measuring worker: whatever happens to its process, the caller goes on.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ellect::choose::{Workload, target};
use ellect::device::Device;
use ellect::measure::{Measurement, Outcome, Protocol, Worker, on_host};
use ellect::{Csr, Result};

fn start() -> Worker {
    let arguments = ["worker", "--device", "cpu"].map(Into::into);
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
    worker.measure(csr, candidate, &target(&device, &Workload::default()), &protocol())
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
    let (mut worker, csr) = (start(), tridiagonal(300));
    let there = measure(&mut worker, &csr, "csr").expect("it runs");
    assert_timed(&there);
    let device = worker.device().clone();
    let target = target(&device, &Workload::default());
    let here = on_host(&csr, &"csr".parse().expect("a format"), &target, &protocol());
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
    let (mut worker, mut csr) = (start(), tridiagonal(50));
    for _ in 0..2 {
        assert_timed(&measure(&mut worker, &csr, "csr").expect("it runs"));
        csr.values_mut().fill(2.0);
    }
}

#[cfg(debug_assertions)]
#[test]
fn candidates_that_end_the_process_are_failed_and_the_others_carried_on() {
    let (mut worker, csr) = (start().with_time_limit(Duration::from_secs(10)), tridiagonal(300));
    for (candidate, told) in [("debug:abort", "signal: 6"), ("debug:exit", "exit status: 3")] {
        let first = worker.process_id();
        let reason = failure(measure(&mut worker, &csr, candidate).expect("it is recorded"));
        assert!(reason.contains(told), "{reason}");
        assert_timed(&measure(&mut worker, &csr, "csr").expect("it starts again"));
        assert_ne!(worker.process_id(), first);
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_candidate_that_hangs_is_failed_after_its_time() {
    let (mut worker, csr) = (start().with_time_limit(Duration::from_secs(1)), tridiagonal(300));
    let reason = failure(measure(&mut worker, &csr, "debug:hang").expect("it is recorded"));
    assert_eq!(reason, "it timed out after 1 s");
    let mut worker = worker.with_time_limit(Duration::from_secs(60));
    assert_timed(&measure(&mut worker, &csr, "csr").expect("it starts again"));
}

#[cfg(debug_assertions)]
#[test]
fn a_process_that_every_candidate_ends_is_an_error() {
    let (mut worker, csr) = (start(), tridiagonal(3));
    let error = (0..100).find_map(|_| measure(&mut worker, &csr, "debug:exit").err());
    let error = error.expect("not without end").to_string();
    assert!(error.contains("in a row"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_process_killed_between_jobs_costs_no_candidate() {
    let (mut worker, csr) = (start(), tridiagonal(300));
    let id = worker.process_id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-9", &id]).status().expect("kill is there").success());
    std::thread::sleep(Duration::from_millis(200));
    assert_timed(&measure(&mut worker, &csr, "csr").expect("it starts again"));
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
