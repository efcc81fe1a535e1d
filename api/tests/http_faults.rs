//! Faults of the machine under a running service: a full disk, a data folder that is read-only, a
//! clock that steps, and memory that the system does not give.
//!
//! This program runs the service itself, with functions of the C library replaced: files beside the
//! data folder turn the faults on. It has no harness of its own, because its other arguments are those
//! of the service and of its measuring processes.

#![allow(unsafe_code, reason = "replaces functions of the C library")]
#![allow(clippy::print_stdout, reason = "tells what is tested")]

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod faults;
mod service;

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() -> std::process::ExitCode {
    if faults::is_service() {
        return std::process::ExitCode::from(ellect_api::run(ellect_api::Started::as_program()));
    }
    tests::run();
    std::process::ExitCode::SUCCESS
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tests {
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use serde_json::{Value, json};

    use crate::faults::{FAULTS, Fault};
    use crate::service::{Service, serve_at, serve_by};

    type Test = fn(&Path);

    const TESTS: &[(&str, Test)] = &[
        ("a_full_disk_is_told_and_recovered_from", |at| told_and_recovered_from(at, Fault::Full)),
        ("a_read_only_folder_is_told_and_recovered_from", |at| {
            told_and_recovered_from(at, Fault::ReadOnly);
        }),
        ("a_clock_that_steps_harms_nothing", a_clock_that_steps_harms_nothing),
        ("memory_that_the_system_does_not_give_ends_no_service", no_memory),
    ];

    /// Runs the tests whose names contain the first argument.
    pub fn run() {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let at = folder.path().canonicalize().expect("it is there");
        // SAFETY: this process has no other thread yet.
        unsafe { std::env::set_var(FAULTS, &at) };
        let filter = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
        let is_meant = |name: &str| filter.as_ref().is_none_or(|part| name.contains(part.as_str()));
        for (name, test) in TESTS.iter().filter(|(name, _)| is_meant(name)) {
            test(&at);
            println!("test {name} ... ok");
        }
    }

    /// A service of this program, and the folder of the files that turn faults on.
    struct Faulty<'a> {
        service: Service,
        folder: &'a Path,
    }

    impl<'a> Faulty<'a> {
        fn start(folder: &'a Path, name: &str) -> Self {
            let data = folder.join(format!("data-{name}")).to_string_lossy().into_owned();
            Faulty { service: serve_at(&this(), data, &[]), folder }
        }

        fn set(&self, fault: Fault, on: bool) {
            let file = self.folder.join(fault.name());
            match on {
                true => std::fs::write(file, "").expect("writable"),
                false => std::fs::remove_file(file).expect("it is there"),
            }
        }

        /// Starts the service again after its process ended.
        fn again(self) -> Self {
            Faulty { service: self.service.again_by(&this(), &[]), ..self }
        }
    }

    fn this() -> PathBuf {
        std::env::current_exe().expect("it runs")
    }

    /// Returns a record of a matrix, as an export has it.
    fn record(number: u64) -> String {
        let structure = json!({
            "kind": "structure", "fingerprint": format!("{number:032x}"), "source": "test",
            "family": "", "nrows": 3, "ncols": 3, "nnz": 4, "features": {},
        });
        format!("{structure}\n")
    }

    fn add(service: &Service, number: u64) -> (u16, Value) {
        service.json("POST", "/measurements", record(number).as_bytes())
    }

    fn is_known(service: &Service, number: u64) -> bool {
        service.json("GET", &format!("/structures/{number:032x}"), b"").0 == 200
    }

    fn told_and_recovered_from(folder: &Path, fault: Fault) {
        let faulty = Faulty::start(folder, fault.name());
        let service = &faulty.service;
        assert_eq!(add(service, 1).0, 200);
        faulty.set(fault, true);
        let (status, answer) = add(service, 2);
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("wisdom")), "{answer}");
        let (status, answer) = service.get("/readyz");
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("wisdom")), "{answer}");
        // Answers that need no disk go on.
        let (status, answer) = service.recommend("?device=h200&generate=heat:500", "", b"");
        assert_eq!(status, 200, "{answer}");
        assert!(is_known(service, 1));
        // A job cannot be kept.
        let (status, answer) = service.recommend("?effort=measure&generate=heat:500", "", b"");
        assert_eq!(status, 503, "{answer}");
        faulty.set(fault, false);
        let start = Instant::now();
        while add(service, 3).0 != 200 {
            assert!(start.elapsed() < Duration::from_secs(20), "it recovers by itself");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(service.get("/readyz").0, 200);
        let query = "?effort=measure&generate=heat:500&budget=2";
        let (status, answer) = service.recommend(query, "", b"");
        assert_eq!(
            (status, &answer["ranking"][0]["source"]),
            (200, &json!("measured")),
            "{answer}"
        );
        faulty.service.signal("TERM");
        let faulty = faulty.again();
        assert!(is_known(&faulty.service, 1) && is_known(&faulty.service, 3));
        assert_eq!(faulty.service.get("/jobs").1["jobs"][0]["status"], "succeeded");
    }

    fn a_clock_that_steps_harms_nothing(folder: &Path) {
        let faulty = Faulty::start(folder, "clock");
        let service = &faulty.service;
        let mut number = 0;
        for fault in [Fault::Ahead, Fault::Behind] {
            let query = "?effort=exhaustive&generate=heat:500&budget=3&wait_ms=0";
            let (status, job) = service.recommend(query, "", b"");
            assert_eq!(status, 202, "{job}");
            number += 1;
            let at_work = |job: &Value| job["status"] != "enqueued";
            service.job_when(number, at_work);
            faulty.set(fault, true);
            let ended = service.ended_job(number);
            assert_eq!(ended["status"], "succeeded", "{}: {ended}", fault.name());
            let took = ended["duration_s"].as_f64().expect("a number");
            assert!((0.0..600.0).contains(&took), "{}: it took {took} s", fault.name());
            assert_eq!(add(service, number).0, 200);
            assert_eq!(service.get("/readyz").0, 200);
            faulty.set(fault, false);
        }
        faulty.set(Fault::Behind, true);
        faulty.service.signal("TERM");
        let faulty = faulty.again();
        assert!((1..=number).all(|number| is_known(&faulty.service, number)));
        assert_eq!(faulty.service.get("/jobs?limit=9").1["total"], number);
        faulty.set(Fault::Behind, false);
    }

    fn no_memory(folder: &Path) {
        let limited = folder.join("limited");
        let script = format!(
            "#!/bin/sh\nulimit -v 3000000\nexec '{}' \"$@\"\n",
            Path::new(env!("CARGO_BIN_EXE_ellect")).display()
        );
        std::fs::write(&limited, script).expect("writable");
        let mode = std::process::Command::new("chmod").arg("+x").arg(&limited).status();
        assert!(mode.expect("chmod runs").success());
        // More memory than the system gives.
        let mut service = serve_by(&limited, &["--memory", "64G", "--workers", "2"]);
        let (status, answer) =
            service.recommend("?device=h200&generate=elasticity:2000000", "", b"");
        assert_eq!((status, &answer["error"]["code"]), (429, &json!("memory")), "{answer}");
        assert!(service.process.try_wait().expect("it is asked").is_none(), "it runs");
        assert_eq!(service.recommend("?device=h200&generate=heat:500", "", b"").0, 200);
    }
}
