//! The server under load, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running server.
pub struct Server {
    process: Child,
    /// Address that it listens on.
    pub address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// Starts a program that writes its address after `http://` to standard error.
    pub fn start(command: &mut Command) -> Self {
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

    /// Starts the service with its log on this data folder.
    pub fn ellect(program: &str, data: &Path) -> Self {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        // A line for each request is part of the service.
        Server::start(command.env("NO_COLOR", "1").env("RUST_LOG", "info"))
    }

    /// Returns the resident memory now and at most, in MB.
    pub fn memory(&self) -> [u64; 2] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.unwrap_or_default();
        ["VmRSS:", "VmHWM:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
        })
    }

    /// Returns the number of open descriptors.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).map_or(0, Iterator::count)
    }

    /// Opens a connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream
    }
}

/// Sends one request and reads its answer; returns the status.
pub fn ask(stream: &mut TcpStream, target: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
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
