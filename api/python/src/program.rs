//! The command line, run by Python.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use ellect_api::Started;
use pyo3::prelude::*;

use crate::errors::panicked;

/// Runs the command line with these arguments and returns its exit code. `again` is the interpreter
/// and the arguments with which it runs the command line in child processes.
#[pyfunction]
pub fn run_program(
    py: Python<'_>,
    arguments: Vec<OsString>,
    again: (PathBuf, Vec<OsString>),
) -> PyResult<u8> {
    let run = || ellect_api::run(Started::by_interpreter(arguments, again));
    py.detach(|| catch_unwind(AssertUnwindSafe(run))).map_err(panicked)
}
