//! Status codes and the last error of each thread.
#![allow(unsafe_code, reason = "functions are exported under their C names")]

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ellect::Error;
use ellect::error::DeviceFault;

/// Status of a call: `ELLECT_OK` or the kind of failure. The numbers never change.
pub type Status = i32;

/// The call succeeded.
pub const ELLECT_OK: Status = 0;
/// A pointer that must not be NULL is NULL.
pub const ELLECT_NULL_POINTER: Status = 1;
/// An argument or a field of a descriptor is out of range.
pub const ELLECT_INVALID_ARGUMENT: Status = 2;
/// A vector or an array has a length that does not fit the matrix.
pub const ELLECT_SHAPE: Status = 3;
/// The arrays or the file are no valid matrix.
pub const ELLECT_INVALID_MATRIX: Status = 4;
/// A file is larger than the limits of the reader.
pub const ELLECT_LIMIT: Status = 5;
/// The pattern of an update differs from the prepared one.
pub const ELLECT_PATTERN_CHANGED: Status = 6;
/// The format does not apply to the matrix or to its new values.
pub const ELLECT_REFUSED: Status = 7;
/// The check of a prepared operator found a wrong product.
pub const ELLECT_WRONG_PRODUCT: Status = 8;
/// No device has the given name.
pub const ELLECT_UNKNOWN_DEVICE: Status = 9;
/// The device is not on this machine, so nothing can run on it.
pub const ELLECT_ABSENT_DEVICE: Status = 10;
/// A driver or a library of the device is missing.
pub const ELLECT_DEVICE_UNAVAILABLE: Status = 11;
/// The device has too little free memory.
pub const ELLECT_OUT_OF_MEMORY: Status = 12;
/// A kernel or a call of the driver failed.
pub const ELLECT_DEVICE_FAILED: Status = 13;
/// The device or this build does not support the operation.
pub const ELLECT_UNSUPPORTED: Status = 14;
/// The database of measurements cannot be used.
pub const ELLECT_WISDOM: Status = 15;
/// A file cannot be read or written.
pub const ELLECT_IO: Status = 16;
/// ellect itself failed; the operation had no effect on other handles.
pub const ELLECT_INTERNAL: Status = 17;
/// Another failure, which this version of the interface has no number for.
pub const ELLECT_OTHER: Status = 18;
/// Messages between ranks failed, or another rank did.
pub const ELLECT_EXCHANGE: Status = 19;

/// Each status with its name and the general remedy.
const STATUSES: [(Status, &CStr, &str); 20] = [
    (ELLECT_OK, c"ELLECT_OK", ""),
    (ELLECT_NULL_POINTER, c"ELLECT_NULL_POINTER", "pass an address"),
    (ELLECT_INVALID_ARGUMENT, c"ELLECT_INVALID_ARGUMENT", "correct the argument"),
    (ELLECT_SHAPE, c"ELLECT_SHAPE", "pass arrays of the lengths that the matrix needs"),
    (
        ELLECT_INVALID_MATRIX,
        c"ELLECT_INVALID_MATRIX",
        "correct the matrix; ELLECT_COPY sorts rows and sums repeated entries",
    ),
    (ELLECT_LIMIT, c"ELLECT_LIMIT", "read the matrix in your program and pass its arrays"),
    (ELLECT_PATTERN_CHANGED, c"ELLECT_PATTERN_CHANGED", "prepare a new operator"),
    (ELLECT_REFUSED, c"ELLECT_REFUSED", "prepare a new operator for the matrix"),
    (
        ELLECT_WRONG_PRODUCT,
        c"ELLECT_WRONG_PRODUCT",
        "report this fault of ellect, with the matrix if you can; use the matrix in CSR until then",
    ),
    (ELLECT_UNKNOWN_DEVICE, c"ELLECT_UNKNOWN_DEVICE", "name one of the listed devices"),
    (ELLECT_ABSENT_DEVICE, c"ELLECT_ABSENT_DEVICE", "name a device of this machine"),
    (ELLECT_DEVICE_UNAVAILABLE, c"ELLECT_DEVICE_UNAVAILABLE", DeviceFault::Unavailable.remedy()),
    (ELLECT_OUT_OF_MEMORY, c"ELLECT_OUT_OF_MEMORY", DeviceFault::OutOfMemory.remedy()),
    (ELLECT_DEVICE_FAILED, c"ELLECT_DEVICE_FAILED", DeviceFault::Failed.remedy()),
    (ELLECT_UNSUPPORTED, c"ELLECT_UNSUPPORTED", DeviceFault::Unsupported.remedy()),
    (ELLECT_WISDOM, c"ELLECT_WISDOM", "repair the database, or open the tuner with another folder"),
    (ELLECT_IO, c"ELLECT_IO", "check the path and its permissions"),
    (
        ELLECT_INTERNAL,
        c"ELLECT_INTERNAL",
        "report this fault of ellect, with the matrix if you can; use the matrix in CSR until then",
    ),
    (ELLECT_OTHER, c"ELLECT_OTHER", "read the message"),
    (
        ELLECT_EXCHANGE,
        c"ELLECT_EXCHANGE",
        "correct the exchange, and prepare the matrix anew on all ranks",
    ),
];

/// A failed call: the status, and a sentence with the remedy.
pub struct Failure {
    status: Status,
    message: String,
}

/// The result of the work behind a function.
pub type Outcome<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Failure { status, message: message.into() }
    }

    pub fn null(what: &str) -> Self {
        Failure::new(ELLECT_NULL_POINTER, format!("{what} is NULL; pass an address"))
    }

    pub fn argument(message: impl Into<String>) -> Self {
        Failure::new(ELLECT_INVALID_ARGUMENT, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Input { .. } => ELLECT_INVALID_MATRIX,
            Error::Limit { .. } => ELLECT_LIMIT,
            Error::Shape { .. } => ELLECT_SHAPE,
            Error::PatternChanged { .. } => ELLECT_PATTERN_CHANGED,
            Error::Refused { .. } => ELLECT_REFUSED,
            Error::WrongProduct { .. } => ELLECT_WRONG_PRODUCT,
            Error::Argument(_) => ELLECT_INVALID_ARGUMENT,
            Error::UnknownDevice { .. } => ELLECT_UNKNOWN_DEVICE,
            Error::AbsentDevice { .. } => ELLECT_ABSENT_DEVICE,
            Error::Device { fault: DeviceFault::Unavailable, .. } => ELLECT_DEVICE_UNAVAILABLE,
            Error::Device { fault: DeviceFault::OutOfMemory, .. } => ELLECT_OUT_OF_MEMORY,
            Error::Device { fault: DeviceFault::Unsupported, .. } => ELLECT_UNSUPPORTED,
            Error::Device { .. } => ELLECT_DEVICE_FAILED,
            Error::Wisdom { .. } => ELLECT_WISDOM,
            Error::Io { .. } => ELLECT_IO,
            Error::Exchange { .. } => ELLECT_EXCHANGE,
            _ => ELLECT_OTHER,
        };
        Failure::new(status, error.to_string())
    }
}

/// The last failure of a thread.
struct Last {
    status: Status,
    message: CString,
    remedy: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Runs the work behind a function; keeps its failure or panic as the last error of this thread.
pub fn boundary(work: impl FnOnce() -> Outcome<()>) -> Status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => ELLECT_OK,
        Ok(Err(failure)) => keep(failure),
        Err(panic) => keep(panicked(panic.as_ref())),
    }
}

/// Drops a handle; a panic of its destructor does not cross to the caller.
pub fn dispose(work: impl FnOnce()) {
    boundary(|| {
        work();
        Ok(())
    });
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    let remedy = remedy_of(ELLECT_INTERNAL);
    Failure::new(ELLECT_INTERNAL, format!("ellect failed: {text}; {remedy}"))
}

fn remedy_of(status: Status) -> &'static str {
    STATUSES.iter().find(|known| known.0 == status).map_or("", |known| known.2)
}

#[cold]
fn keep(failure: Failure) -> Status {
    let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let Failure { status, message } = failure;
    let last = Last { status, message: text(&message), remedy: text(remedy_of(status)) };
    // A thread that is ending keeps nothing.
    let _ = LAST.try_with(|kept| kept.replace(Some(last)));
    status
}

/// Returns a text of the last failure; empty if there was none.
fn last_text(of: impl FnOnce(&Last) -> &CStr) -> *const c_char {
    let text = LAST.try_with(|kept| kept.borrow().as_ref().map(|last| of(last).as_ptr()));
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Returns the status of the last call that failed on this thread; `ELLECT_OK` if none did.
///
/// Successful calls leave it unchanged. Thread safety: any thread; each has its own last error.
#[unsafe(no_mangle)]
pub extern "C" fn ellect_last_error() -> Status {
    LAST.try_with(|kept| kept.borrow().as_ref().map_or(ELLECT_OK, |last| last.status))
        .unwrap_or(ELLECT_OK)
}

/// Returns the message of the last call that failed on this thread: the fault, the figures found and
/// allowed, and what to do. Empty if no call failed.
///
/// UTF-8, one line. Owned by the library; valid until the next call on this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn ellect_last_error_message() -> *const c_char {
    last_text(|last| last.message.as_c_str())
}

/// Returns the general remedy for the last error's status; empty if no call failed.
///
/// UTF-8, one line. Owned by the library; valid until the next call on this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn ellect_last_error_remedy() -> *const c_char {
    last_text(|last| last.remedy.as_c_str())
}

/// Returns the name of a status, for instance `"ELLECT_SHAPE"`; `"ELLECT_OTHER"` for an unknown
/// number.
///
/// Static text that is never freed. Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn ellect_status_name(status: Status) -> *const c_char {
    let known = STATUSES.iter().find(|known| known.0 == status);
    known.map_or(c"ELLECT_OTHER", |known| known.1).as_ptr()
}

/// Returns the library's version, for instance `"0.1.0"`.
///
/// Static text that is never freed. Thread safety: any thread.
#[unsafe(no_mangle)]
pub extern "C" fn ellect_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
