//! Tests against a server of their own: hosts that share, faults of the server, roles and versions.

#[path = "../../../tests/pg/mod.rs"]
mod pg;

use std::time::SystemTime;

use ellect::Precision;
use ellect::format::Basis;
use ellect::measure::Protocol;
use ellect::unstable::wisdom::{Answer, Wanted};

use super::*;
use crate::shared::attached;
use pg::Server;

/// Sentences that were told, of all tests; each server has its own name.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(told: Told<'_>) {
    if let Told::Bad(sentence) = told {
        TOLD.lock().expect("no test panics in it").push(sentence.to_string());
    }
}

fn told_of(server: &str) -> Vec<String> {
    let all = TOLD.lock().expect("no test panics in it");
    all.iter().filter(|sentence| sentence.contains(server)).cloned().collect()
}

/// A data folder with its wisdom and its client.
struct Host {
    folder: tempfile::TempDir,
    wisdom: Arc<Wisdom>,
    client: Arc<Client>,
}

fn opened(folder: &Path) -> Wisdom {
    let start = Instant::now();
    loop {
        match Wisdom::open_alone(folder) {
            Ok(wisdom) => return wisdom,
            Err(error) => assert!(start.elapsed().as_secs() < 20, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Host {
    fn new(url: &str) -> Self {
        Host::at(tempfile::tempdir().expect("a folder"), url)
    }

    fn at(folder: tempfile::TempDir, url: &str) -> Self {
        let address: Address = url.parse().expect("it never fails");
        let (wisdom, client) =
            attached(opened(folder.path()), &address, folder.path(), tell).expect("an address");
        Host { folder, wisdom, client }
    }

    /// Ends the host without any notice, but keeps its folder.
    fn died(self) -> tempfile::TempDir {
        let Host { folder, wisdom, .. } = self;
        drop(wisdom);
        folder
    }

    fn keep(&self, lines: &[String]) {
        self.wisdom.import(lines.join("\n").as_bytes()).expect("stored");
    }

    /// Waits until nothing waits to be sent.
    fn sent(&self) {
        until("everything is sent", || self.wisdom.unsent_count() == 0);
    }

    /// Returns the time of a product of a matrix, as a choice would take it.
    fn time_s(&self, matrix: u32) -> Option<f64> {
        let wanted = Wanted {
            fingerprint: fingerprint(matrix),
            device: "h200",
            driver: None,
            precision: Precision::F64,
            basis: Basis::Original,
            protocol: Protocol::default().version,
            vectors: 1,
        };
        match self.wisdom.ask(&wanted, &"csr".parse().expect("a format")).expect("sound") {
            Answer::Known(measured) => measured.cost().map(|cost| cost.spmv_s),
            _ => None,
        }
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "not yet: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a time limit, longer by as much as this machine is now late in waking threads up.
fn most(milliseconds: u64) -> Duration {
    let late = || {
        let start = Instant::now();
        std::thread::sleep(LIMIT);
        start.elapsed() - LIMIT
    };
    let late = (0..5).map(|_| late()).max().expect("some");
    Duration::from_millis(milliseconds) + 4 * late
}

fn fingerprint(matrix: u32) -> Fingerprint {
    format!("{matrix:032x}").parse().expect("hexadecimal")
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Returns the line of a measurement.
fn line(matrix: u32, taken_at: u64, spmv_s: f64) -> String {
    let protocol = serde_json::to_string(&Protocol::default()).expect("plain data");
    let samples =
        format!(r#"{{"raw_s":[{spmv_s}],"min_s":{spmv_s},"median_s":{spmv_s},"spread":0}}"#);
    format!(
        r#"{{"kind":"measurement","fingerprint":"{matrix:032x}","candidate":"csr","device":"h200",
        "threads":1,"precision":"f64","protocol":{protocol},"driver":"CUDA 13","kernels":"",
        "taken_at":{taken_at},"outcome":"timed","spmv":{samples},"convert":{samples},
        "products_per_sample":1,"update_s":0,"bytes":10,"copies":1}}"#
    )
    .replace('\n', " ")
}

fn rows(server: &Server) -> String {
    server.sql("SELECT count(*) FROM ellect.record")
}

#[test]
fn hosts_share_what_they_measure_and_each_run_counts_once() {
    let Some(server) = Server::start() else { return };
    let [a, b, c] = [0; 3].map(|_| Host::new(&server.url("postgres")));
    a.keep(&[line(1, 50, 1.0)]);
    b.keep(&[line(1, 60, 3.0)]);
    a.sent();
    b.sent();
    assert_eq!(rows(&server), "2", "one key, two contributors");
    // Nobody's own: the median of both. For those who measured, their own.
    until("the records are there", || c.time_s(1) == Some(2.0));
    assert_eq!((a.time_s(1), b.time_s(1)), (Some(1.0), Some(3.0)));
    assert_eq!(c.time_s(2), None);

    // All records once more, as after a restored database, are the same rows.
    server.sql("UPDATE ellect.meta SET id = gen_random_uuid()");
    let (a, b) = (a.died(), b.died());
    let [a, b] = [a, b].map(|folder| Host::at(folder, &server.url("postgres")));
    until("both are sent again", || a.client.status().schema.is_some());
    a.wisdom.close().expect("closed");
    b.wisdom.close().expect("closed");
    a.sent();
    b.sent();
    assert_eq!(rows(&server), "2");

    // Records of another host that were imported are not further runs.
    c.keep(&[line(1, 50, 1.0)]);
    c.sent();
    assert_eq!(rows(&server), "3");
    let d = Host::new(&server.url("postgres"));
    until("the records are there", || d.time_s(1) == Some(2.0));

    // A host hears of a new measurement.
    let before = d.wisdom.revision();
    b.keep(&[line(1, 70, 7.0)]);
    b.sent();
    until("the news arrive", || d.time_s(1) == Some(4.0));
    assert_ne!(d.wisdom.revision(), before, "kept answers are computed anew");
    let status = d.client.census().expect("it answers");
    assert_eq!((status.records, status.contributors, status.outbox), (Some(3), Some(3), 0));
}

#[test]
fn a_server_that_hangs_costs_50_ms_once() {
    let Some(server) = Server::start() else { return };
    let a = Host::new(&server.url("postgres"));
    a.keep(&[line(1, 50, 1.0)]);
    a.sent();
    let b = Host::new(&server.url("postgres"));
    until("the records are there", || b.time_s(1) == Some(1.0));
    let c = Host::new(&server.url("postgres"));
    until("it connects", || c.client.status().state == State::Connected);

    server.hang();
    let timed = |matrix| {
        let start = Instant::now();
        let answer = c.client.layer(fingerprint(matrix)).is_some();
        (answer, start.elapsed())
    };
    let (answer, took) = timed(5);
    assert!(!answer && took < most(50), "{took:?}");
    let mut later: Vec<Duration> = Vec::new();
    for matrix in 6..1000 {
        let (answer, took) = timed(matrix);
        assert!(!answer);
        later.push(took);
    }
    later.sort_unstable();
    assert!(later[later.len() / 2] < Duration::from_millis(1), "{later:?}");
    assert_eq!(c.client.status().state, State::Away);
    // The host that had asked before answers from memory, and after a restart from its copy.
    assert_eq!(b.time_s(1), Some(1.0));
    let b = Host::at(b.died(), &server.url("postgres"));
    assert_eq!(b.time_s(1), Some(1.0));
    c.keep(&[line(9, 50, 2.0)]);
    assert_eq!(c.wisdom.unsent_count(), 1);
    let start = Instant::now();
    c.wisdom.close().expect("closed");
    assert!(start.elapsed() < most(1000), "{:?}", start.elapsed());

    server.go_on();
    until("it is asked again", || c.client.status().state == State::Connected);
    c.sent();
    until("the records are there", || c.time_s(1) == Some(1.0));
    assert_eq!(rows(&server), "2");
    let told = told_of(&c.client.0.settings.server);
    let away = told.iter().filter(|text| text.contains("choices go on without it")).count();
    assert!((1..=3).contains(&away), "each host tells once: {told:?}");
}

#[test]
fn a_server_that_is_killed_loses_nothing_and_gets_the_rest_later() {
    let Some(mut server) = Server::start() else { return };
    let a = Host::new(&server.url("postgres"));
    let lines: Vec<String> = (0..1200).map(|i| line(i, 50, 1.0)).collect();
    a.keep(&lines[..400]);
    a.sent();
    server.kill();
    until("it is missed", || a.client.status().state == State::Away);
    a.keep(&lines[400..800]);
    assert_eq!(a.wisdom.unsent_count(), 400);
    // A host that dies with a full outbox, and one that starts while the server is away.
    let a = Host::at(a.died(), &server.url("postgres"));
    assert_eq!(a.wisdom.unsent_count(), 400, "what was acknowledged is known");
    a.keep(&lines[800..]);
    let start = Instant::now();
    assert_eq!(a.time_s(5000), None);
    assert!(start.elapsed() < most(50), "{:?}", start.elapsed());
    server.start_again();
    a.sent();
    assert_eq!(rows(&server), "1200");
}

#[test]
fn a_connection_that_drops_in_a_batch_is_made_up_for() {
    let Some(server) = Server::start() else { return };
    let a = Host::new(&server.url("postgres"));
    until("it connects", || a.client.status().schema.is_some());
    server.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(0.004); RETURN new; END $$;
         CREATE TRIGGER slow BEFORE INSERT ON ellect.record FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let lines: Vec<String> = (0..600).map(|i| line(i, 50, 1.0)).collect();
    a.keep(&lines);
    let dropped = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE 'INSERT INTO ellect.record%' AND state = 'active'";
    for _ in 0..2 {
        until("a batch is on its way", || server.sql(dropped) != "0");
    }
    server.sql("DROP TRIGGER slow ON ellect.record");
    a.sent();
    assert_eq!(rows(&server), "600");
    assert_eq!(server.sql("SELECT count(DISTINCT fingerprint) FROM ellect.record"), "600");
}

#[test]
fn a_record_that_the_server_does_not_take_keeps_no_other_back() {
    let Some(server) = Server::start() else { return };
    let a = Host::new(&server.url("postgres"));
    until("it connects", || a.client.status().schema.is_some());
    // No text of PostgreSQL holds this character.
    let odd =
        line(3, 50, 1.0).replace(r#""outcome":"timed""#, r#""outcome":"failed","reason":"\u0000""#);
    let lines: Vec<String> =
        (0..20).map(|i| if i == 3 { odd.clone() } else { line(i, 50, 1.0) }).collect();
    a.keep(&lines);
    a.sent();
    assert_eq!(rows(&server), "19");
    assert!(told_of(&a.client.0.settings.server).iter().any(|text| text.contains("one record")));
}

#[test]
fn no_clock_of_a_contributor_decides() {
    let Some(server) = Server::start() else { return };
    let day = Duration::from_secs(86_400);
    let [ahead, behind] = [Host::new(&server.url("postgres")), Host::new(&server.url("postgres"))];
    ahead.client.0.skew_s.store(86_400, Ordering::Relaxed);
    behind.client.0.skew_s.store(-86_400, Ordering::Relaxed);
    let now = now_s();
    ahead.keep(&[line(1, now + day.as_secs(), 1.0)]);
    behind.keep(&[line(1, now - day.as_secs(), 3.0)]);
    ahead.sent();
    behind.sent();
    let off = "SELECT max(abs(extract(epoch FROM now() - taken))) < 60 FROM ellect.record";
    assert_eq!(server.sql(off), "t", "times are those of the server");
    let c = Host::new(&server.url("postgres"));
    until("both count", || c.time_s(1) == Some(2.0));

    // Its clock is set right, and its next measurement is the earlier one by the old clock.
    ahead.client.0.skew_s.store(0, Ordering::Relaxed);
    ahead.wisdom.prune(|_| true).expect("emptied");
    ahead.keep(&[line(1, now, 5.0)]);
    ahead.sent();
    until("it is not lost", || c.time_s(1) == Some(4.0));
    assert_eq!(rows(&server), "2");
}

#[test]
fn a_late_batch_replaces_no_later_one() {
    let Some(server) = Server::start() else { return };
    let a = Host::new(&server.url("postgres"));
    a.keep(&[line(1, 50, 1.0)]);
    a.sent();
    a.keep(&[line(1, 60, 2.0)]);
    a.sent();
    // A batch with a number from before, as one that was stuck on its way.
    let late = "INSERT INTO ellect.record AS r SELECT fingerprint, key, contributor, kind, device,
            precision, candidate, taken, stored, batch - 1, '{}' FROM ellect.record
        ON CONFLICT (fingerprint, key, contributor) DO UPDATE SET body = excluded.body
        WHERE r.batch < excluded.batch";
    server.sql(late);
    let b = Host::new(&server.url("postgres"));
    until("the later one answers", || b.time_s(1) == Some(2.0));
}

#[test]
fn newer_tables_are_refused_and_say_how_to_go_on() {
    let Some(server) = Server::start() else { return };
    let first = Host::new(&server.url("postgres"));
    until("the tables are made", || first.client.status().schema == Some(schema::SCHEMA));
    server.sql("UPDATE ellect.meta SET schema = 99");
    let a = Host::new(&server.url("postgres"));
    a.keep(&[line(1, 50, 1.0)]);
    until("it is refused", || a.client.status().state == State::Refused);
    let status = a.client.status();
    let reason = status.reason.clone().unwrap_or_default();
    assert!(reason.contains("schema 99") && reason.contains("upgrade this program"), "{reason}");
    assert_eq!(status.outbox, 1);
    let stated = a.client.census().expect_err("refused").to_string();
    assert!(stated.contains("schema 99"), "{stated}");
    assert_eq!(rows(&server), "0");
}

#[test]
fn hosts_that_start_at_once_make_the_tables_once() {
    let Some(server) = Server::start() else { return };
    let hosts: Vec<Host> = (0..6).map(|_| Host::new(&server.url("postgres"))).collect();
    for host in &hosts {
        until("it connects", || host.client.status().state == State::Connected);
    }
    assert_eq!(server.sql("SELECT count(*), min(schema) FROM ellect.meta"), "1|1");
}

#[test]
fn a_role_that_reads_sends_nothing_and_says_so_once() {
    let Some(server) = Server::start() else { return };
    server.sql(
        "CREATE ROLE ellect_read; CREATE ROLE ellect_write IN ROLE ellect_read;
         CREATE ROLE reader LOGIN IN ROLE ellect_read; CREATE ROLE writer LOGIN IN ROLE ellect_write;
         CREATE ROLE stranger LOGIN",
    );
    let early = Host::new(&server.url("writer"));
    until("it may not make the tables", || early.client.status().state == State::Refused);
    let reason = early.client.status().reason.unwrap_or_default();
    assert!(reason.contains("ellect wisdom shared") && reason.contains("owner"), "{reason}");

    let owner = Host::new(&server.url("postgres"));
    owner.client.census().expect("it makes the tables");
    let writer = Host::new(&server.url("writer"));
    writer.keep(&[line(1, 50, 1.0)]);
    writer.sent();
    let reader = Host::new(&server.url("reader"));
    reader.keep(&[line(2, 50, 1.0)]);
    until("it reads", || reader.time_s(1) == Some(1.0));
    until("it says so", || reader.client.status().reads_only);
    reader.wisdom.close().expect("closed");
    assert_eq!((rows(&server).as_str(), reader.wisdom.unsent_count()), ("1", 1));
    until("it is told", || {
        let told = told_of(&reader.client.0.settings.server);
        told.iter().filter(|text| text.contains("only reads")).count() == 1
    });
    assert!(reader.client.queue("a", Vec::new(), (1, 1)).is_err(), "a queue is written to");
    assert!(writer.client.queue("a", Vec::new(), (1, 1)).is_ok());
    let stranger = Host::new(&server.url("stranger"));
    until("it is refused", || stranger.client.status().state == State::Refused);
}

#[test]
fn tls_is_checked_as_libpq_words_it() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let Some(server) = Server::encrypted(port) else { return };
    server.sql("CREATE ROLE host1 LOGIN SUPERUSER PASSWORD 's3cret'");
    let census = |host: &str, query: &str| {
        let url = format!("postgres://host1:s3cret@{host}:{port}/ellect?{query}");
        let folder = tempfile::tempdir().expect("a folder");
        let address: Address = url.parse().expect("it never fails");
        let client = Client::start(&address, folder.path(), tell)?;
        client.census()
    };
    let root = format!("&sslrootcert={}", server.file("root.crt").display());
    let other = format!("&sslrootcert={}", server.file("other.crt").display());
    let works = |host: &str, query: &str| {
        let status = census(host, query).unwrap_or_else(|error| panic!("{query}: {error:#}"));
        assert!(status.server.contains("host1@") && !status.server.contains("s3cret"));
    };
    let fails = |host: &str, query: &str, because: &str| {
        let stated = format!("{:#}", census(host, query).expect_err(query));
        assert!(stated.contains(because) && !stated.contains("s3cret"), "{query}: {stated}");
    };
    works("localhost", &format!("sslmode=verify-full{root}"));
    works("127.0.0.1", &format!("sslmode=verify-ca{root}"));
    works("127.0.0.1", "sslmode=require");
    works("127.0.0.1", "sslmode=prefer");
    fails("127.0.0.1", &format!("sslmode=verify-full{root}"), "certificate");
    fails("localhost", &format!("sslmode=verify-full{other}"), "certificate");
    fails("localhost", &format!("sslmode=verify-ca{other}"), "certificate");
    fails("localhost", "sslmode=verify-full&sslrootcert=/nowhere.crt", "/nowhere.crt");
    fails("localhost", "sslmode=disable", "no pg_hba.conf entry");
    fails("localhost", "sslmode=sometimes", "it must be disable, allow, prefer");
    let wrong = format!("postgres://host1:wr0ng@localhost:{port}/ellect?sslmode=require");
    let wrong: Address = wrong.parse().expect("it never fails");
    let folder = tempfile::tempdir().expect("a folder");
    let client = Client::start(&wrong, folder.path(), tell).expect("an address");
    let stated = format!("{:#} {client:?}", client.census().expect_err("a wrong password"));
    assert!(stated.contains("password") && !stated.contains("wr0ng"), "{stated}");
}
