//! Tests of shared wisdom through the program: the command line, the service, and hosts that tune one
//! corpus together. `api/tests/postgres.sh` runs them.

#![cfg(feature = "postgres")]

mod pg;
mod service;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pg::Server;
use serde_json::Value;

/// Returns the program on a data folder.
fn ellect(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ellect"));
    command.arg("--data").arg(data).args(arguments).env("NO_COLOR", "1");
    command
}

/// Runs a command; returns its exit code and both its outputs.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("it ends"), text(output.stdout), text(output.stderr))
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Measures a sample on a host, which then sends what it measured.
fn measured(data: &Path, url: &str, sample: &str) -> (i32, String, String) {
    let file = format!("{}/../tests/data/{sample}.mtx", env!("CARGO_MANIFEST_DIR"));
    let only = ["--only", "csr", "--shared-wisdom", url];
    run(&mut ellect(data, &[&["measure", &file][..], &only].concat()))
}

fn count(server: &Server, of: &str) -> u64 {
    server.sql(&format!("SELECT count(*) FROM {of}")).parse().expect("a number")
}

#[test]
fn shared_commands_send_and_show_the_state() {
    let Some(mut server) = Server::start() else { return };
    let (one, two) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
    let url = server.url("postgres");
    let (code, text, stated) =
        run(&mut ellect(one.path(), &["wisdom", "shared", "--shared-wisdom", &url]));
    assert_eq!(code, 0, "{stated}");
    assert!(text.starts_with("shared: postgres://postgres@/ellect on "), "{text}");
    let rest = "connected, schema 1, 0 records of 0 contributors, 0 in the outbox\n";
    assert!(text.ends_with(rest), "{text}");

    let (code, _, stated) = measured(one.path(), &url, "circuit");
    assert_eq!(code, 0, "{stated}");
    // A busy machine may leave records to the next command, as the first one says.
    let shown = || run(&mut ellect(one.path(), &["wisdom", "shared", "--shared-wisdom", &url])).1;
    assert!((0..10).any(|_| shown().ends_with(", 0 in the outbox\n")), "{stated}");
    let records = count(&server, "ellect.record");
    assert!(records >= 2, "a structure and measurements: {records}");

    // While it is away, everything works and waits.
    server.kill();
    let (code, _, stated) = measured(two.path(), &url, "circuit");
    assert_eq!(code, 0, "{stated}");
    assert!(stated.contains("choices go on without it"), "{stated}");
    assert!(stated.contains("records wait to be sent"), "{stated}");
    let (code, _, stated) =
        run(&mut ellect(two.path(), &["wisdom", "shared", "--shared-wisdom", &url]));
    assert_eq!(code, 2);
    assert!(stated.contains("error: shared wisdom at postgres://postgres@/ellect"), "{stated}");
    server.start_again();
    let mut shared = ellect(two.path(), &["wisdom", "shared", "--json"]);
    let (code, text, stated) = run(shared.env("ELLECT_SHARED_WISDOM", &url));
    assert_eq!(code, 0, "{stated}");
    let state: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&state["contributors"], &state["outbox"]), (&2.into(), &0.into()), "{state}");

    // A third host chooses from what the others measured.
    let three = tempfile::tempdir().expect("c");
    let file = format!("{}/../tests/data/circuit.mtx", env!("CARGO_MANIFEST_DIR"));
    let choose = ["recommend", &file, "--json", "--effort", "predict", "--shared-wisdom", &url];
    // A machine that is busy may take longer to connect than a choice waits.
    until("a choice uses what was measured", || {
        let (code, text, stated) = run(&mut ellect(three.path(), &choose));
        assert_eq!(code, 0, "{stated}");
        let choice: Value = serde_json::from_str(&text).expect("JSON");
        let ranked = choice["ranking"].as_array().expect("a list");
        let csr = ranked.iter().find(|one| one["candidate"] == "csr").expect("it is ranked");
        csr["source"] == "measured"
    });
}

#[test]
fn shared_passwords_are_never_shown() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("config.toml");
    let url = "postgres://host1:s3cret@127.0.0.1:9/ellect";
    std::fs::write(&file, format!("shared_wisdom = \"{url}\"\n")).expect("written");
    let file = file.display().to_string();
    let all: [&[&str]; 6] = [
        &["serve", "--config", &file, "--print-config"],
        &["serve", "--print-config", "--shared-wisdom", url],
        &["serve", "--config", &file, "--help"],
        &["wisdom", "shared", "--shared-wisdom", url],
        &["wisdom", "shared", "--shared-wisdom", "host=h password=s3cret"],
        &["wisdom", "shared", "--shared-wisdom", "postgres://a:s3cret@h/d?sslmode=s3cret1"],
    ];
    for arguments in all {
        for variable in [false, true] {
            let mut command = ellect(data.path(), arguments);
            if variable {
                command.env("ELLECT_SHARED_WISDOM", url);
            }
            let (_, text, stated) = run(&mut command);
            let both = format!("{text}{stated}").replace("s3cret1", "");
            assert!(!both.contains("s3cret"), "{arguments:?}: {both}");
        }
    }
    let (code, text, _) = run(&mut ellect(data.path(), all[0]));
    assert_eq!(code, 0);
    assert!(text.contains("shared_wisdom = \"postgres://host1@127.0.0.1:9/ellect\""), "{text}");
}

#[test]
fn a_service_with_shared_wisdom_goes_on_without_it() {
    let Some(server) = Server::start() else { return };
    let one = tempfile::tempdir().expect("a folder");
    let url = server.url("postgres");
    assert_eq!(measured(one.path(), &url, "circuit").0, 0);
    let service = service::serve(&["--shared-wisdom", &url]);
    until("it connects", || service.get("/readyz").1["shared"]["state"] == "connected");
    assert_eq!(service.figure("ellect_shared_away"), 0.0);
    let ask = |rows: u32| {
        let target = format!("/recommend?generate=heat:{rows}&effort=predict");
        let (status, _) = service.json("POST", &target, b"");
        assert_eq!(status, 200);
    };
    until("an answer uses what was measured", || {
        let (status, choice) =
            service.recommend("?effort=predict", "", &service::sample("circuit"));
        assert_eq!(status, 200);
        let ranked = choice["ranking"].as_array().expect("a list");
        ranked.iter().any(|one| one["source"] == "measured")
    });

    server.hang();
    (400..405).for_each(ask);
    let (status, ready) = service.get("/readyz");
    assert_eq!((status, &ready["shared"]["state"]), (200, &"away".into()), "{ready}");
    assert_eq!(service.figure("ellect_shared_away"), 1.0);
    // Measurements wait.
    let measure = "?effort=measure&budget=1&wait_ms=600000";
    let (status, _) = service.recommend(measure, "", &service::sample("elasticity"));
    assert_eq!(status, 200);
    assert!(service.figure("ellect_shared_outbox") >= 2.0);
    server.go_on();
    until("everything is sent", || service.figure("ellect_shared_outbox") == 0.0);
    until("it is there again", || service.figure("ellect_shared_away") == 0.0);
}

/// Starts to tune the corpus, with lines on standard error.
fn tuner(data: &Path, url: &str, part: &str) -> Child {
    let corpus = ["banded", "heat", "constant27", "rmat", "stencil5", "stencil7", "uniform"];
    let mut command = ellect(data, &["tune", "--precision", "f64", "--measure-only"]);
    command.args(["--each", "2s", "--share", part, "--shared-wisdom", url, "--matrix"]);
    for class in corpus {
        for rows in [300, 500] {
            command.arg(format!("{class}:{rows}"));
        }
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

#[test]
fn hosts_with_shared_wisdom_tune_one_corpus_and_make_up_for_one_that_dies() {
    let Some(server) = Server::start() else { return };
    let url = server.url("postgres");
    let [one, two, three] = [0; 3].map(|_| tempfile::tempdir().expect("a folder"));
    let made = ["wisdom", "shared", "--shared-wisdom", &url];
    assert_eq!(run(&mut ellect(one.path(), &made)).0, 0);
    server.sql("UPDATE ellect.meta SET lease_s = 3");
    let mut dies = tuner(one.path(), &url, "1/2");
    let lines = BufReader::new(dies.stderr.take().expect("piped")).lines();
    let told: Vec<String> = lines.take(2).map(|line| line.expect("text")).collect();
    assert!(told.iter().all(|line| line.contains(" f64: ")), "{told:?}");
    let second = tuner(two.path(), &url, "2/2");
    until("both hold a matrix", || {
        server.sql("SELECT count(DISTINCT holder) FROM ellect.item WHERE done IS NULL") == "2"
    });
    dies.kill().expect("killed");
    dies.wait().expect("it ends");
    let held = server.sql("SELECT source FROM ellect.item WHERE until > now()");
    let output = second.wait_with_output().expect("it ends");
    let stated = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stated}");

    // Every matrix is done and measured, those of the dead host and the one it held among them.
    assert_eq!(count(&server, "ellect.item"), 14);
    assert_eq!(count(&server, "ellect.item WHERE done IS NULL"), 0);
    let measured =
        "(SELECT DISTINCT body->>'source' FROM ellect.record AS s WHERE kind = 'structure'
        AND EXISTS (SELECT FROM ellect.record AS m WHERE m.fingerprint = s.fingerprint
            AND m.candidate = 'csr' AND m.body->>'outcome' = 'timed')) AS all_of";
    assert_eq!(count(&server, measured), 14, "{held}: {stated}");
    assert_eq!(count(&server, "ellect.item WHERE tries = 2"), 1, "one was taken again: {held}");
    let by = "(SELECT DISTINCT contributor FROM ellect.record) AS all_of";
    assert_eq!(count(&server, by), 2);

    // A host that comes late finds nothing to do.
    let late = tuner(three.path(), &url, "1/1").wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&late.stdout).into_owned();
    assert!(late.status.success() && text.contains("0 matrices measured"), "{text}");
}
