//! Parameters of a query, which have the names of options of the command line.

use clap::{CommandFactory, Parser};
use ellect::{Error, Result};

/// Parses the pairs of a query: `memory_limit=1000` means `--memory-limit 1000`.
///
/// # Errors
/// [`Error::Argument`] that lists the known names or the legal values.
pub fn parsed<P: Parser>(pairs: &[(String, String)]) -> Result<P> {
    let command = P::command();
    for (name, _) in pairs {
        if !command.get_arguments().any(|known| known.get_id() == name.as_str()) {
            let known: Vec<_> =
                command.get_arguments().map(|known| known.get_id().as_str()).collect();
            return Err(Error::argument(format!(
                "no option is named '{name}'; there are: {}",
                known.join(", ")
            )));
        }
    }
    let words = pairs.iter().map(|(name, value)| format!("--{}={value}", name.replace('_', "-")));
    let matches = command.try_get_matches_from(words);
    matches.and_then(|matches| P::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        Error::argument(as_parameters(first.trim_start_matches("error: ")))
    })
}

/// A parameter of a query.
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Meaning.
    pub help: String,
    /// Value if it is not given; empty if there is none.
    pub default: String,
}

/// Returns every parameter.
pub fn parameters<P: CommandFactory>() -> Vec<Parameter> {
    let of = |option: &clap::Arg| {
        let defaults = option.get_default_values().iter();
        let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
        Parameter {
            name: option.get_id().to_string(),
            help: option.get_help().map(ToString::to_string).unwrap_or_default(),
            default: defaults.join(","),
        }
    };
    P::command().get_arguments().map(of).collect()
}

/// Rewrites a message about options as one about the parameters of a query: `'--memory-limit
/// <BYTES>'` as `'memory_limit='`.
fn as_parameters(message: &str) -> String {
    let (mut text, mut rest) = (String::new(), message);
    while let Some((before, option)) = rest.split_once("'--") {
        let end = option.find(['\'', ' ', '=']).unwrap_or(option.len());
        let (name, after) = option.split_at(end);
        text += &format!("{before}'{}=", name.replace('-', "_"));
        rest = match after.strip_prefix(" <").and_then(|value| value.split_once('>')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    text + rest
}
