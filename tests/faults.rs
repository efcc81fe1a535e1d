//! The database of measurements under a file system that fails: at every write of an opening and of
//! a change, the process ends there, ends after half of the write, or finds the disk full.
//!
//! This program replaces the C library's functions that change files, counts their calls on files of
//! the database, and fails the one that a variable of the environment names.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code, reason = "replaces functions of the C library")]

#[path = "faults/system.rs"]
mod system;

use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_void};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use ellect::unstable::wisdom::Record;
use ellect::{Fingerprint, Wisdom};
use system::{
    ENOSPC, SYS_FTRUNCATE, SYS_PWRITE, SYS_RENAME, SYS_WRITE, failed, syscall, with_path,
};

/// Folder of the database; set only in child processes.
const FOLDER: &str = "ELLECT_TEST_FAULTS";
/// Number of the call that fails, from 0.
const AT: &str = "ELLECT_TEST_FAULT_AT";
/// The way in which it fails, one of [`WAYS`].
const WAY: &str = "ELLECT_TEST_FAULT_WAY";

/// Ways of failing: the process ends before the call, it ends after half of a write, the disk is
/// full from this call on, and the disk is full for this call alone.
const WAYS: [&str; 4] = ["end", "half", "full", "once"];

/// Exit code of a process that ends at a fault.
const ENDED: i32 = 77;

static ARMED: AtomicBool = AtomicBool::new(false);
/// Calls until the fault.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);
static HOW: AtomicI64 = AtomicI64::new(0);

const SYS_EXIT_GROUP: c_long = 231;

/// The fate of a call.
enum Fate {
    Goes,
    Ends,
    EndsHalfway,
    IsFull,
}

/// Counts a call and decides on it.
fn fate() -> Fate {
    if !ARMED.load(Ordering::SeqCst) {
        return Fate::Goes;
    }
    let left = LEFT.fetch_sub(1, Ordering::SeqCst);
    match (HOW.load(Ordering::SeqCst), left) {
        (0, 0) => Fate::Ends,
        (1, 0) => Fate::EndsHalfway,
        (2, ..=0) | (3, 0) => Fate::IsFull,
        _ => Fate::Goes,
    }
}

/// Tells whether a file descriptor is of a file of the database.
fn is_of_database(file: c_int) -> bool {
    if !ARMED.load(Ordering::SeqCst) {
        return false;
    }
    let of_database = |path: &[u8]| path.windows(8).any(|part| part == b"/wisdom/");
    with_path(file, of_database).unwrap_or(false)
}

fn full() -> isize {
    failed(ENOSPC) as isize
}

fn end() -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { syscall(SYS_EXIT_GROUP, c_long::from(ENDED)) };
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, from: *const c_void, length: usize) -> isize {
    let fate = if is_of_database(file) { fate() } else { Fate::Goes };
    // SAFETY: the caller's arguments are passed on, or a shorter length.
    unsafe {
        match fate {
            Fate::Goes => syscall(SYS_WRITE, c_long::from(file), from, length) as isize,
            Fate::Ends => end(),
            Fate::EndsHalfway => {
                syscall(SYS_WRITE, c_long::from(file), from, length / 2);
                end()
            }
            Fate::IsFull => full(),
        }
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(
    file: c_int,
    from: *const c_void,
    length: usize,
    at: i64,
) -> isize {
    let fate = if is_of_database(file) { fate() } else { Fate::Goes };
    // SAFETY: the caller's arguments are passed on, or a shorter length.
    unsafe {
        match fate {
            Fate::Goes => syscall(SYS_PWRITE, c_long::from(file), from, length, at) as isize,
            Fate::Ends => end(),
            Fate::EndsHalfway => {
                syscall(SYS_PWRITE, c_long::from(file), from, length / 2, at);
                end()
            }
            Fate::IsFull => full(),
        }
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(file: c_int, length: i64) -> c_int {
    let fate = if is_of_database(file) { fate() } else { Fate::Goes };
    match fate {
        // SAFETY: the caller's arguments are passed on.
        Fate::Goes => unsafe { syscall(SYS_FTRUNCATE, c_long::from(file), length) as c_int },
        Fate::Ends | Fate::EndsHalfway => end(),
        Fate::IsFull => full() as c_int,
    }
}

/// Replaces the C library's function.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller passes a string that ends with a zero byte.
    let name = unsafe { CStr::from_ptr(from) }.to_bytes();
    let fate = match name.windows(8).any(|part| part == b"/wisdom/") {
        true => fate(),
        false => Fate::Goes,
    };
    match fate {
        // SAFETY: the caller's arguments are passed on.
        Fate::Goes => unsafe { syscall(SYS_RENAME, from, to) as c_int },
        Fate::Ends | Fate::EndsHalfway => end(),
        Fate::IsFull => full() as c_int,
    }
}

fn record(number: u64) -> Record {
    let line = format!(
        r#"{{"kind":"structure","fingerprint":"{number:032x}","source":"{}","family":"","nrows":3,"ncols":3,"nnz":4,"features":{{}}}}"#,
        "name ".repeat(40)
    );
    Record::parse(line.as_bytes()).expect("a valid line")
}

fn fingerprint(number: u64) -> Fingerprint {
    format!("{number:032x}").parse().expect("hexadecimal")
}

/// Number of records of a new record that the child process keeps.
const NEW: u64 = 1000;

/// The child process of the tests below: opens the database, keeps a record, and closes it. It ends
/// with 0 if the record is acknowledged, with 1 if an error is told.
#[test]
fn opens_and_keeps_a_record_in_a_child_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let text = |name| std::env::var(name).expect("set");
    let way = text(WAY);
    let how = WAYS.iter().position(|one| *one == way).expect("a way");
    LEFT.store(text(AT).parse().expect("a number"), Ordering::SeqCst);
    HOW.store(how as i64, Ordering::SeqCst);
    ARMED.store(true, Ordering::SeqCst);
    let kept = Wisdom::open(Path::new(&folder)).and_then(|wisdom| {
        wisdom.keep([record(NEW)])?;
        // A failed export loses nothing, and is told.
        let closed = wisdom.close();
        assert_eq!(closed.is_err(), wisdom.fault().is_some());
        Ok(())
    });
    let left = LEFT.load(Ordering::SeqCst);
    ARMED.store(false, Ordering::SeqCst);
    if left > 0 {
        std::process::exit(2);
    }
    std::process::exit(i32::from(kept.is_err()));
}

/// Runs the child process; returns its exit code.
fn child(folder: &Path, way: &str, at: i64) -> i32 {
    let program = std::env::current_exe().expect("this program");
    let name = "opens_and_keeps_a_record_in_a_child_process";
    let status = Command::new(program)
        .args([name, "--exact", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(AT, at.to_string())
        .env(WAY, way)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("it runs").code().expect("it was not killed")
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("writable");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or(OsStr::new(""));
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(std::fs::copy(&path, to.join(name)).expect("copied")),
        }
    }
}

/// Fails each write of an opening, a change and a clean stop in this way; afterwards the database
/// opens, and all that was acknowledged is there.
fn assert_nothing_is_lost(way: &str, prepare: &dyn Fn(&Path) -> u64) {
    let whole = tempfile::tempdir().expect("a folder");
    let kept = prepare(whole.path());
    let mut faults = 0;
    for at in 0.. {
        let folder = tempfile::tempdir().expect("a folder");
        copy(whole.path(), folder.path());
        let code = child(folder.path(), way, at);
        let stated = format!("{way} at {at}, exit code {code}");
        assert!([0, 1, 2, ENDED].contains(&code), "{stated}");
        let wisdom = Wisdom::open(folder.path()).unwrap_or_else(|e| panic!("{stated}: {e}"));
        let mut numbers: Vec<u64> = (0..kept).collect();
        if code == 0 || code == 2 {
            numbers.push(NEW);
        }
        for number in numbers {
            let found = wisdom.structure(fingerprint(number)).expect("sound");
            assert!(found.is_some(), "{stated}: record {number} is lost");
        }
        assert!(wisdom.verify().expect("sound").bad.is_empty(), "{stated}");
        wisdom.keep([record(NEW + 1)]).unwrap_or_else(|e| panic!("{stated}: {e}"));
        drop(wisdom);
        let again = Wisdom::open(folder.path()).unwrap_or_else(|e| panic!("{stated}: {e}"));
        assert!(again.structure(fingerprint(NEW + 1)).expect("sound").is_some(), "{stated}");
        if code == 2 {
            break;
        }
        faults += 1;
    }
    assert!(faults > 10, "{way}: only {faults} writes");
}

/// Creates a database, and opens it once more so that it has a snapshot.
fn filled(folder: &Path) -> u64 {
    for round in 0..2 {
        let wisdom = Wisdom::open(folder).expect("it opens");
        wisdom.keep((round * 20..round * 20 + 20).map(record)).expect("written");
    }
    40
}

/// Like [`filled`], without the lines beside the database that could restore it.
fn filled_by_an_earlier_version(folder: &Path) -> u64 {
    let records = filled(folder);
    for name in ["export.jsonl", "journal.jsonl", "lock"] {
        std::fs::remove_file(folder.join("wisdom").join(name)).expect("there");
    }
    records
}

#[test]
fn a_process_that_ends_at_any_write_loses_nothing() {
    for way in ["end", "half"] {
        assert_nothing_is_lost(way, &filled);
        assert_nothing_is_lost(way, &filled_by_an_earlier_version);
        assert_nothing_is_lost(way, &|_| 0);
    }
}

#[test]
fn a_disk_that_is_full_at_any_write_loses_nothing_and_is_told() {
    for way in ["full", "once"] {
        assert_nothing_is_lost(way, &filled);
        assert_nothing_is_lost(way, &filled_by_an_earlier_version);
        assert_nothing_is_lost(way, &|_| 0);
    }
}
