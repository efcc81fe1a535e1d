//! Export and import of the records in the user's own database, as lines of JSON.

use std::io::{BufRead, Write};

use super::Wisdom;
use super::lines::{self, Line};
use super::placing::{joined, later, not_earlier, placed};
use super::record::{Record, is_mark};
use super::store::{Batch, Finished, Tree};
use crate::error::{Error, Result};
use crate::measure::Measurement;

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Number of records that were stored.
    pub taken: u64,
    /// Number of records that the database already held in the same or a newer version.
    pub known: u64,
    /// Line numbers of skipped lines and the reasons, for the first [`MOST_REASONS`].
    pub bad: Vec<(u64, String)>,
    /// Line numbers of the other skipped lines: the first and the last of each run of lines.
    pub bad_too: Vec<(u64, u64)>,
    /// Number of skipped lines.
    pub skipped: u64,
}

impl Imported {
    fn skip(&mut self, line: u64, why: String) {
        self.skipped += 1;
        if self.bad.len() < MOST_REASONS {
            self.bad.push((line, why));
            return;
        }
        match self.bad_too.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => self.bad_too.push((line, line)),
        }
    }
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
    /// skipped and reported, all others are stored.
    ///
    /// If two records have the same key, the later one is kept. Importing the same lines twice
    /// changes nothing. A byte order mark in front of the first line is passed over, and so are
    /// empty lines and the marks between the records of a database's own export.
    ///
    /// # Errors
    /// [`Error::Io`] if reading fails, and as [`Wisdom::keep`].
    pub fn import(&self, reader: impl BufRead) -> Result<Imported> {
        self.take_over(reader, &later)
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
        self.take_over(reader, &joined)
    }

    /// Adds records from lines; `keep` decides which of two measurements with one key is kept.
    fn take_over(
        &self,
        mut reader: impl BufRead,
        keep: &dyn Fn(Measurement, Measurement) -> Option<Measurement>,
    ) -> Result<Imported> {
        let mut batch = self.own()?.batch();
        let mut imported = Imported::default();
        let mut number = 0;
        let io = |source| Error::Io { what: "reading records".into(), source };
        while let Some(line) = lines::next(&mut reader).map_err(io)? {
            number += 1;
            let line = match line {
                Line::TooLong => {
                    imported.skip(number, format!("longer than {} bytes", lines::MOST_BYTES));
                    continue;
                }
                Line::Whole(line) => line,
            };
            let line = match number {
                1 => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line),
                _ => &line,
            };
            if line.trim_ascii().is_empty() || is_mark(line) {
                continue;
            }
            match Record::parse(line) {
                Ok(record) => {
                    let stored = batch.get(Tree::of(&record), &record.key())?;
                    match placed(stored.as_deref(), record, keep) {
                        Some(record) => {
                            put(&mut batch, &record)?;
                            imported.taken += 1;
                        }
                        None => imported.known += 1,
                    }
                }
                Err(why) => imported.skip(number, why),
            }
        }
        batch.commit()?;
        Ok(imported)
    }

    /// Takes over the records that other processes added while this one held the database.
    ///
    /// # Errors
    /// As [`Wisdom::keep`]; what was not taken over stays for the next time.
    pub(super) fn take_in(&self) -> Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        for finished in own.finished()? {
            self.take_in_one(&finished)?;
            finished.remove()?;
        }
        Ok(())
    }

    fn take_in_one(&self, finished: &Finished) -> Result<()> {
        let lines = finished.lines.join(&b"\n"[..]);
        self.take_over(lines.as_slice(), &not_earlier).map(drop)
    }
}

/// Bytes that some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

pub(super) fn put(batch: &mut Batch<'_>, record: &Record) -> Result<()> {
    batch.put(Tree::of(record), &record.key(), record.line())
}
