//! Printing: tables for people, JSON for programs, progress where a person looks on.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// Writes to standard output; a reader that has gone away is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to standard output"),
    }
}

/// Writes JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(value).context("writing JSON")? + "\n"))
}

/// A table whose columns `left` are flush left and all others flush right.
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

/// A bar on standard error, hidden where that is no terminal.
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

/// A time in microseconds, with three digits and a unit that suits.
pub fn time_us(us: f64) -> String {
    match us {
        us if us >= 1e6 => digits(us / 1e6, "s"),
        us if us >= 1e3 => digits(us / 1e3, "ms"),
        us => digits(us, "us"),
    }
}

/// Bytes with three digits and a unit that suits.
pub fn bytes(bytes: u64) -> String {
    match bytes as f64 {
        b if b >= 1e9 => digits(b / 1e9, "GB"),
        b if b >= 1e6 => digits(b / 1e6, "MB"),
        b if b >= 1e3 => digits(b / 1e3, "kB"),
        b => format!("{b} B"),
    }
}

fn digits(number: f64, unit: &str) -> String {
    let places = match number {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.places$} {unit}")
}
