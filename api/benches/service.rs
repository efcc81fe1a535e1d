//! Load on the service from a second process on loopback, beside a bare axum handler.
//!
//! Run `cargo bench -p ellect-api --bench service`; it takes about two minutes and prints the table
//! of `tests/results/service.md`. `ELLECT_PROGRAM` names another program than the one built here.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time of each row of the table.
const ROW: Duration = Duration::from_secs(5);

/// Number of clients that keep their connection.
const CLIENTS: usize = 16;

/// A running server.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts a program that writes its address after `http://` to standard error.
    fn start(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut log = BufReader::new(process.stderr.take().expect("piped"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(log.read_line(&mut line).expect("text") > 0, "it ended before it listened");
            if let Some((_, address)) = line.trim().split_once("http://") {
                break address.parse().expect("an address");
            }
        };
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Server { process, address }
    }

    fn ellect(program: &str, data: &std::path::Path) -> Self {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        // A line for each request is part of the service.
        Server::start(command.env("NO_COLOR", "1").env("RUST_LOG", "info"))
    }

    /// Returns the resident memory now and at most, in MB.
    fn memory(&self) -> [u64; 2] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap_or_default();
        ["VmRSS:", "VmHWM:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
        })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream
    }
}

/// Sends one request and reads its answer; returns the status.
fn ask(stream: &mut TcpStream, target: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
    let length = body.len();
    let method = if target.starts_with("/recommend/") { "GET" } else { "POST" };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let small = body.len() < 1 << 16;
    if small {
        stream.write_all(&[head.as_bytes(), body].concat())?;
    } else {
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
    }
    let mut read = Vec::with_capacity(1 << 16);
    let mut buffer = [0; 1 << 16];
    loop {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&buffer[..got]);
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        if read.len() >= end + 4 + length {
            let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
            return Ok((status, read.split_off(end + 4)));
        }
    }
}

/// Times of answers in ascending order, in milliseconds.
struct Times(Vec<f64>);

impl Times {
    fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share) as usize).copied().unwrap_or(f64::NAN)
    }
}

/// Asks from several clients for [`ROW`]; `body` gives the body of a client's n-th request.
fn load(server: &Server, target: &str, body: impl Fn(usize, usize) -> Vec<u8> + Sync) -> Times {
    let times = Mutex::new(Vec::new());
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (times, ended, body) = (&times, &ended, &body);
            scope.spawn(move || {
                let mut stream = server.connect();
                let mut own = Vec::new();
                for n in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let body = body(client, n);
                    let start = Instant::now();
                    let (status, _) = ask(&mut stream, target, &body).expect("an answer");
                    assert_eq!(status, 200, "{target}");
                    own.push(start.elapsed().as_secs_f64() * 1e3);
                }
                times.lock().expect("no panic").append(&mut own);
            });
        }
        std::thread::sleep(ROW);
        ended.store(true, Ordering::Relaxed);
    });
    let mut times = times.into_inner().expect("no panic");
    times.sort_by(f64::total_cmp);
    Times(times)
}

fn row(name: &str, times: &Times) {
    let rate = times.0.len() as f64 / ROW.as_secs_f64();
    let [p50, p99] = [0.5, 0.99].map(|share| times.at(share));
    println!("| {name} | {rate:.0}/s | {p50:.1} ms | {p99:.1} ms |");
}

/// Returns a Matrix Market file of a generated matrix.
fn matrix(program: &str, spec: &str) -> Vec<u8> {
    let output = Command::new(program).args(["generate", spec]).output();
    let text = output.expect("it runs").stdout;
    assert!(text.len() > 1000, "{spec} was not generated");
    text
}

fn main() {
    if std::env::args().any(|word| word == "--bare") {
        return bare();
    }
    let data = tempfile::tempdir().expect("a folder");
    let program = std::env::var("ELLECT_PROGRAM");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_ellect").to_string());
    let small = matrix(&program, "stencil5:1400");
    println!("| {CLIENTS} keep-alive clients, {} s each | rate | p50 | p99 |", ROW.as_secs());
    println!("|---|---|---|---|");
    let this = std::env::current_exe().expect("it runs");
    let handler = Server::start(Command::new(this).arg("--bare"));
    row(
        "a bare axum handler that reads the small matrix",
        &load(&handler, "/recommend", |_, _| small.clone()),
    );
    drop(handler);

    let server = Server::ellect(&program, data.path());
    let target = "/recommend?device=h200";
    let mut stream = server.connect();
    let (_, answer) = ask(&mut stream, target, &small).expect("an answer");
    let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
    let mut features = answer["features"].clone();
    let entries = features["nnz"].as_u64().expect("a number");
    row(
        &format!("a matrix of {entries} nonzeros, the same"),
        &load(&server, target, |_, _| small.clone()),
    );
    let numbered = |client: usize, n: usize| {
        // A comment after the first line makes each body another one.
        let end = small.iter().position(|&byte| byte == b'\n').expect("lines") + 1;
        [&small[..end], format!("%{client} {n}\n").as_bytes(), &small[end..]].concat()
    };
    row("the same matrix, never the same body", &load(&server, target, numbered));
    let print = answer["fingerprint"].as_str().expect("it was analysed");
    let known = format!("/recommend/{print}?device=h200&spmvs=5000");
    row("by fingerprint, another number of products", &load(&server, &known, |_, _| Vec::new()));
    let same = serde_json::json!({"features": features}).to_string().into_bytes();
    row("features alone, the same", &load(&server, target, |_, _| same.clone()));
    let base = features["bandwidth"].as_f64().unwrap_or(0.0);
    features["bandwidth"] = 0.into();
    let features = &features;
    let changing = |client: usize, n: usize| {
        let mut features = features.clone();
        features["bandwidth"] = (base + (client + CLIENTS * n) as f64).into();
        serde_json::json!({"features": features}).to_string().into_bytes()
    };
    row("features alone, always others", &load(&server, target, changing));
    large(&server, &program);
    crowd(&server);
}

/// Times one large matrix: the first time, again, and by its fingerprint.
fn large(server: &Server, program: &str) {
    let text = matrix(program, "elasticity:230000");
    println!("\n| one client, a text of {} MB | time | memory at most |", text.len() / 1_000_000);
    println!("|---|---|---|");
    let mut stream = server.connect();
    let mut print = String::new();
    for name in ["first time", "again", "once more"] {
        let start = Instant::now();
        let (status, answer) =
            ask(&mut stream, "/recommend?device=h200", &text).expect("an answer");
        let ms = start.elapsed().as_secs_f64() * 1e3;
        assert_eq!(status, 200);
        let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        print = answer["fingerprint"].as_str().expect("it was analysed").to_string();
        println!("| {name} | {ms:.0} ms | {} MB |", server.memory()[1]);
    }
    let start = Instant::now();
    let target = format!("/recommend/{print}?device=h200&spmvs=10");
    assert_eq!(ask(&mut stream, &target, b"").expect("an answer").0, 200);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    println!("| by fingerprint | {ms:.1} ms | |");
}

/// Sends 100 bodies of 5 MB at once, and holds idle connections and half heads.
fn crowd(server: &Server) {
    let body = vec![b'x'; 5_000_000];
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let one = || {
            ask(&mut server.connect(), "/recommend?device=h200", &body).map(|(status, _)| status)
        };
        let all: Vec<_> = (0..100).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    let of = |wanted: fn(&u16) -> bool| statuses.iter().flatten().filter(|s| wanted(s)).count();
    println!(
        "\n100 uploads of 5 MB at once: {} read and answered (400: no matrix), {} asked to come back \
              (429 or 503), {} broken; memory at most {} MB.",
        of(|&s| s == 400),
        of(|&s| s == 429 || s == 503),
        statuses.iter().filter(|one| one.is_err()).count(),
        server.memory()[1]
    );
    let print = |crowd: &str| {
        let times =
            load(server, "/recommend?device=h200&generate=stencil5:1000", |_, _| Vec::new());
        println!("{crowd}: p99 of a kept answer {:.1} ms.", times.at(0.99));
    };
    print("No other connections");
    let idle: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    let mut half: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"POST /recommend HTTP/1.1\r\nHo").expect("it reads");
    }
    print("1,000 idle connections and 200 half heads");
    drop((idle, half));
    std::thread::sleep(Duration::from_secs(1));
    println!("Memory at the end: {} MB.", server.memory()[0]);
}

/// Serves a handler that reads the body and answers with its length.
fn bare() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let handler = async |body: axum::body::Bytes| body.len().to_string();
        let router = axum::Router::new()
            .route("/recommend", axum::routing::post(handler))
            .layer(axum::extract::DefaultBodyLimit::disable());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        eprintln!("http://{}", listener.local_addr().expect("an address"));
        axum::serve(listener, router).await.expect("it serves");
    });
}
