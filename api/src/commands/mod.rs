//! The subcommands, one file each, and what several of them share.

pub mod bench;
pub mod convert;
pub mod devices;
pub mod evaluate;
pub mod features;
pub mod formats;
pub mod generate;
pub mod measure;
pub mod models;
pub mod recommend;
pub mod records;
pub mod serve;
pub mod train;
pub mod tune;
pub mod verify;
pub mod wisdom;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use ellect::choose::Effort;
use ellect::error::{Error, WisdomFault};
use ellect::read;
use ellect::{Csr, Scalar, Wisdom};

use crate::output::{note, spinner};
use crate::shared::{self, Address, Client, Told};

/// The outcome of a command that ran without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The command did what it was asked to do, or answers yes.
    Yes,
    /// The command answers no, for instance because a product is wrong.
    No,
}

impl Answer {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Answer::Yes => 0,
            Answer::No => 1,
        }
    }
}

/// The data folder of this user, and whether stored measurements are used.
#[derive(Clone, Debug)]
pub struct Home {
    /// The folder of measurements and device profiles.
    pub data: PathBuf,
    /// Use no stored measurements, and store none.
    pub no_wisdom: bool,
    /// The database that several hosts share.
    pub shared: Option<Address>,
}

impl Home {
    /// Opens the stored measurements that a choice of this effort uses.
    ///
    /// An estimate uses none. A prediction only reads them. An effort that measures also stores its
    /// measurements; in a folder that cannot be written to it only reads, with a note.
    ///
    /// # Errors
    /// As [`Wisdom::open`] and [`Home::sharing`].
    pub fn wisdom(&self, effort: Effort) -> Result<Option<Arc<Wisdom>>> {
        let wisdom = match effort {
            _ if self.no_wisdom => return Ok(None),
            Effort::Estimate => return Ok(None),
            Effort::Predict => reading(&self.data),
            Effort::Measure | Effort::Exhaustive => match Wisdom::open(&self.data) {
                Err(error @ Error::Io { .. }) => {
                    note(&format!("{error}: measurements are not stored"));
                    reading(&self.data)
                }
                opened => opened,
            },
        }?;
        told(&wisdom);
        self.sharing(wisdom).map(|(wisdom, _)| Some(wisdom))
    }

    /// Puts the shared database behind this wisdom, if one is named.
    ///
    /// # Errors
    /// If its address is wrong, or this program was built without a client.
    pub fn sharing(&self, wisdom: Wisdom) -> Result<(Arc<Wisdom>, Option<Arc<Client>>)> {
        match &self.shared {
            Some(address) => {
                let (wisdom, client) = shared::attached(wisdom, address, &self.data, tell)?;
                Ok((wisdom, Some(client)))
            }
            None => Ok((Arc::new(wisdom), None)),
        }
    }
}

/// Opens the stored measurements to read them; those that ship alone, with a note, if another
/// process holds the database and they cannot be read, or reading fails.
fn reading(data: &Path) -> ellect::Result<Wisdom> {
    match Wisdom::open_existing(data) {
        Err(error @ (Error::Wisdom { fault: WisdomFault::InUse, .. } | Error::Io { .. })) => {
            note(&format!("{error}: choosing without its measurements"));
            Ok(Wisdom::shipped())
        }
        opened => opened,
    }
}

/// Prints what is wrong with the shared database.
fn tell(told: Told<'_>) {
    match told {
        Told::Bad(sentence) => note(sentence),
        Told::Good(_) => {}
    }
}

/// Prints what was repaired when the stored measurements were opened.
pub fn told(wisdom: &Wisdom) {
    for sentence in wisdom.notes() {
        note(&format!("wisdom: {sentence}"));
    }
}

/// Returns the name of the file, for records.
fn source(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Reads a matrix file, or standard input for `-`, and prints the reader's notes.
fn read_matrix<T: Scalar>(file: &Path, options: &read::Options) -> Result<Csr<T>> {
    let reading = spinner("reading");
    // A socket or a pipe can be standard input, but cannot always be opened by this name.
    let is_stdin = file == Path::new("-") || file == Path::new("/dev/stdin");
    let found = if is_stdin {
        options.stream(io::stdin()).context("standard input")
    } else {
        options.file(file).map_err(|error| match error {
            // This error already names the file.
            error @ ellect::Error::Io { .. } => anyhow::Error::new(error),
            error => anyhow::Error::new(error).context(file.display().to_string()),
        })
    };
    reading.finish_and_clear();
    let found = found?;
    found.notes.iter().for_each(|text| note(&format!("{}: {text}", file.display())));
    Ok(found.csr)
}
