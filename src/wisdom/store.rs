//! The embedded store: the only module that names sled.
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
//! Values must be small: sled keeps large ones in separate files that it never syncs.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sled::Transactional;
use sled::transaction::TransactionError;
use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result, WisdomFault};

/// Version of the keys and values that this program reads and writes.
pub(super) const SCHEMA: u32 = 1;

const SCHEMA_KEY: &str = "schema";
/// Key of the entry that holds the number of commits and the checksum over all records.
const COMMITS_KEY: &str = "commits";
/// Name of the file that marks a database with a schema and holds the number of acknowledged
/// commits.
const MADE: &str = "made";
const CACHE_BYTES: u64 = 64 << 20;
/// Maximum number of changes in one transaction: sled keeps its whole log until a transaction ends.
const MOST_CHANGES: usize = 1000;

/// Selects a tree of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    /// Maps a fingerprint to a structure.
    Structures,
    /// Maps a key to a measurement.
    Measurements,
}

/// An open database, locked by this process.
pub(super) struct Store {
    path: PathBuf,
    file: File,
    commits: Mutex<Commits>,
    structures: sled::Tree,
    measurements: sled::Tree,
    db: sled::Db,
}

/// Number of commits, checksum, and the file that repeats the number.
struct Commits {
    count: u64,
    /// Sum over all records of [`part`], modulo 2^64.
    sum: u64,
    made: File,
}

impl Commits {
    /// Opens or creates the file, and checks its count and the checksum.
    ///
    /// `count` and `written` are the number of commits and the checksum that the database stores;
    /// `sum` is the checksum of the records it contains.
    fn open(path: &Path, (count, written): (u64, Option<u64>), sum: u64) -> Result<Self> {
        let io = |source| Error::Io { what: path.join(MADE).display().to_string(), source };
        let wrong = |fault| Error::Wisdom { path: path.to_path_buf(), fault };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut made = options.open(path.join(MADE)).map_err(io)?;
        let mut text = String::new();
        made.read_to_string(&mut text).map_err(io)?;
        // The file is empty if no commit was ever acknowledged.
        let acknowledged = match text.trim() {
            "" => return Ok(Commits { count, sum, made }),
            text => text.parse().map_err(|_| {
                wrong(WisdomFault::Corrupt(format!("its file {MADE} holds '{text}', not a number")))
            })?,
        };
        if count < acknowledged {
            return Err(wrong(WisdomFault::Lost { kept: count, acknowledged }));
        }
        match written.is_some_and(|written| written != sum) {
            true => Err(wrong(WisdomFault::Differs)),
            false => Ok(Commits { count, sum, made }),
        }
    }

    /// Writes the new count over the previous one, which has the same length.
    fn note(&mut self, count: u64) -> std::io::Result<()> {
        self.made.rewind()?;
        self.made.write_all(format!("{count:020}\n").as_bytes())?;
        self.count = count;
        Ok(())
    }
}

/// Computes the contribution of one record to the checksum.
fn part(tree: Tree, key: &[u8], value: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(tree as u64);
    hash.update(&(key.len() as u64).to_le_bytes());
    hash.update(key);
    hash.update(value);
    hash.digest()
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Runs a call of sled; returns its errors and panics as [`Error::Wisdom`].
fn guard<T>(path: &Path, work: impl FnOnce() -> sled::Result<T>) -> Result<T> {
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

impl Store {
    /// Opens the database in the folder `path`, or creates it. `see` is called with the key of each
    /// measurement.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if another process has the database open, it is damaged, or its schema is
    /// not [`SCHEMA`].
    pub fn open(path: &Path, mut see: impl FnMut(&[u8])) -> Result<Self> {
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
                guard(path, || db.flush())?;
            }
        }
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let file = File::open(path.join("db")).map_err(io)?;
        file.sync_all().map_err(io)?;
        let commits = guard(path, || db.get(COMMITS_KEY))?;
        let commits = match commits {
            None => (0, None),
            Some(text) => commits_of(&String::from_utf8_lossy(&text)).ok_or_else(|| {
                wrong(WisdomFault::Corrupt("its count of commits is not a number".into()))
            })?,
        };
        let structures = guard(path, || db.open_tree("structures"))?;
        let measurements = guard(path, || db.open_tree("measurements"))?;
        let mut sum = 0_u64;
        for (tree, records) in
            [(Tree::Structures, &structures), (Tree::Measurements, &measurements)]
        {
            let mut records = records.iter();
            while let Some((key, value)) = guard(path, || records.next().transpose())? {
                sum = sum.wrapping_add(part(tree, &key, &value));
                if matches!(tree, Tree::Measurements) {
                    see(&key);
                }
            }
        }
        let commits = Mutex::new(Commits::open(path, commits, sum)?);
        Ok(Store { path: path.to_path_buf(), file, commits, structures, measurements, db })
    }

    fn tree(&self, tree: Tree) -> &sled::Tree {
        match tree {
            Tree::Structures => &self.structures,
            Tree::Measurements => &self.measurements,
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, tree: Tree, key: &str) -> Result<Option<Vec<u8>>> {
        let value = guard(&self.path, || self.tree(tree).get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Starts a batch of changes.
    pub fn batch(&self) -> Batch<'_> {
        Batch { store: self, changes: BTreeMap::new() }
    }

    /// Makes all changes or none; returns once they are on disk.
    fn write(&self, changes: &Changes) -> Result<()> {
        let io = |source| Error::Io { what: self.path.display().to_string(), source };
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, mut sum) = (commits.count + 1, commits.sum);
        for ((tree, key), value) in changes {
            let of = |value: &[u8]| part(*tree, key, value);
            let before = guard(&self.path, || self.tree(*tree).get(key))?;
            sum = sum.wrapping_sub(before.map_or(0, |value| of(&value)));
            sum = sum.wrapping_add(value.as_deref().map_or(0, of));
        }
        let said = format!("{count} {sum:016x}");
        let trees = (&self.structures, &self.measurements, &*self.db);
        guard(&self.path, || {
            let done = trees.transaction(|(structures, measurements, own)| {
                for ((tree, key), value) in changes {
                    let tree = match tree {
                        Tree::Structures => structures,
                        Tree::Measurements => measurements,
                    };
                    match value {
                        Some(value) => tree.insert(key.as_slice(), value.as_slice())?,
                        None => tree.remove(key.as_slice())?,
                    };
                }
                own.insert(COMMITS_KEY, said.as_str())?;
                Ok::<_, sled::transaction::ConflictableTransactionError>(())
            });
            done.map_err(|error| match error {
                TransactionError::Storage(error) | TransactionError::Abort(error) => error,
            })
        })?;
        // The checksum describes the trees' contents, even if the sync below fails.
        commits.sum = sum;
        guard(&self.path, || self.db.flush())?;
        self.file.sync_all().map_err(io)?;
        commits.note(count).map_err(io)
    }

    /// Calls `each` with every key that begins with `prefix`, and its value, in order of keys.
    pub fn scan(
        &self,
        tree: Tree,
        prefix: &str,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut entries = self.tree(tree).scan_prefix(prefix);
        while let Some((key, value)) = guard(&self.path, || entries.next().transpose())? {
            each(&key, &value)?;
        }
        Ok(())
    }
}

/// New value of each key to be set, `None` for each key to be removed.
type Changes = BTreeMap<(Tree, Vec<u8>), Option<Vec<u8>>>;

/// Changes of a [`Store`]; they are on disk after [`Batch::commit`].
pub(super) struct Batch<'a> {
    store: &'a Store,
    changes: Changes,
}

impl Batch<'_> {
    /// Returns the value that a key has after these changes.
    pub fn get(&self, tree: Tree, key: &str) -> Result<Option<Vec<u8>>> {
        match self.changes.get(&(tree, key.as_bytes().to_vec())) {
            Some(value) => Ok(value.clone()),
            None => self.store.get(tree, key),
        }
    }

    /// Sets a value.
    pub fn put(&mut self, tree: Tree, key: &str, value: Vec<u8>) -> Result<()> {
        self.change(tree, key.as_bytes(), Some(value))
    }

    /// Removes a key.
    pub fn remove(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.change(tree, key, None)
    }

    fn change(&mut self, tree: Tree, key: &[u8], value: Option<Vec<u8>>) -> Result<()> {
        self.changes.insert((tree, key.to_vec()), value);
        match self.changes.len() < MOST_CHANGES {
            true => Ok(()),
            false => self.store.write(&std::mem::take(&mut self.changes)),
        }
    }

    /// Writes the changes; returns once they are on disk.
    pub fn commit(self) -> Result<()> {
        self.store.write(&self.changes)
    }
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

    fn with_schema(stored: &str) -> Error {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("wisdom");
        let db = sled::open(&path).expect("a new database");
        db.insert(SCHEMA_KEY, stored).expect("written");
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
            let file = path.join(broken);
            let size = std::fs::metadata(&file).expect("it is there").len() as usize;
            std::fs::write(&file, vec![0x5a; size]).expect("overwritten");
            let opened = Store::open(&path, |_| {});
            assert!(matches!(opened, Err(Error::Wisdom { .. })), "{broken}: {opened:?}");
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
        let db = open_patiently(&path, &sled::Config::new().path(&path)).expect("it opens");
        let tree = db.open_tree("structures").expect("it opens");
        change(&db, &tree);
        db.flush().expect("written");
        drop((tree, db));
        let error = match Store::open(&path, |_| {}) {
            Ok(store) => return Ok(store.commits.lock().expect("whole").count),
            Err(error) => error,
        };
        std::fs::remove_file(path.join(MADE)).expect("there");
        let mut left = 0;
        let store = Store::open(&path, |_| {}).expect("what is left");
        let mut count = |_: &[u8], _: &[u8]| {
            left += 1;
            Ok(())
        };
        store.scan(Tree::Structures, "", &mut count).expect("read");
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
        let first = |db: &sled::Db, _: &sled::Tree| drop(db.insert(COMMITS_KEY, "3"));
        assert_eq!(changed(first).expect("sound"), 3);
        let lost = changed(|db, _| drop(db.insert(COMMITS_KEY, "2").expect("written")));
        assert!(matches!(lost, Err(Error::Wisdom { fault: WisdomFault::Lost { .. }, .. })));
        assert_eq!(commits_of("3 0f"), Some((3, Some(15))));
        for bad in ["", "x", "3 ", "3 sums", "-3 0f"] {
            assert_eq!(commits_of(bad), None, "{bad}");
        }
    }
}
