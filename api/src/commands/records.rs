//! Records and matrices that `train`, `fit` and `evaluate` read, and text files that may be compressed.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ellect::device::Device;
use ellect::generate::Spec;
use ellect::unstable::wisdom::{Layer, Record};
use ellect::{Csr, Fingerprint, Precision, Wisdom};
use ellect_training::Records;
use ellect_training::corpus::{self, Families, Ones};

use super::Home;
use crate::options::size;
use crate::output::{note, spinner, write_file};
use crate::shared::Client;

/// Records, the matrices behind them, and the device and precisions they are used for.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// Records that `wisdom export`, `measure --json` or `bench --json` wrote, plain or .zst; may
    /// be repeated [default: train uses this user's measurements, evaluate those that ship]
    #[arg(long, value_name = "FILE.jsonl")]
    pub records: Vec<PathBuf>,
    /// Families of matrices: a table with the columns name, family and category [default: as
    /// recorded, or derived from the names]
    #[arg(long, value_name = "FILE.csv")]
    families: Option<PathBuf>,
    /// Matrix files, or folders of them, for records without model inputs, such as those of
    /// `measure` and `bench`; may be repeated
    #[arg(long, value_name = "PATH", num_args = 1..)]
    corpus: Vec<PathBuf>,
    /// Sizes in nonzeros that these files may have been repeated to along the diagonal; several
    /// with commas
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "NNZ", value_parser = size)]
    scale: Vec<usize>,
    /// Write the records together with the model inputs, so that the matrices are not needed again;
    /// .zst compresses
    #[arg(long, value_name = "FILE.jsonl")]
    complete: Option<PathBuf>,
    /// Device whose records are used
    #[arg(long, default_value = "h200", value_name = "NAME")]
    pub device: String,
    /// Precisions to use
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    pub precision: Vec<Precision>,
    /// Use records of products with several vectors, for which there are models of their own, instead
    /// of those of products with one
    #[arg(long)]
    pub several: bool,
}

/// Reads this user's records, and those of the device that other hosts share.
pub fn own(home: &Home, device: &str, several: bool) -> Result<Records> {
    let (wisdom, client) = home.sharing(Wisdom::open_existing(&home.data)?)?;
    let mut records = Records::new(several);
    with_shared(&wisdom, client.as_deref(), device)?
        .into_iter()
        .for_each(|record| records.add(record));
    Ok(records)
}

/// Returns all records of this user and those of other hosts; the measurements of a key are runs of
/// one, and a run that is in both counts once.
///
/// If the shared database cannot be read, those of this user are all, with a note.
pub fn with_shared(wisdom: &Wisdom, client: Option<&Client>, device: &str) -> Result<Vec<Record>> {
    let shared = client.map_or_else(|| Ok(Vec::new()), |client| client.records_on(device));
    let shared = shared.unwrap_or_else(|error| {
        note(&format!("{error:#}; going on with the records of this host alone"));
        Vec::new()
    });
    let mut own = Vec::new();
    wisdom.each(|record| {
        own.push(record);
        Ok(())
    })?;
    if shared.is_empty() {
        return Ok(own);
    }
    let mut of_matrix: HashMap<Fingerprint, Vec<Record>> = HashMap::new();
    // The user's own come last: their runs are then found among those of the shared ones.
    for record in shared.into_iter().chain(own) {
        of_matrix.entry(record.fingerprint()).or_default().push(record);
    }
    let layers = of_matrix.into_values().map(Layer::of_hosts);
    Ok(layers.flat_map(|layer| layer.records().collect::<Vec<_>>()).collect())
}

/// Reads a table of families; without a table, families are derived from names.
pub fn families(table: Option<&Path>) -> Result<Families> {
    let Some(path) = table else { return Ok(Families::default()) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Families::parse(&text).with_context(|| path.display().to_string())
}

/// Reads all record files, or `others` if none is named, and completes the records.
pub fn read(
    input: &RecordArgs,
    device: &Device,
    others: &dyn Fn() -> Result<Records>,
) -> Result<Records> {
    let mut records = match input.records.as_slice() {
        [] => others()?,
        paths => {
            let mut records = Records::new(input.several);
            for path in paths {
                let text = read_lines(path)?;
                records.read(&text).with_context(|| path.display().to_string())?;
            }
            records
        }
    };
    complete(input, device, &mut records)?;
    Ok(records)
}

/// Adds missing model inputs to records, computed from their matrices.
fn complete(input: &RecordArgs, device: &Device, records: &mut Records) -> Result<()> {
    let families = families(input.families.as_deref())?;
    if input.families.is_some() {
        records.name_families(&families);
    }
    let tell = &mut |text: String| note(&text);
    let files = corpus::files(&input.corpus, &input.scale, &families, Ones::Values, tell)?;
    let working = spinner("reading matrices");
    let matrix = |source: &str, fingerprint| found(&files, source, fingerprint);
    let mut left_out = |what| working.suspend(|| note(&format!("left out: {what}")));
    records.complete(device, &families, &matrix, &mut left_out);
    working.finish_and_clear();
    match &input.complete {
        Some(path) => write_lines(path, &records.lines(&device.name)),
        None => Ok(()),
    }
}

/// Returns the matrix of a record: the file with this name and fingerprint, else the generated
/// matrix that `source` names.
fn found(files: &[corpus::Entry], source: &str, fingerprint: Fingerprint) -> Result<Csr<f64>> {
    let stem = |source: &str| {
        let plain = source.split('*').next().unwrap_or_default();
        corpus::stem(Path::new(plain))
    };
    // Most files have the scale in their name, so the exact name is tried first.
    let (named, others): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|file| stem(&file.source) == stem(source))
        .partition(|file| file.source == source);
    for file in named.into_iter().chain(others) {
        let csr = file.matrix()?;
        if Fingerprint::of(csr.pattern()) == fingerprint {
            return Ok(csr);
        }
    }
    Ok(source.parse::<Spec>()?.make())
}

/// Opens a text file; it is decompressed with zstd if its name ends in .zst.
pub fn open_lines(path: &Path) -> Result<Box<dyn BufRead>> {
    let what = || path.display().to_string();
    let file = fs::File::open(path).with_context(what)?;
    Ok(match path.extension().is_some_and(|extension| extension == "zst") {
        true => Box::new(BufReader::new(zstd::Decoder::new(file).with_context(what)?)),
        false => Box::new(BufReader::new(file)),
    })
}

/// Returns the text of a file; it is decompressed with zstd if its name ends in .zst.
pub fn read_lines(path: &Path) -> Result<String> {
    let mut text = String::new();
    open_lines(path)?.read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}

/// Level of zstd compression; it is moderate because a device may be waiting.
const LEVEL: i32 = 9;

/// Writes lines to a file; they are compressed with zstd if its name ends in .zst.
pub fn write_lines(path: &Path, lines: &[u8]) -> Result<()> {
    let compressed;
    let bytes = match path.extension().is_some_and(|extension| extension == "zst") {
        true => {
            compressed = zstd::encode_all(lines, LEVEL)?;
            &compressed
        }
        false => lines,
    };
    write_file(path, |out| Ok(out.write_all(bytes)?))
}
