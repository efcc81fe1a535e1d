//! The database of measurements under SIGKILL, and two processes at once.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ellect::error::WisdomFault;
use ellect::wisdom::Record;
use ellect::{Error, Fingerprint, Wisdom};

/// Where a child writes; set in children alone.
const FOLDER: &str = "ELLECT_TEST_WISDOM";
const ROUND: &str = "ELLECT_TEST_ROUND";

fn record(fingerprint: &str) -> Record {
    let line = format!(
        r#"{{"kind":"structure","fingerprint":"{fingerprint}","source":"{}","family":"",
        "nrows":3,"ncols":3,"nnz":4,"features":{{"nnz":4,"row_nnz_mean":1.5}}}}"#,
        "name ".repeat(40)
    );
    Record::parse(line.as_bytes()).expect("a valid line")
}

fn child(folder: &Path, round: u64) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .args(["writes_until_it_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

/// The child's side of the test below: says on standard output what was acknowledged.
#[test]
fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let round: u64 = std::env::var(ROUND).expect("set").parse().expect("a number");
    let wisdom = Wisdom::open(Path::new(&folder)).expect("it opens again");
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let fingerprint = format!("{round:016x}{number:016x}");
                    wisdom.keep([record(&fingerprint)]).expect("written");
                    let line = format!("\nkept {fingerprint}.\n");
                    std::io::stdout().write_all(line.as_bytes()).expect("a reader");
                }
            });
        }
    });
}

/// The fingerprint of a whole line that acknowledges one.
fn kept(line: &str) -> Option<Fingerprint> {
    line.strip_prefix("kept ")?.strip_suffix('.')?.parse().ok()
}

#[test]
fn nothing_acknowledged_is_lost_to_fifty_kills_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = Vec::new();
    for round in 0..50 {
        let mut child = child(folder.path(), round);
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut next = || lines.next().map(|line| line.expect("text"));
        while let Some(line) = next() {
            if let Some(fingerprint) = kept(&line) {
                acknowledged.push(fingerprint);
                break;
            }
        }
        if round == 0 {
            let second = Wisdom::open(folder.path()).expect_err("the child has it");
            assert!(matches!(&second, Error::Wisdom { fault: WisdomFault::InUse, .. }));
            let told = second.to_string();
            assert!(told.contains("in use") && told.contains("--data"), "{told}");
        }
        // Moments that differ from round to round.
        std::thread::sleep(Duration::from_millis(round * 7 % 60));
        child.kill().expect("killed");
        child.wait().expect("ended");
        acknowledged.extend(std::iter::from_fn(next).filter_map(|line| kept(&line)));

        let wisdom = Wisdom::open(folder.path()).expect("it opens again");
        let lost = acknowledged.iter().filter(|fingerprint| {
            wisdom.structure(**fingerprint).expect("a sound database").is_none()
        });
        assert_eq!(lost.count(), 0, "round {round} of {} records", acknowledged.len());
        assert!(wisdom.verify().expect("a sound database").bad.is_empty());
    }
    assert!(acknowledged.len() > 100, "{} were written", acknowledged.len());
}
