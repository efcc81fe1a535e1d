//! Rules on which of two records of one key is kept.

use super::record::{self, Record};
use super::wanted::answers;
use crate::measure::{Measurement, Outcome};

/// Returns the record to store under this record's key, or `None` to leave the stored value; `keep`
/// decides for measurements.
pub(super) fn placed(
    stored: Option<&[u8]>,
    record: Record,
    keep: &dyn Fn(Measurement, Measurement) -> Option<Measurement>,
) -> Option<Record> {
    match (stored.map(Record::parse), record) {
        (Some(Ok(Record::Measurement(stored))), Record::Measurement(record)) => {
            keep(*stored, *record).map(|kept| Record::Measurement(Box::new(kept)))
        }
        (Some(Ok(Record::Structure(stored))), Record::Structure(record)) => {
            let both = record.named_also(&stored);
            (both != stored).then_some(Record::Structure(both))
        }
        (_, record) => Some(record),
    }
}

/// Keeps the record that was taken later.
pub(super) fn later(stored: Measurement, record: Measurement) -> Option<Measurement> {
    (record.provenance.taken_at > stored.provenance.taken_at).then_some(record)
}

/// Keeps the record, unless the stored one was taken later.
pub(super) fn not_earlier(stored: Measurement, record: Measurement) -> Option<Measurement> {
    let is_earlier = record.provenance.taken_at < stored.provenance.taken_at;
    (!is_earlier && record != stored).then_some(record)
}

/// Joins two measurements of one key as [`Wisdom::join`](super::Wisdom::join) does; returns what
/// replaces `stored`, or `None` if it stays.
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
