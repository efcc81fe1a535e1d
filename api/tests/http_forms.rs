//! Tests of the forms of the interface: media types, versions of HTTP, origins, logs, the document of
//! the interface, and settings that change while the service runs.

mod service;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use service::{Service, sample, serve};

#[test]
fn a_browser_gets_a_page_and_a_program_gets_json() {
    let service = serve(&[]);
    let target = "/recommend?device=h200&generate=heat:2000&top=3";
    for (accept, media) in [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("text/plain;q=0.5, application/json;q=0.2", "text/plain"),
        ("*/*", "application/json"),
        ("image/png", "application/json"),
    ] {
        let answer = service.ask("POST", target, &format!("Accept: {accept}\r\n"), b"");
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains(&format!("content-type: {media}")), "{}", answer.head);
        assert!(answer.head.contains("vary: accept"), "{}", answer.head);
    }
    let page = service.ask("POST", target, "Accept: text/html\r\n", b"");
    let text = String::from_utf8(page.body).expect("text");
    assert!(text.starts_with("<!doctype html>") && text.matches("<tr>").count() == 4, "{text}");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
}

#[test]
fn every_route_of_the_document_is_there_and_no_other_method() {
    let service = serve(&[]);
    let (status, document) = service.json("GET", "/openapi.json", b"");
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    let paths = document["paths"].as_object().expect("an object");
    for (path, methods) in paths {
        let target = path
            .replace("{fingerprint}", "00000000000000000000000000000000")
            .replace("{id}", "1")
            .replace("{device}", "cpu")
            .replace("{precision}", "f64");
        for method in ["get", "post", "put", "delete", "patch", "options"] {
            let answer = service.ask(&method.to_uppercase(), &target, "", b"");
            let is_there = methods.get(method).is_some();
            assert_eq!(answer.status == 405, !is_there, "{method} {path}: {}", answer.status);
            if !is_there {
                let error: Value = serde_json::from_slice(&answer.body).expect("JSON");
                assert_eq!(error["error"]["code"], "method");
                assert!(answer.head.contains("allow: "), "{}", answer.head);
            }
        }
    }
    let names = |path: &str, method: &str| {
        let all = document["paths"][path][method]["parameters"].as_array().expect("a list").iter();
        all.map(|one| one["name"].as_str().expect("text").to_string()).collect::<Vec<_>>()
    };
    assert!(names("/recommend", "post").contains(&"wait_ms".to_string()));
    assert_eq!(names("/jobs/{id}", "delete"), ["id"]);
    let page = service.ask("GET", "/docs", "", b"");
    let text = String::from_utf8(page.body).expect("text");
    assert!(paths.keys().all(|path| text.contains(path)), "{text}");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(!text.contains("src="), "the page loads nothing");
}

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = [0, 0, payload.len() as u8];
    [&length[..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn version_2_of_http_is_spoken_with_prior_knowledge() {
    let service = serve(&[]);
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    // GET, http, and the path and host as literals.
    let head = [&[0x82, 0x86, 0x44, 8][..], b"/version", &[0x41, 1, b'x']].concat();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // A client may send the first bytes alone.
    stream.write_all(&preface[..2]).and_then(|()| stream.flush()).expect("it reads");
    std::thread::sleep(Duration::from_millis(50));
    stream.write_all(&preface[2..]).expect("it reads");
    for stream_id in [1, 3] {
        let settings = if stream_id == 1 { frame(4, 0, 0, b"") } else { Vec::new() };
        stream.write_all(&settings).expect("it reads");
        stream.write_all(&frame(1, 5, stream_id, &head)).expect("it reads");
        let mut body = Vec::new();
        loop {
            let mut start = [0; 9];
            stream.read_exact(&mut start).expect("a frame");
            let length = usize::from(start[1]) << 8 | usize::from(start[2]);
            let mut payload = vec![0; length];
            stream.read_exact(&mut payload).expect("a payload");
            if start[3] == 0 {
                body.extend(payload);
                if start[4] & 1 == 1 {
                    break;
                }
            }
        }
        let version: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(version, json!({"version": env!("CARGO_PKG_VERSION")}));
    }
    // Methods of version 1 that begin alike are not mistaken.
    assert_eq!(service.send("PROPFIND", "/version", "", b"").0, 405);
}

#[test]
fn pages_of_other_origins_may_ask_only_if_that_is_configured() {
    let origin = "Origin: https://team.example\r\n";
    let preflight = format!("{origin}Access-Control-Request-Method: POST\r\n");
    let closed = serve(&[]);
    let answer = closed.ask("GET", "/version", origin, b"");
    assert!(answer.status == 200 && !answer.head.contains("access-control"), "{}", answer.head);
    assert_eq!(closed.ask("OPTIONS", "/recommend", &preflight, b"").status, 405);
    let open = serve(&["--cors", "https://team.example,http://localhost:8080"]);
    let answer = open.ask("OPTIONS", "/recommend", &preflight, b"");
    assert_eq!(answer.status, 200);
    for stated in ["access-control-allow-origin: https://team.example", "GET,POST,PUT,DELETE"] {
        assert!(answer.head.contains(stated), "{}", answer.head);
    }
    let answer = open.ask("GET", "/version", "Origin: https://other.example\r\n", b"");
    assert!(!answer.head.contains("access-control-allow-origin"), "{}", answer.head);
    let wrong = Command::new(env!("CARGO_BIN_EXE_ellect"))
        .args(["serve", "--cors", "team.example"])
        .output()
        .expect("it ends");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("https://name.example"));
}

#[test]
fn the_log_is_an_object_on_each_line_if_that_is_asked_for() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let supervisor = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
    let mut process = Command::new(env!("CARGO_BIN_EXE_ellect"))
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--data"])
        .arg(folder.path())
        .env("NOTIFY_SOCKET", folder.path().join("notify"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stderr.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    };
    let listening = next();
    let message = listening["message"].as_str().expect("text");
    let address = message.split("http://").nth(1).expect("an address").to_string();
    let service = Service { process, address, data: String::new() };
    let target = "/recommend?device=h200&generate=heat:500";
    assert_eq!(service.send("POST", target, "X-Request-Id: own\r\n", b"").0, 200);
    let line = next();
    assert_eq!((&line["status"], &line["level"]), (&json!(200), &json!("INFO")), "{line}");
    let span = &line["span"];
    assert_eq!((&span["id"], &span["route"]), (&json!("own"), &json!("/recommend")), "{line}");
    assert!(span["choose_s"].is_number() && span["choice"].is_string(), "{line}");
    // A supervisor such as systemd is told of the start and of the end.
    service.signal("TERM");
    for state in ["READY=1\n", "STOPPING=1\n"] {
        let mut told = [0; 64];
        let bytes = supervisor.recv(&mut told).expect("it is told");
        assert_eq!(String::from_utf8_lossy(&told[..bytes]), state);
    }
}

#[test]
fn a_client_that_has_gone_is_counted_and_its_job_goes_on() {
    let service = serve(&[]);
    let matrix = sample("circuit");
    let target = "/recommend?effort=exhaustive&budget=4";
    let mut stream = service.begin("POST", target, "", matrix.len());
    stream.write_all(&matrix).expect("it reads");
    // The job is there once the service has kept its matrix.
    while service.get("/jobs").1["total"] == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    service.job_when(1, |job| job["status"] == "processing");
    drop(stream);
    let gone = "ellect_requests_total{route=\"/recommend\",status=\"499\"}";
    let noticed = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        service.figure(gone) == 1.0
    });
    assert!(noticed, "the client has gone");
    assert_eq!(service.ended_job(1)["status"], "succeeded");
    assert_eq!(service.figure("ellect_jobs_processing"), 0.0);
}

#[test]
fn settings_are_read_again_and_wrong_ones_change_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let (config, tokens) = (folder.path().join("ellect.toml"), folder.path().join("tokens"));
    let name = tokens.to_str().expect("text");
    let write = |max_body: &str| {
        let text = format!("max_body = \"{max_body}\"\ntokens = \"{name}\"\n");
        std::fs::write(&config, text).expect("a file");
    };
    let token = |token: &str| std::fs::write(&tokens, format!("read {token}\n")).expect("a file");
    write("1000");
    token("0123456789abcdef");
    let service = serve(&["--config", config.to_str().expect("text")]);
    let matrix = sample("circuit");
    let status = |token: &str| {
        let headers = format!("Authorization: Bearer {token}\r\n");
        service.recommend("?device=h200", &headers, &matrix).0
    };
    let becomes = |token: &str, expected: u16| {
        let became = (0..250).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            status(token) == expected
        });
        assert!(became, "{} in place of {expected}", status(token));
    };
    assert_eq!(status("0123456789abcdef"), 413);
    write("1M");
    token("fedcba9876543210");
    service.signal("HUP");
    becomes("fedcba9876543210", 200);
    assert_eq!(status("0123456789abcdef"), 401);
    for wrong in ["much", "1M\"\nnosuch = \"1"] {
        write(wrong);
        service.signal("HUP");
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(status("fedcba9876543210"), 200);
    }
    write("1000");
    service.signal("HUP");
    becomes("fedcba9876543210", 413);
}
