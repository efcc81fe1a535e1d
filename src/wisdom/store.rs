//! The user's own records on disk: the folder `wisdom` of the data folder.
//!
//! ```text
//! db, conf, snap.*, blobs/   sled's files, see `database`
//! made                       number of acknowledged commits
//! lock                       locked by the process that holds the database
//! export.jsonl               every record at the last export, see `journal`
//! journal.jsonl              changes since
//! incoming/                  records of processes that did not hold the database, see `incoming`
//! aside/                     damaged files, see `aside`
//! ```
//!
//! One process holds the database; it writes each change to the journal and to sled before it is
//! acknowledged. Other processes read the export and the journal, and add records to files of their
//! own, which the holder takes over. If sled's files are damaged, the export and the journal restore
//! them.

mod aside;
mod database;
mod held;
mod incoming;
mod journal;
mod marks;
mod outbox;
mod view;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::lines::MOST_BYTES;
use super::record::Record;
use crate::error::{Error, Result, WisdomFault};
use held::Held;
pub(super) use incoming::Finished;
use outbox::Outbox;
pub use outbox::Unsent;
use view::View;

/// Selects a tree of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Tree {
    /// Maps a fingerprint to a structure.
    Structures,
    /// Maps a key to a measurement.
    Measurements,
}

impl Tree {
    const ALL: [Tree; 2] = [Tree::Structures, Tree::Measurements];

    /// Returns the tree of a record.
    pub fn of(record: &Record) -> Self {
        match record {
            Record::Structure(_) => Tree::Structures,
            Record::Measurement(_) => Tree::Measurements,
        }
    }
}

/// Number of commits, and the checksum over all records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    count: u64,
    sum: u64,
}

/// The open store.
pub(super) struct Store {
    kind: Kind,
    /// Records that wait to be sent to a shared database.
    outbox: Mutex<Outbox>,
}

enum Kind {
    Held(Box<Held>),
    View(View),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.kind {
            Kind::Held(_) => "Store (held)",
            Kind::View(_) => "Store (view)",
        })
    }
}

impl From<Kind> for Store {
    fn from(kind: Kind) -> Self {
        Store { kind, outbox: Mutex::default() }
    }
}

impl Store {
    /// Opens the database in the folder `path` and holds it, or creates it. `see` is called with the
    /// key of each measurement.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if another process holds the database, it is damaged beyond repair, or its
    /// schema is another; [`Error::Io`].
    pub fn open(path: &Path, mut see: impl FnMut(&[u8])) -> Result<Self> {
        Ok(Kind::Held(Box::new(Held::open(path, &mut see)?)).into())
    }

    /// Like [`Store::open`]; if another process holds the database, reads its records, and adds
    /// records for that process to take over.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_beside(path: &Path, see: impl FnMut(&[u8])) -> Result<Self> {
        match Store::open(path, see) {
            Err(error @ Error::Wisdom { fault: WisdomFault::InUse, .. }) => {
                let view = View::open(path)?.ok_or(error)?;
                Ok(Kind::View(view.adding()).into())
            }
            opened => opened,
        }
    }

    /// Reads the records of the database in the folder `path`, whoever holds it, without writing
    /// anything if its export and its journal are sound.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn read(path: &Path, see: impl FnMut(&[u8])) -> Result<Self> {
        if let Some(view) = View::open(path)? {
            return Ok(Kind::View(view).into());
        }
        // Without lines beside it, it is of an earlier version, or damaged.
        match Store::open(path, see) {
            Err(Error::Io { .. }) if view::is_database(path) => {
                Ok(Kind::View(View::of_copy(path)?).into())
            }
            opened => opened,
        }
    }

    /// Tells whether records can be added.
    pub fn adds(&self) -> bool {
        match &self.kind {
            Kind::Held(_) => true,
            Kind::View(view) => view.adds(),
        }
    }

    /// Returns sentences on what was repaired when the database was opened.
    pub fn notes(&self) -> &[String] {
        match &self.kind {
            Kind::Held(held) => &held.notes,
            Kind::View(_) => &[],
        }
    }

    /// Returns the number of writes so far; 0 if another process writes.
    pub fn revision(&self) -> u64 {
        match &self.kind {
            Kind::Held(held) => held.revision(),
            Kind::View(_) => 0,
        }
    }

    /// Returns the message of the last write, if it failed.
    pub fn fault(&self) -> Option<String> {
        match &self.kind {
            Kind::Held(held) => held.fault(),
            Kind::View(_) => None,
        }
    }

    /// Returns the number of writes and exports of this process that failed.
    pub fn failures(&self) -> u64 {
        match &self.kind {
            Kind::Held(held) => held.failures(),
            Kind::View(_) => 0,
        }
    }

    /// Writes an export if anything changed and the last one is a day old.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn upkeep(&self) -> Result<()> {
        match &self.kind {
            Kind::Held(held) => held.upkeep(),
            Kind::View(_) => Ok(()),
        }
    }

    /// Writes an export if anything changed since the last one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(&self) -> Result<()> {
        match &self.kind {
            Kind::Held(held) => held.close(),
            Kind::View(_) => Ok(()),
        }
    }

    /// Returns what other processes added and this one has not taken over yet.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finished(&self) -> Result<Vec<Finished>> {
        match &self.kind {
            Kind::Held(held) => incoming::finished(held.path()),
            Kind::View(_) => Ok(Vec::new()),
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, tree: Tree, key: &str) -> Result<Option<Vec<u8>>> {
        match &self.kind {
            Kind::Held(held) => held.db.get(tree, key.as_bytes()),
            Kind::View(view) => Ok(view.get(tree, key.as_bytes())),
        }
    }

    /// Calls `each` with every key that begins with `prefix`, and its value, in order of keys.
    pub fn scan(
        &self,
        tree: Tree,
        prefix: &str,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        match &self.kind {
            Kind::Held(held) => held.db.scan(tree, prefix, each),
            Kind::View(view) => {
                view.scan(tree, prefix).iter().try_for_each(|(key, value)| each(key, value))
            }
        }
    }

    /// Starts a batch of changes.
    pub fn batch(&self) -> Batch<'_> {
        Batch { store: self, changes: BTreeMap::new() }
    }

    fn write(&self, changes: &Changes) -> Result<()> {
        match &self.kind {
            Kind::Held(held) => held.write(changes),
            Kind::View(view) => view.write(changes),
        }?;
        self.note(changes);
        Ok(())
    }
}

/// Moves all files of the database in the folder `path` aside; returns every record that can be read
/// in them, as lines.
///
/// # Errors
/// [`Error::Wisdom`] if another process holds the database; [`Error::Io`].
pub(super) fn set_aside(path: &Path) -> Result<Vec<Vec<u8>>> {
    held::set_aside(path)
}

/// New value of each key to be set, `None` for each key to be removed.
type Changes = BTreeMap<(Tree, Vec<u8>), Option<Vec<u8>>>;

/// Maximum number of changes in one transaction: sled keeps its whole log until a transaction ends.
const MOST_CHANGES: usize = 1000;

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
    ///
    /// # Errors
    /// [`Error::Argument`] if the value is longer than a line may be; errors of the database.
    pub fn put(&mut self, tree: Tree, key: &str, value: Vec<u8>) -> Result<()> {
        if value.len() > MOST_BYTES {
            let got = value.len();
            return Err(Error::argument(format!(
                "a record has {got} bytes, over the limit of {MOST_BYTES}; measure fewer samples"
            )));
        }
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

#[cfg(test)]
mod tests;
