//! Output: tables for people, JSON for programs, and progress on a terminal.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Seek, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Writes to standard output.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("writing to standard output")
}

/// Writes a line to standard error; ignores failures.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A file that is written.
pub trait Sink: Write + Seek {}

impl<W: Write + Seek> Sink for W {}

/// Writes a file by way of a temporary file in its folder, so a failure keeps the old contents.
pub fn write_file(path: &Path, write: impl FnOnce(&mut dyn Sink) -> Result<()>) -> Result<()> {
    let what = || path.display().to_string();
    // Anything but a regular file, a pipe for instance, has no old contents to keep.
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut out = BufWriter::new(File::create(path).with_context(what)?);
        write(&mut out)?;
        return out.flush().with_context(what);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    // Permissions of a file that is created directly: 0o666 less the umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let part = builder.tempfile_in(folder.unwrap_or(Path::new("."))).with_context(what)?;
    let mut out = BufWriter::new(part.as_file());
    write(&mut out)?;
    out.flush().with_context(what)?;
    drop(out);
    part.persist(path).map(drop).with_context(what)
}

/// Returns whether a command failed because the reader closed the output pipe, as `head` does.
pub fn reader_is_gone(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Returns the message of an error with all its causes, without repeating any.
pub fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// Breaks a sentence into lines of at most [`WIDTH`] characters.
pub fn wrap(sentence: &str) -> String {
    let mut text = String::new();
    let mut length = 0;
    for word in sentence.split_whitespace() {
        let words = word.chars().count();
        if length > 0 && length + 1 + words > WIDTH {
            text.push('\n');
            length = 0;
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        text += word;
        length += words;
    }
    text + "\n"
}

/// Maximum number of characters in a line of prose.
const WIDTH: usize = 100;

/// Writes indented JSON to standard output.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value).context("writing JSON")? + "\n"))
}

/// Returns a table whose columns `left` are aligned left and all others right.
pub fn table(head: &[&str], rows: Vec<Vec<String>>, left: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.to_vec()).add_rows(rows);
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        column.set_cell_alignment(match left.contains(&i) {
            true => CellAlignment::Left,
            false => CellAlignment::Right,
        });
    }
    let lines = table.lines().map(|line| line.trim_end().to_string() + "\n");
    lines.collect()
}

/// Returns a progress bar on standard error, hidden if that is not a terminal.
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {msg} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(total).with_style(style).with_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Returns a spinner for work of unknown length on standard error, hidden if that is not a
/// terminal.
pub fn spinner(what: &'static str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        let gone = || io::Error::new(ErrorKind::NotFound, "no such file");
        let error = anyhow::Error::new(ellect::Error::Io { what: "a.mtx".into(), source: gone() });
        assert_eq!(message(&error), "a.mtx: no such file");
        let error = anyhow::Error::new(gone()).context("making b.mtx");
        assert_eq!(message(&error), "making b.mtx: no such file");
    }

    #[test]
    fn a_closed_pipe_is_known_behind_its_context() {
        let error = anyhow::Error::new(io::Error::from(ErrorKind::BrokenPipe)).context("writing");
        assert!(reader_is_gone(&error));
        assert!(!reader_is_gone(&anyhow::anyhow!("broken pipe")));
    }

    #[test]
    fn sentences_are_wrapped_between_words() {
        let sentence = "word ".repeat(41);
        let lines: Vec<String> = wrap(&sentence).lines().map(str::to_string).collect();
        assert_eq!(lines.iter().map(String::len).collect::<Vec<_>>(), [99, 99, 4]);
    }
}
