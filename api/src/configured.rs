//! The command line, whose options of `serve` may also come from the environment and from a file.
//!
//! The options of clap are the only table: `--max-body`, `ELLECT_MAX_BODY` and `max_body` in the file
//! are the same option. The command line precedes the environment, which precedes the file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use toml::{Table, Value};

use crate::cli::{Cli, Command as Subcommand};
use crate::commands::serve::Serve;
use crate::shared::Address;

/// The command whose options may come from a file.
const CONFIGURED: &str = "serve";

/// Options that are about the configuration itself, or that ask for help.
const NO_SETTINGS: [&str; 4] = [CONFIG, "print_config", "help", "version"];

/// Options of the program as a whole that are settings of the service, too.
const GLOBAL: [&str; 1] = [SHARED];

/// The address of the shared database, which may hold a password.
const SHARED: &str = "shared_wisdom";

/// The option that names the file.
const CONFIG: &str = "config";

/// Parses the command line; the text is the configuration, if it asks to print that.
///
/// # Errors
/// If the file of the configuration cannot be read, or names an unknown option. Errors of the
/// command line itself end the process.
pub fn parse(words: Vec<OsString>) -> Result<(Cli, Option<String>)> {
    let command = with_configuration(&words)?;
    let whole = command.clone();
    let serve = whole.find_subcommand(CONFIGURED);
    let matches = command.get_matches_from(&words);
    let of_serve = serve.zip(matches.subcommand_matches(CONFIGURED));
    let printed = of_serve.filter(|(_, given)| given.get_flag("print_config"));
    let printed = printed.map(|(serve, given)| printed_config(&whole, serve, given));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    Ok((cli, printed))
}

/// Parses the command line of this process again, for a service whose file may be another now.
///
/// # Errors
/// As [`parse`]; errors of the command line do not end the process.
pub fn again() -> Result<Serve> {
    let words = crate::started::words();
    let matches = with_configuration(&words)?.try_get_matches_from(&words)?;
    match Cli::from_arg_matches(&matches)?.command {
        Subcommand::Serve(serve) => Ok(serve),
        other => bail!("the command is {other:?}, not {CONFIGURED}"),
    }
}

/// Returns the command line with the options that the environment and the file give.
fn with_configuration(words: &[OsString]) -> Result<Command> {
    let mut command = with_environment(Cli::command());
    let first = command.clone().ignore_errors(true).try_get_matches_from(words);
    let file = first
        .ok()
        .as_ref()
        .and_then(|all| all.subcommand_matches(CONFIGURED))
        .and_then(|serve| serve.try_get_one::<PathBuf>(CONFIG).ok().flatten().cloned());
    if let Some(file) = file {
        command = with_file(command, &file)?;
    }
    Ok(command)
}

/// Lets each option be given by a variable of the environment, too.
fn with_environment(command: Command) -> Command {
    command.mut_subcommand(CONFIGURED, |serve| {
        serve.mut_args(|arg| {
            let name = format!("ELLECT_{}", arg.get_id().as_str().to_uppercase());
            match is_setting(arg.get_id().as_str()) || arg.get_id() == CONFIG {
                // The names live as long as the process.
                true => arg.env(&*Box::leak(name.into_boxed_str())).hide_env(true),
                false => arg,
            }
        })
    })
}

/// Makes the values in a file the defaults of the options.
fn with_file(command: Command, file: &Path) -> Result<Command> {
    let named = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(named)?;
    let table: Table = text.parse().with_context(named)?;
    let serve = command.find_subcommand(CONFIGURED).context("the command is defined")?;
    let own = serve.get_arguments().map(|arg| arg.get_id().as_str());
    let known = own.chain(GLOBAL).filter(|name| is_setting(name));
    let known: Vec<_> = known.map(ToString::to_string).collect();
    let mut values = Vec::new();
    for (name, value) in table {
        if !known.contains(&name) {
            let known = known.join(", ");
            bail!("{}: no option is named '{name}'; there are: {known}", file.display());
        }
        let value = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(answer) => answer.to_string(),
            other => bail!(
                "{}: {name} is of type {}; it must be a text, a whole number or true or false",
                file.display(),
                other.type_str()
            ),
        };
        values.push((name, value));
    }
    let with_default =
        |arg: Arg| match values.iter().find(|(name, _)| arg.get_id() == name.as_str()) {
            // The values live as long as the process.
            Some((_, value)) => arg.default_value(&*Box::leak(value.clone().into_boxed_str())),
            None => arg,
        };
    let command = command.mut_args(|arg| match GLOBAL.contains(&arg.get_id().as_str()) {
        true => with_default(arg),
        false => arg,
    });
    Ok(command.mut_subcommand(CONFIGURED, |serve| serve.mut_args(with_default)))
}

fn is_setting(name: &str) -> bool {
    !NO_SETTINGS.contains(&name)
}

/// Returns the options as a file; those that have no value are comments, and passwords are left out.
fn printed_config(command: &Command, serve: &Command, given: &ArgMatches) -> String {
    let mut text = String::new();
    let global = command.get_arguments().filter(|arg| GLOBAL.contains(&arg.get_id().as_str()));
    let own = serve.get_arguments().filter(|arg| is_setting(arg.get_id().as_str()));
    for arg in own.chain(global) {
        let name = arg.get_id().as_str();
        if let Some(help) = arg.get_help() {
            text += &format!("# {help}\n");
        }
        let value = given.get_raw(name).and_then(|mut values| values.next());
        let value = value.map(|value| value.to_string_lossy().into_owned());
        let value = match name {
            SHARED => value.and_then(|url| url.parse::<Address>().ok()).map(|url| url.to_string()),
            _ => value,
        };
        text += &match value {
            Some(value) => format!("{name} = {}\n\n", Value::String(value)),
            None => format!("# {name} = \n\n"),
        };
    }
    text
}
