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
    serve_at(program, data, more)
}

/// Starts a service from `program` on this data folder, which is removed when it is dropped.
pub fn serve_at(program: &std::path::Path, data: String, more: &[&str]) -> Service {
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
    /// Starts the service again on its data folder, after its process was told to end.
    pub fn again(self, more: &[&str]) -> Service {
        self.again_by(env!("CARGO_BIN_EXE_ellect").as_ref(), more)
    }

    /// Starts the service again from `program`.
    pub fn again_by(mut self, program: &std::path::Path, more: &[&str]) -> Service {
        self.process.wait().expect("it ends");
        let data = std::mem::take(&mut self.data);
        serve_at(program, data, more)
    }

    /// Sends a signal to the process of the service, `KILL` for instance.
    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Sends one request; returns the status and the JSON of the answer.
    pub fn json(&self, method: &str, target: &str, body: &[u8]) -> (u16, Value) {
        let (status, body) = self.send(method, target, "", body);
        (status, serde_json::from_slice(&body).expect("the answer is JSON"))
    }

    /// Returns the status and the JSON at a path.
    pub fn get(&self, target: &str) -> (u16, Value) {
        self.json("GET", target, b"")
    }

    /// Returns a figure of the service.
    pub fn figure(&self, name: &str) -> f64 {
        let (status, text) = self.send("GET", "/metrics", "", b"");
        assert_eq!(status, 200);
        let text = String::from_utf8(text).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Asks for a job until `is_so` is true of it.
    pub fn job_when(&self, id: u64, is_so: impl Fn(&Value) -> bool) -> Value {
        let start = std::time::Instant::now();
        loop {
            let (status, job) = self.json("GET", &format!("/jobs/{id}"), b"");
            assert_eq!(status, 200, "{job}");
            if is_so(&job) {
                return job;
            }
            assert!(start.elapsed().as_secs() < 300, "too long: {job}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Waits for the end of a job.
    pub fn ended_job(&self, id: u64) -> Value {
        self.job_when(id, |job| {
            !["enqueued", "processing"].contains(&job["status"].as_str().unwrap_or_default())
        })
    }

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

    /// Sends one request to a service that may end before it answers.
    pub fn attempt(&self, method: &str, target: &str, body: &[u8]) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let length = body.len();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        parsed(&answer)
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

/// Sends a signal to a process.
pub fn signal(process: u32, name: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.args([format!("-{name}"), process.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Returns the ids of the child processes of process `parent`.
#[cfg(target_os = "linux")]
pub fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("Linux has it");
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // After the name in parentheses, which may contain anything, come the state and the
        // parent's id.
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_string()).unwrap_or_default();
        rest.split(' ').nth(1) == Some(&parent.to_string())
    })
    .collect()
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
    parsed(&answer).expect("a head and a body")
}

fn parsed(answer: &[u8]) -> Option<Answer> {
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok())?;
    Some(Answer { status, head, body: answer[split + 4..].to_vec() })
}

/// Returns the number in a variable of the environment: of rounds, for instance, of which a quick test
/// does `few`.
pub fn number_in(variable: &str, few: u64) -> u64 {
    std::env::var(variable).map_or(few, |text| text.parse().expect("a number"))
}

pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../tests/data/{name}.mtx", env!("CARGO_MANIFEST_DIR")))
        .expect("a sample")
}
