//! Tests of the layer of other hosts, and of the records that wait to be sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::store::Store;
use super::super::wanted::{Answer, Wanted};
use super::*;
use crate::format::Basis;
use crate::measure::Protocol;
use crate::scalar::Precision;
use crate::wisdom::shards::SHIPPED;
use crate::wisdom::shards::tests::shipping;

/// A shared database in memory.
#[derive(Debug, Default)]
struct Fake {
    records: Mutex<BTreeMap<Fingerprint, Vec<Record>>>,
    is_away: AtomicBool,
}

impl Shared for Fake {
    fn layer(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>> {
        let records = self.records.lock().expect("no test panics in it");
        let records = records.get(&fingerprint).cloned().unwrap_or_default();
        let is_there = !self.is_away.load(Ordering::Relaxed);
        is_there.then(|| Arc::new(Layer::of_hosts(records)))
    }

    fn wake(&self) {}

    fn revision(&self) -> u64 {
        0
    }

    fn finish(&self) {}
}

impl Fake {
    fn of(lines: &[String]) -> Arc<Self> {
        let fake = Fake::default();
        for line in lines {
            let record = Record::parse(line.as_bytes()).expect("a record");
            let mut records = fake.records.lock().expect("no test panics in it");
            records.entry(record.fingerprint()).or_default().push(record);
        }
        Arc::new(fake)
    }
}

fn fingerprint(matrix: u32) -> Fingerprint {
    format!("{matrix:032x}").parse().expect("hexadecimal")
}

fn line(matrix: u32, taken_at: u64, spmv_s: f64) -> String {
    let protocol = serde_json::to_string(&Protocol::default()).expect("plain data");
    let samples =
        format!(r#"{{"raw_s":[{spmv_s}],"min_s":{spmv_s},"median_s":{spmv_s},"spread":0}}"#);
    format!(
        r#"{{"kind":"measurement","fingerprint":"{matrix:032x}","candidate":"csr","device":"h200","threads":1,"precision":"f64","protocol":{protocol},"driver":"","kernels":"","taken_at":{taken_at},"outcome":"timed","spmv":{samples},"convert":{samples},"products_per_sample":1,"update_s":0,"bytes":10,"copies":1}}"#
    )
}

fn time_s(wisdom: &Wisdom, matrix: u32) -> Option<f64> {
    let wanted = Wanted {
        fingerprint: fingerprint(matrix),
        device: "h200",
        driver: None,
        precision: Precision::F64,
        basis: Basis::Original,
        protocol: Protocol::default().version,
        vectors: 1,
    };
    match wisdom.ask(&wanted, &"csr".parse().expect("a format")).expect("sound") {
        Answer::Known(measured) => measured.cost().map(|cost| cost.spmv_s),
        _ => None,
    }
}

fn keep(wisdom: &Wisdom, lines: &[String]) {
    wisdom.import(lines.join("\n").as_bytes()).expect("stored");
}

fn open(data: &Path, shared: &Arc<Fake>) -> Wisdom {
    let wisdom = Wisdom::open_alone(data).expect("it opens");
    wisdom.with_shared(Arc::<Fake>::clone(shared), data).expect("it opens")
}

#[test]
fn records_of_other_hosts_lie_between_those_that_ship_and_the_users_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = Store::open(&folder.path().join("wisdom"), |_| {}).expect("a new database");
    let shards = shipping(&[line(1, 9, 1.0), line(2, 9, 1.0), line(3, 9, 1.0)]);
    let shared = Fake::of(&[line(2, 1, 2.0), line(3, 1, 2.0)]);
    let wisdom = Wisdom::over(shards, Some(own));
    let wisdom = wisdom.with_shared(shared, folder.path()).expect("it opens");
    keep(&wisdom, &[line(3, 0, 3.0)]);
    let times = [1, 2, 3].map(|matrix| time_s(&wisdom, matrix));
    assert_eq!(times, [Some(1.0), Some(2.0), Some(3.0)]);
    assert_eq!(wisdom.shared_measurements(fingerprint(3)).len(), 1);
}

#[test]
fn hosts_that_timed_the_same_are_runs_of_one_measurement() {
    let lines = [line(1, 90, 1.0), line(1, 5, 2.0), line(1, 5, 4.0), line(1, 60, 2.0)];
    let wisdom = Wisdom::over(SHIPPED, None);
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = wisdom.with_shared(Fake::of(&lines), folder.path()).expect("it opens");
    assert_eq!(time_s(&wisdom, 1), Some(2.0), "the median of 1, 2 and 4");
}

#[test]
fn fetched_records_answer_while_the_database_is_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = Fake::of(&[line(1, 1, 2.0)]);
    let wisdom = open(folder.path(), &shared);
    let layer = shared.layer(fingerprint(1)).expect("it is there");
    wisdom.keep_fetched(fingerprint(1), &layer).expect("kept");
    shared.is_away.store(true, Ordering::Relaxed);
    assert_eq!((time_s(&wisdom, 1), time_s(&wisdom, 2)), (Some(2.0), None));
    assert_eq!(wisdom.verify().expect("sound").measurements, 0, "they are no own records");
    // A record that was removed there is removed here, once it is fetched again.
    wisdom.keep_fetched(fingerprint(1), &Layer::default()).expect("kept");
    assert_eq!(time_s(&wisdom, 1), None);
}

/// Returns the matrices of the records that wait.
fn waiting(wisdom: &Wisdom, server: &str) -> Vec<u128> {
    let unsent = wisdom.unsent(Some(server), 100).expect("sound");
    let parse = |one: &Unsent| Record::parse(&one.line).expect("a record").fingerprint().bits();
    unsent.iter().map(parse).collect()
}

#[test]
fn a_record_waits_until_the_server_has_its_present_value() {
    let folder = tempfile::tempdir().expect("a folder");
    // Stored before any server was named.
    let early = Wisdom::open_alone(folder.path()).expect("it opens");
    keep(&early, &[line(1, 1, 1.0)]);
    drop(early);
    let shared = Arc::new(Fake::default());
    let wisdom = open(folder.path(), &shared);
    keep(&wisdom, &[line(2, 1, 1.0), line(3, 1, 1.0)]);
    assert_eq!(waiting(&wisdom, "a"), [1, 2, 3]);
    let first = wisdom.unsent(Some("a"), 2).expect("sound");
    // One of them changes on its way.
    keep(&wisdom, &[line(2, 2, 2.0)]);
    wisdom.sent(&first).expect("noted");
    assert_eq!(waiting(&wisdom, "a"), [2, 3]);

    // A process that dies and starts again knows what was acknowledged, and by which server.
    drop(wisdom);
    let wisdom = open(folder.path(), &shared);
    assert_eq!(wisdom.unsent_count(), 2);
    assert_eq!(waiting(&wisdom, "a"), [2, 3]);
    assert_eq!(waiting(&wisdom, "b"), [1, 2, 3]);
    assert_eq!(waiting(&wisdom, "a"), [2, 3]);
    wisdom.prune(|m| m.fingerprint == fingerprint(3)).expect("removed");
    assert_eq!(waiting(&wisdom, "a"), [2]);
}

#[test]
fn records_of_a_process_beside_the_holder_wait_there_and_then_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let shared = Arc::new(Fake::default());
    let holder = open(folder.path(), &shared);
    keep(&holder, &[line(1, 1, 1.0)]);
    let beside = Wisdom::open(folder.path()).expect("it opens");
    let beside = beside.with_shared(Arc::<Fake>::clone(&shared), folder.path()).expect("it opens");
    keep(&beside, &[line(2, 1, 1.0)]);
    assert_eq!(waiting(&beside, "a"), [2], "the holder sends what it holds");
    drop(beside);
    holder.upkeep().expect("taken over");
    assert_eq!(waiting(&holder, "a"), [1, 2]);
}
