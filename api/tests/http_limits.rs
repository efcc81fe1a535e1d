//! Tests of the service under hostile and unlucky clients.

mod service;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use service::{Service, answer, number_in, sample, serve, serve_by};

/// Reads one answer of a connection that stays open; returns the status and body.
fn next_answer(stream: &mut TcpStream) -> (u16, Value) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.and_then(|text| text.parse().ok()).expect("a length")];
    stream.read_exact(&mut body).expect("a body");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// Tells whether the service closes the connection within this time.
fn is_closed_within(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).expect("a limit");
    let start = Instant::now();
    let mut rest = Vec::new();
    // A closed connection may also be reset.
    let ended = stream.read_to_end(&mut rest);
    !matches!(ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        && start.elapsed() < time
}

/// Returns the largest memory that the service has had, in bytes.
#[cfg(target_os = "linux")]
fn peak_memory(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a figure");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}

#[test]
fn refused_bodies_are_read_so_that_callers_see_the_answer() {
    let service = serve(&["--max-body", "100000"]);
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    let matrix = sample("circuit");
    let send = |stream: &mut TcpStream, target: &str, body: &[u8]| {
        let length = body.len();
        let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
        // Clients such as http.client of Python write all of the body before they read.
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body))
    };
    for _ in 0..2 {
        let large = vec![b' '; 20 << 20];
        send(&mut stream, "/recommend", &large).expect("the service reads on");
        let (status, body) = next_answer(&mut stream);
        let error = &body["error"];
        assert_eq!(
            (status, &error["code"], &error["kind"]),
            (413, &json!("limit"), &json!("limit"))
        );
        assert_eq!(error["detail"]["setting"], "max_body", "{body}");
        // The connection stays usable.
        send(&mut stream, "/recommend?device=nosuch", &matrix).expect("the service reads on");
        let (status, body) = next_answer(&mut stream);
        assert_eq!((status, &body["error"]["code"]), (400, &json!("device")));
        send(&mut stream, "/recommend", &matrix).expect("the service reads on");
        assert_eq!(next_answer(&mut stream).0, 200);
    }
}

#[test]
fn a_client_that_waits_for_status_100_is_refused_before_it_sends() {
    let service = serve(&["--max-body", "1000"]);
    let stream = service.begin("POST", "/recommend", "Expect: 100-continue\r\n", 1001);
    let answer = answer(stream, b"");
    assert_eq!(answer.status, 413, "{}", answer.head);
}

#[test]
fn connections_without_a_request_are_closed_and_others_are_served() {
    let service = serve(&["--idle", "1s"]);
    let connect = || TcpStream::connect(&service.address).expect("it listens");
    let mut silent = connect();
    let mut half = connect();
    half.write_all(b"GET /healthz HTTP/1.1\r\nHos").expect("it reads");
    let mut used = connect();
    used.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    assert_eq!(next_answer(&mut used).0, 200);
    assert_eq!(service.send("GET", "/healthz", "", b"").0, 200);
    for (name, stream) in [("silent", &mut silent), ("half", &mut half), ("used", &mut used)] {
        assert!(is_closed_within(stream, Duration::from_secs(10)), "{name}");
    }
}

#[test]
fn one_address_has_a_limited_number_of_connections() {
    let service = serve(&["--max-connections-by-address", "3"]);
    let held = [(); 3].map(|()| {
        let mut stream = TcpStream::connect(&service.address).expect("it listens");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
        assert_eq!(next_answer(&mut stream).0, 200);
        stream
    });
    let refused = service.ask("POST", "/recommend", "", &sample("elasticity"));
    let body: Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!((refused.status, &body["error"]["code"]), (429, &json!("connections")), "{body}");
    assert!(refused.head.contains("retry-after: "), "{}", refused.head);
    drop(held);
    let served = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        service.ask("GET", "/healthz", "", b"").status == 200
    });
    assert!(served, "the places are free again");
}

#[cfg(target_os = "linux")]
#[test]
fn small_bodies_take_little_memory_whatever_they_claim() {
    let service = serve(&["--memory", "1G"]);
    assert_eq!(service.recommend("?device=h200", "", &sample("circuit")).0, 200);
    let before = peak_memory(&service);
    for size in ["4194304 4194304 1", "4000000000 1 1", "1 4000000000 1", "2 2 90000000"] {
        let body = format!("%%MatrixMarket matrix coordinate real general\n{size}\n1 1 1\n");
        let (status, answer) = service.recommend("?device=h200", "", body.as_bytes());
        assert!(status == 413 || status == 400, "{size}: {answer}");
    }
    let npy = b"PK\x03\x04 and no more";
    assert_eq!(service.recommend("", "", npy).0, 400);
    let more = peak_memory(&service) - before;
    assert!(more < 64 << 20, "{more} bytes for small bodies");
}

#[test]
fn a_matrix_over_the_memory_of_the_service_is_refused_with_figures() {
    let service = serve(&["--memory", "40M"]);
    let (status, answer) = service.recommend("?device=h200", "", &sample("circuit"));
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = service.recommend("?generate=stencil5:1000000", "", b"");
    let detail = &answer["error"]["detail"];
    assert_eq!((status, &detail["setting"]), (413, &json!("memory")), "{answer}");
    assert!(detail["got"].as_u64() > detail["limit"].as_u64(), "{answer}");
    // A body without a length that does not fit into memory goes to a file.
    let mut stream = TcpStream::connect(&service.address).expect("it listens");
    let head = "POST /recommend HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut body = b"%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 1\n".to_vec();
    body.resize(1 << 20, b'\n');
    for _ in 0..16 {
        stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).expect("it reads");
        stream.write_all(&body).and_then(|()| stream.write_all(b"\r\n")).expect("it reads");
        body.fill(b'\n');
    }
    stream.write_all(b"0\r\n\r\n").expect("it reads");
    let (status, answer) = next_answer(&mut stream);
    assert_eq!((status, &answer["features"]["nnz"]), (200, &json!(1)), "{answer}");
}

#[test]
fn a_matrix_that_needs_more_than_its_body_suggests_is_read_again() {
    let service = serve(&["--memory", "2G"]);
    // Many short lines: 6 bytes an entry, and one entry a row.
    let rows = 600_000;
    let mut text = format!("%%MatrixMarket matrix coordinate pattern general\n{rows} 1 {rows}\n");
    for row in 1..=rows {
        text += &format!("{row} 1\n");
    }
    let (status, answer) = service.recommend("?device=h200&top=1", "", text.as_bytes());
    assert_eq!((status, &answer["features"]["nnz"]), (200, &json!(rows)), "{answer}");
    let (status, answer) = service.recommend("?device=h200", "", &gzip(&text));
    assert_eq!((status, &answer["features"]["nnz"]), (200, &json!(rows)));
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(text.as_bytes()).and_then(|()| packed.finish()).expect("memory")
}

/// A service goes on measuring after its program file was replaced: on Linux, a measuring process is
/// started from the open image.
#[cfg(target_os = "linux")]
#[test]
fn a_replaced_program_file_harms_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("ellect");
    std::fs::hard_link(env!("CARGO_BIN_EXE_ellect"), &program).expect("on the same disk");
    let service = serve_by(&program, &[]);
    std::fs::remove_file(&program).expect("it is there");
    std::fs::write(&program, "another program").expect("a file");
    let query = "?effort=measure&budget=5&top=1";
    let (status, answer) = service.recommend(query, "", &sample("circuit"));
    assert_eq!((status, &answer["ranking"][0]["source"]), (200, &json!("measured")), "{answer}");
}

/// Returns matrices in several forms, and bodies that claim or expand to much more than they are.
fn bodies() -> Vec<Vec<u8>> {
    let text = sample("circuit");
    let packed = gzip(&String::from_utf8_lossy(&text));
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("circuit.mtx", options).expect("memory");
    archive.write_all(&text).expect("memory");
    let archive = archive.finish().expect("memory").into_inner();
    let zstd = zstd::encode_all(&text[..], 1).expect("memory");
    let head = "%%MatrixMarket matrix coordinate real general\n";
    let lying = format!("{head}4000000000 4000000000 4000000000\n1 1 1\n").into_bytes();
    let bomb = gzip(&format!("{head}9 9 4000000\n{}", "1 1 1\n".repeat(4_000_000)));
    let json = br#"{"nrows": 3, "ncols": 3, "indptr": [0, 1, 2, 3], "indices": [0, 1, 2], "data": [1, 2, 3]}"#;
    vec![text, packed, archive, zstd, lying, bomb, json.to_vec()]
}

/// `ELLECT_TEST_BODIES` is the number of bodies.
#[test]
fn random_cut_lying_and_expanding_bodies_never_end_the_service() {
    let mut service = serve(&["--memory", "512M", "--max-nonzeros", "1000000"]);
    let bodies = bodies();
    let mut state = 1_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for round in 0..number_in("ELLECT_TEST_BODIES", 200) {
        let whole = &bodies[random() % bodies.len()];
        // Every fourth body is whole, but for its changed bytes.
        let length = if random() % 4 == 0 { whole.len() } else { random() % whole.len() };
        let mut body = whole[..length].to_vec();
        for _ in 0..random() % 8 {
            let (at, byte) = (random(), random() as u8);
            if let Some(place) = body.len().checked_sub(1).map(|last| at % (last + 1)) {
                body[place] = byte;
            }
        }
        let (status, answer) = service.recommend("?device=h200&top=1", "", &body);
        assert!(status < 500, "round {round}: {answer}");
    }
    assert!(service.process.try_wait().expect("it is asked").is_none(), "it runs");
    assert!(
        Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().is_ok()
    );
    assert!(service.process.wait().expect("it ends").success());
}
