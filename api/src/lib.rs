//! The command line and the HTTP service of ellect, for the program `ellect` and for
//! `python -m ellect`.

mod arguments;
mod cli;
mod commands;
mod configured;
mod installed;
mod options;
mod output;
mod query;
mod service;
mod shared;
mod started;
mod tuner_of;
mod views;

use std::io;

use anyhow::Result;
use ellect::measure::worker;

use cli::{Cli, Command};
use commands::{
    Answer, Home, bench, convert, devices, evaluate, features, formats, generate, measure, models,
    recommend, serve, train, tune, verify, wisdom,
};
use service::tune as tune_job;

pub use started::Started;

/// Runs the command line of this process and returns its exit code. `--help` and errors of the
/// command line itself end the process.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     ExitCode::from(ellect_api::run(ellect_api::Started::as_program()))
/// }
/// ```
pub fn run(started: Started) -> u8 {
    started.keep();
    match start() {
        Ok(answer) => answer.code(),
        Err(error) if output::reader_is_gone(&error) => 0,
        Err(error) => {
            output::note(&format!("error: {}", output::message(&error)));
            2
        }
    }
}

/// Parses the command line and runs the command.
fn start() -> Result<Answer> {
    match configured::parse(started::words())? {
        (_, Some(config)) => output::print(&config).map(|()| Answer::Yes),
        (cli, None) => answer(cli),
    }
}

/// Runs the command.
fn answer(cli: Cli) -> Result<Answer> {
    let data = cli.data.unwrap_or_else(ellect::device::data_dir);
    let home = Home {
        data: data.clone(),
        no_wisdom: cli.no_wisdom,
        shared: cli.shared_wisdom.filter(|address| !address.is_empty()),
    };
    match cli.command {
        Command::Recommend { input, options, why, form } => {
            recommend::run(&input, &options, form, why, &home)
        }
        Command::Convert { input, convert, options, form } => {
            convert::run(&input, &convert, &options, form, &home)
        }
        Command::Features { input, with, device, form } => {
            features::run(&input, &with, &device, form, &data)
        }
        Command::Formats { form } => formats::run(form),
        Command::Verify { input, product } => verify::run(&input, &product, &data),
        Command::Measure { input, measure } => measure::run(&input, &measure, &home),
        Command::Bench(bench) => bench::run(&bench, &data),
        Command::Devices { probe, form } => devices::run(probe, form, &data),
        Command::Generate { spec, list: _, precision, output } => match spec {
            Some(spec) => generate::run(&spec, precision, output.as_deref()),
            None => generate::list(),
        },
        Command::Worker { device } => {
            worker::run(&device, &data, io::stdin(), io::stdout().lock())?;
            Ok(Answer::Yes)
        }
        Command::Wisdom { command } => wisdom::run(&command, &home),
        Command::Serve(serve) => serve::run(&serve, &home, configured::again),
        Command::Models { command } => models::run(&command, &home),
        Command::Tune(tune) => {
            end_with_parent();
            tune::run(&tune, &home)
        }
        Command::Train(train) => {
            end_with_parent();
            train::train(&train, &home)
        }
        Command::Fit(profile) => train::profile(&profile, &home),
        Command::Evaluate(evaluate) => evaluate::evaluate(&evaluate, &home),
    }
}

/// Ends this process when the service that started it ends, which closes its standard input.
fn end_with_parent() {
    if std::env::var_os(tune_job::ENDS_WITH_INPUT).is_none() {
        return;
    }
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(tune_job::PARENT_ENDED);
    });
}
