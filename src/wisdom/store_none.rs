//! Replaces `store.rs` in a build without the feature `wisdom`: opening a database always fails.

use std::path::Path;

use super::record::Record;
use crate::error::{Error, Result, WisdomFault};

/// Selects a tree of the database.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tree {
    /// Maps a fingerprint to a structure.
    Structures,
    /// Maps a key to a measurement.
    Measurements,
}

impl Tree {
    pub fn of(record: &Record) -> Self {
        match record {
            Record::Structure(_) => Tree::Structures,
            Record::Measurement(_) => Tree::Measurements,
        }
    }
}

/// An open database; no value of this type exists in this build.
#[derive(Debug)]
pub(super) enum Store {}

impl Store {
    /// Fails, because this build has no store.
    ///
    /// # Errors
    /// Always [`Error::Wisdom`] with [`WisdomFault::NotBuilt`].
    pub fn open(path: &Path, _: impl FnMut(&[u8])) -> Result<Self> {
        Err(none(path))
    }

    pub fn open_beside(path: &Path, _: impl FnMut(&[u8])) -> Result<Self> {
        Err(none(path))
    }

    pub fn read(path: &Path, _: impl FnMut(&[u8])) -> Result<Self> {
        Err(none(path))
    }

    pub fn adds(&self) -> bool {
        match *self {}
    }

    pub fn notes(&self) -> &[String] {
        match *self {}
    }

    pub fn revision(&self) -> u64 {
        match *self {}
    }

    pub fn fault(&self) -> Option<String> {
        match *self {}
    }

    pub fn failures(&self) -> u64 {
        match *self {}
    }

    pub fn upkeep(&self) -> Result<()> {
        match *self {}
    }

    pub fn close(&self) -> Result<()> {
        match *self {}
    }

    pub fn share(&self, _: Box<dyn Fn() + Send + Sync>) -> Result<()> {
        match *self {}
    }

    pub fn unsent(&self, _: Option<&str>, _: usize) -> Result<Vec<Unsent>> {
        match *self {}
    }

    pub fn unsent_count(&self) -> u64 {
        match *self {}
    }

    pub fn sent(&self, _: &[Unsent]) -> Result<()> {
        match *self {}
    }

    pub fn finished(&self) -> Result<Vec<Finished>> {
        match *self {}
    }

    pub fn get(&self, _: Tree, _: &str) -> Result<Option<Vec<u8>>> {
        match *self {}
    }

    pub fn batch(&self) -> Batch<'_> {
        match *self {}
    }

    pub fn scan(&self, _: Tree, _: &str, _: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        match *self {}
    }
}

/// Fails, because this build has no store.
///
/// # Errors
/// Always [`Error::Wisdom`] with [`WisdomFault::NotBuilt`].
pub(super) fn set_aside(path: &Path) -> Result<Vec<Vec<u8>>> {
    Err(none(path))
}

fn none(path: &Path) -> Error {
    Error::Wisdom { path: path.to_path_buf(), fault: WisdomFault::NotBuilt }
}

/// A record that waits to be sent; this build stores none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// Key of the record in the database.
    pub key: Vec<u8>,
    /// The record as a line of JSON.
    pub line: Vec<u8>,
}

/// Records of another process; no value of this type exists in this build.
pub(super) struct Finished {
    pub lines: Vec<Vec<u8>>,
    store: Store,
}

impl Finished {
    pub fn remove(self) -> Result<()> {
        match self.store {}
    }
}

/// Changes of a [`Store`]; no value of this type exists in this build.
pub(super) struct Batch<'a>(&'a Store);

impl Batch<'_> {
    pub fn get(&self, _: Tree, _: &str) -> Result<Option<Vec<u8>>> {
        match *self.0 {}
    }

    pub fn put(&mut self, _: Tree, _: &str, _: Vec<u8>) -> Result<()> {
        match *self.0 {}
    }

    pub fn remove(&mut self, _: Tree, _: &[u8]) -> Result<()> {
        match *self.0 {}
    }

    pub fn commit(self) -> Result<()> {
        match *self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Wisdom;

    #[test]
    fn no_database_opens_and_the_error_names_the_feature() {
        let error = Wisdom::open(Path::new("nowhere")).expect_err("it is not built").to_string();
        assert!(error.contains("feature `wisdom`"), "{error}");
        assert!(!Wisdom::shipped().keeps());
    }
}
