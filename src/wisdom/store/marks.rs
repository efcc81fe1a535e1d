//! Marks of records that a shared database acknowledged, in a tree of their own.
//!
//! They are not part of the checksum over all records, nor of the export: a lost mark costs only that
//! a record is sent again.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Tree;
use super::database::{Database, guard};
use crate::error::Result;

/// Key of the identity of the server that was named last.
const SERVER: &str = "server";

impl Database {
    fn marks(&self) -> Result<sled::Tree> {
        guard(&self.path, || self.db.open_tree("sent"))
    }

    /// Returns the identity of the server that was named last.
    pub fn server(&self) -> Result<Option<String>> {
        let marks = self.marks()?;
        let named = guard(&self.path, || marks.get(SERVER))?;
        Ok(named.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    /// Keeps the identity of the server.
    pub fn name_server(&self, server: &str) -> Result<()> {
        let marks = self.marks()?;
        guard(&self.path, || marks.insert(SERVER, server)).map(drop)
    }

    /// Tells whether the server acknowledged this value.
    pub fn is_marked(&self, server: &str, tree: Tree, key: &[u8], value: &[u8]) -> Result<bool> {
        let marks = self.marks()?;
        let mark = guard(&self.path, || marks.get(place(server, tree, key)))?;
        Ok(mark.is_some_and(|mark| *mark == xxh3_64(value).to_le_bytes()))
    }

    /// Notes that the server acknowledged this value.
    pub fn mark(&self, server: &str, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
        let marks = self.marks()?;
        let mark = &xxh3_64(value).to_le_bytes();
        guard(&self.path, || marks.insert(place(server, tree, key), mark)).map(drop)
    }
}

/// Returns the key of the mark of a record.
fn place(server: &str, tree: Tree, key: &[u8]) -> [u8; 16] {
    let mut hash = Xxh3::with_seed(tree as u64);
    hash.update(server.as_bytes());
    hash.update(&[0]);
    hash.update(key);
    hash.digest128().to_le_bytes()
}
