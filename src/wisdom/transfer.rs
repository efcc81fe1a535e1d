//! Export and import of the records in the user's own database, as lines of JSON.

use std::io::{BufRead, Write};

use super::Wisdom;
use super::lines::{self, Line};
use super::record::{self, Record};
use super::store::{Batch, Tree};
use super::wanted::answers;
use crate::error::{Error, Result};
use crate::measure::{Measurement, Outcome};

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of records that were stored.
    pub taken: u64,
    /// Number of records that the database already held in the same or a newer version.
    pub known: u64,
    /// Line numbers of skipped lines and the reasons, for the first [`MOST_REASONS`].
    pub bad: Vec<(u64, String)>,
    /// Number of skipped lines.
    pub skipped: u64,
}

/// Maximum number of skipped lines for which an import keeps the reason.
pub const MOST_REASONS: usize = 100;

impl Wisdom {
    /// Writes every valid record in the user's own database as a line of JSON; returns their
    /// number.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Wisdom`] if the database is damaged.
    pub fn export(&self, out: &mut impl Write) -> Result<u64> {
        self.export_of(None, out)
    }

    /// Like [`Wisdom::export`]; if `device` is given, writes the measurements of that device only.
    ///
    /// # Errors
    /// As [`Wisdom::export`].
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

    /// Adds the records in the lines of an export or of `ellect measure --json`; invalid lines are
    /// skipped and reported.
    ///
    /// If two records have the same key, the later one is kept. Importing the same lines twice
    /// changes nothing.
    ///
    /// # Errors
    /// [`Error::Io`] if reading fails, and as [`Wisdom::keep`].
    pub fn import(&self, reader: impl BufRead) -> Result<Imported> {
        self.take_over(reader, |stored, record| {
            (record.provenance.taken_at > stored.provenance.taken_at).then_some(record)
        })
    }

    /// Like [`Wisdom::import`], but keeps all timings of a key as runs of one measurement, whose
    /// median run counts.
    ///
    /// This lets several devices of one kind tune together. A record that is not an answer (a
    /// refusal or a cut candidate) never replaces one that is. If another run would make the record
    /// longer than a line may be, the record stays unchanged.
    ///
    /// # Errors
    /// As [`Wisdom::import`].
    pub fn join(&self, reader: impl BufRead) -> Result<Imported> {
        self.take_over(reader, joined)
    }

    /// Adds records from lines; `placed` returns what replaces a stored measurement with the same
    /// key, if anything.
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
}

/// Joins two measurements of one key as [`Wisdom::join`] does; returns what replaces `stored`, or
/// `None` if it stays.
pub(super) fn joined(stored: Measurement, record: Measurement) -> Option<Measurement> {
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
}

fn tree(record: &Record) -> Tree {
    match record {
        Record::Structure(_) => Tree::Structures,
        Record::Measurement(_) => Tree::Measurements,
    }
}

pub(super) fn put(batch: &mut Batch<'_>, record: &Record) -> Result<()> {
    batch.put(tree(record), &record.key(), record.line())
}

/// Returns the record to store under this record's key, or `None` to leave the stored one; `placed`
/// decides for measurements.
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
