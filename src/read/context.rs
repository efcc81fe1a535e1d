//! The options of one reading, and the notes that it leaves.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Complex, Limits};
use crate::error::{Error, Result};

/// Number of names that a message lists.
const LISTED: usize = 20;

/// The options of one reading and its notes, as the readers of all formats take them.
pub(super) struct Context<'a> {
    pub limits: &'a Limits,
    pub complex: Complex,
    /// Name of the file, empty if there is none.
    pub name: String,
    /// The member of an archive that the caller named.
    pub member: Option<&'a str>,
    pub notes: Notes,
}

impl Context<'_> {
    /// Checks that a matrix of complex numbers may be read by its real parts.
    ///
    /// # Errors
    /// [`Error::Input`] with the remedy, unless the caller asked for real parts.
    pub fn accept_complex(&self, what: &str) -> Result<()> {
        match self.complex {
            Complex::RealPart => Ok(()),
            Complex::Refuse => Err(Error::input(format!("{what}; {COMPLEX_REMEDY}"))),
        }
    }

    /// Notes how many integers lost digits, if any did.
    pub fn note_rounded(&self, rounded: u64) {
        let subject = match rounded {
            0 => return,
            1 => "1 integer over 2^53 was".into(),
            n => format!("{n} integers over 2^53 were"),
        };
        self.notes.tell(format!("{subject} rounded to the next number of 53 bits"));
    }
}

/// The remedy for complex matrices.
pub(super) const COMPLEX_REMEDY: &str = "write the real and the imaginary part as two matrices, or, if every imaginary part is zero, \
     read the real parts with --real-part (real_part=true over HTTP)";

/// Notes of a reading: one sentence each, in the order in which they were made.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// Adds a sentence, unless it is there.
    pub fn tell(&self, note: String) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Returns all notes and leaves none.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns names of a file's parts for a message, without unprintable characters.
pub(super) fn list(names: &[String]) -> String {
    let shown: Vec<_> =
        names.iter().take(LISTED).map(|name| name.escape_debug().to_string()).collect();
    match names.len().saturating_sub(LISTED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
