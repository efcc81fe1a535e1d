//! The records that wait to be sent to a shared database.
//!
//! A record waits unless the database has a mark that a server acknowledged it with its present
//! value. So records wait that were stored before any server was named, by another process, or by a
//! process that was killed; and a lost mark only means that a record is sent twice, which the server
//! takes as one.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};

use super::{Changes, Kind, Store, Tree};
use crate::error::Result;

/// Called when a record waits.
pub(in super::super) type Wake = Box<dyn Fn() + Send + Sync>;

/// State of sending.
#[derive(Default)]
pub(super) struct Outbox {
    /// Identity of the server whose marks count; empty before any was reached.
    server: String,
    waiting: BTreeSet<(Tree, Vec<u8>)>,
    wake: Option<Wake>,
}

/// A record that waits to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsent {
    pub(in super::super) tree: Tree,
    /// Key of the record in the database.
    pub key: Vec<u8>,
    /// The record as a line of JSON.
    pub line: Vec<u8>,
}

impl Store {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets records wait to be sent from now on, those that are stored already among them, and calls
    /// `wake` when there are some.
    ///
    /// # Errors
    /// [`Error::Wisdom`](crate::Error::Wisdom) if the database is damaged.
    pub fn share(&self, wake: Wake) -> Result<()> {
        let mut outbox = self.outbox();
        outbox.wake = Some(wake);
        if let Kind::Held(held) = &self.kind {
            outbox.server = held.db.server()?.unwrap_or_default();
        }
        self.fill(&mut outbox)
    }

    /// Makes every record wait that the server has not acknowledged. A process that does not hold the
    /// database sends only what it adds.
    fn fill(&self, outbox: &mut Outbox) -> Result<()> {
        let Kind::Held(held) = &self.kind else { return Ok(()) };
        for tree in Tree::ALL {
            held.db.scan(tree, "", |key, value| {
                if !held.db.is_marked(&outbox.server, tree, key, value)? {
                    outbox.waiting.insert((tree, key.to_vec()));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Notes changes that were written.
    pub(super) fn note(&self, changes: &Changes) {
        let mut outbox = self.outbox();
        if outbox.wake.is_none() {
            return;
        }
        for (key, value) in changes {
            match value {
                Some(_) => outbox.waiting.insert(key.clone()),
                None => outbox.waiting.remove(key),
            };
        }
        if let Some(wake) = &outbox.wake {
            wake();
        }
    }

    /// Returns some of the records that `server` has not acknowledged; `None` for the server that was
    /// named last.
    ///
    /// # Errors
    /// [`Error::Wisdom`](crate::Error::Wisdom) if the database is damaged.
    pub fn unsent(&self, server: Option<&str>, most: usize) -> Result<Vec<Unsent>> {
        let mut outbox = self.outbox();
        if let Some(server) = server.filter(|server| **server != *outbox.server) {
            outbox.server = server.to_string();
            if let Kind::Held(held) = &self.kind {
                held.db.name_server(server)?;
                outbox.waiting.clear();
            }
            self.fill(&mut outbox)?;
        }
        let mut found = Vec::new();
        for (tree, key) in outbox.waiting.iter().take(most) {
            let name = String::from_utf8_lossy(key);
            if let Some(line) = self.get(*tree, &name)? {
                found.push(Unsent { tree: *tree, key: key.clone(), line });
            }
        }
        Ok(found)
    }

    /// Returns the number of records that wait.
    pub fn unsent_count(&self) -> u64 {
        self.outbox().waiting.len() as u64
    }

    /// Notes that the server acknowledged these records.
    ///
    /// # Errors
    /// [`Error::Wisdom`](crate::Error::Wisdom) if the database is damaged.
    pub fn sent(&self, records: &[Unsent]) -> Result<()> {
        let mut outbox = self.outbox();
        for Unsent { tree, key, line } in records {
            if let Kind::Held(held) = &self.kind {
                held.db.mark(&outbox.server, *tree, key, line)?;
            }
            // A record that was written again meanwhile still waits.
            let now = self.get(*tree, &String::from_utf8_lossy(key))?;
            if now.is_none_or(|now| now == *line) {
                outbox.waiting.remove(&(*tree, key.clone()));
            }
        }
        Ok(())
    }
}
