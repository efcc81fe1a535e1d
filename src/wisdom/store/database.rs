//! The sled database: only this module and `marks` name sled.
//!
//! sled panics on some damaged files, so every call is guarded. Its `flush` does not sync on Linux,
//! so this module syncs the file as well. sled opens a truncated file as if the missing tail had
//! never been written, and skips the records between a damaged place and the next segment. Two
//! checks detect such losses:
//!
//! - Every commit is counted, in the database and in a separate file. If the database has the lower
//!   count, the last commits are lost.
//! - Every commit stores a checksum over all records. If it differs from the records, some are lost
//!   or changed.
//!
//! sled keeps a node of its tree, which holds up to 17 values, in one message, and a message over
//! 128 KiB in a separate file that it never syncs. So a value over [`PIECE_BYTES`] is cut: the tree
//! of its record holds a head (a zero byte and the number of pieces), and a tree of its own the
//! pieces.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

use sled::Transactional;
use sled::transaction::TransactionError;
use xxhash_rust::xxh3::Xxh3;

use super::{Changes, State, Tree};
use crate::error::{Error, Result, WisdomFault};

/// Version of the keys and values that this program reads and writes.
pub(super) const SCHEMA: u32 = 1;

const SCHEMA_KEY: &str = "schema";
/// Key of the entry that holds the number of commits and the checksum over all records.
const COMMITS_KEY: &str = "commits";
/// Name of the file that marks a database with a schema and holds the number of acknowledged
/// commits.
pub(super) const MADE: &str = "made";
/// Name of sled's log, which holds all records and sled's lock.
pub(super) const LOG: &str = "db";
const CACHE_BYTES: u64 = 64 << 20;
/// Time after which a flush is asked for again; it doubles each time.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
/// Maximum length of a value in one piece, in bytes.
const PIECE_BYTES: usize = 3000;

/// An open database.
pub(super) struct Database {
    pub(super) path: PathBuf,
    file: File,
    structures: sled::Tree,
    measurements: sled::Tree,
    pieces: sled::Tree,
    pub(super) db: sled::Db,
}

/// Contents of a database when it was opened.
pub(super) struct Found {
    /// Number of commits that the database stores, and the checksum of the records it contains.
    pub state: State,
    /// Checksum that the database stores; the oldest databases have none.
    written: Option<u64>,
    /// Bytes of all keys and values.
    pub live_bytes: u64,
}

/// The file that repeats the number of acknowledged commits.
pub(super) struct Made(File);

impl Made {
    /// Opens or creates the file; returns the number of acknowledged commits, 0 if there is none.
    fn open(path: &Path) -> Result<(Self, u64)> {
        let io = |source| Error::Io { what: path.join(MADE).display().to_string(), source };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut made = options.open(path.join(MADE)).map_err(io)?;
        let mut text = String::new();
        made.read_to_string(&mut text).map_err(io)?;
        let fault =
            || WisdomFault::Corrupt(format!("its file {MADE} holds '{text}', not a number"));
        match count_of(&text) {
            Some(count) => Ok((Made(made), count)),
            None => Err(Error::Wisdom { path: path.to_path_buf(), fault: fault() }),
        }
    }

    /// Writes the new count over the previous one, which has the same length.
    fn note(&mut self, count: u64) -> std::io::Result<()> {
        self.0.rewind()?;
        self.0.write_all(format!("{count:020}\n").as_bytes())
    }
}

/// Parses the number of acknowledged commits; the file is empty if there was none.
fn count_of(text: &str) -> Option<u64> {
    match text.trim() {
        "" => Some(0),
        text => text.parse().ok(),
    }
}

/// Returns the number of acknowledged commits of the database in this folder; 0 if it is not known.
pub(super) fn acknowledged(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path.join(MADE)).unwrap_or_default();
    count_of(&text).unwrap_or(0)
}

/// Computes the contribution of one record to the checksum, which is their sum modulo 2^64.
fn part(tree: Tree, key: &[u8], value: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(tree as u64);
    hash.update(&(key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(value);
    hash.digest()
}

/// Runs a call of sled; returns its errors and panics as [`Error::Wisdom`].
pub(super) fn guard<T>(path: &Path, work: impl FnOnce() -> sled::Result<T>) -> Result<T> {
    let wrong = |fault| Error::Wisdom { path: path.to_path_buf(), fault };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(sled::Error::Io(error))) if error.to_string().contains("acquire lock") => {
            Err(wrong(WisdomFault::InUse))
        }
        Ok(Err(sled::Error::Io(source))) if source.kind() != std::io::ErrorKind::Other => {
            Err(Error::Io { what: path.display().to_string(), source })
        }
        Ok(Err(error)) => Err(wrong(WisdomFault::Corrupt(error.to_string()))),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(wrong(WisdomFault::Corrupt(said.unwrap_or("it cannot be read").to_string())))
        }
    }
}

/// Writes everything to the log of sled.
///
/// sled can miss that a write failed between its check for errors and its wait for the write, and
/// then waits for ever. So a thread of its own flushes; after some time, another one asks again,
/// which is told the error.
fn flush(path: &Path, db: &sled::Db) -> Result<()> {
    let (answers, answer) = channel();
    let mut patience = FIRST_PATIENCE;
    loop {
        let (db, answers) = (db.clone(), answers.clone());
        let work = move || {
            let flushed = catch_unwind(AssertUnwindSafe(|| db.flush()));
            drop(db);
            // Sending fails if another thread has answered.
            drop(answers.send(flushed));
        };
        let thread = Builder::new().name("ellect-flush".into()).spawn(work);
        thread.map_err(|source| Error::Io { what: path.display().to_string(), source })?;
        match answer.recv_timeout(patience) {
            Ok(Ok(flushed)) => return guard(path, || flushed.map(drop)),
            Ok(Err(panic)) => return guard(path, || resume_unwind(panic)),
            Err(_) => patience *= 2,
        }
    }
}

impl Database {
    /// Opens the database in the folder `path`, or creates it. `see` is called with the key of each
    /// measurement.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if another process has the database open, it is damaged, acknowledged
    /// commits are missing, or its schema is not [`SCHEMA`].
    pub fn open(path: &Path, see: &mut dyn FnMut(&[u8])) -> Result<(Self, Found, Made)> {
        let wrong = |fault| Error::Wisdom { path: path.to_path_buf(), fault };
        let (db, found) = Database::open_unchecked(path, see)?;
        let (made, acknowledged) = Made::open(path)?;
        let State { count, sum } = found.state;
        if count < acknowledged {
            return Err(wrong(WisdomFault::Lost { kept: count, acknowledged }));
        }
        match found.written.is_some_and(|written| written != sum) && acknowledged > 0 {
            true => Err(wrong(WisdomFault::Differs)),
            false => Ok((db, found, made)),
        }
    }

    /// Like [`Database::open`], but does not check that all acknowledged commits are there.
    pub fn open_unchecked(path: &Path, see: &mut dyn FnMut(&[u8])) -> Result<(Self, Found)> {
        let wrong = |fault| Error::Wisdom { path: path.to_path_buf(), fault };
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES);
        let db = open_patiently(path, &config)?;
        match guard(path, || db.get(SCHEMA_KEY))? {
            Some(stored) => {
                let stored = std::str::from_utf8(&stored).ok().and_then(|text| text.parse().ok());
                match stored {
                    Some(SCHEMA) => {}
                    found => return Err(wrong(WisdomFault::Schema { found, known: SCHEMA })),
                }
            }
            // sled replaces a file that it cannot read by a new, empty one.
            None if path.join(MADE).exists() => {
                return Err(wrong(WisdomFault::Corrupt("its records cannot be found".into())));
            }
            // It has trees other than sled's own but no schema: it belongs to another program.
            None if db.tree_names().len() > 1 => {
                return Err(wrong(WisdomFault::Schema { found: None, known: SCHEMA }));
            }
            None => {
                guard(path, || db.insert(SCHEMA_KEY, SCHEMA.to_string().as_str()))?;
                flush(path, &db)?;
            }
        }
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let file = File::open(path.join(LOG)).map_err(io)?;
        file.sync_all().map_err(io)?;
        let (count, written) = match guard(path, || db.get(COMMITS_KEY))? {
            None => (0, None),
            Some(text) => commits_of(&String::from_utf8_lossy(&text)).ok_or_else(|| {
                wrong(WisdomFault::Corrupt("its count of commits is not a number".into()))
            })?,
        };
        let structures = guard(path, || db.open_tree("structures"))?;
        let measurements = guard(path, || db.open_tree("measurements"))?;
        let pieces = guard(path, || db.open_tree("pieces"))?;
        let db = Database { path: path.to_path_buf(), file, structures, measurements, pieces, db };
        let (mut sum, mut live_bytes) = (0_u64, 0);
        for tree in Tree::ALL {
            db.scan(tree, "", |key, value| {
                sum = sum.wrapping_add(part(tree, key, value));
                live_bytes += (key.len() + value.len()) as u64;
                if tree == Tree::Measurements {
                    see(key);
                }
                Ok(())
            })?;
        }
        Ok((db, Found { state: State { count, sum }, written, live_bytes }))
    }

    fn tree(&self, tree: Tree) -> &sled::Tree {
        match tree {
            Tree::Structures => &self.structures,
            Tree::Measurements => &self.measurements,
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let raw = guard(&self.path, || self.tree(tree).get(key))?;
        raw.map(|raw| self.whole(tree, key, &raw)).transpose()
    }

    /// Calls `each` with every key that begins with `prefix`, and its value, in order of keys.
    pub fn scan(
        &self,
        tree: Tree,
        prefix: &str,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut entries = self.tree(tree).scan_prefix(prefix);
        while let Some((key, raw)) = guard(&self.path, || entries.next().transpose())? {
            match pieces_of(&raw) {
                0 => each(&key, &raw)?,
                _ => each(&key, &self.whole(tree, &key, &raw)?)?,
            }
        }
        Ok(())
    }

    /// Returns the value behind what a tree stores for a key: itself, or its pieces joined.
    fn whole(&self, tree: Tree, key: &[u8], raw: &[u8]) -> Result<Vec<u8>> {
        let pieces = pieces_of(raw);
        if pieces == 0 {
            return Ok(raw.to_vec());
        }
        let mut value = Vec::new();
        for i in 0..pieces {
            let piece = guard(&self.path, || self.pieces.get(piece_key(tree, key, i)))?;
            let missing = || Error::Wisdom {
                path: self.path.clone(),
                fault: WisdomFault::Corrupt("a piece of a record is missing".into()),
            };
            value.extend_from_slice(&piece.ok_or_else(missing)?);
        }
        Ok(value)
    }

    /// Returns the checksum over all records after these changes to records with checksum `sum`.
    pub fn sum_after(&self, mut sum: u64, changes: &Changes) -> Result<u64> {
        for ((tree, key), value) in changes {
            let of = |value: &[u8]| part(*tree, key, value);
            let before = self.get(*tree, key)?;
            sum = sum.wrapping_sub(before.map_or(0, |value| of(&value)));
            sum = sum.wrapping_add(value.as_deref().map_or(0, of));
        }
        Ok(sum)
    }

    /// Makes all changes or none, and stores `state` with them; they are on disk after
    /// [`Database::sync`].
    pub fn apply(&self, changes: &Changes, state: State) -> Result<()> {
        let mut steps = Vec::new();
        for ((tree, key), value) in changes {
            let before = guard(&self.path, || self.tree(*tree).get(key))?;
            let stale = before.map_or(0, |raw| pieces_of(&raw));
            steps.push((*tree, key, value.as_deref().map(cut), stale));
        }
        let said = format!("{} {:016x}", state.count, state.sum);
        let trees = (&self.structures, &self.measurements, &self.pieces, &*self.db);
        guard(&self.path, || {
            let done = trees.transaction(|(structures, measurements, pieces, own)| {
                for (tree, key, value, stale) in &steps {
                    let records = match tree {
                        Tree::Structures => structures,
                        Tree::Measurements => measurements,
                    };
                    for i in 0..*stale {
                        pieces.remove(piece_key(*tree, key, i))?;
                    }
                    let Some((head, cut)) = value else {
                        records.remove(key.as_slice())?;
                        continue;
                    };
                    records.insert(key.as_slice(), head.as_slice())?;
                    for (i, piece) in cut.iter().enumerate() {
                        pieces.insert(piece_key(*tree, key, i as u16), *piece)?;
                    }
                }
                own.insert(COMMITS_KEY, said.as_str())?;
                Ok::<_, sled::transaction::ConflictableTransactionError>(())
            });
            done.map_err(|error| match error {
                TransactionError::Storage(error) | TransactionError::Abort(error) => error,
            })
        })
    }

    /// Writes everything applied to the disk, and notes that `count` commits are acknowledged.
    pub fn sync(&self, made: &mut Made, count: u64) -> Result<()> {
        let io = |source| Error::Io { what: self.path.display().to_string(), source };
        flush(&self.path, &self.db)?;
        self.file.sync_all().map_err(io)?;
        made.note(count).map_err(io)
    }
}

/// Cuts a value: the head that the tree of its record stores, and the pieces, none if it is short.
fn cut(value: &[u8]) -> (Vec<u8>, Vec<&[u8]>) {
    if value.len() <= PIECE_BYTES && value.first() != Some(&0) {
        return (value.to_vec(), Vec::new());
    }
    let pieces: Vec<&[u8]> = value.chunks(PIECE_BYTES).collect();
    let [low, high] = (pieces.len() as u16).to_le_bytes();
    (vec![0, low, high], pieces)
}

/// Returns the number of pieces of a stored value; 0 if it is stored whole, which is never so for a
/// value that begins with a zero byte.
fn pieces_of(raw: &[u8]) -> u16 {
    match raw {
        [0, low, high] => u16::from_le_bytes([*low, *high]),
        _ => 0,
    }
}

fn piece_key(tree: Tree, key: &[u8], i: u16) -> Vec<u8> {
    [&[tree as u8][..], key, &i.to_be_bytes()].concat()
}

/// Reads the count and the checksum stored under [`COMMITS_KEY`]; the oldest databases have no
/// checksum.
fn commits_of(text: &str) -> Option<(u64, Option<u64>)> {
    match text.split_once(' ') {
        None => Some((text.parse().ok()?, None)),
        Some((count, sum)) => Some((count.parse().ok()?, Some(u64::from_str_radix(sum, 16).ok()?))),
    }
}

/// Opens the database; if it is in use, retries for 0.4 s, because sled releases its lock some time
/// after the last handle is dropped.
fn open_patiently(path: &Path, config: &sled::Config) -> Result<sled::Db> {
    for _ in 0..20 {
        match guard(path, || config.open()) {
            Err(Error::Wisdom { fault: WisdomFault::InUse, .. }) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
    guard(path, || config.open())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_count_is_read_with_and_without_a_checksum() {
        assert_eq!(commits_of("3 0f"), Some((3, Some(15))));
        assert_eq!(commits_of("3"), Some((3, None)));
        for bad in ["", "x", "3 ", "3 sums", "-3 0f"] {
            assert_eq!(commits_of(bad), None, "{bad}");
        }
    }
}
