//! A PostgreSQL server of a test's own: a new cluster in a temporary folder, on a socket there.

#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Rights of the folder of a server's keys.
const ENCRYPTED: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

/// A running server; it ends when this is dropped.
pub struct Server {
    folder: TempDir,
    postmaster: Child,
    more: Vec<String>,
}

/// Returns the folder of the server's programs; `None` if there is no server here.
fn programs() -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
    for version in fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        folders.insert(0, version.path().join("bin"));
    }
    folders.into_iter().find(|folder| folder.join("initdb").is_file())
}

/// Returns a command that runs as an unprivileged user, because a server refuses to run as root.
fn unprivileged(program: &str) -> Command {
    let program = programs().expect("a server is installed").join(program);
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
    command
}

fn done(command: &mut Command) {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Server {
    /// Starts a server with an empty database `ellect`; `None`, with a note, if there is no server
    /// here and the variable `REQUIRE_POSTGRES` does not ask for one.
    pub fn start() -> Option<Self> {
        Server::start_with(&[], |_| ())
    }

    /// Starts a server with TLS on a port of this host.
    pub fn encrypted(port: u16) -> Option<Self> {
        let settings = [
            "ssl=on".to_string(),
            "listen_addresses=127.0.0.1".to_string(),
            format!("port={port}"),
        ];
        Server::start_with(&settings, |folder| {
            let data = folder.path().join("data");
            fs::write(data.join("pg_hba.conf"), ENCRYPTED).expect("written");
            certificates(folder);
        })
    }

    fn start_with(settings: &[String], prepare: impl FnOnce(&TempDir)) -> Option<Self> {
        if programs().is_none() {
            assert!(std::env::var_os("REQUIRE_POSTGRES").is_none(), "no PostgreSQL is installed");
            eprintln!("skipped: no PostgreSQL is installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        fs::create_dir(&data).expect("made");
        let hand_over = || {
            if let "setpriv" = unprivileged("x").get_program().to_str().expect("text") {
                done(Command::new("chown").args(["-R", "postgres"]).arg(folder.path()));
            }
        };
        hand_over();
        let locale = ["-N", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8", "-D"];
        done(unprivileged("initdb").args(locale).arg(&data));
        prepare(&folder);
        hand_over();
        let postmaster = spawned(&folder, settings);
        let server = Server { folder, postmaster, more: settings.to_vec() };
        server.wait_until_ready();
        server.sql_in("postgres", "CREATE DATABASE ellect");
        Some(server)
    }

    fn wait_until_ready(&self) {
        let start = Instant::now();
        while !self.psql("postgres", "SELECT 1").output().expect("it runs").status.success() {
            assert!(start.elapsed() < Duration::from_secs(30), "the server does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Returns the address of the database for a role.
    pub fn url(&self, role: &str) -> String {
        format!("postgres://{role}@/ellect?host={}&port={}", self.socket().display(), self.port())
    }

    fn port(&self) -> String {
        let port = self.more.iter().find_map(|setting| setting.strip_prefix("port="));
        port.unwrap_or("5432").to_string()
    }

    /// Returns the path of a file of the server's folder, `root.crt` for instance.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn psql(&self, database: &str, text: &str) -> Command {
        let folder = programs().expect("a server is installed");
        let mut command = Command::new(folder.join("psql"));
        command.arg("-h").arg(self.socket()).args(["-p", &self.port(), "-U", "postgres", "-d"]);
        command.args([database, "-Atqc", text]);
        command
    }

    /// Runs statements; returns the values of the result, lines of columns.
    pub fn sql(&self, text: &str) -> String {
        self.sql_in("ellect", text)
    }

    fn sql_in(&self, database: &str, text: &str) -> String {
        let output = self.psql(database, text).output().expect("it runs");
        let stated = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}: {stated}");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Sends a signal to all processes of the server.
    fn signal(&self, name: &str) {
        let main = self.postmaster.id();
        for process in [main].into_iter().chain(children(main)) {
            // One of them may have ended just now.
            let _ = Command::new("kill")
                .args([format!("-{name}"), process.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }

    /// Stops the server as a machine that hangs does: its connections stay, and nothing answers.
    pub fn hang(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// Kills all processes of the server.
    pub fn kill(&mut self) {
        self.signal("KILL");
        self.postmaster.wait().expect("it ends");
    }

    /// Starts it again.
    pub fn start_again(&mut self) {
        let _ = fs::remove_file(self.socket().join("postmaster.pid"));
        self.postmaster = spawned(&self.folder, &self.more);
        self.wait_until_ready();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal("KILL");
        let _ = self.postmaster.wait();
    }
}

fn spawned(folder: &TempDir, settings: &[String]) -> Child {
    let data = folder.path().join("data");
    let log = fs::File::create(folder.path().join("log")).expect("writable");
    let mut command = unprivileged("postgres");
    command.arg("-D").arg(&data).arg("-k").arg(&data);
    if !settings.iter().any(|setting| setting.starts_with("listen_addresses")) {
        command.args(["-c", "listen_addresses="]);
    }
    for setting in settings {
        command.args(["-c", setting]);
    }
    command.stdout(Stdio::null()).stderr(log).spawn().expect("it starts")
}

/// Returns the ids of the child processes of a process.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Makes an authority, `root.crt`, another one, `other.crt`, and the server's certificate for the
/// name `localhost`.
fn certificates(folder: &TempDir) {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let openssl = |arguments: &str| done(Command::new("openssl").args(arguments.split(' ')));
    for name in ["root", "other"] {
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} \
             -keyout {} -out {}",
            at(&format!("{name}.key")),
            at(&format!("{name}.crt"))
        ));
    }
    openssl(&format!(
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout {} -out {}",
        at("data/server.key"),
        at("server.csr")
    ));
    fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost\n").expect("written");
    openssl(&format!(
        "x509 -req -in {} -CA {} -CAkey {} -CAcreateserial -days 2 -extfile {} -out {}",
        at("server.csr"),
        at("root.crt"),
        at("root.key"),
        at("names"),
        at("data/server.crt")
    ));
    done(Command::new("chmod").args(["600", &at("data/server.key")]));
}
