//! `ellect wisdom` manages the stored measurements.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use ellect::format::Basis;
use ellect::measure::{Backend, Measurement, Outcome, Protocol};
use ellect::units::time;
use ellect::unstable::wisdom::{self, Record, StructureRecord, Wanted};
use ellect::{Error, Fingerprint, Precision, Wisdom};
use serde::Serialize;

use super::records::open_lines;
use super::{Answer, Home, told};
use crate::arguments::Form;
use crate::output::{note, print, print_json, table, write_file};
use crate::shared::Client;

/// Operations on the stored measurements of this user.
#[derive(Debug, Subcommand)]
pub enum WisdomCommand {
    /// List the measured matrices, with the best candidate of each
    List {
        /// The records to list.
        #[command(flatten)]
        filter: Filter,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Write every record as a line of JSON
    Export {
        /// The file to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Merge the records into the shards in this folder instead, models/wisdom for those that
        /// ship; only shards that gain records are written
        #[arg(long, value_name = "DIR", conflicts_with = "output")]
        shards: Option<PathBuf>,
        /// With --shards: put the new records into one more file there, which the next export
        /// without --later merges into the shards; a few records then do not rewrite all of them
        #[arg(long, requires = "shards")]
        later: bool,
    },
    /// Import records that `export` or `measure --json` wrote; bad lines are reported and skipped,
    /// exit code 1 if there is one
    Import {
        /// The file to read, plain or compressed with zstd (.zst); - for standard input
        #[arg(value_name = "FILE.jsonl")]
        file: PathBuf,
        /// Add timings of a candidate to the stored ones, as `tune --rerun` does, instead of
        /// replacing the older ones
        #[arg(long)]
        join: bool,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Read and validate every record; exit code 1 if one is bad
    Verify {
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Set a damaged database aside, and make a new one of every record that can be read in it
    Repair {
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Make the tables of the shared database (--shared-wisdom) if they are missing, send what waits,
    /// and show its state
    Shared {
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
    /// Remove measurements of a device that were taken with a driver, kernels or a protocol other
    /// than the current ones
    Prune {
        /// Device of the measurements: cpu, or cuda:0 for this machine's first GPU
        #[arg(long, default_value = "cpu", value_name = "NAME")]
        device: String,
        /// Only measurements of this matrix: a fingerprint or a source, as `list` shows them
        #[arg(long, value_name = "MATRIX")]
        matrix: Option<String>,
        /// Also remove measurements that are still valid
        #[arg(long)]
        all: bool,
        /// The output format.
        #[command(flatten)]
        form: Form,
    },
}

/// Selection of records.
#[derive(Debug, Args)]
pub struct Filter {
    /// Only records of this device
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only records of this matrix: a fingerprint, or a file or source under which it was measured
    #[arg(long, value_name = "MATRIX")]
    matrix: Option<String>,
}

impl Filter {
    fn is_of_device(&self, m: &Measurement) -> bool {
        self.device.as_ref().is_none_or(|device| device.eq_ignore_ascii_case(&m.device))
    }
}

/// Runs the command on the database in the folder `data`.
pub fn run(command: &WisdomCommand, home: &Home) -> Result<Answer> {
    let data = home.data.as_path();
    let wisdom = match command {
        WisdomCommand::List { .. } | WisdomCommand::Export { .. } => Wisdom::open_existing(data)?,
        WisdomCommand::Verify { .. } => match Wisdom::open(data) {
            // Records in a folder that cannot be written to are verified as far as they can be read.
            Err(Error::Io { .. }) => Wisdom::open_existing(data)?,
            opened => opened?,
        },
        WisdomCommand::Import { .. } | WisdomCommand::Shared { .. } => Wisdom::open(data)?,
        WisdomCommand::Prune { .. } => Wisdom::open_alone(data)?,
        WisdomCommand::Repair { form } => return repair(data, *form),
    };
    told(&wisdom);
    let sends = matches!(command, WisdomCommand::Import { .. } | WisdomCommand::Shared { .. });
    let (wisdom, client) = match sends {
        true => home.sharing(wisdom)?,
        false => (Arc::new(wisdom), None),
    };
    let answer = match command {
        WisdomCommand::List { filter, form } => list(&wisdom, filter, *form),
        WisdomCommand::Export { shards: Some(folder), later, .. } => {
            export_to_shards(&wisdom, folder, *later)
        }
        WisdomCommand::Export { output, shards: None, .. } => export(&wisdom, output.as_deref()),
        WisdomCommand::Import { file, join, form } => import(&wisdom, file, *join, *form),
        WisdomCommand::Verify { form } => verify(&wisdom, *form),
        WisdomCommand::Repair { .. } => Ok(Answer::Yes),
        WisdomCommand::Shared { form } => shared(client.as_deref(), *form),
        WisdomCommand::Prune { device, matrix, all, form } => {
            let backend = Backend::open(device, data)?;
            let removed = prune(&wisdom, &backend, matrix.as_deref(), *all)?;
            match form.json {
                true => print_json(&serde_json::json!({ "removed": removed }))?,
                false => print(&format!("{removed} measurements removed\n"))?,
            }
            Ok(Answer::Yes)
        }
    }?;
    wisdom.close()?;
    Ok(answer)
}

fn shared(client: Option<&Client>, form: Form) -> Result<Answer> {
    let Some(client) = client else {
        bail!(
            "no shared database is named: --shared-wisdom postgres://USER@HOST/DATABASE or the \
             variable ELLECT_SHARED_WISDOM does"
        );
    };
    let status = client.census()?;
    match form.json {
        true => print_json(&status)?,
        false => print(&format!("{status}\n"))?,
    }
    Ok(Answer::Yes)
}

fn repair(data: &Path, form: Form) -> Result<Answer> {
    let (wisdom, kept) = Wisdom::repair(data)?;
    wisdom.close()?;
    let aside = data.join("wisdom").join("aside");
    match form.json {
        true => print_json(&serde_json::json!({ "kept": kept, "aside": aside }))?,
        false => {
            print(&format!("{kept} records kept; the old files are in {}\n", aside.display()))?;
        }
    }
    Ok(Answer::Yes)
}

/// Summary of the measurements of one matrix on one device, in one precision and basis.
#[derive(Debug, Serialize)]
struct Row {
    source: String,
    /// Other names under which the pattern was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    fingerprint: Fingerprint,
    nrows: Option<u64>,
    nnz: Option<u64>,
    device: String,
    precision: Precision,
    basis: Basis,
    measurements: u64,
    timed: u64,
    best: Option<String>,
    spmv_us: Option<f64>,
}

impl Row {
    /// Returns the names of the matrix, or its fingerprint if it has none.
    fn name(&self) -> String {
        match (self.source.as_str(), self.names.as_slice()) {
            ("", []) => self.fingerprint.to_string(),
            (source, []) => source.to_string(),
            ("", names) => names.join(", "),
            (source, names) => format!("{source} ({})", names.join(", ")),
        }
    }
}

fn list(wisdom: &Wisdom, filter: &Filter, form: Form) -> Result<Answer> {
    let mut structures: BTreeMap<Fingerprint, StructureRecord> = BTreeMap::new();
    let mut rows: BTreeMap<(Fingerprint, String, Precision, String), Row> = BTreeMap::new();
    wisdom.each(|record| {
        match record {
            Record::Structure(structure) => {
                structures.insert(structure.fingerprint, structure);
            }
            Record::Measurement(m) => {
                let structure = structures.get(&m.fingerprint);
                if filter.is_of_device(&m) && is_of(&m, structure, filter.matrix.as_deref()) {
                    count(&mut rows, &m, structure);
                }
            }
        }
        Ok(())
    })?;
    // A matrix that was looked up under this name may have only measurements that ship.
    let named = |s: &&StructureRecord| filter.matrix.as_deref().is_some_and(|m| s.is_named(m));
    for structure in structures.values().filter(named) {
        let of_it = |key: &(Fingerprint, String, Precision, String)| key.0 == structure.fingerprint;
        if !rows.keys().any(of_it) {
            let shipped = wisdom.shipped_measurements(structure.fingerprint);
            let is_of = |m: &&Measurement| filter.is_of_device(m);
            shipped.iter().filter(is_of).for_each(|m| count(&mut rows, m, Some(structure)));
        }
    }
    let rows: Vec<Row> = rows.into_values().collect();
    if form.json {
        print_json(&rows)?;
        return Ok(Answer::Yes);
    }
    let shown = |figure: Option<u64>| figure.map_or_else(String::new, |n| n.to_string());
    let lines = rows.iter().map(|row| {
        vec![
            row.name(),
            row.device.clone(),
            row.precision.to_string(),
            row.basis.to_string(),
            shown(row.nrows),
            shown(row.nnz),
            format!("{} of {}", row.timed, row.measurements),
            row.best.clone().unwrap_or_default(),
            row.spmv_us.map_or_else(String::new, |us| time(us * 1e-6)),
        ]
    });
    let head =
        ["matrix", "device", "precision", "basis", "rows", "nonzeros", "timed", "best", "product"];
    print(&table(&head, lines.collect(), &[0, 1, 2, 3, 7]))?;
    Ok(Answer::Yes)
}

fn count(
    rows: &mut BTreeMap<(Fingerprint, String, Precision, String), Row>,
    m: &Measurement,
    structure: Option<&StructureRecord>,
) {
    let key = (m.fingerprint, m.device.clone(), m.precision, m.basis.to_string());
    let row = rows.entry(key).or_insert_with(|| Row {
        source: structure.map(|s| s.source.clone()).unwrap_or_default(),
        names: structure.map(|s| s.names.clone()).unwrap_or_default(),
        fingerprint: m.fingerprint,
        nrows: structure.map(|s| s.nrows),
        nnz: structure.map(|s| s.nnz),
        device: m.device.clone(),
        precision: m.precision,
        basis: m.basis,
        measurements: 0,
        timed: 0,
        best: None,
        spmv_us: None,
    });
    row.measurements += 1;
    let Outcome::Timed(timing) = &m.outcome else { return };
    row.timed += 1;
    let spmv_us = timing.cost().spmv_s * 1e6;
    if row.spmv_us.is_none_or(|best_us| spmv_us < best_us) {
        (row.spmv_us, row.best) = (Some(spmv_us), Some(m.candidate.clone()));
    }
}

/// Returns whether a measurement is of this matrix; true for every measurement if none is named.
fn is_of(m: &Measurement, structure: Option<&StructureRecord>, matrix: Option<&str>) -> bool {
    matrix.is_none_or(|matrix| {
        m.fingerprint.to_string() == matrix || structure.is_some_and(|s| s.is_named(matrix))
    })
}

fn export(wisdom: &Wisdom, output: Option<&Path>) -> Result<Answer> {
    let written = match output {
        None => wisdom.export(&mut io::stdout().lock())?,
        Some(path) => {
            let mut written = 0;
            write_file(path, |mut out| {
                written = wisdom.export(&mut out)?;
                Ok(())
            })?;
            written
        }
    };
    note(&format!("{written} records exported"));
    Ok(Answer::Yes)
}

fn export_to_shards(wisdom: &Wisdom, folder: &Path, later: bool) -> Result<Answer> {
    let mut records = Vec::new();
    wisdom.each(|record| {
        records.push(record);
        Ok(())
    })?;
    let merged = match later {
        true => wisdom::merge_later(folder, records)?,
        false => wisdom::merge(folder, records)?,
    };
    let written = merged.written.len();
    note(&format!("{} records new or newer, {written} shards written", merged.taken));
    Ok(Answer::Yes)
}

fn import(wisdom: &Wisdom, file: &Path, join: bool, form: Form) -> Result<Answer> {
    let lines = match file == Path::new("-") {
        true => Box::new(io::stdin().lock()),
        false => open_lines(file)?,
    };
    let imported = if join { wisdom.join(lines)? } else { wisdom.import(lines)? };
    for (line, why) in &imported.bad {
        note(&format!("line {line} skipped: {why}"));
    }
    for (first, last) in &imported.bad_too {
        match first == last {
            true => note(&format!("line {first} skipped too")),
            false => note(&format!("lines {first} to {last} skipped too")),
        }
    }
    let (taken, known, skipped) = (imported.taken, imported.known, imported.skipped);
    match form.json {
        true => {
            print_json(&serde_json::json!({"taken": taken, "known": known, "skipped": skipped}))?;
        }
        false => print(&format!("{taken} records imported, {known} known, {skipped} skipped\n"))?,
    }
    Ok(if skipped > 0 { Answer::No } else { Answer::Yes })
}

fn verify(wisdom: &Wisdom, form: Form) -> Result<Answer> {
    let verified = wisdom.verify()?;
    for (key, why) in &verified.bad {
        note(&format!("record {key}: {why}"));
    }
    let (structures, measurements) = (verified.structures, verified.measurements);
    let bad = verified.bad.len();
    match form.json {
        true => print_json(&serde_json::json!({
            "structures": structures, "measurements": measurements, "bad": bad
        }))?,
        false => {
            print(&format!("{structures} structures, {measurements} measurements, {bad} bad\n"))?;
        }
    }
    Ok(if bad == 0 { Answer::Yes } else { Answer::No })
}

fn prune(wisdom: &Wisdom, backend: &Backend, matrix: Option<&str>, all: bool) -> Result<u64> {
    let mut of_matrix = BTreeMap::new();
    wisdom.each_structure(|structure| {
        of_matrix.insert(structure.fingerprint, structure);
    })?;
    let removed = wisdom.prune(|m| {
        let protocol = Protocol::default();
        let wanted = Wanted::of(backend, m.fingerprint, m.precision, m.basis, &protocol);
        m.device == wanted.device
            && is_of(m, of_matrix.get(&m.fingerprint), matrix)
            && (all || wanted.differs(m).is_some())
    })?;
    Ok(removed)
}
