//! A service that is killed under load again and again.

mod service;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use service::{Service, number_in, sample, serve};

/// Returns a record of a matrix, as an export has it.
fn record(print: &str) -> Vec<u8> {
    let structure = json!({
        "kind": "structure", "fingerprint": print, "source": "test", "family": "",
        "nrows": 3, "ncols": 3, "nnz": 4, "features": {},
    });
    format!("{structure}\n").into_bytes()
}

/// Asks from several clients until the service is killed after `time`; adds the fingerprints and the
/// jobs that it acknowledged.
fn load_and_kill(
    service: &Service,
    round: u64,
    time: Duration,
    prints: &Mutex<BTreeSet<String>>,
    jobs: &Mutex<BTreeSet<u64>>,
) {
    let ended = AtomicBool::new(false);
    let asks = |each: &dyn Fn(u64) -> Option<()>| {
        (0..).take_while(|_| !ended.load(Ordering::Relaxed)).find(|&n| each(n).is_none());
    };
    let matrix = sample("circuit");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            asks(&|n| {
                let print = format!("{:032x}", round << 32 | n);
                let answer = service.attempt("POST", "/measurements", &record(&print))?;
                assert_eq!(answer.status, 200);
                prints.lock().expect("no panic").insert(print);
                Some(())
            });
        });
        scope.spawn(|| {
            asks(&|n| {
                let target = format!("/recommend?device=h200&spmvs={}", 1 + n);
                let answer = service.attempt("POST", &target, &matrix)?;
                assert_eq!(answer.status, 200);
                Some(())
            });
        });
        scope.spawn(|| {
            asks(&|n| {
                let target = format!(
                    "/recommend?effort=measure&generate=heat:{}&budget=1&wait_ms=0",
                    300 + 10 * round + n
                );
                let answer = service.attempt("POST", &target, b"")?;
                let job: Value = serde_json::from_slice(&answer.body).ok()?;
                jobs.lock().expect("no panic").extend(job["id"].as_u64());
                std::thread::sleep(Duration::from_millis(300));
                Some(())
            });
        });
        std::thread::sleep(time);
        service.signal("KILL");
        ended.store(true, Ordering::Relaxed);
    });
}

/// `ELLECT_TEST_KILLS` is the number of kills.
#[test]
fn a_service_that_is_killed_under_load_keeps_what_it_acknowledged() {
    let mut service = serve(&[]);
    let (prints, jobs) = (Mutex::default(), Mutex::default());
    for round in 0..number_in("ELLECT_TEST_KILLS", 4) {
        let time = Duration::from_millis(150 + 137 * round % 500);
        load_and_kill(&service, round, time, &prints, &jobs);
        service = service.again(&[]);
        let (status, records) = service.send("GET", "/measurements", "", b"");
        assert_eq!(status, 200);
        let records = String::from_utf8(records).expect("text");
        for print in prints.lock().expect("no panic").iter() {
            assert!(records.contains(print), "round {round}: {print} was acknowledged");
        }
        for id in jobs.lock().expect("no panic").iter() {
            assert_eq!(service.get(&format!("/jobs/{id}")).0, 200, "round {round}, job {id}");
        }
        assert_eq!(service.get("/readyz").0, 200, "round {round}");
    }
    assert!(!prints.into_inner().expect("no panic").is_empty());
    assert!(!jobs.into_inner().expect("no panic").is_empty());
}
