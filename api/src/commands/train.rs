//! `ellect train` and `ellect evaluate`: models from records, and tables of how well they choose.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ellect::device::Device;
use ellect::generate::Spec;
use ellect::{Csr, Fingerprint, Precision, Wisdom, device, model};
use ellect_training::case::Records;
use ellect_training::corpus::{self, Families};
use ellect_training::train::{Plan, Settings, of_precision, plan_of};
use ellect_training::{Case, Report};

use super::{Answer, Home};
use crate::output::{note, print, spinner};

/// Records and what they are read for.
#[derive(Debug, Args)]
pub struct Input {
    /// Records as `wisdom export`, `measure --json` and `bench --json` write them, plain or .zst;
    /// may be repeated [default: train reads this user's wisdom, evaluate the one that ships]
    #[arg(long, value_name = "FILE.jsonl")]
    records: Vec<PathBuf>,
    /// Families of matrices: a table with the columns name, family and category [default: as
    /// recorded, or as their names tell]
    #[arg(long, value_name = "FILE.csv")]
    families: Option<PathBuf>,
    /// Matrix files of records that lack what models see, or folders of them; may be repeated
    #[arg(long, value_name = "PATH", num_args = 1..)]
    corpus: Vec<PathBuf>,
    /// What these files may have been repeated to along the diagonal; several with commas
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "NNZ")]
    scale: Vec<usize>,
    /// Write the records with what models see of them, so that no matrix is needed again; .zst
    /// compresses
    #[arg(long, value_name = "FILE.jsonl")]
    complete: Option<PathBuf>,
    /// Device whose records count
    #[arg(long, default_value = "h200", value_name = "NAME")]
    device: String,
    /// Precisions
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
}

/// How to fit.
#[derive(Debug, Args)]
pub struct Fit {
    /// The most folds that families of matrices are split into
    #[arg(long, default_value_t = Settings::default().folds, value_name = "N")]
    folds: usize,
    /// Seed of the learners
    #[arg(long, default_value_t = Settings::default().seed, value_name = "N")]
    seed: u64,
    /// The folder that models are written to
    #[arg(long, default_value = "models", value_name = "DIR")]
    out: PathBuf,
    /// Revision of this program to note in the models
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
}

/// What to train.
#[derive(Debug, Args)]
pub struct Train {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// How to fit.
    #[command(flatten)]
    fit: Fit,
}

/// What to evaluate.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// How to fit: predictions are made by models that saw none of the matrix's family.
    #[command(flatten)]
    fit: Fit,
    /// Learn as the models in this folder were [default: the learner is chosen anew]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Trains one model a precision.
pub fn train(train: &Train, home: &Home) -> Result<Answer> {
    let own = || {
        let mut records = Records::default();
        Wisdom::open(&home.data)?.each(|record| {
            records.add(record);
            Ok(())
        })?;
        Ok(records)
    };
    let cases = cases(&train.input, &home.data, &own)?;
    fit_all(&cases, &train.input.precision, &train.fit)?;
    Ok(Answer::Yes)
}

/// Fits, scores and writes the models of these cases.
pub fn fit_all(cases: &[Case], precisions: &[Precision], fit: &Fit) -> Result<()> {
    fs::create_dir_all(&fit.out).with_context(|| fit.out.display().to_string())?;
    let settings = settings(fit);
    for &precision in precisions {
        let cases = of_precision(cases, precision);
        let working = spinner("training");
        let model = ellect_training::train(&cases, &settings)?;
        working.finish_and_clear();
        let name = model::file_name(&model.device, model.precision);
        let path = fit.out.join(&name);
        let text = serde_json::to_string(&model)? + "\n";
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        let scores = model.scores.iter().map(|(name, score)| format!("  {name} {score:.3}\n"));
        print(&format!("{name}: {}\n{}", model.learner, scores.collect::<String>()))?;
    }
    Ok(())
}

/// Prints the tables of each precision.
pub fn evaluate(evaluate: &Evaluate, home: &Home) -> Result<Answer> {
    let input = &evaluate.input;
    let shipped = || {
        let mut records = Records::default();
        Wisdom::shipped().each_shipped(|record| records.add(record));
        Ok(records)
    };
    let cases = cases(input, &home.data, &shipped)?;
    let settings = settings(&evaluate.fit);
    let mut reports: Vec<Report> = Vec::new();
    for precision in &input.precision {
        let cases = of_precision(&cases, *precision);
        let working = spinner("evaluating");
        let plan = plan(evaluate, &cases, *precision, &settings)?;
        reports.push(ellect_training::evaluate(&cases, plan, &settings)?);
        working.finish_and_clear();
    }
    match evaluate.json {
        true => print(&(serde_json::to_string_pretty(&reports)? + "\n"))?,
        false => print(&reports.iter().map(Report::markdown).collect::<Vec<_>>().join("\n"))?,
    }
    Ok(Answer::Yes)
}

fn plan(
    evaluate: &Evaluate,
    cases: &[Case],
    precision: Precision,
    settings: &Settings,
) -> Result<Plan> {
    let Some(folder) = &evaluate.models else {
        return plan_of(&ellect_training::train(cases, settings)?);
    };
    let path = folder.join(model::file_name(&evaluate.input.device, precision));
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    let model = model::Model::parse(&text, &evaluate.input.device, precision)
        .with_context(|| path.display().to_string())?;
    plan_of(&model)
}

fn settings(fit: &Fit) -> Settings {
    Settings { folds: fit.folds, seed: fit.seed, commit: fit.commit.clone() }
}

/// The families that a table says; those of names where there is none.
pub fn families(table: Option<&Path>) -> Result<Families> {
    let Some(path) = table else { return Ok(Families::default()) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Families::parse(&text).with_context(|| path.display().to_string())
}

/// The cases of all record files, or else of `others`; what is left out is noted.
fn cases(input: &Input, data: &Path, others: &dyn Fn() -> Result<Records>) -> Result<Vec<Case>> {
    let device = device::find_in(&input.device, data)?;
    let mut records = match input.records.as_slice() {
        [] => others()?,
        paths => {
            let mut records = Records::default();
            for path in paths {
                let text = read_lines(path)?;
                records.read(&text).with_context(|| path.display().to_string())?;
            }
            records
        }
    };
    complete(input, &device, &mut records)?;
    let cases = records.cases(&device);
    if cases.is_empty() {
        bail!("no record is of a known matrix on {}", device.name);
    }
    Ok(cases)
}

/// Adds what records lack, from their matrices.
fn complete(input: &Input, device: &Device, records: &mut Records) -> Result<()> {
    let families = families(input.families.as_deref())?;
    if input.families.is_some() {
        records.name_families(&families);
    }
    let files = corpus::files(&input.corpus, &input.scale, &families)?;
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

/// A matrix by what it was generated as, or the file of this name in the scale that was measured.
fn found(files: &[corpus::Entry], source: &str, fingerprint: Fingerprint) -> Result<Csr<f64>> {
    let stem = |source: &str| {
        let plain = source.split('*').next().unwrap_or_default();
        corpus::stem(Path::new(plain))
    };
    for file in files.iter().filter(|file| stem(&file.source) == stem(source)) {
        let csr = file.matrix()?;
        if Fingerprint::of(csr.pattern()) == fingerprint {
            return Ok(csr);
        }
    }
    Ok(source.parse::<Spec>()?.make())
}

/// The text of a file, plain or compressed with zstd.
fn read_lines(path: &Path) -> Result<String> {
    let what = || path.display().to_string();
    let file = fs::File::open(path).with_context(what)?;
    let mut text = String::new();
    match path.extension().is_some_and(|extension| extension == "zst") {
        true => zstd::Decoder::new(file).with_context(what)?.read_to_string(&mut text),
        false => std::io::BufReader::new(file).read_to_string(&mut text),
    }
    .with_context(what)?;
    Ok(text)
}

/// Level of compression: these files are written once and read often.
const LEVEL: i32 = 19;

/// Writes lines, compressed where the name ends in .zst.
pub fn write_lines(path: &Path, lines: &[u8]) -> Result<()> {
    let compressed;
    let bytes = match path.extension().is_some_and(|extension| extension == "zst") {
        true => {
            compressed = zstd::encode_all(lines, LEVEL)?;
            &compressed
        }
        false => lines,
    };
    fs::write(path, bytes).with_context(|| path.display().to_string())
}
