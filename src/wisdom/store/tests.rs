//! Tests of the files of a database: damage, repairs and sizes.

use std::fs;
use std::path::PathBuf;

use super::database::MADE;
use super::journal::{EXPORT, JOURNAL};
use super::*;

/// Returns the number of structures.
fn count(store: &Store) -> usize {
    all(store).len()
}

fn all(store: &Store) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let read = store.scan(Tree::Structures, "", |_, value| {
        values.push(value.to_vec());
        Ok(())
    });
    read.expect("read");
    values
}

/// Removes the lines beside a database, as if a version of this program had made it that wrote none.
fn without_lines(path: &Path) {
    for name in [EXPORT, JOURNAL] {
        let _ = fs::remove_file(path.join(name));
    }
}

/// Opens a database with sled alone, once the store has closed it.
fn behind_its_back(path: &Path) -> sled::Db {
    for _ in 0..100 {
        if let Ok(db) = sled::Config::new().path(path).open() {
            return db;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it stays open")
}

fn structure(number: u64, source: &str) -> Vec<u8> {
    let line = format!(
        r#"{{"kind":"structure","fingerprint":"{number:032x}","source":"{source}","family":"","nrows":3,"ncols":3,"nnz":4,"features":{{}}}}"#
    );
    line.into_bytes()
}

/// Adds structures with these numbers, in one commit.
fn put(store: &Store, numbers: std::ops::Range<u64>) {
    let mut batch = store.batch();
    for number in numbers {
        let value = structure(number, "a name");
        batch.put(Tree::Structures, &format!("{number:032x}"), value).expect("short");
    }
    batch.commit().expect("written");
}

/// Creates a closed database of 60 structures in several commits that has been opened twice.
fn closed() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    for round in 0..2 {
        let store = Store::open(&path, |_| {}).expect("it opens");
        for i in 0..3 {
            let from = round * 30 + i * 10;
            put(&store, from..from + 10);
        }
    }
    drop(behind_its_back(&path));
    (folder, path)
}

/// Copies the files of a database, without its folders.
fn copied(path: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("wisdom");
    fs::create_dir(&copy).expect("writable");
    for entry in fs::read_dir(path).expect("a folder") {
        let from = entry.expect("an entry").path();
        if from.is_file() {
            fs::copy(&from, copy.join(from.file_name().expect("a name"))).expect("copied");
        }
    }
    (folder, copy)
}

fn snapshot(path: &Path) -> PathBuf {
    let names = fs::read_dir(path).expect("a folder").map(|entry| entry.expect("one").path());
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"snap."))
    };
    names.filter(is_one).max().expect("a snapshot")
}

#[test]
fn a_broken_off_or_damaged_snapshot_costs_nothing() {
    let (_folder, whole) = closed();
    without_lines(&whole);
    let name = snapshot(&whole);
    let name = name.file_name().expect("a name").to_str().expect("text");
    let bytes = fs::read(whole.join(name)).expect("readable");
    let later = format!("snap.{:016X}", u64::MAX >> 1);
    let check = |name: &str, bytes: &[u8]| {
        let (_folder, path) = copied(&whole);
        fs::write(path.join(name), bytes).expect("writable");
        let store =
            Store::open(&path, |_| {}).unwrap_or_else(|e| panic!("{name} {}: {e}", bytes.len()));
        assert_eq!(count(&store), 60, "{name} of {} bytes", bytes.len());
        let kept = fs::read(path.join("aside").join(format!("1-{name}"))).expect("kept");
        assert_eq!(kept, bytes);
        assert!(store.notes().iter().any(|note| note.contains(name)), "{:?}", store.notes());
    };
    for length in (0..=bytes.len()).step_by(7).chain([bytes.len()]) {
        check(&format!("{name}.generating"), &bytes[..length]);
        check(&format!("{later}.generating"), &bytes[..length]);
        if length < bytes.len() {
            check(name, &bytes[..length]);
            check(&later, &bytes[..length]);
        }
    }
    for at in (0..bytes.len()).step_by(11) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x41;
        // The length of the decompressed bytes is not read.
        if !(bytes.len() - 12..bytes.len() - 4).contains(&at) {
            check(name, &flipped);
        }
    }
}

#[test]
fn a_lost_log_is_restored_from_the_lines_and_kept_aside() {
    let (_folder, whole) = closed();
    for journaled in [0, 5] {
        let (_folder, path) = copied(&whole);
        if journaled > 0 {
            let store = Store::open(&path, |_| {}).expect("it opens");
            put(&store, 60..60 + journaled);
            let journal = fs::read(path.join(JOURNAL)).expect("there");
            let export = fs::read(path.join(EXPORT)).expect("there");
            drop(store);
            drop(behind_its_back(&path));
            // As if the process had been killed.
            fs::write(path.join(JOURNAL), journal).expect("writable");
            fs::write(path.join(EXPORT), export).expect("writable");
        }
        let log = fs::metadata(path.join("db")).expect("there").len() as usize;
        fs::write(path.join("db"), vec![0x5a; log]).expect("writable");
        let store = Store::open(&path, |_| {}).expect("restored");
        assert_eq!(count(&store), 60 + journaled as usize);
        assert!(store.notes()[0].contains("restored all"), "{:?}", store.notes());
        assert_eq!(fs::read(path.join("aside/1-db")).expect("kept"), vec![0x5a; log]);
        put(&store, 100..101);
        drop(store);
        let store = Store::open(&path, |_| {}).expect("it opens");
        assert_eq!((count(&store), store.notes().len()), (61 + journaled as usize, 0));
    }
}

#[test]
fn an_export_and_a_journal_of_any_two_moments_give_the_last_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let store = Store::open(&path, |_| {}).expect("a new database");
    put(&store, 0..5);
    let mut batch = store.batch();
    batch.remove(Tree::Structures, format!("{:032x}", 3).as_bytes()).expect("removed");
    batch.commit().expect("written");
    let before = fs::read(path.join(JOURNAL)).expect("there");
    let seen = || all(&Store::read(&path, |_| {}).expect("a view"));
    assert_eq!((seen().len(), seen()), (4, all(&store)));
    store.close().expect("exported");
    assert_eq!(seen(), all(&store));
    // A process that was killed after it renamed the export, before it emptied the journal.
    fs::write(path.join(JOURNAL), &before).expect("writable");
    assert_eq!(seen(), all(&store));
    // A write that was broken off at each byte is not seen, and spoils nothing before it.
    let one = [
        structure(9, "late"),
        b"
"
        .to_vec(),
    ]
    .concat();
    for length in 0..one.len() {
        fs::write(path.join(JOURNAL), [&before, &one[..length]].concat()).expect("writable");
        assert_eq!(seen(), all(&store));
    }
    // Any damage to the export is noticed.
    let export = fs::read(path.join(EXPORT)).expect("there");
    for at in (0..export.len()).step_by(3) {
        let mut flipped = export.clone();
        flipped[at] ^= 1;
        fs::write(path.join(EXPORT), &flipped).expect("writable");
        let lines = journal::load(&path).expect("read").expect("there");
        assert!(!lines.whole || lines.state.count == 2, "a flip at {at} is not noticed");
        assert!(!lines.whole || lines.records.len() == 4, "a flip at {at} is not noticed");
    }
}

#[test]
fn opening_and_changing_many_times_leaves_a_small_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let mut most = 0;
    for round in 0..60 {
        let store = Store::open(&path, |_| {}).expect("it opens");
        put(&store, 0..20 + round);
        drop(store);
        most = most.max(fs::metadata(path.join("db")).expect("there").len());
    }
    assert!(most < 20 << 20, "{most} bytes for 80 records");
    // A log that is much larger than its records is replaced.
    drop(behind_its_back(&path));
    let log = fs::OpenOptions::new().write(true).open(path.join("db")).expect("there");
    log.set_len(40 << 20).expect("longer");
    drop(log);
    let store = Store::open(&path, |_| {}).expect("it opens");
    assert_eq!(count(&store), 79);
    let size = fs::metadata(path.join("db")).expect("there").len();
    assert!(size < 4 << 20, "{size} bytes for 79 records");
    assert!(!path.join("replaced").exists());
    put(&store, 200..201);
    drop(store);
    assert_eq!(count(&Store::open(&path, |_| {}).expect("it opens")), 80);
}

#[test]
fn records_of_any_length_need_no_file_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let value = |number: usize, length: usize| {
        let mut value = structure(number as u64, "");
        value.resize(length, b' ');
        value
    };
    let lengths = [1000, 2999, 3000, 3001, 6000, 20_000, MOST_BYTES];
    for round in 0..2 {
        let store = Store::open(&path, |_| {}).expect("it opens");
        let mut batch = store.batch();
        for number in 0..300 {
            let key = format!("{number:032x}{}", "k".repeat(400));
            let length = lengths[(number + round) % lengths.len()];
            batch.put(Tree::Structures, &key, value(number, length)).expect("it fits");
        }
        batch.commit().expect("written");
        let mut number = 0;
        let scanned = store.scan(Tree::Structures, "", |_, found| {
            assert!(found == value(number, lengths[(number + round) % lengths.len()]));
            number += 1;
            Ok(())
        });
        scanned.expect("read");
        assert_eq!(number, 300);
        let long = store.batch().put(Tree::Structures, "x", vec![b' '; MOST_BYTES + 1]);
        assert!(matches!(long, Err(Error::Argument(_))), "{long:?}");
        assert_eq!(fs::read_dir(path.join("blobs")).expect("a folder").count(), 0);
    }
    let store = Store::open(&path, |_| {}).expect("it opens");
    let mut batch = store.batch();
    for number in 0..300 {
        let key = format!("{number:032x}{}", "k".repeat(400));
        batch.remove(Tree::Structures, key.as_bytes()).expect("removed");
    }
    batch.commit().expect("written");
    drop(store);
    assert_eq!(behind_its_back(&path).open_tree("pieces").expect("it opens").len(), 0);
}

fn with_schema(stored: &str) -> Error {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let db = sled::open(&path).expect("a new database");
    db.insert("schema", stored).expect("written");
    db.flush().expect("written");
    drop(db);
    Store::open(&path, |_| {}).expect_err("refused")
}

#[test]
fn another_schema_is_refused_with_both_versions() {
    let newer = with_schema("2").to_string();
    assert!(newer.contains("schema 2") && newer.contains("newer"), "{newer}");
    let older = with_schema("0").to_string();
    assert!(older.contains("schema 0") && older.contains("older"), "{older}");
    let none = with_schema("?").to_string();
    assert!(none.contains("no schema"), "{none}");
}

#[test]
fn a_broken_file_is_an_error_not_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    for broken in ["conf", "db"] {
        let path = folder.path().join(broken);
        let store = Store::open(&path, |_| {}).expect("a new database");
        let mut batch = store.batch();
        for i in 0..2000 {
            batch.put(Tree::Structures, &i.to_string(), vec![7; 500]).expect("written");
        }
        batch.commit().expect("written");
        drop(store);
        without_lines(&path);
        let file = path.join(broken);
        let size = std::fs::metadata(&file).expect("it is there").len() as usize;
        std::fs::write(&file, vec![0x5a; size]).expect("overwritten");
        let opened = Store::open(&path, |_| {});
        match broken {
            // It holds constants alone.
            "conf" => assert_eq!(count(&opened.expect("repaired")), 2000),
            _ => assert!(matches!(opened, Err(Error::Wisdom { .. })), "{opened:?}"),
        }
    }
}

/// Applies `change` to a database of two records behind the store's back; returns the result of
/// opening it again: the number of commits or the error.
fn changed(change: impl FnOnce(&sled::Db, &sled::Tree)) -> Result<u64> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let store = Store::open(&path, |_| {}).expect("a new database");
    for (key, value) in [("1", "one"), ("2", "two"), ("2", "three")] {
        let mut batch = store.batch();
        batch.put(Tree::Structures, key, value.into()).expect("written");
        batch.commit().expect("written");
    }
    drop(store);
    without_lines(&path);
    let db = behind_its_back(&path);
    let tree = db.open_tree("structures").expect("it opens");
    change(&db, &tree);
    db.flush().expect("written");
    drop((tree, db));
    let error = match Store::open(&path, |_| {}) {
        Ok(store) => {
            drop(store);
            return Ok(super::database::acknowledged(&path));
        }
        Err(error) => error,
    };
    std::fs::remove_file(path.join(MADE)).expect("there");
    let store = Store::open(&path, |_| {}).expect("what is left");
    let left = count(&store);
    assert!((1..=2).contains(&left), "{left} records are left");
    store.batch().commit().expect("written");
    drop(store);
    Store::open(&path, |_| {}).expect("it goes on from there");
    Err(error)
}

#[test]
fn a_record_that_is_lost_or_not_the_last_is_noticed() {
    let lost = changed(|_, tree| drop(tree.remove("1").expect("removed")));
    assert!(matches!(lost, Err(Error::Wisdom { fault: WisdomFault::Differs, .. })), "{lost:?}");
    let older = changed(|_, tree| drop(tree.insert("2", "two").expect("written")));
    let message = older.expect_err("not the last").to_string();
    assert!(
        message.contains("not those that were written") && message.contains("'made'"),
        "{message}"
    );
    assert_eq!(changed(|_, _| ()).expect("sound"), 3);
    // The form of the oldest databases, without a checksum.
    let first = |db: &sled::Db, _: &sled::Tree| drop(db.insert("commits", "3"));
    assert_eq!(changed(first).expect("sound"), 3);
    let lost = changed(|db, _| drop(db.insert("commits", "2").expect("written")));
    assert!(matches!(lost, Err(Error::Wisdom { fault: WisdomFault::Lost { .. }, .. })));
}

#[test]
fn failed_writes_are_told_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wisdom");
    let store = Store::open(&path, |_| {}).expect("it opens");
    put(&store, 0..3);
    assert_eq!((store.fault(), store.failures()), (None, 0));
    // An export cannot replace a folder that holds something.
    let _ = fs::remove_file(path.join(EXPORT));
    fs::create_dir_all(path.join(EXPORT).join("in the way")).expect("a folder");
    for failures in 1..3 {
        store.close().expect_err("no export");
        assert!(store.fault().is_some());
        assert_eq!(store.failures(), failures);
    }
    fs::remove_dir_all(path.join(EXPORT)).expect("it is there");
    store.close().expect("it is written");
    assert_eq!((store.fault(), store.failures()), (None, 2));
}
