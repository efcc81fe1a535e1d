//! The layer between what ships and the user's own database: records that several hosts share.
//!
//! A [`Shared`] asks a server for the records of one matrix, and sends the user's own records to it.
//! They stay in the user's own database, which notes which of them the server has acknowledged: all
//! others wait to be sent, whatever happened to the process that stored them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::layer::Layer;
use super::record::{Record, key_of};
use super::store::{Store, Tree, Unsent};
use super::transfer::put;
use super::{StructureRecord, Wisdom};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::measure::Measurement;

/// A database that several hosts share.
pub trait Shared: Send + Sync + Debug {
    /// Returns the records of a matrix; `None` if the database cannot be asked now.
    ///
    /// A choice waits for the answer, so it comes soon or not at all.
    fn layer(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>>;

    /// Tells that records wait to be sent.
    fn wake(&self);

    /// Returns a number that changes when records of a matrix that was asked for may have changed.
    fn revision(&self) -> u64;

    /// Sends the records that wait, as far as the database takes them now.
    fn finish(&self);
}

/// A shared database as the wisdom of one host uses it.
#[derive(Debug)]
pub(super) struct Sharing {
    shared: Arc<dyn Shared>,
    /// Records that were fetched, for times when the database cannot be asked.
    fetched: Option<Store>,
    /// Fetched records that were read, by matrix.
    read: Mutex<HashMap<Fingerprint, Arc<Layer>>>,
}

/// Name of the folder of fetched records in the data folder.
const FETCHED: &str = "shared";

/// Maximum number of matrices whose fetched records are held in memory.
const MOST_READ: usize = 1000;

impl Sharing {
    pub(super) fn layer(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>> {
        if let Some(layer) = self.shared.layer(fingerprint) {
            return Some(layer);
        }
        let fetched = self.fetched.as_ref()?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layer) = read.get(&fingerprint) {
            return Some(Arc::clone(layer));
        }
        if read.len() >= MOST_READ {
            read.clear();
        }
        // An unreadable copy of records that others hold answers nothing.
        let layer = Arc::new(Layer::of_last(records_in(fetched, fingerprint).unwrap_or_default()));
        read.insert(fingerprint, Arc::clone(&layer));
        Some(layer)
    }

    pub(super) fn revision(&self) -> u64 {
        self.shared.revision()
    }

    pub(super) fn finish(&self) -> Result<()> {
        self.shared.finish();
        self.fetched.as_ref().map_or(Ok(()), Store::close)
    }
}

fn records_in(store: &Store, fingerprint: Fingerprint) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for tree in [Tree::Structures, Tree::Measurements] {
        store.scan(tree, &fingerprint.to_string(), |_, value| {
            records.extend(Record::parse(value));
            Ok(())
        })?;
    }
    Ok(records)
}

impl Wisdom {
    /// Puts the records of a shared database between those that ship and the user's own, and lets the
    /// user's own be sent to it.
    ///
    /// Fetched records are kept in the folder `shared` of the data folder `data`, unless another
    /// process holds that.
    ///
    /// # Errors
    /// As [`Wisdom::open`].
    pub fn with_shared(self, shared: Arc<dyn Shared>, data: &Path) -> Result<Self> {
        let path = data.join(FETCHED);
        // A copy that cannot be opened only means that every record is fetched again.
        let fetched = match self.keeps() {
            true => Store::open(&path, |_| ()).or_else(|_| Store::read(&path, |_| ())).ok(),
            false if path.is_dir() => Store::read(&path, |_| ()).ok(),
            false => None,
        };
        if let Some(own) = self.own.as_ref().filter(|own| own.adds()) {
            let woken = Arc::clone(&shared);
            own.share(Box::new(move || woken.wake()))?;
        }
        Ok(Wisdom { sharing: Some(Sharing { shared, fetched, read: Mutex::default() }), ..self })
    }

    /// Returns some of the user's own records that `server` has not acknowledged; `None` for the
    /// server that was named last.
    ///
    /// # Errors
    /// [`Error::Wisdom`](crate::Error::Wisdom) if the database is damaged.
    pub fn unsent(&self, server: Option<&str>, most: usize) -> Result<Vec<Unsent>> {
        self.own.as_ref().map_or(Ok(Vec::new()), |own| own.unsent(server, most))
    }

    /// Returns the number of records that wait to be sent, as far as it is known without asking the
    /// server.
    pub fn unsent_count(&self) -> u64 {
        self.own.as_ref().map_or(0, Store::unsent_count)
    }

    /// Notes that the server acknowledged these records; one that has changed since waits again.
    ///
    /// # Errors
    /// As [`Wisdom::unsent`].
    pub fn sent(&self, records: &[Unsent]) -> Result<()> {
        self.own.as_ref().map_or(Ok(()), |own| own.sent(records))
    }

    /// Keeps the records of a matrix that were fetched, in the place of earlier ones.
    ///
    /// # Errors
    /// As [`Wisdom::keep`].
    pub fn keep_fetched(&self, fingerprint: Fingerprint, layer: &Layer) -> Result<()> {
        let Some(sharing) = &self.sharing else { return Ok(()) };
        let Some(fetched) = sharing.fetched.as_ref().filter(|store| store.adds()) else {
            return Ok(());
        };
        let mut batch = fetched.batch();
        let mut is_changed = false;
        for record in records_in(fetched, fingerprint)? {
            let is_gone = match &record {
                Record::Structure(_) => layer.structure.is_none(),
                Record::Measurement(m) => !layer.measurements.contains_key(&key_of(m)),
            };
            if is_gone {
                batch.remove(Tree::of(&record), record.key().as_bytes())?;
                is_changed = true;
            }
        }
        for record in layer.records() {
            if fetched.get(Tree::of(&record), &record.key())?.as_deref() != Some(&record.line()) {
                put(&mut batch, &record)?;
                is_changed = true;
            }
        }
        if is_changed {
            batch.commit()?;
        }
        let mut read = sharing.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.remove(&fingerprint);
        Ok(())
    }

    /// Returns all measurements of a matrix in the shared database, on every device.
    pub fn shared_measurements(&self, fingerprint: Fingerprint) -> Vec<Measurement> {
        let layer = self.shared_of(fingerprint);
        layer.map_or_else(Vec::new, |layer| layer.measurements.values().cloned().collect())
    }

    pub(super) fn shared_of(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>> {
        self.sharing.as_ref()?.layer(fingerprint)
    }

    pub(super) fn shared_structure(&self, fingerprint: Fingerprint) -> Option<StructureRecord> {
        self.shared_of(fingerprint)?.structure.clone()
    }
}

#[cfg(all(test, feature = "wisdom", feature = "zstd"))]
mod tests;
