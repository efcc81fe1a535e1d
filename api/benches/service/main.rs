//! Load on the service from a second process on loopback, beside a bare axum handler.
//!
//! Run `cargo bench -p ellect-api --bench service`; it takes about two minutes and prints the tables
//! of `tests/results/service.md`. With `-- --soak 30m` it instead sends a mixed load for that time and
//! prints the memory and the open descriptors of the service. `ELLECT_PROGRAM` names another program
//! than the one built here.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod crowd;
mod matrices;
mod server;
mod soak;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use matrices::{npz, text};
use server::{Server, ask};

/// Time of each row of the table.
const ROW: Duration = Duration::from_secs(5);

/// Number of clients that keep their connection.
const CLIENTS: usize = 16;

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

/// Adds an entry at this row and column to a Matrix Market file of a square matrix of at least 1,100
/// rows with this number of entries.
fn with_entry(text: &[u8], entries: u64, [row, column]: [usize; 2]) -> Vec<u8> {
    let [before, after] = [entries, entries + 1].map(|n| format!(" {n}\n").into_bytes());
    let at = text.windows(before.len()).position(|part| part == before).expect("its size line");
    let end = format!("{row} {} 1\n", 101 + column % 1000).into_bytes();
    [&text[..at], &after, &text[at + before.len()..], &end].concat()
}

fn main() {
    if std::env::args().any(|word| word == "--bare") {
        return bare();
    }
    let words: Vec<String> = std::env::args().collect();
    let soak = words.iter().position(|word| word == "--soak");
    let data = tempfile::tempdir().expect("a folder");
    let program = std::env::var("ELLECT_PROGRAM");
    let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_ellect").to_string());
    if let Some(at) = soak {
        let minutes = words.get(at + 1).and_then(|text| text.strip_suffix('m')?.parse().ok());
        let time = Duration::from_secs_f64(60.0 * minutes.unwrap_or(30.0));
        return soak::run(&Server::ellect(&program, data.path()), &program, time);
    }
    let small = text(&program, "stencil5:1400");
    println!("| {CLIENTS} keep-alive clients, {} s each | rate | p50 | p99 |", ROW.as_secs());
    println!("|---|---|---|---|");
    let handler = bare_handler();
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
    let other = |client: usize, n: usize| with_entry(&small, entries, [1 + client, n]);
    row("always another matrix", &load(&server, target, other));
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
    drop(server);
    large(&program);
    crowd::run(&Server::ellect(&program, data.path()));
}

/// Starts this program as a handler that only reads.
fn bare_handler() -> Server {
    let this = std::env::current_exe().expect("it runs");
    Server::start(Command::new(this).arg("--bare"))
}

/// Times large matrices, each on a new service: the first time, again, and by its fingerprint; beside
/// a handler that only reads the body.
fn large(program: &str) {
    let csr = ellect::generate::by_name("elasticity", 230_000, 1).expect("a class");
    let (entries, bytes) = (csr.nnz(), csr.bytes());
    let npz = npz(&csr);
    drop(csr);
    println!("\nA matrix of {entries} nonzeros, {} MB in CSR.", bytes / 1_000_000);
    println!("\n| one client | time | memory at most |\n|---|---|---|");
    for (form, body) in [("npz", npz), ("text", text(program, "elasticity:230000"))] {
        let data = tempfile::tempdir().expect("a folder");
        let server = Server::ellect(program, data.path());
        let mut stream = server.connect();
        let mut once = |target: &str, body: &[u8]| {
            let (status, answer) = ask(&mut stream, target, body).expect("an answer");
            assert_eq!(status, 200);
            answer
        };
        let mut timed = |name: &str, target: &str, body: &[u8], times: usize| {
            let (time, answer) = repeated(times, || once(target, body));
            println!("| {name} | {time} | {} MB |", server.memory()[1]);
            answer
        };
        let form = format!("{form} of {} MB", body.len() / 1_000_000);
        let target = "/recommend?device=h200";
        let handler = bare_handler();
        let mut to_bare = handler.connect();
        let (only_read, _) =
            repeated(3, || ask(&mut to_bare, "/recommend", &body).expect("an answer"));
        println!("| {form}, only read by a bare axum handler | {only_read} | |");
        drop((to_bare, handler));
        timed("any matrix of 1,000 rows", "/recommend?device=h200&generate=heat:1000", b"", 1);
        let answer = timed(&format!("{form}, first time"), target, &body, 1);
        timed(&format!("{form}, again"), target, &body, 9);
        let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        let print = answer["fingerprint"].as_str().expect("it was analysed");
        for spmvs in [10, 20] {
            let target = format!("/recommend/{print}?device=h200&spmvs={spmvs}");
            timed(&format!("its fingerprint, {spmvs} products"), &target, b"", 1);
        }
    }
}

/// Repeats a request; returns its time, or the median and the range of its times, and the last answer.
fn repeated<T>(times: usize, mut request: impl FnMut() -> T) -> (String, T) {
    let mut timed = || {
        let start = Instant::now();
        let answer = request();
        (start.elapsed().as_secs_f64() * 1e3, answer)
    };
    let (ms, mut last) = timed();
    let mut all = vec![ms];
    for _ in 1..times {
        let (ms, answer) = timed();
        all.push(ms);
        last = answer;
    }
    all.sort_by(f64::total_cmp);
    let (least, median, most) = (all[0], all[times / 2], all[times - 1]);
    let text = match times {
        1 => format!("{median:.1} ms"),
        _ => format!("{median:.1} ms, median of {times} ({least:.0} to {most:.0})"),
    };
    (text, last)
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
