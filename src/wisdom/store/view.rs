//! The records in memory, as a process sees them that does not hold the database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::placing::{self, placed};
use super::super::record::Record;
use super::database::{self, Database, LOG};
use super::incoming::{self, Spool};
use super::journal::{self, Records};
use super::{Changes, Tree, aside};
use crate::error::{Error, Result, WisdomFault};

/// The records of a database that another process may hold.
pub(in super::super) struct View {
    path: PathBuf,
    seen: Mutex<Seen>,
}

struct Seen {
    records: Records,
    /// The file to which records are added; `None` if this process only reads.
    spool: Option<Spool>,
}

impl View {
    /// Reads the export and the journal of the database in the folder `path`, and what other
    /// processes added; `None` if they are damaged, or behind the database, or there are none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(path: &Path) -> Result<Option<Self>> {
        // In this order, a record may be read twice but never be missed.
        let acknowledged = database::acknowledged(path);
        let added = incoming::read(path)?;
        let lines = journal::load(path)?;
        let lines = lines.filter(|lines| lines.whole && lines.state.count >= acknowledged);
        Ok(lines.map(|lines| View::of(path, lines.records, added)))
    }

    /// Reads a copy of the database in a folder that cannot be written to.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if it is damaged; [`Error::Io`].
    pub fn of_copy(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { what: path.display().to_string(), source };
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |time| time.as_nanos());
        let copy = std::env::temp_dir().join(format!("ellect-{}-{now}", std::process::id()));
        fs::create_dir_all(&copy).map_err(io)?;
        let read = || {
            for name in aside::sled_files(path).map_err(io)? {
                copy_all(&path.join(&name), &copy.join(&name)).map_err(io)?;
            }
            aside::unusable(&copy).map_err(io)?;
            let (db, ..) = Database::open(&copy, &mut |_| ()).map_err(|error| match error {
                Error::Wisdom { fault, .. } => Error::Wisdom { path: path.to_path_buf(), fault },
                error => error,
            })?;
            let mut records = Records::new();
            for tree in Tree::ALL {
                db.scan(tree, "", |key, value| {
                    records.insert((tree, key.to_vec()), value.to_vec());
                    Ok(())
                })?;
            }
            Ok(records)
        };
        let records = read();
        let _ = fs::remove_dir_all(&copy);
        Ok(View::of(path, records?, incoming::read(path)?))
    }

    fn of(path: &Path, mut records: Records, added: Vec<Vec<u8>>) -> Self {
        for record in added.iter().filter_map(|line| Record::parse(line).ok()) {
            let key = (Tree::of(&record), record.key().into_bytes());
            let there = records.get(&key).map(Vec::as_slice);
            if let Some(kept) = placed(there, record, &placing::not_earlier) {
                records.insert(key, kept.line());
            }
        }
        View { path: path.to_path_buf(), seen: Mutex::new(Seen { records, spool: None }) }
    }

    /// Lets records be added, for the process that holds the database to take over.
    pub fn adding(self) -> Self {
        self.seen().spool = Some(Spool::new(&self.path));
        self
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether records can be added.
    pub fn adds(&self) -> bool {
        self.seen().spool.is_some()
    }

    /// Returns the value of a key.
    pub fn get(&self, tree: Tree, key: &[u8]) -> Option<Vec<u8>> {
        self.seen().records.get(&(tree, key.to_vec())).cloned()
    }

    /// Returns every key that begins with `prefix`, and its value, in order of keys.
    pub fn scan(&self, tree: Tree, prefix: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let prefix = prefix.as_bytes();
        let seen = self.seen();
        let from = seen.records.range((tree, prefix.to_vec())..);
        let found = from.take_while(|((of, key), _)| *of == tree && key.starts_with(prefix));
        found.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    /// Adds records; they are on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if records are to be removed, or this process only reads.
    pub fn write(&self, changes: &Changes) -> Result<()> {
        let mut seen = self.seen();
        let Seen { records, spool } = &mut *seen;
        let removes = changes.values().any(Option::is_none);
        let Some(spool) = spool.as_mut().filter(|_| !removes) else {
            let fault = WisdomFault::InUse;
            return Err(Error::Wisdom { path: self.path.clone(), fault });
        };
        if changes.is_empty() {
            return Ok(());
        }
        spool.add(changes.values().flatten().map(Vec::as_slice))?;
        let values = changes.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        records.extend(values);
        Ok(())
    }
}

/// Copies a file, or a folder of files; the copies can be written to.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if !from.is_dir() {
        return std::io::copy(&mut File::open(from)?, &mut File::create(to)?).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy_all(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// Tells whether a folder holds a database, or anything of one.
pub(super) fn is_database(path: &Path) -> bool {
    [LOG, journal::EXPORT, journal::JOURNAL].iter().any(|name| path.join(name).exists())
}
