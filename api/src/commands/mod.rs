//! The subcommands, one file each.

pub mod bench;
mod devices;
mod features;
mod formats;
mod generate;
mod measure;
mod recommend;
pub mod serve;
mod verify;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use ellect::measure::worker;
use ellect::read;
use ellect::{Csr, Scalar};

use crate::cli::{Cli, Command, Input};
use crate::output::spinner;

/// How a command that worked ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// As asked.
    Yes,
    /// The answer is no.
    No,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> ExitCode {
        match answer {
            Answer::Yes => ExitCode::SUCCESS,
            Answer::No => ExitCode::FAILURE,
        }
    }
}

/// Runs the command.
pub fn run(cli: Cli) -> Result<Answer> {
    let data = cli.data.unwrap_or_else(ellect::device::data_dir);
    match cli.command {
        Command::Recommend { input, options, form } => {
            recommend::run(&input, &options, form, &data)
        }
        Command::Features { input, with, form } => features::run(&input, &with, form),
        Command::Formats { form } => formats::run(form),
        Command::Verify { input, product } => verify::run(&input, &product, &data),
        Command::Measure { input, product, only, json } => {
            measure::run(&input, &product, &only, json, &data)
        }
        Command::Bench(bench) => bench::run(&bench, &data),
        Command::Devices { probe, form } => devices::run(probe, form, &data),
        Command::Generate { class, rows, seed, precision, output } => {
            generate::run(&class, rows, seed, precision, output.as_deref())
        }
        Command::Worker { device } => {
            worker::run(&device, &data, io::stdin(), io::stdout().lock())?;
            Ok(Answer::Yes)
        }
        Command::Serve(serve) => serve::run(&serve, data),
    }
}

/// Reads the matrix that the arguments name.
fn read_matrix<T: Scalar>(input: &Input) -> Result<Csr<T>> {
    let limits = input.limits.limits();
    let reading = spinner("reading");
    let csr = if input.file == Path::new("-") {
        read::stream(io::stdin(), &limits).context("standard input")
    } else {
        read::file(&input.file, &limits).map_err(|error| match error {
            // It names the file itself.
            error @ ellect::Error::Io { .. } => anyhow::Error::new(error),
            error => anyhow::Error::new(error).context(input.file.display().to_string()),
        })
    };
    reading.finish_and_clear();
    csr
}
