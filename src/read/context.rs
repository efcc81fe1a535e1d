//! The options of one reading, and the notes that it leaves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Complex, Limits};
use crate::csr::{ComplexCsr, Csr};
use crate::error::{At, Error, Result};
use crate::scalar::Scalar;

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
    /// Set if the matrix that was read stands for a complex one.
    pub is_complex: AtomicBool,
}

/// The part of each complex value that becomes a value of the matrix.
#[cfg(feature = "read-archives")]
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// The real part; every imaginary part must be zero.
    Only,
    Real,
    Imaginary,
}

#[cfg(feature = "read-archives")]
impl Part {
    /// Returns this part of a complex value.
    ///
    /// # Errors
    /// A text, if the imaginary part must be zero and is not.
    pub fn of(self, real: f64, imaginary: f64) -> std::result::Result<f64, String> {
        match self {
            Part::Only => super::binary::no_imaginary_part(imaginary).map(|()| real),
            Part::Real => Ok(real),
            Part::Imaginary => Ok(imaginary),
        }
    }
}

impl Context<'_> {
    /// Returns the real matrix of twice the size that stands for the complex one with these parts, and
    /// notes that it does.
    ///
    /// # Errors
    /// [`Error::Input`] if there are too many rows or columns, [`Error::Limit`] if there are too many
    /// entries.
    pub fn blocks<T: Scalar>(&self, real: Csr<T>, imaginary: Csr<T>) -> Result<Csr<T>> {
        let complex = ComplexCsr::from_parts(&real, &imaginary)?;
        self.limits.entries(At::Whole, 4 * complex.nnz() as u64)?;
        self.is_complex.store(true, Ordering::Relaxed);
        drop((real, imaginary));
        Ok(complex.to_real())
    }

    /// Checks that a matrix of complex numbers may be read.
    ///
    /// # Errors
    /// [`Error::Input`] with the remedy, unless the caller asked for real parts or blocks.
    pub fn accept_complex(&self, what: &str) -> Result<()> {
        match self.complex {
            Complex::RealPart | Complex::Blocks => Ok(()),
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
pub(super) const COMPLEX_REMEDY: &str = "read each number a + bi as the block [[a, -b], [b, a]] of a real matrix \
     with --complex blocks (complex=blocks over HTTP), or, if every imaginary part is zero, read the real parts with \
     --real-part (real_part=true over HTTP)";

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
