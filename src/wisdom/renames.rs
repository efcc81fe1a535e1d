//! Moves records of formats that have been renamed to the keys of their current names.

use std::borrow::Cow;

use super::placing::{joined, placed};
use super::record::{Record, SEPARATOR};
use super::store::{Store, Tree};
use super::transfer::put;
use crate::error::Result;
use crate::format::aliases::current;
use crate::measure::provenance::kernels_renamed;

/// Moves every measurement whose key contains an alias of a format.
///
/// If the current key holds a measurement as well, the two are joined as by
/// [`Wisdom::join`](super::Wisdom::join). Unreadable records stay in their places. The new record
/// is written no later than the old one is removed, so none is lost if the program is killed.
///
/// # Errors
/// [`Error::Wisdom`](crate::Error::Wisdom) and [`Error::Io`](crate::Error::Io) from the database.
pub(super) fn apply(store: &Store) -> Result<()> {
    let mut earlier = Vec::new();
    store.scan(Tree::Measurements, "", |key, value| {
        if has_alias(key) {
            earlier.push((key.to_vec(), value.to_vec()));
        }
        Ok(())
    })?;
    let mut batch = store.batch();
    for (key, value) in earlier {
        let Ok(record) = Record::parse(&value) else { continue };
        let there = batch.get(Tree::Measurements, &record.key())?;
        let kept = placed(there.as_deref(), record, &joined);
        if let Some(kept) = kept {
            put(&mut batch, &kept)?;
        }
        batch.remove(Tree::Measurements, &key)?;
    }
    batch.commit()
}

/// Tells whether a key contains an alias, in the candidate or in the names of kernels; see
/// [`key_of`](super::record::key_of) for its parts.
pub(super) fn has_alias(key: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(key) else { return false };
    let parts: Vec<&str> = key.split(SEPARATOR).collect();
    let [_, _, _, _, candidate, _, kernels, _] = parts[..] else { return false };
    let is_new = |text: Cow<'_, str>| matches!(text, Cow::Owned(_));
    is_new(current(candidate)) || is_new(kernels_renamed(kernels))
}
