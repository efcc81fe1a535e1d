//! Tests of the service over real connections.

#[path = "../../tests/input/mod.rs"]
mod input;

mod service;

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

#[cfg(target_os = "linux")]
use service::children;
use service::{Service, answer, sample, serve};

#[test]
fn a_matrix_is_answered_with_the_json_of_the_command_line() {
    let service = serve(&[]);
    let query = "?device=h200&precision=f64&spmvs=1000";
    let (status, answer) = service.recommend(query, "", &sample("elasticity"));
    assert_eq!(status, 200, "{answer}");
    let output = Command::new(env!("CARGO_BIN_EXE_ellect"))
        .args(["recommend", "-", "--device", "h200", "--spmvs", "1000", "--json"])
        .args(["--data", &service.data])
        .stdin(
            std::fs::File::open(format!(
                "{}/../tests/data/elasticity.mtx",
                env!("CARGO_MANIFEST_DIR")
            ))
            .expect("a sample"),
        )
        .output()
        .expect("the program runs");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer, printed);
}

#[test]
fn all_candidates_are_ranked_by_the_model_for_few_products_too() {
    let service = serve(&[]);
    let ranked = |query: &str| {
        let (status, answer) = service.recommend(query, "", &sample("elasticity"));
        assert_eq!(status, 200, "{answer}");
        // The models that ship never saw these variants.
        let is_new = |entry: &&Value| {
            entry["candidate"].as_str().is_some_and(|name| name.starts_with("csr:kernel="))
        };
        let ranking = answer["ranking"].as_array().expect("a list").iter();
        let ranking = ranking.filter(|entry| !is_new(entry));
        ranking.map(|entry| entry["source"].clone()).collect::<Vec<_>>()
    };
    let all = ranked("?device=h200&effort=estimate");
    assert!(all.len() > 20 && all.iter().all(|source| source == "estimated"));
    for query in ["?device=h200&spmvs=10", "?device=h200&spmvs=10&precision=f32", "?device=cpu"] {
        let predicted = ranked(query);
        assert!(predicted.iter().all(|source| source == "predicted"), "{query}: {predicted:?}");
        assert!(!query.contains("h200") || predicted.len() == all.len(), "{query}");
    }
    let (_, stated) = service.send("GET", "/", "", b"");
    let stated = String::from_utf8_lossy(&stated);
    assert!(
        stated.contains("[default: predict]") && stated.contains("[default: rank]"),
        "{stated}"
    );
    // A program that prepares the matrix would not analyse it for 10 products.
    assert_eq!(ranked("?device=h200&spmvs=10&mode=rank").len(), all.len());
    assert!((2..10).contains(&ranked("?device=h200&spmvs=10&mode=prepare").len()));
}

#[test]
fn bodies_may_be_compressed_or_json() {
    let service = serve(&[]);
    let plain = sample("circuit");
    let (_, want) = service.recommend("?top=2", "", &plain);
    assert_eq!(want["ranking"].as_array().map(Vec::len), Some(2));
    for headers in ["", "Content-Encoding: gzip\r\n"] {
        assert_eq!(service.recommend("?top=2", headers, &input::gzip(&plain)), (200, want.clone()));
    }
    let zstd = input::zstd_of(&plain);
    assert_eq!(
        service.recommend("?top=2", "Content-Encoding: zstd\r\n", &zstd),
        (200, want.clone())
    );
    let csr = ellect::read::bytes::<f64>(&plain, &Default::default()).expect("a sample");
    let npz = input::Npz::csr(&csr).deflated();
    assert_eq!(service.recommend("?top=2", "", &npz), (200, want));
    let json = br#"{"nrows":2,"ncols":3,"row_ptr":[0,1,3],"col_idx":[2,0,1]}"#;
    let (status, answer) = service.recommend("", "", json);
    assert_eq!((status, &answer["features"]["nnz"]), (200, &3.into()));
    assert_eq!(service.recommend("", "Content-Encoding: br\r\n", b"x").0, 415);
    let complex = b"%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 2 0\n";
    let (status, answer) = service.recommend("", "", complex);
    let stated = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && stated.contains("real_part=true"), "{answer}");
    assert_eq!(service.recommend("?real_part=true", "", complex).0, 200);
    let (status, answer) = service.recommend("?complex=blocks", "", complex);
    assert_eq!((status, &answer["features"]["nnz"]), (200, &4.into()));
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for name in ["a.mtx", "b.mtx"] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).expect("memory");
        zip.write_all(&plain).expect("memory");
    }
    let zip = zip.finish().expect("memory").into_inner();
    let (status, answer) = service.recommend("", "", &zip);
    let stated = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && stated.contains("for instance member=a.mtx over HTTP"), "{answer}");
    assert_eq!(service.recommend("?member=b.mtx", "", &zip).0, 200);
}

#[test]
fn a_generated_matrix_needs_no_body_and_is_bounded() {
    let service = serve(&["--max-nonzeros", "60000", "--max-body", "1000000"]);
    let (status, answer) = service.recommend("?device=h200&generate=stencil5:10000", "", b"");
    assert_eq!(status, 200, "{answer}");
    let output = Command::new(env!("CARGO_BIN_EXE_ellect"))
        .args(["recommend", "--generate", "stencil5:10000", "--device", "h200", "--json"])
        .args(["--data", &service.data])
        .output()
        .expect("the program runs");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer, printed);

    let (_, stated) = service.send("GET", "/", "", b"");
    assert!(String::from_utf8_lossy(&stated).contains("generate=elasticity:600000"));
    for (generate, status, kind, stated) in [
        ("stencil5:20000", 413, "limit", "over this service's limit of 60000 (max_nonzeros)"),
        ("elasticity:100000000", 413, "limit", "(max_nonzeros)"),
        ("nosuch:10", 400, "argument", "there are: stencil5"),
        ("stencil5", 400, "argument", "no number of rows"),
    ] {
        let (got, answer) = service.recommend(&format!("?generate={generate}"), "", b"");
        let error = &answer["error"];
        assert_eq!((got, &error["kind"]), (status, &kind.into()), "{generate}: {answer}");
        assert!(error["message"].as_str().is_some_and(|m| m.contains(stated)), "{answer}");
    }
    let (status, answer) = service.recommend("?generate=stencil5:100", "", b"1 1 1");
    assert_eq!((status, &answer["error"]["kind"]), (400, &"argument".into()), "{answer}");
    let small = serve(&["--max-body", "100000"]);
    let (status, answer) = small.recommend("?generate=stencil5:10000", "", b"");
    let stated = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 413 && stated.contains("(max_body)"), "{answer}");
}

#[test]
fn wrong_requests_get_reasons() {
    let service = serve(&["--max-body", "100000"]);
    let broken = b"%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1.0\n";
    let (status, answer) = service.recommend("", "", broken);
    assert_eq!(status, 400);
    assert!(answer["error"]["message"].as_str().is_some_and(|m| m.contains("line 3")), "{answer}");
    for query in [
        "?device=nosuch",
        "?precision=f16",
        "?spmvs=-1",
        "?nosuch=1",
        "?effort=much",
        "?memory_limit=64X",
        "?updates=1.5",
        "?budget=0",
        "?top=1&top=2",
    ] {
        let (status, answer) = service.recommend(query, "", broken);
        assert_eq!(status, 400, "{query}: {answer}");
        let message = answer["error"]["message"].as_str().expect("text");
        assert!(!message.contains("--"), "messages speak of parameters: {message}");
    }
    let (_, answer) = service.recommend("?spmvs=1e6.5", "", broken);
    let message = answer["error"]["message"].as_str().expect("text");
    assert!(message.contains("'spmvs=': it is '1e6.5'; it must be a whole number"), "{message}");
    let (status, answer) = service.recommend("", "", &sample("elasticity"));
    assert_eq!((status, &answer["error"]["kind"]), (413, &"limit".into()), "{answer}");
    let claims = b"%%MatrixMarket matrix coordinate real general\n2 2 9999999999\n1 1 1\n";
    assert_eq!(service.recommend("", "", claims).0, 413);
    assert_eq!(service.recommend("", "", b"").0, 400);
    for (target, status) in [("/recommend", 405), ("/nosuch", 404)] {
        let (got, body) = service.send("GET", target, "", b"");
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(got == status && answer["error"]["kind"].is_string(), "{target}: {answer}");
    }
}

#[test]
fn a_body_that_is_announced_too_large_is_not_waited_for() {
    let service = serve(&["--max-body", "1000"]);
    let stream = service.begin("POST", "/recommend", "", 1001);
    let answer = answer(stream, b"");
    assert_eq!(answer.status, 413);
    assert!(answer.head.contains("x-request-id: "), "{}", answer.head);
}

#[test]
fn callers_beyond_the_queue_are_asked_to_come_back() {
    let service = serve(&["--workers", "1", "--queue", "0"]);
    let matrix = sample("circuit");
    // Bodies that arrive do not take the only place.
    let first = service.admitted(matrix.len());
    assert_eq!(service.recommend("", "", &matrix).0, 200);
    let others = [(); 7].map(|()| service.admitted(matrix.len()));
    let turned_away = service.ask("POST", "/recommend", "", &matrix);
    assert_eq!(turned_away.status, 503);
    assert!(turned_away.head.contains("retry-after: "), "{}", turned_away.head);
    assert_eq!(answer(first, &matrix).status, 200);
    drop(others);
    // The service frees the place a moment after it has answered.
    let answered = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        service.recommend("", "", &matrix).0 == 200
    });
    assert!(answered, "the place is free again");
}

#[cfg(target_os = "linux")]
#[test]
fn measuring_requests_share_one_process_that_is_kept() {
    let service = serve(&["--workers", "2"]);
    let matrix = sample("circuit");
    assert!(children(service.process.id()).is_empty());
    let query = "?effort=measure&budget=60&top=3";
    let measure = || {
        let (status, answer) = service.recommend(query, "", &matrix);
        assert_eq!((status, &answer["ranking"][0]["source"]), (200, &"measured".into()));
    };
    measure();
    let first = children(service.process.id());
    assert_eq!(first.len(), 1);
    std::thread::scope(|scope| {
        (0..3).for_each(|_| {
            scope.spawn(measure);
        });
    });
    assert_eq!(children(service.process.id()), first);
    // The service replaces a process that has ended.
    assert!(Command::new("kill").args(["-9", &first[0].to_string()]).status().is_ok());
    let (status, _) = service.recommend(&(query.to_string() + "&precision=f32"), "", &matrix);
    assert_eq!(status, 200);
    assert_eq!(service.figure("ellect_worker_restarts_total"), 1.0);
    let second = children(service.process.id());
    assert!(second.len() == 1 && second != first, "{second:?} after {first:?}");
}

#[test]
fn estimates_do_not_wait_for_measuring() {
    let service = serve(&["--workers", "1", "--queue", "1"]);
    let matrix = sample("circuit");
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // On this device one request is processed, one waits, and there is no place for a third.
        // The two differ in precision, so neither can use the other's measurements.
        for precision in ["f64", "f32"] {
            let (service, matrix, done) = (&service, &matrix, &done);
            scope.spawn(move || {
                let query = format!("?effort=exhaustive&budget=3&precision={precision}");
                assert_eq!(service.recommend(&query, "", matrix).0, 200);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
        assert_eq!(service.recommend("?effort=measure", "", &matrix).0, 503);
        for effort in ["estimate", "predict"] {
            assert_eq!(service.recommend(&format!("?effort={effort}"), "", &matrix).0, 200);
        }
        assert_eq!(done.load(Ordering::Relaxed), 0, "both still measure");
    });
}

#[test]
fn numbers_and_devices_are_understood_as_people_write_them() {
    let service = serve(&[]);
    let matrix = sample("circuit");
    let plain = "?device=h200&spmvs=1500000&memory_limit=64000000000";
    let short = "?device=H200&spmvs=1.5M&memory_limit=64G";
    let expected = service.recommend(plain, "", &matrix);
    assert_eq!((expected.0, expected.1["spmvs"].as_u64()), (200, Some(1_500_000)));
    assert_eq!(service.recommend(short, "", &matrix), expected);
}

/// Runs the program on the data folder of a service; returns its exit code and what it printed on
/// standard output and on standard error.
fn beside(service: &Service, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ellect"));
    let output = command.args(args).args(["--data", &service.data]).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("it ends"), text(&output.stdout), text(&output.stderr))
}

#[test]
fn commands_beside_a_service_read_and_add_measurements() {
    let service = serve(&[]);
    let matrix = sample("circuit");
    assert_eq!(service.recommend("?effort=measure&budget=20", "", &matrix).0, 200);
    let listed = || {
        let (code, list, stated) = beside(&service, &["wisdom", "list", "--json"]);
        assert_eq!(code, 0, "{stated}");
        let rows: Vec<Value> = serde_json::from_str(&list).expect("JSON");
        rows.iter().filter_map(|row| row["measurements"].as_u64()).sum::<u64>()
    };
    let first = listed();
    assert!(first > 1, "the service measured {first}");
    let file = format!("{}/../tests/data/circuit.mtx", env!("CARGO_MANIFEST_DIR"));
    let measure = ["measure", &file, "--precision", "f32", "--only", "csr", "--json"];
    let (code, measured, stated) = beside(&service, &measure);
    assert_eq!(code, 0, "{stated}");
    for args in [
        vec!["recommend", &file, "--json"],
        vec!["recommend", &file, "--effort", "measure", "--json"],
        vec!["wisdom", "export"],
        vec!["wisdom", "verify"],
    ] {
        let (code, text, stated) = beside(&service, &args);
        assert!(code == 0 && !text.is_empty(), "{args:?}: {stated}");
    }
    let (_, exported, _) = beside(&service, &["wisdom", "export"]);
    assert!(measured.lines().all(|line| exported.contains(line)), "{measured} in {exported}");
    for args in
        [&["wisdom", "prune"][..], &["wisdom", "repair"], &["serve", "--listen", "127.0.0.1:0"]]
    {
        let (code, _, stated) = beside(&service, args);
        assert!(code == 2 && stated.contains("in use by another process"), "{args:?}: {stated}");
    }
    // The service takes over what the command measured.
    let incoming = std::path::Path::new(&service.data).join("wisdom/incoming");
    let left = || std::fs::read_dir(&incoming).map_or(0, |files| files.count());
    for _ in 0..300 {
        if left() == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(left(), 0, "the service took nothing over");
    let then = listed();
    assert!(then > first, "{then} measurements, {first} before");
    let (status, ready) = service.send("GET", "/readyz", "", b"");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&ready));
}

#[test]
fn devices_that_cannot_measure_are_refused_before_the_body() {
    let service = serve(&[]);
    for (device, stated) in [("h200", "h200"), ("cuda:97", "cpu"), ("cuda:x", "cpu"), ("x", "cpu")]
    {
        let target = format!("/recommend?effort=measure&device={device}");
        // The test never sends the body.
        let answer = answer(service.begin("POST", &target, "", 1000), b"");
        let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!((answer.status, &body["error"]["kind"]), (400, &"device".into()), "{body}");
        assert!(body["error"]["message"].as_str().is_some_and(|m| m.contains(stated)), "{body}");
    }
}

#[test]
fn a_service_that_is_asked_to_stop_answers_what_it_took_on() {
    let mut service = serve(&[]);
    let matrix = sample("circuit");
    let stream = service.admitted(matrix.len());
    let id = service.process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(answer(stream, &matrix).status, 200);
    assert!(service.process.wait().expect("it ends").success());
    assert!(TcpStream::connect(&service.address).is_err());
}

#[test]
fn health_is_reported_and_many_requests_are_answered() {
    let service = serve(&[]);
    let (status, body) = service.send("GET", "/healthz", "", b"");
    let health: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((status, &health["status"]), (200, &"ok".into()));
    assert_eq!(service.send("GET", "/", "", b"").0, 200);
    let matrix = sample("convection_diffusion");
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| service.recommend("?device=h200&top=1", "", &matrix)))
            .collect();
        let answers: Vec<_> = all.into_iter().map(|one| one.join().expect("no panic")).collect();
        assert!(answers.iter().all(|answer| answer.0 == 200 && *answer == answers[0]));
    });
}
