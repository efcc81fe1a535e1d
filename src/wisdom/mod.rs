//! Wisdom: stored measurements.
//!
//! Wisdom has three layers: the shipped records (`shards`), which are read-only; above them, if one is
//! named, those of a database that several hosts share (`shared`); and above both the user's own
//! database, the folder `wisdom` in the data folder. Each layer holds two trees:
//!
//! - *structures*: fingerprint -> [`StructureRecord`];
//! - *measurements*: (fingerprint, device, precision, basis and number of vectors, candidate, driver,
//!   kernels, protocol version) -> [`Measurement`]. Each key holds one record: the latest measurement, or all joined
//!   runs.
//!
//! Keys contain names, never positions; records under the earlier names of formats are moved when
//! the database is opened. Values are JSON, in the form of the lines of an export
//! ([`Record`]).
//!
//! Guarantees:
//! - When a write returns, its data is on disk. If the process is killed at any moment, the
//!   database opens again.
//! - One process holds the database. Others read its records all the same, and add records to files
//!   of their own, which the holder takes over: see [`Wisdom::open`].
//! - Every record is on disk twice: in the database, and as lines of JSON beside it (an export, new
//!   at every clean stop and once a day, and a journal of the changes since). What is damaged in the
//!   database is restored from the lines, and the damaged files are kept: see [`Wisdom::notes`].
//! - Opening fails if the schema differs, or if a damaged database cannot be restored without
//!   losing acknowledged writes; [`Wisdom::repair`] then keeps what can be read.
//! - A file much larger than its records is replaced when the database is opened.
//! - A measurement is used only if its driver, kernels (by hash) and protocol are the current ones;
//!   otherwise [`Answer::Stale`] says which differs. What is unknown here is not compared: the
//!   driver of a device that is not present, and the kernels in a build without them.
//! - A wrong product is stored as its outcome only. A refusal is stored but never used as an
//!   answer, because it depends on the memory limit; neither is a candidate that a tuning run cut.

pub(crate) mod layer;
mod lines;
mod placing;
pub(crate) mod record;
mod renames;
pub(crate) mod shards;
pub(crate) mod shared;
#[cfg_attr(not(feature = "wisdom"), path = "store_none.rs")]
pub(crate) mod store;
pub(crate) mod transfer;
pub(crate) mod wanted;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::Candidate;
use crate::measure::Measurement;
use layer::Layer;
use placing::placed;
pub(crate) use record::{Record, StructureRecord};
use shards::{SHIPPED, Shards};
use shared::Sharing;
use store::{Store, Tree};
use transfer::put;
use wanted::best;
pub(crate) use wanted::{Answer, Stale, Wanted};

/// Result of reading every record of a database.
///
/// ```
/// use ellect::Wisdom;
///
/// # fn main() -> ellect::Result<()> {
/// let verified = Wisdom::shipped().verify()?;
/// assert_eq!((verified.measurements, verified.bad.len()), (0, 0), "no database is open");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of valid structures.
    pub structures: u64,
    /// Number of valid measurements.
    pub measurements: u64,
    /// Keys of invalid records and the reasons.
    pub bad: Vec<(String, String)>,
}

/// Measurements that ship with the program and, if opened, those in the user's own database.
///
/// ```
/// use std::sync::Arc;
///
/// use ellect::{Tuner, Wisdom, device};
///
/// # fn main() -> ellect::Result<()> {
/// let shipped = Wisdom::shipped();
/// assert!(!shipped.keeps(), "what ships is read-only");
/// let tuner = Tuner::without_models(device::find("h200")?).with_wisdom(Arc::new(shipped));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Wisdom {
    shards: Shards,
    /// Records already read from `shards`, by matrix.
    shipped: Mutex<HashMap<Fingerprint, Arc<OnceLock<Arc<Layer>>>>>,
    /// Records of other hosts, above those that ship.
    sharing: Option<Sharing>,
    own: Option<Store>,
}

impl Wisdom {
    /// Opens the shipped records alone; nothing can be added.
    pub fn shipped() -> Self {
        Wisdom::over(SHIPPED, None)
    }

    /// Opens the shipped records and the user's own database under `data`, which is created if
    /// missing.
    ///
    /// If another process holds the database, this one reads its records as they are now, and what
    /// it keeps goes to a file that the other process, or the next one, takes over.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged or its schema differs; [`Error::Io`].
    pub fn open(data: &Path) -> Result<Self> {
        Wisdom::with(data, |path, see| Store::open_beside(path, see))
    }

    /// Like [`Wisdom::open`], for a process that must hold the database: a service, or one that
    /// removes records.
    ///
    /// # Errors
    /// As [`Wisdom::open`], and [`Error::Wisdom`] if another process holds the database.
    pub fn open_alone(data: &Path) -> Result<Self> {
        Wisdom::with(data, |path, see| Store::open(path, see))
    }

    /// Opens the user's own database under `data` to read it, if there is one; otherwise only the
    /// shipped records.
    ///
    /// It works beside a process that holds the database, and in a folder that cannot be written
    /// to.
    ///
    /// # Errors
    /// As [`Wisdom::open`].
    pub fn open_existing(data: &Path) -> Result<Self> {
        match data.join("wisdom").is_dir() {
            true => Wisdom::with(data, |path, see| Store::read(path, see)),
            false => Ok(Wisdom::shipped()),
        }
    }

    fn with(
        data: &Path,
        open: impl FnOnce(&Path, &mut dyn FnMut(&[u8])) -> Result<Store>,
    ) -> Result<Self> {
        let mut earlier_names = false;
        let mut see = |key: &[u8]| earlier_names |= renames::has_alias(key);
        let own = open(&data.join("wisdom"), &mut see)?;
        if earlier_names {
            renames::apply(&own)?;
        }
        let wisdom = Wisdom::over(SHIPPED, Some(own));
        wisdom.take_in()?;
        Ok(wisdom)
    }

    /// Moves the files of the database under `data` aside, into its folder `aside`, and makes a new
    /// one of every record that can be read in them.
    ///
    /// Returns the new database and the number of its records.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if another process holds the database; [`Error::Io`].
    pub fn repair(data: &Path) -> Result<(Self, u64)> {
        let lines = store::set_aside(&data.join("wisdom"))?;
        let wisdom = Wisdom::open_alone(data)?;
        wisdom.import(lines.join(&b"\n"[..]).as_slice())?;
        let verified = wisdom.verify()?;
        Ok((wisdom, verified.structures + verified.measurements))
    }

    /// Takes over what other processes kept, and makes the daily export if it is due; a process that
    /// holds the database for long calls this now and then.
    ///
    /// # Errors
    /// As [`Wisdom::keep`].
    pub fn upkeep(&self) -> Result<()> {
        self.take_in()?;
        self.own.as_ref().map_or(Ok(()), Store::upkeep)
    }

    /// Ends the use of the database cleanly: takes over what other processes kept, and writes an
    /// export if anything changed.
    ///
    /// A program that does not call this loses no record.
    ///
    /// # Errors
    /// As [`Wisdom::keep`].
    pub fn close(&self) -> Result<()> {
        self.take_in()?;
        self.sharing.as_ref().map_or(Ok(()), Sharing::finish)?;
        self.own.as_ref().map_or(Ok(()), Store::close)
    }

    /// Returns sentences on what was repaired when the database was opened.
    pub fn notes(&self) -> &[String] {
        self.own.as_ref().map_or(&[], Store::notes)
    }

    /// Returns a number that changes when records are added or removed; constant while another
    /// process holds the database.
    pub fn revision(&self) -> u64 {
        let shared = self.sharing.as_ref().map_or(0, Sharing::revision);
        self.own.as_ref().map_or(0, Store::revision).wrapping_add(shared)
    }

    /// Counts the stored measurements, without those that ship.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database cannot be read.
    pub fn count(&self) -> Result<u64> {
        let mut count = 0;
        let count_one = |_: &[u8], _: &[u8]| {
            count += 1;
            Ok(())
        };
        self.own.as_ref().map_or(Ok(()), |own| own.scan(Tree::Measurements, "", count_one))?;
        Ok(count)
    }

    /// Returns the message of the last write to the database, if it failed.
    pub fn fault(&self) -> Option<String> {
        self.own.as_ref().and_then(Store::fault)
    }

    /// Returns the number of this process's writes to the database that failed.
    pub fn failures(&self) -> u64 {
        self.own.as_ref().map_or(0, Store::failures)
    }

    fn over(shards: Shards, own: Option<Store>) -> Self {
        Wisdom { shards, shipped: Mutex::default(), sharing: None, own }
    }

    /// Returns the shipped records of this matrix, if any. The first call decompresses the shard;
    /// the records are then cached.
    fn shipped_of(&self, fingerprint: Fingerprint) -> Option<Arc<Layer>> {
        if !self.shards.hold(fingerprint) {
            return None;
        }
        let mut shipped = self.shipped.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::clone(shipped.entry(fingerprint).or_default());
        drop(shipped);
        // The lock is released first, so that other threads do not wait while this one reads.
        let read = || Arc::new(Layer::of_last(self.shards.records_of(fingerprint)));
        Some(Arc::clone(own.get_or_init(read)))
    }

    fn own(&self) -> Result<&Store> {
        let none = || {
            Error::argument(
                "the wisdom is open for reading: open the user's database to add records",
            )
        };
        self.own.as_ref().filter(|own| own.adds()).ok_or_else(none)
    }

    /// Looks up a candidate: the latest matching record in the user's own database, else among those
    /// of other hosts, else among the shipped ones.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged.
    pub fn ask(&self, wanted: &Wanted<'_>, candidate: &Candidate) -> Result<Answer> {
        let products = (wanted.precision, wanted.basis, wanted.vectors);
        let candidate = candidate.to_string();
        let prefix = record::prefix(wanted.fingerprint, wanted.device, products, &candidate);
        let mut records = Vec::new();
        if let Some(own) = &self.own {
            own.scan(Tree::Measurements, &prefix, |_, value| {
                if let Ok(Record::Measurement(measurement)) = Record::parse(value) {
                    records.push(*measurement);
                }
                Ok(())
            })?;
        }
        let mut answer = best(wanted, records);
        let shared = || self.shared_of(wanted.fingerprint);
        let shipped = || self.shipped_of(wanted.fingerprint);
        let below: [&dyn Fn() -> Option<Arc<Layer>>; 2] = [&shared, &shipped];
        for layer in below {
            if matches!(answer, Answer::Known(_)) {
                break;
            }
            match layer().map_or(Answer::Missing, |layer| layer.ask(wanted, &prefix)) {
                Answer::Missing => {}
                Answer::Stale(_) if matches!(answer, Answer::Stale(_)) => {}
                better => answer = better,
            }
        }
        Ok(answer)
    }

    /// Returns the description of a matrix: the user's own, else that of other hosts, else the shipped
    /// one.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged.
    pub fn structure(&self, fingerprint: Fingerprint) -> Result<Option<StructureRecord>> {
        let own = self.own_structure(fingerprint)?;
        let shipped = || self.shipped_of(fingerprint)?.structure.clone();
        Ok(own.or_else(|| self.shared_structure(fingerprint)).or_else(shipped))
    }

    /// Returns the description of a matrix that must be stored with its measurements, so that an
    /// export contains it.
    ///
    /// This is the shipped description, else the result of `make`; in both cases with `source` among
    /// its names. `None` if the user's own database already has one under this name.
    ///
    /// # Errors
    /// As [`Wisdom::structure`].
    pub fn to_keep(
        &self,
        fingerprint: Fingerprint,
        source: &str,
        make: impl FnOnce() -> StructureRecord,
    ) -> Result<Option<Record>> {
        let own = self.own_structure(fingerprint)?;
        let is_full = |own: &StructureRecord| own.names.len() == record::MOST_NAMES;
        if own.as_ref().is_some_and(|own| source.is_empty() || own.is_named(source) || is_full(own))
        {
            return Ok(None);
        }
        let known = own.map_or_else(|| self.structure(fingerprint), |own| Ok(Some(own)))?;
        let mut structure = known.unwrap_or_else(make);
        structure.add_name(source);
        Ok(Some(Record::Structure(structure)))
    }

    fn own_structure(&self, fingerprint: Fingerprint) -> Result<Option<StructureRecord>> {
        let key = fingerprint.to_string();
        let own = self.own.as_ref().map(|own| own.get(Tree::Structures, &key)).transpose()?;
        Ok(match own.flatten().map(|value| Record::parse(&value)) {
            Some(Ok(Record::Structure(structure))) => Some(structure),
            _ => None,
        })
    }

    /// Returns all measurements of a matrix in the user's own database, on every device.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged.
    pub fn measurements(&self, fingerprint: Fingerprint) -> Result<Vec<Measurement>> {
        let mut all = Vec::new();
        let Some(own) = &self.own else { return Ok(all) };
        own.scan(Tree::Measurements, &fingerprint.to_string(), |_, value| {
            if let Ok(Record::Measurement(measurement)) = Record::parse(value) {
                all.push(*measurement);
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns all measurements of a matrix that ship.
    pub fn shipped_measurements(&self, fingerprint: Fingerprint) -> Vec<Measurement> {
        let shipped = self.shipped_of(fingerprint);
        shipped.map_or_else(Vec::new, |all| all.measurements.values().cloned().collect())
    }

    /// Stores records; they are on disk when this returns. A structure keeps the names that the
    /// stored one has.
    ///
    /// # Errors
    /// [`Error::Argument`] if a record is not valid or the database is open for reading;
    /// [`Error::Wisdom`] and [`Error::Io`] from the database.
    pub fn keep(&self, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let mut batch = self.own()?.batch();
        for mut record in records {
            record.validate().map_err(Error::Argument)?;
            let stored = batch.get(Tree::of(&record), &record.key())?;
            if let Some(record) = placed(stored.as_deref(), record, &|_, record| Some(record)) {
                put(&mut batch, &record)?;
            }
        }
        batch.commit()
    }

    /// Tells whether records can be added.
    pub fn keeps(&self) -> bool {
        self.own.as_ref().is_some_and(Store::adds)
    }

    /// Calls `each` with every readable structure in the user's own database.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged.
    pub fn each_structure(&self, mut each: impl FnMut(StructureRecord)) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        own.scan(Tree::Structures, "", |_, value| {
            if let Ok(Record::Structure(structure)) = Record::parse(value) {
                each(structure);
            }
            Ok(())
        })
    }

    /// Calls `each` with every record in the user's own database, structures first.
    ///
    /// # Errors
    /// Any error of `each`, and [`Error::Argument`] if a record is not valid: see
    /// [`Wisdom::verify`].
    pub fn each(&self, mut each: impl FnMut(Record) -> Result<()>) -> Result<()> {
        self.scan(|key, value| match Record::parse(value) {
            Ok(record) => each(record),
            Err(why) => Err(Error::argument(format!("record {}: {why}", readable(key)))),
        })
    }

    /// Calls `each` with every shipped record, shard by shard; within a shard, structures come
    /// first.
    pub fn each_shipped(&self, each: impl FnMut(Record)) {
        self.shards.each(each);
    }

    fn scan(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        own.scan(Tree::Structures, "", &mut each)?;
        own.scan(Tree::Measurements, "", &mut each)
    }

    /// Reads and validates every record in the user's own database.
    ///
    /// # Errors
    /// [`Error::Wisdom`] if the database is damaged.
    pub fn verify(&self) -> Result<Verified> {
        let mut verified = Verified::default();
        self.scan(|key, value| {
            match Record::parse(value) {
                Ok(record) if record.key().as_bytes() != key => {
                    verified.bad.push((readable(key), "it belongs under another key".into()));
                }
                Ok(Record::Structure(_)) => verified.structures += 1,
                Ok(Record::Measurement(_)) => verified.measurements += 1,
                Err(why) => verified.bad.push((readable(key), why)),
            }
            Ok(())
        })?;
        Ok(verified)
    }

    /// Removes the measurements for which `drops` is true, and unreadable records, from the user's
    /// own database.
    ///
    /// Returns the number of removed measurements and unreadable records. Structures without any
    /// measurement left are removed as well.
    ///
    /// # Errors
    /// As [`Wisdom::keep`].
    pub fn prune(&self, mut drops: impl FnMut(&Measurement) -> bool) -> Result<u64> {
        let own = self.own()?;
        let mut gone = Vec::new();
        let mut left = BTreeSet::new();
        own.scan(Tree::Measurements, "", |key, value| {
            let out = match Record::parse(value) {
                Ok(Record::Measurement(measurement)) => drops(&measurement),
                Ok(Record::Structure(_)) | Err(_) => true,
            };
            match out {
                true => gone.push(key.to_vec()),
                false => left.extend(fingerprint_of(key).map(<[u8]>::to_vec)),
            }
            Ok(())
        })?;
        let mut batch = own.batch();
        for key in &gone {
            batch.remove(Tree::Measurements, key)?;
        }
        let fingerprints: BTreeSet<_> = gone.iter().filter_map(|key| fingerprint_of(key)).collect();
        for fingerprint in fingerprints.into_iter().filter(|one| !left.contains(*one)) {
            batch.remove(Tree::Structures, fingerprint)?;
        }
        batch.commit()?;
        Ok(gone.len() as u64)
    }
}

/// Returns the fingerprint at the start of a measurement's key.
fn fingerprint_of(key: &[u8]) -> Option<&[u8]> {
    let separator = key.iter().position(|&byte| byte == record::SEPARATOR as u8)?;
    Some(&key[..separator])
}

/// Formats a key for display.
fn readable(key: &[u8]) -> String {
    String::from_utf8_lossy(key).replace(|c: char| c.is_control(), " ")
}

#[cfg(all(test, feature = "wisdom", feature = "zstd"))]
mod tests;
