//! Where a tuning run takes its matrices from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ellect::Fingerprint;

use super::Tuning;
use crate::corpus::Entry;

/// A source of matrices that are each measured once, by this run or by another one that shares it.
pub trait Queue: Sync {
    /// Takes the next matrix; waits if others may still give one back. `None` at the end.
    fn next(&self) -> Option<Entry>;

    /// Notes that a matrix was measured, or why it cannot be.
    fn done(&self, entry: &Entry, why_not: Option<&str>);

    /// Returns the number of matrices that are not done.
    fn left(&self) -> usize;

    /// Ends the queue for this run: what was taken and is not done is given back.
    fn close(&self);
}

/// The matrices of one run alone.
pub(super) struct Listed {
    entries: Mutex<std::vec::IntoIter<Entry>>,
    left: AtomicUsize,
}

impl Listed {
    pub fn new(entries: Vec<Entry>) -> Self {
        let left = AtomicUsize::new(entries.len());
        Listed { entries: Mutex::new(entries.into_iter()), left }
    }
}

impl Queue for Listed {
    fn next(&self) -> Option<Entry> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn done(&self, _: &Entry, _: Option<&str>) {
        self.left.fetch_sub(1, Ordering::Relaxed);
    }

    fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn close(&self) {}
}

/// A queue without the matrices of which nothing remains to be measured.
pub(super) struct Undone<'a> {
    pub queue: &'a dyn Queue,
    pub tuning: &'a Tuning<'a>,
    /// Known matrices by source.
    pub sources: HashMap<String, Fingerprint>,
}

impl Queue for Undone<'_> {
    fn next(&self) -> Option<Entry> {
        loop {
            let entry = self.queue.next()?;
            let known = self.sources.get(&entry.source);
            // A failing database is met again where the matrix is measured.
            if !known.is_some_and(|print| self.tuning.is_done(*print).unwrap_or(false)) {
                return Some(entry);
            }
            self.queue.done(&entry, None);
        }
    }

    fn done(&self, entry: &Entry, why_not: Option<&str>) {
        self.queue.done(entry, why_not);
    }

    fn left(&self) -> usize {
        self.queue.left()
    }

    fn close(&self) {
        self.queue.close();
    }
}
