//! The command line of ellect.

mod cli;
mod commands;
mod options;
mod output;
mod service;
mod tuner_of;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match commands::run(cli::Cli::parse()) {
        Ok(answer) => answer.into(),
        Err(error) if output::reader_is_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("error: {}", output::message(&error)));
            ExitCode::from(2)
        }
    }
}
