//! Errors and panics as Python exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ellect::{Error, Result};
use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// The exceptions of `ellect/_errors.py`.
mod exceptions {
    use pyo3::import_exception;

    import_exception!(ellect._errors, ArgumentError);
    import_exception!(ellect._errors, DeviceError);
    import_exception!(ellect._errors, EllectError);
    import_exception!(ellect._errors, ExchangeError);
    import_exception!(ellect._errors, FileError);
    import_exception!(ellect._errors, InputError);
    import_exception!(ellect._errors, InternalError);
    import_exception!(ellect._errors, RefusedError);
    import_exception!(ellect._errors, ShapeError);
    import_exception!(ellect._errors, WisdomError);
}
use exceptions::{
    ArgumentError, DeviceError, EllectError, ExchangeError, FileError, InputError, InternalError,
    RefusedError, ShapeError, WisdomError,
};

/// Runs `work` with Python's global lock released; its error or panic becomes an exception.
///
/// # Errors
/// The exception.
pub fn run<T: Ungil + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(panicked)?.map_err(exception)
}

/// Like [`run`], for work that is too short for releasing the lock to pay.
///
/// # Errors
/// The exception.
#[cfg(feature = "cuda")]
pub fn run_attached<T>(work: impl FnOnce() -> Result<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(panicked)?.map_err(exception)
}

/// Returns the exception for an error of the library.
pub fn exception(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Input { .. } | Error::Limit { .. } => InputError::new_err(text),
        Error::Shape { .. } | Error::PatternChanged { .. } => ShapeError::new_err(text),
        Error::Argument(_) | Error::UnknownDevice { .. } | Error::AbsentDevice { .. } => {
            ArgumentError::new_err(text)
        }
        Error::Refused { .. } => RefusedError::new_err(text),
        Error::Device { .. } => DeviceError::new_err(text),
        Error::Exchange { .. } => ExchangeError::new_err(text),
        Error::Wisdom { .. } => WisdomError::new_err(text),
        Error::Io { source, .. } => match source.raw_os_error() {
            Some(number) => FileError::new_err((number, text)),
            None => FileError::new_err(text),
        },
        _ => EllectError::new_err(text),
    }
}

/// Returns the exception for a panic of the library.
pub fn panicked(panic: Box<dyn Any + Send>) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    InternalError::new_err(format!(
        "ellect failed: {text}; this is a fault of ellect: please report it, with the matrix if you \
         can, and use the matrix in CSR until then"
    ))
}
