//! The database as the one process sees it that holds its lock.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::database::{self, Database, Found, LOG, Made};
use super::journal::{self, Journal, Lines};
use super::{Changes, State, Tree, aside};
use crate::error::{Error, Result, WisdomFault};

/// Name of the file that the holder of the database locks.
const LOCK: &str = "lock";

/// Size of sled's log, in bytes, up to which it is left alone; and beyond it, the multiple of the
/// records' own bytes.
const SMALL_BYTES: u64 = 16 << 20;
const MOST_TIMES: u64 = 8;

/// Maximum number of records in a transaction that fills a database.
const SOME: usize = 1000;

/// A database that this process has locked.
pub(in super::super) struct Held {
    path: PathBuf,
    /// Sentences on what was repaired when the database was opened.
    pub notes: Vec<String>,
    pub db: Database,
    /// Number of writes so far, which is read without waiting for a write.
    revision: AtomicU64,
    /// Number of writes and exports that failed.
    failures: AtomicU64,
    written: Mutex<Written>,
    /// Dropped last, so that the next process finds sled closed.
    _lock: File,
}

/// State of the files.
struct Written {
    state: State,
    made: Made,
    journal: Journal,
    /// Message of the last write, if it failed.
    fault: Option<String>,
}

/// Locks the folder of a database.
fn lock(path: &Path) -> Result<File> {
    let io = |source| Error::Io { what: path.join(LOCK).display().to_string(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path.join(LOCK));
    let file = file.map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Wisdom { path: path.to_path_buf(), fault: WisdomFault::InUse })
        }
        Err(TryLockError::Error(error)) => Err(io(error)),
    }
}

/// Waits up to 0.4 s until no sled has its log open: an earlier one of this process closes late, and
/// earlier versions of this program lock nothing else.
fn wait_for_sled(path: &Path) {
    for _ in 0..20 {
        match File::open(path.join(LOG)) {
            Ok(log) if matches!(log.try_lock(), Err(TryLockError::WouldBlock)) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

impl Held {
    /// Opens the database in the folder `path`, or creates it. `see` is called with the key of each
    /// measurement.
    ///
    /// Damage is repaired if no acknowledged record is lost by it; the damaged files are kept in the
    /// folder `aside`.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if another process has the database open, it is damaged beyond that, or its
    /// schema is another; [`Error::Io`].
    pub fn open(path: &Path, see: &mut dyn FnMut(&[u8])) -> Result<Self> {
        let io = |source| Error::Io { what: path.display().to_string(), source };
        fs::create_dir_all(path).map_err(io)?;
        let lock = lock(path)?;
        wait_for_sled(path);
        let mut journal = Journal::open(path)?;
        let mut notes = aside::unusable(path).map_err(io)?;
        let acknowledged = database::acknowledged(path);
        let (db, found, made) = match Database::open(path, see) {
            Err(Error::Wisdom { fault, .. }) if is_damage(&fault) => {
                rebuilt(path, fault, &mut notes, see)?
            }
            opened => opened?,
        };
        let (mut state, mut made) = (found.state, made);
        match journal::tail(path) {
            Some(end) if end == state => {}
            None if state == State::default() && !journal.is_changed() => {}
            _ => {
                let later = journal::load(path)?.filter(|lines| lines.state.count > state.count);
                match later {
                    Some(lines) if lines.whole => state = fill(&db, state, &lines, &mut made)?,
                    // The count that the database repeats says that it is complete.
                    Some(_) if state.count > 0 && state.count == acknowledged => {}
                    Some(_) => {
                        let what = format!("its file {} is damaged too", journal::EXPORT);
                        let fault = WisdomFault::Corrupt(what);
                        return Err(Error::Wisdom { path: path.to_path_buf(), fault });
                    }
                    None => {}
                }
                export(&db, state, &mut journal)?;
            }
        }
        let mut written = Written { state, made, journal, fault: None };
        let db = match is_bloated(path, &found) {
            true => compacted(path, db, &mut written)?,
            false => db,
        };
        // Left by a process that ended between replacing the database and removing the old one.
        let _ = fs::remove_dir_all(path.join(aside::REPLACED));
        let revision = AtomicU64::new(written.state.count);
        let (path, written) = (path.to_path_buf(), Mutex::new(written));
        let failures = AtomicU64::new(0);
        Ok(Held { path, notes, db, revision, failures, written, _lock: lock })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all changes or none; returns once they are on disk.
    pub fn write(&self, changes: &Changes) -> Result<()> {
        let mut written = self.written();
        let done = self.write_now(&mut written, changes);
        self.revision.store(written.state.count, Ordering::Relaxed);
        self.note(&mut written, &done);
        if done.is_ok() && written.journal.is_due() {
            // The write itself is on disk, so it has not failed.
            let exported = self.export(&mut written);
            self.note(&mut written, &exported);
        }
        done
    }

    /// Notes the message of the last write, and counts it, if it failed.
    fn note(&self, written: &mut Written, done: &Result<()>) {
        written.fault = done.as_ref().err().map(ToString::to_string);
        self.failures.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
    }

    fn write_now(&self, written: &mut Written, changes: &Changes) -> Result<()> {
        let Written { state, made, journal, .. } = written;
        let sum = self.db.sum_after(state.sum, changes)?;
        let next = State { count: state.count + 1, sum };
        if !journal.behind {
            journal.append(changes, next)?;
        }
        let done = self.db.apply(changes, next).and_then(|()| {
            // The checksum describes the trees' contents, even if the sync below fails.
            state.sum = sum;
            self.db.sync(made, next.count)
        });
        if let Err(error) = done {
            journal.behind = true;
            return Err(error);
        }
        state.count = next.count;
        match journal.behind {
            true => self.export(written),
            false => Ok(()),
        }
    }

    fn export(&self, written: &mut Written) -> Result<()> {
        export(&self.db, written.state, &mut written.journal)
    }

    /// Writes a new export if anything changed and the last one is a day old.
    pub fn upkeep(&self) -> Result<()> {
        match self.written().journal.is_due() {
            true => self.close(),
            false => Ok(()),
        }
    }

    /// Writes a new export if anything changed since the last one.
    pub fn close(&self) -> Result<()> {
        let mut written = self.written();
        if !written.journal.is_changed() {
            return Ok(());
        }
        let exported = self.export(&mut written);
        self.note(&mut written, &exported);
        exported
    }

    /// Returns the number of writes so far.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Returns the message of the last write, if it failed.
    pub fn fault(&self) -> Option<String> {
        self.written().fault.clone()
    }

    /// Returns the number of writes and exports that failed.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the folder of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // If the export fails, the journal still holds what it lacks.
        let _ = self.close();
    }
}

/// Tells whether a fault is damage, which lines beside the database may repair.
fn is_damage(fault: &WisdomFault) -> bool {
    matches!(fault, WisdomFault::Corrupt(_) | WisdomFault::Lost { .. } | WisdomFault::Differs)
}

/// Moves a damaged database aside and opens a new one, if the lines beside it hold every
/// acknowledged record; the caller fills it from them.
fn rebuilt(
    path: &Path,
    fault: WisdomFault,
    notes: &mut Vec<String>,
    see: &mut dyn FnMut(&[u8]),
) -> Result<(Database, Found, Made)> {
    let io = |source| Error::Io { what: path.display().to_string(), source };
    let acknowledged = database::acknowledged(path);
    let lines = journal::load(path)?;
    let holds_all = |lines: &Lines| lines.whole && lines.state.count >= acknowledged.max(1);
    let Some(lines) = lines.filter(holds_all) else {
        return Err(Error::Wisdom { path: path.to_path_buf(), fault });
    };
    let to = aside::all(path).map_err(io)?;
    notes.push(format!(
        "the database was damaged: moved it to {} and restored all {} records from {}",
        to.display(),
        lines.records.len(),
        journal::EXPORT
    ));
    Database::open(path, see)
}

/// Makes the records of a database those of `lines`; returns its new state.
///
/// The count stays below the one of the lines until all records are there, so that a process that
/// ends on the way leaves a database that is filled again.
fn fill(db: &Database, state: State, lines: &Lines, made: &mut Made) -> Result<State> {
    let mut changes = Changes::new();
    for tree in Tree::ALL {
        db.scan(tree, "", |key, value| {
            let key = (tree, key.to_vec());
            if lines.records.get(&key).map(Vec::as_slice) != Some(value) {
                changes.insert(key, None);
            }
            Ok(())
        })?;
    }
    for (key, value) in &lines.records {
        let there = db.get(key.0, &key.1)?;
        if there.as_ref() != Some(value) {
            changes.insert(key.clone(), Some(value.clone()));
        }
    }
    put_all(db, state, changes, lines.state.count, made)
}

/// Makes these changes in several transactions; only the last one has the number of commits `count`.
fn put_all(
    db: &Database,
    mut state: State,
    mut changes: Changes,
    count: u64,
    made: &mut Made,
) -> Result<State> {
    while !changes.is_empty() {
        let rest = match changes.keys().nth(SOME).cloned() {
            Some(key) => changes.split_off(&key),
            None => BTreeMap::new(),
        };
        state.sum = db.sum_after(state.sum, &changes)?;
        db.apply(&changes, state)?;
        changes = rest;
    }
    state.count = count;
    db.apply(&Changes::new(), state)?;
    db.sync(made, count)?;
    Ok(state)
}

/// Writes every record to a new export.
fn export(db: &Database, state: State, journal: &mut Journal) -> Result<()> {
    journal.export(state, |line| {
        for tree in Tree::ALL {
            db.scan(tree, "", |_, value| line(value))?;
        }
        Ok(())
    })
}

/// Tells whether sled's log is much larger than the records.
fn is_bloated(path: &Path, found: &Found) -> bool {
    let size = fs::metadata(path.join(LOG)).map_or(0, |log| log.len());
    size > SMALL_BYTES + MOST_TIMES * found.live_bytes
}

/// Replaces a database by a new one with the same records.
///
/// A process that ends on the way leaves a database with a lower count than the export, which the
/// next one fills.
fn compacted(path: &Path, db: Database, written: &mut Written) -> Result<Database> {
    let io = |source| Error::Io { what: path.display().to_string(), source };
    let Written { state, made, journal, .. } = written;
    if journal.is_changed() || journal::tail(path) != Some(*state) {
        export(&db, *state, journal)?;
    }
    let mut records = Changes::new();
    for tree in Tree::ALL {
        db.scan(tree, "", |key, value| {
            records.insert((tree, key.to_vec()), Some(value.to_vec()));
            Ok(())
        })?;
    }
    drop(db);
    wait_for_sled(path);
    aside::replace(path).map_err(io)?;
    let (new, found, new_made) = Database::open(path, &mut |_| ())?;
    *made = new_made;
    let filled = put_all(&new, found.state, records, state.count, made)?;
    match filled == *state {
        true => Ok(new),
        false => Err(Error::Wisdom { path: path.to_path_buf(), fault: WisdomFault::Differs }),
    }
}

/// Moves all files of a database aside; returns every record that can be read in them.
pub(super) fn set_aside(path: &Path) -> Result<Vec<Vec<u8>>> {
    let io = |source| Error::Io { what: path.display().to_string(), source };
    let _lock = lock(path)?;
    wait_for_sled(path);
    let mut records = Vec::new();
    if let Some(lines) = journal::load(path)? {
        records.extend(lines.records.into_values());
    }
    aside::unusable(path).map_err(io)?;
    if let Ok((db, _)) = Database::open_unchecked(path, &mut |_| ()) {
        for tree in Tree::ALL {
            // The records before the first one that cannot be read.
            let _ = db.scan(tree, "", |_, value| {
                records.push(value.to_vec());
                Ok(())
            });
        }
    }
    wait_for_sled(path);
    aside::all(path).map_err(io)?;
    for name in [journal::EXPORT, journal::JOURNAL] {
        if path.join(name).exists() {
            aside::move_aside(path, name).map_err(io)?;
        }
    }
    Ok(records)
}
