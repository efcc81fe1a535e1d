//! What can go wrong outside the program.
//!
//! A format that does not suit a matrix is not an error but a [`Refusal`](crate::format::Refusal);
//! a broken internal rule is a panic at the caller.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where in an input something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Line of a text file, counted from 1.
    Line(u64),
    /// Byte offset from the start, counted from 0.
    Byte(u64),
    /// The input as a whole.
    Whole,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Line(n) => write!(f, "line {n}: "),
            At::Byte(n) => write!(f, "byte {n}: "),
            At::Whole => Ok(()),
        }
    }
}

/// An error of the outside world: input, limits, arguments, devices.
///
/// Messages say what is wrong, what was found, the limit and the remedy.
///
/// ```
/// use ellect::{Error, device};
///
/// let error = device::find("h300").expect_err("no such device");
/// assert!(matches!(&error, Error::UnknownDevice { name, .. } if name == "h300"));
/// assert!(error.to_string().starts_with("no device is named 'h300'; there are: h200, cpu"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is not what it claims to be.
    #[error("{at}{what}")]
    Input {
        /// Where.
        at: At,
        /// What is wrong, what was found, what to do.
        what: String,
    },
    /// The input is larger than a limit that the caller set.
    #[error(
        "{at}{what} is {got}, over the limit of {limit}; raise the limit ({remedy}, --max-{}) if this \
         is meant",
        remedy.replace('_', "-")
    )]
    Limit {
        /// Where.
        at: At,
        /// The limited quantity, for instance "number of rows".
        what: &'static str,
        /// The size that was claimed or found.
        got: u64,
        /// The limit in force.
        limit: u64,
        /// The name of the setting.
        remedy: &'static str,
    },
    /// Vectors or arrays do not have the length that the matrix asks for.
    #[error("{what} has length {got}, the matrix needs {needed}")]
    Shape {
        /// Which array.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The length needed.
        needed: usize,
    },
    /// Values were to be updated, but the pattern is another one.
    #[error("the pattern differs from the prepared one ({what}); prepare a new operator for it")]
    PatternChanged {
        /// What differs, with both figures.
        what: String,
    },
    /// The wanted format refuses this matrix.
    #[error("{candidate} refuses this matrix: {reason}")]
    Refused {
        /// The candidate asked for.
        candidate: String,
        /// Its reason, with figures.
        reason: String,
    },
    /// A product differed from the CSR reference by more than its rounding bound.
    #[error("{candidate} gave a wrong product: {what}")]
    WrongProduct {
        /// The candidate.
        candidate: String,
        /// The worst row, with figures.
        what: String,
    },
    /// A call's argument is out of its range.
    #[error("{0}")]
    Argument(String),
    /// No device has the name that the caller gave.
    #[error("no device is named '{name}'; there are: {}{}", known.join(", "), and(remedy))]
    UnknownDevice {
        /// The name asked for.
        name: String,
        /// The names that there are: profiles, and the GPUs of this machine.
        known: Vec<String>,
        /// What makes more names known; empty where nothing does.
        remedy: String,
    },
    /// The device is known by its profile alone: products can be estimated, not run or timed.
    #[error("{name} is not on this machine, so nothing can be timed on it: {remedy}")]
    AbsentDevice {
        /// The device asked for.
        name: String,
        /// What to do instead.
        remedy: String,
    },
    /// A device of this machine is broken or cannot be used now.
    #[error("{what}; {}", fault.remedy())]
    Device {
        /// The kind of fault.
        fault: DeviceFault,
        /// What was tried, what the driver answered, and the limit where there is one.
        what: String,
    },
    /// The database of measurements cannot be used.
    #[error("wisdom in {}: {fault}", path.display())]
    Wisdom {
        /// Its folder.
        path: std::path::PathBuf,
        /// Why.
        fault: WisdomFault,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Why a device cannot be used.
///
/// ```
/// use ellect::Error;
/// use ellect::error::DeviceFault;
///
/// let error = Error::device(DeviceFault::OutOfMemory, "taking 96 GB of device memory: CUDA error 2");
/// assert!(error.to_string().ends_with("; give the GPU less to hold, or free memory that others hold"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeviceFault {
    /// A driver or a library is missing or does not start.
    Unavailable,
    /// The device has too little free memory.
    OutOfMemory,
    /// A kernel or a call of the driver failed.
    Failed,
    /// The process that measures does not start, or ended again and again.
    Process,
    /// The device or this build cannot do what was asked.
    Unsupported,
    /// The device's profile is wrong.
    Profile,
}

impl DeviceFault {
    /// What the caller can do, in half a sentence.
    pub const fn remedy(self) -> &'static str {
        match self {
            DeviceFault::Unavailable => "install or repair it, or name another device",
            DeviceFault::OutOfMemory => {
                "give the GPU less to hold, or free memory that others hold"
            }
            DeviceFault::Failed => {
                "start this program again; where that does not help, reset the device"
            }
            DeviceFault::Process => "try again; where that does not help, name another device",
            DeviceFault::Unsupported => "name another format, or prepare the matrix on the host",
            DeviceFault::Profile => "remove its file, or run `ellect devices --probe` again",
        }
    }
}

/// `remedy` as the end of a message.
fn and(remedy: &str) -> String {
    if remedy.is_empty() { String::new() } else { format!("; {remedy}") }
}

/// Why a database of measurements cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WisdomFault {
    /// This build has no database.
    #[error("this build of ellect has no database of measurements: enable its feature `wisdom`")]
    NotBuilt,
    /// Another process has it open.
    #[error(
        "in use by another process; end that one, a service for instance, name another folder with \
         --data, or do without (--no-wisdom)"
    )]
    InUse,
    /// Its files are damaged.
    #[error("damaged ({0}); move the folder away, then import an export of its records")]
    Corrupt(String),
    /// Fewer commits are found than were acknowledged: its file was cut or damaged.
    #[error(
        "damaged: of {acknowledged} writes the last {} are lost; move the folder away, then import \
         an export of its records, or remove its file 'made' to go on with those that are left",
        acknowledged - kept
    )]
    Lost {
        /// Commits that are found.
        kept: u64,
        /// Commits that were acknowledged.
        acknowledged: u64,
    },
    /// Its records are not those that were written: some are lost, or older than the last.
    #[error(
        "damaged: what it holds is not what was written; move the folder away, then import an \
         export of its records, or remove its file 'made' to go on with those that are left"
    )]
    Differs,
    /// It was written by another version of this program, or by another program.
    #[error("{}", schema(*found, *known))]
    Schema {
        /// The schema it has, if it says one.
        found: Option<u32>,
        /// The schema that this program reads.
        known: u32,
    },
}

fn schema(found: Option<u32>, known: u32) -> String {
    let remedy = "move the folder away, and import an export made by the program that wrote it";
    match found {
        None => format!("it says no schema, this program reads schema {known}; {remedy}"),
        Some(found) => {
            let age = if found > known { "newer" } else { "older" };
            format!("it has schema {found}, {age} than schema {known} of this program; {remedy}")
        }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::Argument`].
    pub fn argument(what: impl Into<String>) -> Self {
        Error::Argument(what.into())
    }

    /// An [`Error::Device`]: what was tried, and what came of it.
    pub fn device(fault: DeviceFault, what: impl Into<String>) -> Self {
        Error::Device { fault, what: what.into() }
    }

    /// An [`Error::Input`] about the input as a whole.
    pub fn input(what: impl Into<String>) -> Self {
        Error::Input { at: At::Whole, what: what.into() }
    }

    /// An [`Error::Input`] at a line, counted from 1.
    pub fn line(line: u64, what: impl Into<String>) -> Self {
        Error::Input { at: At::Line(line), what: what.into() }
    }

    /// An [`Error::Input`] at a byte, counted from 0.
    pub fn byte(byte: u64, what: impl Into<String>) -> Self {
        Error::Input { at: At::Byte(byte), what: what.into() }
    }
}
