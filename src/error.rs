//! Errors of the outside world: input, limits, arguments, devices.
//!
//! A format that does not apply to a matrix is not an error but a
//! [`Refusal`](crate::format::Refusal). A violated internal rule is a panic at the caller.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Location of a fault in an input.
///
/// ```
/// use ellect::Error;
/// use ellect::error::At;
///
/// assert!(matches!(Error::line(7, "no number"), Error::Input { at: At::Line(7), .. }));
/// assert_eq!(Error::line(7, "no number").to_string(), "line 7: no number");
/// ```
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
/// Each message says what is wrong, what was found, the limit and the remedy.
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
        /// Location of the fault.
        at: At,
        /// Description of the fault: what is wrong, what was found, what to do.
        what: String,
    },
    /// The input is larger than a limit that the caller set.
    #[error(
        "{at}{what} is {got}, over the limit of {limit}; raise the limit ({remedy}, --max-{}) if this \
         is intended",
        remedy.replace('_', "-")
    )]
    Limit {
        /// Location of the claim.
        at: At,
        /// The limited quantity, for instance "number of rows".
        what: &'static str,
        /// The size that was claimed or found.
        got: u64,
        /// The limit in force.
        limit: u64,
        /// Name of the setting that raises the limit.
        remedy: &'static str,
    },
    /// The length of a vector or array does not match the matrix.
    #[error("{what} has length {got}, the matrix needs {needed}")]
    Shape {
        /// Name of the array.
        what: &'static str,
        /// Length of the array.
        got: usize,
        /// Length that the matrix needs.
        needed: usize,
    },
    /// The pattern of an update differs from the pattern that was prepared.
    #[error("the pattern differs from the prepared one ({what}); prepare a new operator for it")]
    PatternChanged {
        /// The difference, with both figures.
        what: String,
    },
    /// The requested candidate does not apply to this matrix.
    #[error("{candidate} does not apply to this matrix: {reason}")]
    Refused {
        /// The requested candidate.
        candidate: String,
        /// Reason of the refusal, with figures.
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
    /// An argument of a call is out of range.
    #[error("{0}")]
    Argument(String),
    /// No device has the requested name.
    #[error("no device is named '{name}'; there are: {}{}", known.join(", "), and(remedy))]
    UnknownDevice {
        /// The requested name.
        name: String,
        /// The known names: profiles, and the GPUs of this machine.
        known: Vec<String>,
        /// The way to make more names available; empty if there is none.
        remedy: String,
    },
    /// The device is known only by its profile: products can be estimated, not run or timed.
    #[error("{name} is not on this machine, so nothing can be timed on it: {remedy}")]
    AbsentDevice {
        /// The requested device.
        name: String,
        /// The alternative.
        remedy: String,
    },
    /// A device of this machine is broken or cannot be used now.
    #[error("{what}; {}", fault.remedy())]
    Device {
        /// The kind of fault.
        fault: DeviceFault,
        /// The failed operation, the driver's answer, and the limit if there is one.
        what: String,
    },
    /// Messages between processes that share a matrix failed; `rank` is this process.
    #[error("rank {rank}: {what}; correct that and prepare the matrix anew on all ranks")]
    Exchange {
        /// The rank that met the fault.
        rank: usize,
        /// The failed exchange, or the message that was not the expected one.
        what: String,
    },
    /// The database of measurements cannot be used.
    #[error("wisdom in {}: {fault}", path.display())]
    Wisdom {
        /// Folder of the database.
        path: std::path::PathBuf,
        /// The fault.
        fault: WisdomFault,
    },
    /// Measuring ended early because the caller asked for it:
    /// [`Tuner::stopping_when`](crate::Tuner::stopping_when).
    #[error(
        "stopped after {done} of {total} candidates, as was asked for; what was measured is kept where \
         there is a database"
    )]
    Stopped {
        /// Number of candidates that were measured.
        done: usize,
        /// Number of candidates to measure.
        total: usize,
    },
    /// Reading or writing a file or stream failed.
    #[error("{what}: {source}")]
    Io {
        /// The file or stream.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The reason why a device cannot be used.
///
/// ```
/// use ellect::Error;
/// use ellect::error::DeviceFault;
///
/// let error = Error::device(DeviceFault::OutOfMemory, "taking 96 GB of device memory: CUDA error 2");
/// assert!(error.to_string().ends_with("; free memory of the GPU, or use a smaller matrix"));
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
    /// The measuring process does not start, or ended repeatedly.
    Process,
    /// The device or this build does not support the operation.
    Unsupported,
    /// The device's profile is wrong.
    Profile,
}

impl DeviceFault {
    /// Returns the remedy as the end of a message.
    pub const fn remedy(self) -> &'static str {
        match self {
            DeviceFault::Unavailable => "install or repair it, or name another device",
            DeviceFault::OutOfMemory => "free memory of the GPU, or use a smaller matrix",
            DeviceFault::Failed => "restart this program; if that does not help, reset the device",
            DeviceFault::Process => "try again; if that does not help, name another device",
            DeviceFault::Unsupported => "name another format, or prepare the matrix on the host",
            DeviceFault::Profile => "remove its file, or run `ellect devices --probe` again",
        }
    }
}

/// Formats `remedy` as the end of a message; empty if there is none.
fn and(remedy: &str) -> String {
    if remedy.is_empty() { String::new() } else { format!("; {remedy}") }
}

/// The reason why a database of measurements cannot be used.
///
/// ```
/// use ellect::error::WisdomFault;
///
/// assert!(WisdomFault::InUse.to_string().contains("in use by another process"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WisdomFault {
    /// This build has no database.
    #[error("this build of ellect has no database of measurements: enable the feature `wisdom`")]
    NotBuilt,
    /// Another process has the database open.
    #[error(
        "in use by another process that holds it (a service, for instance): end that process, name \
         another folder with --data, or work without the database (--no-wisdom)"
    )]
    InUse,
    /// The files of the database are damaged.
    #[error(
        "damaged ({0}); run `ellect wisdom repair`, which keeps what can be read, or move the folder \
         away and import an export of its records"
    )]
    Corrupt(String),
    /// Fewer commits were found than acknowledged: the file was cut or damaged.
    #[error(
        "damaged: the last {} of {acknowledged} writes are lost; run `ellect wisdom repair`, which \
         keeps what can be read, or move the folder away and import an export of its records, or \
         remove its file 'made' to keep the remaining records",
        acknowledged - kept
    )]
    Lost {
        /// Number of commits found.
        kept: u64,
        /// Number of commits acknowledged.
        acknowledged: u64,
    },
    /// The records differ from those that were written: some are lost or outdated.
    #[error(
        "damaged: the records are not those that were written; run `ellect wisdom repair`, which \
         keeps what can be read, or move the folder away and import an export of its records, or \
         remove its file 'made' to keep the remaining records"
    )]
    Differs,
    /// The database was written by another version of this program, or by another program.
    #[error("{}", schema(*found, *known))]
    Schema {
        /// Schema of the database, if it states one.
        found: Option<u32>,
        /// Schema that this program reads.
        known: u32,
    },
}

fn schema(found: Option<u32>, known: u32) -> String {
    let remedy = "move the folder away, and import an export made by the program that wrote it";
    match found {
        None => format!("it states no schema; this program reads schema {known}; {remedy}"),
        Some(found) => {
            let age = if found > known { "newer" } else { "older" };
            format!("it has schema {found}, {age} than schema {known} of this program; {remedy}")
        }
    }
}

/// A result with this crate's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an [`Error::Argument`].
    pub fn argument(what: impl Into<String>) -> Self {
        Error::Argument(what.into())
    }

    /// Creates an [`Error::Device`] from the kind of fault and a description of what failed.
    pub fn device(fault: DeviceFault, what: impl Into<String>) -> Self {
        Error::Device { fault, what: what.into() }
    }

    /// Creates an [`Error::Input`] about the input as a whole.
    pub fn input(what: impl Into<String>) -> Self {
        Error::Input { at: At::Whole, what: what.into() }
    }

    /// Creates an [`Error::Input`] at a line, counted from 1.
    pub fn line(line: u64, what: impl Into<String>) -> Self {
        Error::Input { at: At::Line(line), what: what.into() }
    }

    /// Creates an [`Error::Input`] at a byte, counted from 0.
    pub fn byte(byte: u64, what: impl Into<String>) -> Self {
        Error::Input { at: At::Byte(byte), what: what.into() }
    }
}
