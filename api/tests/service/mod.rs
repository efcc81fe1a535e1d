//! A service that tests start and ask over real connections.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A service on a free port with its own data folder; it is stopped when dropped.
pub struct Service {
    pub process: Child,
    pub address: String,
    pub data: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

pub fn serve(more: &[&str]) -> Service {
    serve_by(env!("CARGO_BIN_EXE_ellect").as_ref(), more)
}

/// Starts a service from `program`, which may be a link to the tested program.
pub fn serve_by(program: &std::path::Path, more: &[&str]) -> Service {
    // Only one process at a time can open a database, so each service has its own folder.
    static SERVICES: AtomicU32 = AtomicU32::new(0);
    let number = SERVICES.fetch_add(1, Ordering::Relaxed);
    let data = format!("{}/http-{}-{number}", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let mut process = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(&data)
        .args(more)
        .env("NO_COLOR", "1")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut log = BufReader::new(process.stderr.take().expect("piped"));
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert!(log.read_line(&mut line).expect("readable") > 0, "it ended before it listened");
        if let Some((_, address)) = line.trim().split_once("http://") {
            break address.to_string();
        }
    };
    // The rest of the log is read so that it does not fill the pipe.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Service { process, address, data }
}

impl Service {
    /// Sends the head of a request.
    pub fn begin(&self, method: &str, target: &str, headers: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\
             Content-Length: {length}\r\n\r\n",
            self.address,
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        stream
    }

    /// Sends the head of a request for a recommendation; returns once the service has admitted it
    /// and waits for the body.
    pub fn admitted(&self, length: usize) -> TcpStream {
        let mut stream = self.begin("POST", "/recommend", "Expect: 100-continue\r\n", length);
        let mut answer = [0; 25];
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }

    /// Sends one request; returns the status, head and body of the answer.
    pub fn ask(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Answer {
        answer(self.begin(method, target, headers, body.len()), body)
    }

    /// Sends one request; returns the status and body of the answer.
    pub fn send(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let answer = self.ask(method, target, headers, body);
        (answer.status, answer.body)
    }

    pub fn recommend(&self, query: &str, headers: &str, body: &[u8]) -> (u16, Value) {
        let (status, body) = self.send("POST", &format!("/recommend{query}"), headers, body);
        (status, serde_json::from_slice(&body).expect("the answer is JSON"))
    }
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// Sends the body of a request; returns the answer.
pub fn answer(mut stream: TcpStream, body: &[u8]) -> Answer {
    // The service does not read a body that is too large to its end, so writing may fail.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a head and a body");
    let head = String::from_utf8_lossy(&answer[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Answer { status, head, body: answer[split + 4..].to_vec() }
}

pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../tests/data/{name}.mtx", env!("CARGO_MANIFEST_DIR")))
        .expect("a sample")
}
