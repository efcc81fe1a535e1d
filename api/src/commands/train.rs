//! `ellect train` and `ellect evaluate`: models from records, and tables of how well they choose.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ellect::generate::Spec;
use ellect::read::{self, Limits};
use ellect::{Csr, Precision, device, model};
use ellect_training::case::{self, Records};
use ellect_training::train::{Plan, Settings, of_precision, plan_of};
use ellect_training::{Case, Report};

use super::Answer;
use crate::output::{note, print, spinner};

/// Records and what they are read for.
#[derive(Debug, Args)]
pub struct Input {
    /// Records: lines of JSON as `bench --json` writes them, or cases that `train` wrote; may be
    /// repeated
    #[arg(long, value_name = "FILE.jsonl", required = true)]
    records: Vec<PathBuf>,
    /// Device whose records count
    #[arg(long, default_value = "h200", value_name = "NAME")]
    device: String,
    /// Precisions
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
    /// The most folds that families of matrices are split into
    #[arg(long, default_value_t = Settings::default().folds, value_name = "N")]
    folds: usize,
    /// Seed of the learners
    #[arg(long, default_value_t = Settings::default().seed, value_name = "N")]
    seed: u64,
}

/// What to train.
#[derive(Debug, Args)]
pub struct Train {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// The folder that models and cases are written to
    #[arg(long, default_value = "models", value_name = "DIR")]
    out: PathBuf,
    /// Revision of this program to note in the models
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
}

/// What to evaluate.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// Learn as the models in this folder were [default: the learner is chosen anew]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Trains a model for each precision; writes it, and the cases it was trained on.
pub fn train(train: &Train, data: &Path) -> Result<Answer> {
    let cases = cases(&train.input, data)?;
    fs::create_dir_all(&train.out).with_context(|| train.out.display().to_string())?;
    let settings = Settings { commit: train.commit.clone(), ..settings(&train.input) };
    for precision in &train.input.precision {
        let cases = of_precision(&cases, *precision);
        let working = spinner("training");
        let model = ellect_training::train(&cases, &settings)?;
        working.finish_and_clear();
        let name = model::file_name(&model.device, model.precision);
        let write = |name: &str, text: String| {
            let path = train.out.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())
        };
        write(&name, serde_json::to_string(&model)? + "\n")?;
        write(&name.replace(".json", ".cases.jsonl"), case::write(&cases)?)?;
        let scores = model.scores.iter().map(|(name, score)| format!("  {name} {score:.3}\n"));
        print(&format!("{name}: {}\n{}", model.learner, scores.collect::<String>()))?;
    }
    Ok(Answer::Yes)
}

/// Prints the tables of each precision.
pub fn evaluate(evaluate: &Evaluate, data: &Path) -> Result<Answer> {
    let input = &evaluate.input;
    let cases = cases(input, data)?;
    let settings = settings(input);
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

fn settings(input: &Input) -> Settings {
    Settings { folds: input.folds, seed: input.seed, ..Settings::default() }
}

/// The cases of all record files; what is left out is noted.
fn cases(input: &Input, data: &Path) -> Result<Vec<Case>> {
    let device = device::find_in(&input.device, data)?;
    let mut records = Records::default();
    for path in &input.records {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        records.read(&text).with_context(|| path.display().to_string())?;
    }
    let working = spinner("reading matrices");
    let cases = records.cases(&device, &matrix, &mut |what| note(&format!("left out: {what}")));
    working.finish_and_clear();
    if cases.is_empty() {
        bail!("no record is of a known matrix on {}", device.name);
    }
    Ok(cases)
}

/// A matrix by what it was read from or generated as.
fn matrix(source: &str) -> Result<Csr<f64>> {
    match Path::new(source).is_file() {
        true => Ok(read::file(Path::new(source), &Limits::default())?),
        false => Ok(source.parse::<Spec>()?.make()),
    }
}
