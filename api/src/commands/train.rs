//! `ellect train`, `fit` and `evaluate`: models and profiles from records, and tables of how well
//! models choose.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ellect::device::Device;
use ellect::format::BASELINES;
use ellect::generate::Spec;
use ellect::model::Model;
use ellect::unstable::wisdom::Record;
use ellect::{Csr, Fingerprint, Precision, Wisdom, device, model};
use ellect_training::corpus::{self, Families, Ones};
use ellect_training::crossval::{Predicted, cross_validate};
use ellect_training::evaluate::{Unseen, evaluate_as_is, report};
use ellect_training::plan::Plan;
use ellect_training::profile::{self, Fitted};
use ellect_training::train::{of_precision, with_by_features};
use ellect_training::{Case, Records, Report, Settings, card};

use super::{Answer, Home};
use crate::output::{note, print, spinner, write_file};

/// Records, the matrices behind them, and the device and precisions they are used for.
#[derive(Debug, Args)]
pub struct Input {
    /// Records that `wisdom export`, `measure --json` or `bench --json` wrote, plain or .zst; may
    /// be repeated [default: train uses this user's measurements, evaluate those that ship]
    #[arg(long, value_name = "FILE.jsonl")]
    records: Vec<PathBuf>,
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
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "NNZ")]
    scale: Vec<usize>,
    /// Write the records together with the model inputs, so that the matrices are not needed again;
    /// .zst compresses
    #[arg(long, value_name = "FILE.jsonl")]
    complete: Option<PathBuf>,
    /// Device whose records are used
    #[arg(long, default_value = "h200", value_name = "NAME")]
    device: String,
    /// Precisions to use
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
}

/// Settings of the fit.
#[derive(Debug, Args)]
pub struct Fit {
    /// Maximum number of folds to split the families of matrices into
    #[arg(long, default_value_t = Settings::default().folds, value_name = "N", value_parser = folds())]
    folds: usize,
    /// Random seed of the learners
    #[arg(long, default_value_t = Settings::default().seed, value_name = "N")]
    seed: u64,
    /// The device's profile was fitted to these records: predict each left-out part with a profile
    /// fitted without it; `evaluate` does so for records that ship
    #[arg(long)]
    fitted: bool,
    /// Folder to write the models to [default: models in the data folder, where they are used]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw regret, predictions and winning formats as SVG files in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Revision of this program to note in the models
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
}

/// Parses a number of folds: at least 2, because one fold leaves nothing to learn from.
fn folds() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(2..)
}

impl Fit {
    /// Returns the folder to write the models to.
    fn out(&self, home: &Home) -> PathBuf {
        self.out.clone().unwrap_or_else(|| home.data.join("models"))
    }
}

/// Arguments of `ellect train`.
#[derive(Debug, Args)]
pub struct Train {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// Settings of the fit.
    #[command(flatten)]
    fit: Fit,
    /// Train only the quick model, which uses features alone, and put it into the models in --out,
    /// which must be trained on the same records
    #[arg(long)]
    by_features: bool,
}

/// Arguments of `ellect fit`.
#[derive(Debug, Args)]
pub struct Profile {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// File to write the profile to
    #[arg(short, long, value_name = "FILE.json")]
    output: PathBuf,
}

/// Arguments of `ellect evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// Settings of the fit; models predict matrices only of families they were not trained on.
    #[command(flatten)]
    fit: Fit,
    /// Learn with the same plan as the models in this folder, and compare with their scores: exit
    /// code 1 if a figure is worse [default: as the model that ships if its records are evaluated,
    /// otherwise a newly chosen plan]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Learn nothing: score the models of --models, or those that ship, unchanged, on records that
    /// they did not learn from; for those that ship, matrices that ship with them are left out
    #[arg(long, requires = "records", conflicts_with = "plots")]
    as_is: bool,
    /// Skip the predictions for unseen classes, which take a model (and a profile, if it was
    /// fitted) for each class
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the cases in which a baseline was timed, to compare choices with; notes how many others
/// there are.
fn with_baseline(cases: Vec<Case>) -> Vec<Case> {
    let (cases, bare): (Vec<_>, Vec<_>) = cases.into_iter().partition(Case::has_baseline);
    if !bare.is_empty() {
        note(&format!(
            "left out: {} cases without a time of {}",
            bare.len(),
            BASELINES.join(" or ")
        ));
    }
    cases
}

/// Trains one model per precision.
pub fn train(train: &Train, home: &Home) -> Result<Answer> {
    let device = device::find_in(&train.input.device, &home.data)?;
    let records = read(&train.input, &device, &|| own(home))?;
    match train.by_features {
        true => fit_by_features(&records, &device, &train.input.precision, &train.fit, home)?,
        false => fit_all(records, device, &train.input.precision, &train.fit, home)?,
    }
    Ok(Answer::Yes)
}

/// Trains the quick model, which uses features alone, and puts it into existing models.
fn fit_by_features(
    records: &Records,
    device: &Device,
    precisions: &[Precision],
    fit: &Fit,
    home: &Home,
) -> Result<()> {
    let cases = with_baseline(records.cases(device));
    let out = fit.out(home);
    for &precision in precisions {
        let path = out.join(model::file_name(&device.name, precision));
        let what = || path.display().to_string();
        let bytes = fs::read(&path).with_context(what)?;
        let model = Model::parse(&bytes, &device.name, precision).with_context(what)?;
        let working = spinner("training");
        let cases = of_precision(&cases, precision);
        let (model, [on_host, there]) = with_by_features(model, &cases, &settings(fit, None))?;
        working.finish_and_clear();
        let bytes = model.bytes()?;
        write_file(&path, |out| Ok(out.write_all(&bytes)?))?;
        for (place, totals) in [("a host", on_host), ("the device", there)] {
            for total in totals {
                let (times, slower) = (total.speedup, 100.0 * total.losses);
                print(&format!(
                    "{precision}, {} products, matrix on {place}, families left out: {times:.3} times as \
                     fast as the baseline, {slower:.1} % slower by over 2 %\n",
                    total.spmvs
                ))?;
            }
        }
    }
    Ok(())
}

/// Fits the kernel performance figures in a device's profile to records.
pub fn profile(profile: &Profile, home: &Home) -> Result<Answer> {
    let input = &profile.input;
    let device = device::find_in(&input.device, &home.data)?;
    let records = read(input, &device, &|| own(home))?;
    if records.timed(&device.name).next().is_none() {
        bail!("no record is of a product timed on {}; --device names another device", device.name);
    }
    if records.cases(&device).is_empty() {
        bail!("no record is of a known matrix; --corpus names the files of their matrices");
    }
    let working = spinner("fitting");
    let text = profile::text(&profile::fit(&records, &device))?;
    working.finish_and_clear();
    write_file(&profile.output, |out| Ok(out.write_all(text.as_bytes())?))?;
    Ok(Answer::Yes)
}

/// Reads this user's records.
fn own(home: &Home) -> Result<Records> {
    let mut records = Records::default();
    Wisdom::open(&home.data)?.each(|record| {
        records.add(record);
        Ok(())
    })?;
    Ok(records)
}

/// Fits, scores and writes models from the records of a device, one per precision, with their
/// cards.
pub fn fit_all(
    records: Records,
    device: Device,
    precisions: &[Precision],
    fit: &Fit,
    home: &Home,
) -> Result<()> {
    let cases = with_baseline(records.cases(&device));
    if cases.is_empty() {
        bail!(
            "no record is of a known matrix on {}; --device names another device, --corpus the files \
             of matrices that records name",
            device.name
        );
    }
    let out = fit.out(home);
    fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    let settings = settings(fit, fit.fitted.then_some(Fitted { records, device }));
    for &precision in precisions {
        let cases = of_precision(&cases, precision);
        let working = spinner("training");
        let mut trained = ellect_training::train(&cases, &settings)?;
        let plan = trained.plan;
        let report = report(&cases, &trained.predicted, plan, &settings, Unseen::Tried)?;
        trained.model.scores.extend(report.scores());
        let model = &trained.model;
        let name = model::file_name(&model.device, model.precision);
        let stem = name.trim_end_matches(".json.zst");
        let write = |name: String, bytes: &[u8]| {
            write_file(&out.join(name), |out| Ok(out.write_all(bytes)?))
        };
        write(name.clone(), &model.bytes()?)?;
        write(format!("{stem}.md"), card::card(&cases, &trained, &report).as_bytes())?;
        draw(fit, &cases, &trained.predicted, &settings)?;
        working.finish_and_clear();
        print(&format!("{}: {plan}\n\n{}\n", out.join(name).display(), report.markdown()))?;
    }
    Ok(())
}

/// Draws the plots of a model if `fit` names a folder for them.
fn draw(fit: &Fit, cases: &[Case], predicted: &[Predicted], settings: &Settings) -> Result<()> {
    let (Some(folder), Some(first)) = (&fit.plots, cases.first()) else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let name = model::file_name(&first.device, first.precision);
    let stem = name.trim_end_matches(".json.zst");
    for (plot, svg) in card::plots(cases, predicted, settings)? {
        let path = folder.join(format!("{stem}-{plot}.svg"));
        write_file(&path, |out| Ok(out.write_all(svg.as_bytes())?))?;
    }
    Ok(())
}

/// Cases with fewer candidates than this are noted, because the best of a few is easily found.
const FEW: usize = 8;

/// Prints the evaluation tables of each precision.
///
/// The answer is no if a figure is worse than the score recorded in the model it is compared with.
pub fn evaluate(evaluate: &Evaluate, home: &Home) -> Result<Answer> {
    let input = &evaluate.input;
    let shipped = || {
        let mut records = Records::default();
        Wisdom::shipped().each_shipped(|record| records.add(record));
        Ok(records)
    };
    let device = device::find_in(&input.device, &home.data)?;
    let records = read(input, &device, &shipped)?;
    let cases = records.cases(&device);
    if cases.is_empty() {
        let none = format!("no measurements of {} on known matrices", input.device);
        if !input.records.is_empty() {
            bail!("{none} are in these records");
        }
        note(&format!("{none} ship with this program; --records FILE evaluates others"));
        return Ok(Answer::Yes);
    }
    let drivers = records.drivers(&device.name);
    if drivers.len() > 1 {
        let all: Vec<&str> = drivers.into_iter().collect();
        note(&format!("times of {} are compared with each other", all.join(" and ")));
    }
    let few = cases.iter().filter(|case| case.trials.len() < FEW).count();
    if few > 0 {
        note(&format!("{few} of {} cases have under {FEW} candidates to choose from", cases.len()));
    }
    let shipped = input.records.is_empty() && device.fitted;
    let fitted =
        (evaluate.fit.fitted || shipped).then(|| Fitted { records, device: device.clone() });
    let settings = settings(&evaluate.fit, fitted);
    let unseen = if evaluate.quick { Unseen::Untried } else { Unseen::Tried };
    let cases = if evaluate.as_is { unlearned(evaluate, cases) } else { cases };
    let cases = with_baseline(cases);
    let mut reports: Vec<Report> = Vec::new();
    for precision in &input.precision {
        let cases = of_precision(&cases, *precision);
        if cases.is_empty() {
            note(&format!("no case is of {precision}"));
            continue;
        }
        let working = spinner("evaluating");
        let model = compared(evaluate, &device, *precision)?;
        reports.push(match (model, evaluate.as_is) {
            (Some(model), true) => evaluate_as_is(&cases, model, &device)?,
            (None, true) => bail!(
                "no model of {} in {precision} ships; --models DIR names a folder of others",
                input.device
            ),
            (model, false) => {
                let plan = match &model {
                    Some(model) => Plan::of(model)?,
                    None => ellect_training::train(&cases, &settings)?.plan,
                };
                let predicted = cross_validate(&cases, plan, &settings)?;
                draw(&evaluate.fit, &cases, &predicted, &settings)?;
                let mut report = report(&cases, &predicted, plan, &settings, unseen)?;
                if let Some(model) = model {
                    report.compare(&model.scores);
                }
                report
            }
        });
        working.finish_and_clear();
    }
    match evaluate.json {
        true => print(&(serde_json::to_string_pretty(&reports)? + "\n"))?,
        false => print(&reports.iter().map(Report::markdown).collect::<Vec<_>>().join("\n"))?,
    }
    Ok(note_fallen(&reports))
}

/// Notes each figure that is worse than its model's score; answers no if there is one.
fn note_fallen(reports: &[Report]) -> Answer {
    for report in reports {
        for figure in report.fallen() {
            note(&format!(
                "{} in {}: {} is {:.4}, the model reached {:.4}",
                report.device,
                report.precision,
                figure.name,
                figure.value,
                figure.reached.unwrap_or_default()
            ));
        }
    }
    let fell = reports.iter().flat_map(Report::fallen).count();
    if fell > 0 { Answer::No } else { Answer::Yes }
}

/// Returns the cases that the models to score unchanged did not learn from, as far as is known.
fn unlearned(evaluate: &Evaluate, cases: Vec<Case>) -> Vec<Case> {
    if evaluate.models.is_some() {
        return cases;
    }
    let mut learned = HashSet::new();
    Wisdom::shipped().each_shipped(|record| {
        if let Record::Measurement(m) = record {
            learned.insert((m.device.clone(), m.fingerprint));
        }
    });
    let known = |case: &Case| learned.contains(&(case.device.clone(), case.fingerprint));
    let (known, others): (Vec<_>, _) = cases.into_iter().partition(known);
    if !known.is_empty() {
        note(&format!("left out: {} cases of matrices that ship with the models", known.len()));
    }
    others
}

/// Returns the model to compare with: it records how to learn and the scores it reached.
///
/// This is the model in the named folder. Without one, it is the shipped model (of the proxy device
/// if the device has none) if shipped records are evaluated or models are scored unchanged.
fn compared(evaluate: &Evaluate, device: &Device, precision: Precision) -> Result<Option<Model>> {
    if let Some(folder) = &evaluate.models {
        let path = folder.join(model::file_name(&device.name, precision));
        let what = || path.display().to_string();
        let bytes = fs::read(&path).with_context(what)?;
        return Ok(Some(Model::parse(&bytes, &device.name, precision).with_context(what)?));
    }
    match evaluate.input.records.is_empty() || evaluate.as_is {
        true => Ok(Model::shipped(device, precision)?),
        false => Ok(None),
    }
}

fn settings(fit: &Fit, fitted: Option<Fitted>) -> Settings {
    let fitted = fitted.map(Arc::new);
    Settings { folds: fit.folds, seed: fit.seed, commit: fit.commit.clone(), fitted }
}

/// Reads a table of families; without a table, families are derived from names.
pub fn families(table: Option<&Path>) -> Result<Families> {
    let Some(path) = table else { return Ok(Families::default()) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Families::parse(&text).with_context(|| path.display().to_string())
}

/// Reads all record files, or `others` if none is named, and completes the records.
fn read(input: &Input, device: &Device, others: &dyn Fn() -> Result<Records>) -> Result<Records> {
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
    complete(input, device, &mut records)?;
    Ok(records)
}

/// Adds missing model inputs to records, computed from their matrices.
fn complete(input: &Input, device: &Device, records: &mut Records) -> Result<()> {
    let families = families(input.families.as_deref())?;
    if input.families.is_some() {
        records.name_families(&families);
    }
    let files = corpus::files(&input.corpus, &input.scale, &families, Ones::Values)?;
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
