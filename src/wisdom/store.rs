//! The embedded store: the only module that names sled.
//!
//! sled panics on some broken files, so every call is guarded; its `flush` does not sync on Linux,
//! so its file is synced besides. It opens a file that was cut or damaged as if what follows had
//! never been written, so every commit is counted, in the database and in a file beside it: where
//! the database knows fewer, records are lost. Values are small: sled keeps large ones in files that it never
//! syncs.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result, WisdomFault};

/// The version of keys and values that this program reads and writes.
pub(super) const SCHEMA: u32 = 1;

const SCHEMA_KEY: &str = "schema";
/// Commits, in the database.
const COMMITS_KEY: &str = "commits";
/// A file that says that there was a schema, and how many commits were acknowledged.
const MADE: &str = "made";
const CACHE_BYTES: u64 = 64 << 20;

/// Which tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Fingerprint to structure.
    Structures,
    /// Key to measurement.
    Measurements,
}

/// An open database; this process has it alone.
pub(super) struct Store {
    path: PathBuf,
    file: File,
    commits: Mutex<Commits>,
    structures: sled::Tree,
    measurements: sled::Tree,
    db: sled::Db,
}

/// Commits so far, and the file that counts them.
struct Commits {
    count: u64,
    made: File,
}

impl Commits {
    /// Opens the file, or makes it, and compares it with what the database says.
    fn open(path: &Path, count: u64) -> Result<Self> {
        let io = |source| Error::Io { what: path.join(MADE).display().to_string(), source };
        let wrong = |fault| Error::Wisdom { path: path.to_path_buf(), fault };
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut made = options.open(path.join(MADE)).map_err(io)?;
        let mut text = String::new();
        made.read_to_string(&mut text).map_err(io)?;
        // Empty where nothing was ever acknowledged.
        let acknowledged = match text.trim() {
            "" => 0,
            text => text.parse().map_err(|_| {
                wrong(WisdomFault::Corrupt(format!("its file {MADE} holds '{text}', no number")))
            })?,
        };
        match count < acknowledged {
            true => Err(wrong(WisdomFault::Lost { kept: count, acknowledged })),
            false => Ok(Commits { count, made }),
        }
    }

    /// Notes one more in the file: over the last one, as long as that.
    fn note(&mut self, count: u64) -> std::io::Result<()> {
        self.made.rewind()?;
        self.made.write_all(format!("{count:020}\n").as_bytes())?;
        self.count = count;
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Runs what sled does; its errors and panics become [`Error::Wisdom`].
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
    /// Opens the database in the folder `path`, or makes it.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where another process has it, it is broken, or its schema is not
    /// [`SCHEMA`].
    pub fn open(path: &Path) -> Result<Self> {
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
            // sled takes a file that it cannot read for a new one.
            None if path.join(MADE).exists() => {
                return Err(wrong(WisdomFault::Corrupt("its records cannot be found".into())));
            }
            // Trees besides sled's own, and no schema: another program's.
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
        let commits = commits.map(|text| String::from_utf8_lossy(&text).parse().ok());
        let commits = commits.unwrap_or(Some(0)).ok_or_else(|| {
            wrong(WisdomFault::Corrupt("its count of commits is no number".into()))
        })?;
        Ok(Store {
            path: path.to_path_buf(),
            file,
            commits: Mutex::new(Commits::open(path, commits)?),
            structures: guard(path, || db.open_tree("structures"))?,
            measurements: guard(path, || db.open_tree("measurements"))?,
            db,
        })
    }

    fn tree(&self, tree: Tree) -> &sled::Tree {
        match tree {
            Tree::Structures => &self.structures,
            Tree::Measurements => &self.measurements,
        }
    }

    /// The value of a key.
    pub fn get(&self, tree: Tree, key: &str) -> Result<Option<Vec<u8>>> {
        let value = guard(&self.path, || self.tree(tree).get(key))?;
        Ok(value.map(|value| value.to_vec()))
    }

    /// Sets a value; it is safe after [`Store::commit`].
    pub fn put(&self, tree: Tree, key: &str, value: &[u8]) -> Result<()> {
        guard(&self.path, || self.tree(tree).insert(key, value)).map(drop)
    }

    /// Removes a key; that is safe after [`Store::commit`].
    pub fn remove(&self, tree: Tree, key: &[u8]) -> Result<()> {
        guard(&self.path, || self.tree(tree).remove(key)).map(drop)
    }

    /// Returns once all that was put is on the disk.
    pub fn commit(&self) -> Result<()> {
        let io = |source| Error::Io { what: self.path.display().to_string(), source };
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        let count = commits.count + 1;
        guard(&self.path, || self.db.insert(COMMITS_KEY, count.to_string().as_str()))?;
        guard(&self.path, || self.db.flush())?;
        self.file.sync_all().map_err(io)?;
        commits.note(count).map_err(io)
    }

    /// Calls `each` with every key that begins with `prefix`, in order, and its value.
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

/// Opens the database, and waits a little where it is in use: sled gives its lock back some time
/// after the last handle is gone.
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
        Store::open(&path).expect_err("refused")
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
            let store = Store::open(&path).expect("a new database");
            for i in 0..2000 {
                store.put(Tree::Structures, &i.to_string(), &[7; 500]).expect("written");
            }
            store.commit().expect("written");
            drop(store);
            let file = path.join(broken);
            let size = std::fs::metadata(&file).expect("it is there").len() as usize;
            std::fs::write(&file, vec![0x5a; size]).expect("overwritten");
            let opened = Store::open(&path);
            assert!(matches!(opened, Err(Error::Wisdom { .. })), "{broken}: {opened:?}");
        }
    }
}
