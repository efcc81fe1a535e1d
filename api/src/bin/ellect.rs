//! The `ellect` command line program.

use std::process::ExitCode;

use ellect_api::Started;

fn main() -> ExitCode {
    ExitCode::from(ellect_api::run(Started::as_program()))
}
