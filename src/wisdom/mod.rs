//! Wisdom: measurements that are remembered.
//!
//! Two layers: what ships with the program (`shards`), read-only, below the user's own database, a folder
//! `wisdom` under the data folder. Each holds two trees:
//!
//! - *structures*: fingerprint -> [`StructureRecord`];
//! - *measurements*: (fingerprint, device, precision, basis, candidate, driver, kernels, protocol
//!   version) -> [`Measurement`], one record a key: the latest, or all runs of those that were
//!   joined.
//!
//! Names, never positions; values are JSON, the lines of an export ([`Record`]).
//!
//! What holds:
//! - A write that returned is on the disk; killed at any moment, the database opens again.
//! - One process at a time; a second one gets [`WisdomFault::InUse`](crate::error::WisdomFault).
//! - A database of another schema is refused, a damaged one or one that lost what it acknowledged
//!   is an error: never misread.
//! - A measurement answers only where its driver, kernels (by hash) and protocol are those of now;
//!   otherwise [`Answer::Stale`] says which differ. What cannot be asked (the driver of a device
//!   that is not at hand, kernels of a program built without any) is not compared.
//! - Of a wrong product only the outcome is kept; a refusal is kept, but never an answer, since it
//!   depends on the memory limit; nor is what was cut from a tuning run.

mod lines;
mod record;
mod shards;
#[cfg_attr(not(feature = "wisdom"), path = "store_none.rs")]
mod store;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::{Basis, Candidate};
use crate::measure::provenance::kernels_now;
use crate::measure::{Measurement, Outcome};
use crate::scalar::Precision;
use lines::Line;
pub use record::{Record, StructureRecord};
pub use shards::{Merged, merge};
use shards::{SHIPPED, Shards};
use store::{Batch, Store, Tree};

/// What measurements are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Name of the device.
    pub device: &'a str,
    /// Its driver now; `None` where the device is not at hand: then any answers.
    pub driver: Option<String>,
    /// Precision of the values.
    pub precision: Precision,
    /// Basis of x and y.
    pub basis: Basis,
    /// Version of the protocol.
    pub protocol: u32,
}

/// What wisdom says of one candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was measured as it would be now.
    Known(Box<Measurement>),
    /// It was not measured.
    Missing,
    /// It was measured otherwise.
    Stale(Stale),
}

/// What differs between a record and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// `driver`, `kernels` or `protocol`.
    pub what: &'static str,
    /// Of the record.
    pub stored: String,
    /// Of now.
    pub now: String,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stored = if self.stored.is_empty() { "unknown" } else { &self.stored };
        write!(f, "measured with {} {stored}, it is {} now", self.what, self.now)
    }
}

impl Wanted<'_> {
    /// What differs, if anything; the names of the record are those wanted.
    pub fn differs(&self, measurement: &Measurement) -> Option<Stale> {
        let provenance = &measurement.provenance;
        let stale = |what, stored: &str, now: String| Stale { what, stored: stored.into(), now };
        let version = measurement.protocol.version;
        if version != self.protocol {
            return Some(stale("protocol", &version.to_string(), self.protocol.to_string()));
        }
        if let Some(driver) = self.driver.as_ref().filter(|driver| **driver != provenance.driver) {
            return Some(stale("driver", &provenance.driver, driver.to_string()));
        }
        let kernels = kernels_now(&provenance.kernels).filter(|now| *now != provenance.kernels);
        let here = self.driver.is_some();
        kernels.filter(|_| here).map(|now| stale("kernels", &provenance.kernels, now))
    }
}

/// What an import did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Records that were taken.
    pub taken: u64,
    /// Records that were there already, as new or newer.
    pub known: u64,
    /// Lines that were skipped, with their number and the reason: the first [`MOST_REASONS`].
    pub bad: Vec<(u64, String)>,
    /// All lines that were skipped.
    pub skipped: u64,
}

/// Bad lines that an import keeps the reasons of.
pub const MOST_REASONS: usize = 100;

/// What reading every record found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Good structures.
    pub structures: u64,
    /// Good measurements.
    pub measurements: u64,
    /// Bad records: their keys and reasons.
    pub bad: Vec<(String, String)>,
}

/// What ships of one matrix.
#[derive(Debug, Default)]
struct Shipped {
    structure: Option<StructureRecord>,
    /// By key; of two of the same key the last.
    measurements: BTreeMap<String, Measurement>,
}

impl Shipped {
    fn of(records: Vec<Record>) -> Self {
        let mut shipped = Shipped::default();
        for record in records {
            match record {
                Record::Structure(structure) => shipped.structure = Some(structure),
                Record::Measurement(measured) => {
                    shipped.measurements.insert(record::key_of(&measured), *measured);
                }
            }
        }
        shipped
    }
}

/// The layers of remembered measurements.
#[derive(Debug)]
pub struct Wisdom {
    shards: Shards,
    /// What was read of `shards`, by matrix.
    shipped: Mutex<HashMap<Fingerprint, Arc<OnceLock<Arc<Shipped>>>>>,
    own: Option<Store>,
}

impl Wisdom {
    /// What ships with the program, alone; nothing can be added.
    pub fn shipped() -> Self {
        Wisdom::over(SHIPPED, None)
    }

    /// What ships, below the user's own database under `data`, which is made where there is none.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where another process has it, it is damaged or of another schema;
    /// [`Error::Io`].
    pub fn open(data: &Path) -> Result<Self> {
        Ok(Wisdom::over(SHIPPED, Some(Store::open(&data.join("wisdom"))?)))
    }

    /// Like [`Wisdom::open`] where there is a database, else like [`Wisdom::shipped`].
    ///
    /// # Errors
    /// As [`Wisdom::open`].
    pub fn open_existing(data: &Path) -> Result<Self> {
        match data.join("wisdom").is_dir() {
            true => Wisdom::open(data),
            false => Ok(Wisdom::shipped()),
        }
    }

    fn over(shards: Shards, own: Option<Store>) -> Self {
        Wisdom { shards, shipped: Mutex::default(), own }
    }

    /// What ships of this matrix, if anything: its shard is decompressed once, and what it says of the
    /// matrix is kept.
    fn shipped_of(&self, fingerprint: Fingerprint) -> Option<Arc<Shipped>> {
        if !self.shards.hold(fingerprint) {
            return None;
        }
        let mut shipped = self.shipped.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::clone(shipped.entry(fingerprint).or_default());
        drop(shipped);
        // Others go on while this one is read.
        let read = || Arc::new(Shipped::of(self.shards.records_of(fingerprint)));
        Some(Arc::clone(own.get_or_init(read)))
    }

    fn own(&self) -> Result<&Store> {
        let none = || Error::argument("only the wisdom that ships is open: nothing can be added");
        self.own.as_ref().ok_or_else(none)
    }

    /// What is known of a candidate; the latest of the records that match, the user's own first.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where the database is damaged.
    pub fn ask(&self, wanted: &Wanted<'_>, candidate: &Candidate) -> Result<Answer> {
        let (precision, basis) = (wanted.precision.to_string(), wanted.basis.to_string());
        let parts = [wanted.device, &precision, &basis, &candidate.to_string()];
        let prefix = record::prefix(wanted.fingerprint, parts);
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
        let known = matches!(answer, Answer::Known(_));
        if let Some(shipped) = self.shipped_of(wanted.fingerprint).filter(|_| !known) {
            let own = shipped.measurements.range(prefix.clone()..);
            let own = own.take_while(|(key, _)| key.starts_with(&prefix));
            let measured = own.map(|(_, measured)| measured.clone());
            match best(wanted, measured.collect()) {
                Answer::Missing => {}
                Answer::Stale(_) if matches!(answer, Answer::Stale(_)) => {}
                better => answer = better,
            }
        }
        Ok(answer)
    }

    /// What is known of a matrix.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where the database is damaged.
    pub fn structure(&self, fingerprint: Fingerprint) -> Result<Option<StructureRecord>> {
        let own = self.own_structure(fingerprint)?;
        let shipped = || self.shipped_of(fingerprint)?.structure.clone();
        Ok(own.or_else(shipped))
    }

    /// What to keep of a matrix beside its measurements, so that an export tells of it: what ships of
    /// it, else what `make` says; none where the user's own database holds it.
    ///
    /// # Errors
    /// As [`Wisdom::structure`].
    pub fn to_keep(
        &self,
        fingerprint: Fingerprint,
        make: impl FnOnce() -> StructureRecord,
    ) -> Result<Option<Record>> {
        if self.own_structure(fingerprint)?.is_some() {
            return Ok(None);
        }
        Ok(Some(Record::Structure(self.structure(fingerprint)?.unwrap_or_else(make))))
    }

    fn own_structure(&self, fingerprint: Fingerprint) -> Result<Option<StructureRecord>> {
        let key = fingerprint.to_string();
        let own = self.own.as_ref().map(|own| own.get(Tree::Structures, &key)).transpose()?;
        Ok(match own.flatten().map(|value| Record::parse(&value)) {
            Some(Ok(Record::Structure(structure))) => Some(structure),
            _ => None,
        })
    }

    /// Every measurement of a matrix that the user's own database holds, whatever its device.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where the database is damaged.
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

    /// Keeps records; they are on the disk when this returns.
    ///
    /// # Errors
    /// [`Error::Argument`] for a record that is not valid, or where only shipped wisdom is open;
    /// [`Error::Wisdom`] and [`Error::Io`] by the database.
    pub fn keep(&self, records: impl IntoIterator<Item = Record>) -> Result<()> {
        let mut batch = self.own()?.batch();
        for mut record in records {
            record.validate().map_err(Error::Argument)?;
            put(&mut batch, &record)?;
        }
        batch.commit()
    }

    /// Whether measurements can be added.
    pub fn keeps(&self) -> bool {
        self.own.is_some()
    }

    /// Calls `each` with every structure of the user's own that can be read.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where the database is damaged.
    pub fn each_structure(&self, mut each: impl FnMut(StructureRecord)) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        own.scan(Tree::Structures, "", |_, value| {
            if let Ok(Record::Structure(structure)) = Record::parse(value) {
                each(structure);
            }
            Ok(())
        })
    }

    /// Calls `each` with every record of the user's own, structures first.
    ///
    /// # Errors
    /// Those of `each`, and [`Error::Wisdom`] where a record is damaged: see [`Wisdom::verify`].
    pub fn each(&self, mut each: impl FnMut(Record) -> Result<()>) -> Result<()> {
        self.scan(|key, value| match Record::parse(value) {
            Ok(record) => each(record),
            Err(why) => Err(Error::argument(format!("record {}: {why}", readable(key)))),
        })
    }

    /// Calls `each` with every record that ships with the program, shard by shard: of each shard the
    /// structures first.
    pub fn each_shipped(&self, each: impl FnMut(Record)) {
        self.shards.each(each);
    }

    fn scan(&self, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        own.scan(Tree::Structures, "", &mut each)?;
        own.scan(Tree::Measurements, "", &mut each)
    }

    /// Writes every good record of the user's own as a line of JSON; returns their number.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Wisdom`] where the database is damaged.
    pub fn export(&self, out: &mut impl Write) -> Result<u64> {
        self.export_of(None, out)
    }

    /// Like [`Wisdom::export`], with the measurements of one device only, where one is named.
    ///
    /// # Errors
    /// As there.
    pub fn export_of(&self, device: Option<&str>, out: &mut impl Write) -> Result<u64> {
        let wanted = |record: Record| match (record, device) {
            (Record::Measurement(measurement), Some(device)) => measurement.device == device,
            (Record::Measurement(_) | Record::Structure(_), _) => true,
        };
        let mut written = 0;
        self.scan(|_, value| {
            if Record::parse(value).is_ok_and(wanted) {
                let line = [value, b"\n"].concat();
                let io = |source| Error::Io { what: "writing records".into(), source };
                out.write_all(&line).map_err(io)?;
                written += 1;
            }
            Ok(())
        })?;
        Ok(written)
    }

    /// Takes over lines of an export, or of `ellect measure --json`; bad ones are skipped and told.
    ///
    /// Of two records with one key, the one taken later stays. Importing twice changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`] where reading fails, and as [`Wisdom::keep`].
    pub fn import(&self, reader: impl BufRead) -> Result<Imported> {
        self.take_over(reader, |stored, record| {
            (record.provenance.taken_at > stored.provenance.taken_at).then_some(record)
        })
    }

    /// Like [`Wisdom::import`], but timings with one key are runs of one measurement, of which the
    /// middle one counts, and nothing that is no answer takes the place of one: so do several devices
    /// of one kind tune together. What a line does not hold any more stays as it was.
    ///
    /// # Errors
    /// As there.
    pub fn join(&self, reader: impl BufRead) -> Result<Imported> {
        self.take_over(reader, |stored, record| {
            let later = record.provenance.taken_at > stored.provenance.taken_at;
            let timed = |m: &Measurement| matches!(m.outcome, Outcome::Timed(_));
            if timed(&stored) && timed(&record) {
                return match later {
                    _ if record.is_within(&stored) => None,
                    true => Some(record.after(&stored)),
                    false => Some(stored.after(&record)),
                }
                .filter(record::fits_a_line);
            }
            match (answers(&stored.outcome), answers(&record.outcome)) {
                (true, false) => None,
                (false, true) => Some(record),
                _ => later.then_some(record),
            }
        })
    }

    /// Takes over lines; `placed` says what takes the place of a measurement with the same key.
    fn take_over(
        &self,
        mut reader: impl BufRead,
        placed: impl Fn(Measurement, Measurement) -> Option<Measurement>,
    ) -> Result<Imported> {
        let mut batch = self.own()?.batch();
        let mut imported = Imported::default();
        let mut number = 0;
        let io = |source| Error::Io { what: "reading records".into(), source };
        while let Some(line) = lines::next(&mut reader).map_err(io)? {
            number += 1;
            let record = match line {
                Line::TooLong => Err(format!("longer than {} bytes", lines::MOST_BYTES)),
                Line::Whole(line) if line.trim_ascii().is_empty() => continue,
                Line::Whole(line) => Record::parse(&line),
            };
            match record {
                Ok(record) => match in_place(&batch, record, &placed)? {
                    Some(record) => {
                        put(&mut batch, &record)?;
                        imported.taken += 1;
                    }
                    None => imported.known += 1,
                },
                Err(why) => {
                    imported.skipped += 1;
                    if imported.bad.len() < MOST_REASONS {
                        imported.bad.push((number, why));
                    }
                }
            }
        }
        batch.commit()?;
        Ok(imported)
    }

    /// Reads and validates every record of the user's own.
    ///
    /// # Errors
    /// [`Error::Wisdom`] where the database is damaged.
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

    /// Removes the measurements of the user's own that `drops` says, and records that cannot be
    /// read; returns their number. Structures of which no measurement is left go with them.
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

/// The fingerprint that the key of a measurement begins with.
fn fingerprint_of(key: &[u8]) -> Option<&[u8]> {
    let separator = key.iter().position(|&byte| byte == record::SEPARATOR as u8)?;
    Some(&key[..separator])
}

/// Whether a measurement that ended so is an answer.
fn answers(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Timed(_) | Outcome::Wrong { .. } | Outcome::Failed { .. })
}

/// The latest of the records that match; else the latest of the others.
fn best(wanted: &Wanted<'_>, mut records: Vec<Measurement>) -> Answer {
    records.retain(|record| answers(&record.outcome));
    records.sort_by_key(|record| std::cmp::Reverse(record.provenance.taken_at));
    let mut stale = None;
    for record in records {
        match wanted.differs(&record) {
            None => return Answer::Known(Box::new(record)),
            Some(differs) => stale = stale.or(Some(differs)),
        }
    }
    stale.map_or(Answer::Missing, Answer::Stale)
}

fn tree(record: &Record) -> Tree {
    match record {
        Record::Structure(_) => Tree::Structures,
        Record::Measurement(_) => Tree::Measurements,
    }
}

fn put(batch: &mut Batch<'_>, record: &Record) -> Result<()> {
    batch.put(tree(record), &record.key(), record.line())
}

/// What is to be kept under this record's key instead of what is there, if anything; `placed` says
/// so of measurements.
fn in_place(
    batch: &Batch<'_>,
    record: Record,
    placed: impl Fn(Measurement, Measurement) -> Option<Measurement>,
) -> Result<Option<Record>> {
    let stored = batch.get(tree(&record), &record.key())?.map(|value| Record::parse(&value));
    Ok(match (stored, record) {
        (Some(Ok(Record::Measurement(stored))), Record::Measurement(record)) => {
            placed(*stored, *record).map(|kept| Record::Measurement(Box::new(kept)))
        }
        (Some(Ok(Record::Structure(stored))), Record::Structure(record)) => {
            let both = record.with(&stored);
            (both != stored).then_some(Record::Structure(both))
        }
        (_, record) => Some(record),
    })
}

/// A key, for people.
fn readable(key: &[u8]) -> String {
    String::from_utf8_lossy(key).replace(|c: char| c.is_control(), " ")
}

#[cfg(all(test, feature = "wisdom", feature = "zstd"))]
mod tests;
