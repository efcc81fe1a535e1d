//! The database of measurements under SIGKILL, and with two processes at once.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ellect::error::WisdomFault;
use ellect::unstable::wisdom::Record;
use ellect::{Error, Fingerprint, Wisdom};

/// Folder in which a child process writes; set only in child processes.
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

/// Creates a closed database with this many records; returns its folder and their fingerprints.
fn closed(records: u64) -> (tempfile::TempDir, Vec<Fingerprint>) {
    let folder = tempfile::tempdir().expect("a folder");
    let wisdom = Wisdom::open(folder.path()).expect("a new database");
    let fingerprints: Vec<String> = (0..records).map(|i| format!("{:032x}", i * 7919)).collect();
    for some in fingerprints.chunks(10) {
        wisdom.keep(some.iter().map(|fingerprint| record(fingerprint))).expect("written");
    }
    (folder, fingerprints.iter().map(|text| text.parse().expect("hexadecimal")).collect())
}

/// Copies the database and damages one file of the copy.
fn damaged(folder: &Path, file: &Path, damage: &dyn Fn(&mut Vec<u8>)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    let to = copy.path().join("wisdom");
    std::fs::create_dir(&to).expect("writable");
    for entry in std::fs::read_dir(folder.join("wisdom")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let mut bytes = std::fs::read(&path).expect("readable");
            if path == file {
                damage(&mut bytes);
            }
            std::fs::write(to.join(path.file_name().expect("a file")), bytes).expect("writable");
        }
    }
    copy
}

/// Returns true if all of these records are present and the database is intact.
fn is_whole(folder: &Path, kept: &[Fingerprint]) -> ellect::Result<bool> {
    let wisdom = Wisdom::open(folder)?;
    for fingerprint in kept {
        if wisdom.structure(*fingerprint)?.is_none() {
            return Ok(false);
        }
    }
    Ok(wisdom.verify()?.bad.is_empty())
}

#[test]
fn a_damaged_database_keeps_all_or_says_that_it_is_damaged() {
    for (records, with_lines) in [(10, true), (10, false), (4000, false)] {
        let (folder, kept) = closed(records);
        if !with_lines {
            without_lines(folder.path());
        }
        let path = folder.path().join("wisdom");
        for name in std::fs::read_dir(&path).expect("a folder") {
            let file = name.expect("an entry").path();
            let size = std::fs::metadata(&file).expect("there").len() as usize;
            if !file.is_file() || size == 0 {
                continue;
            }
            let check = |what: &str, damage: &dyn Fn(&mut Vec<u8>)| {
                let copy = damaged(folder.path(), &file, damage);
                let stated = format!("{what} of {size} in {}", file.display());
                match is_whole(copy.path(), &kept) {
                    Ok(whole) => assert!(whole, "{stated}: records are lost, and nothing is said"),
                    Err(error @ Error::Wisdom { .. }) => {
                        assert!(!with_lines, "{stated}: the lines hold all: {error}");
                        let error = error.to_string();
                        let remedy = error.contains("move the folder away");
                        assert!(remedy && error.contains("wisdom in "), "{stated}: {error}");
                    }
                    Err(error) => panic!("{stated}: {error}"),
                }
            };
            for i in 0..PLACES {
                let at = size * i / PLACES;
                check(&format!("cut at {at}"), &|bytes| bytes.truncate(at));
                check(&format!("cut {i} from the end"), &|bytes| {
                    bytes.truncate(size.saturating_sub(i * i));
                });
                check(&format!("flip at {at}"), &|bytes| bytes[at] ^= 0x41);
                check(&format!("zeros from {at}"), &|bytes| bytes[at..].fill(0));
            }
        }
    }
}

/// Removes the lines beside a database, as if an earlier version of this program had made it.
fn without_lines(folder: &Path) {
    for name in ["export.jsonl", "journal.jsonl"] {
        std::fs::remove_file(folder.join("wisdom").join(name)).expect("there");
    }
}

#[test]
fn the_records_that_are_left_are_to_be_had() {
    let (folder, kept) = closed(100);
    without_lines(folder.path());
    let path = folder.path().join("wisdom/db");
    let size = std::fs::metadata(&path).expect("there").len();
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    file.set_len(size / 2).expect("cut");
    let stated = Wisdom::open(folder.path()).expect_err("records are lost").to_string();
    assert!(stated.contains(" of 10 writes are lost") && stated.contains("'made'"), "{stated}");
    std::fs::remove_file(folder.path().join("wisdom/made")).expect("there");
    let wisdom = Wisdom::open(folder.path()).expect("the rest");
    let left = wisdom.verify().expect("sound");
    assert!(left.structures > 0 && left.structures < kept.len() as u64, "{left:?}");
}

/// Positions at which a file is damaged.
const PLACES: usize = 25;

/// The child process of the test below: prints on standard output what was acknowledged.
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

/// Returns the fingerprint in a complete acknowledgement line.
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
            let second = Wisdom::open_alone(folder.path()).expect_err("the child has it");
            assert!(matches!(&second, Error::Wisdom { fault: WisdomFault::InUse, .. }));
            let stated = second.to_string();
            assert!(stated.contains("in use") && stated.contains("--data"), "{stated}");
            let reader = Wisdom::open(folder.path()).expect("reading works beside the child");
            let seen = reader.structure(acknowledged[0]).expect("a sound view");
            assert!(seen.is_some(), "what is acknowledged is seen");
        }
        // The moment of the kill differs from round to round.
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
