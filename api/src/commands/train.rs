//! `ellect train` and `ellect evaluate`: models from records, and tables of how well they choose.

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
use ellect::wisdom::Record;
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
    /// Matrix files of records that lack what models see, as those of `measure` and `bench` do, or
    /// folders of them; may be repeated
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
    #[arg(long, default_value_t = Settings::default().folds, value_name = "N", value_parser = folds())]
    folds: usize,
    /// Seed of the learners
    #[arg(long, default_value_t = Settings::default().seed, value_name = "N")]
    seed: u64,
    /// The device's profile was fitted to these records: predict what is left out with a profile
    /// fitted without it too; `evaluate` does so for what ships
    #[arg(long)]
    fitted: bool,
    /// The folder that models are written to [default: models in the data folder, where they are used]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw regret, predictions and winning formats as SVG files in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Revision of this program to note in the models
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
}

/// Parses a number of folds: one leaves nothing to learn from.
fn folds() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(2..)
}

impl Fit {
    /// The folder that models are written to.
    fn out(&self, home: &Home) -> PathBuf {
        self.out.clone().unwrap_or_else(|| home.data.join("models"))
    }
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
    /// Learn only what features alone tell, and put it into the models that --out holds, which have
    /// to be of the same records
    #[arg(long)]
    by_features: bool,
}

/// What to fit.
#[derive(Debug, Args)]
pub struct Profile {
    /// The records.
    #[command(flatten)]
    input: Input,
    /// The file that the profile is written to
    #[arg(short, long, value_name = "FILE.json")]
    output: PathBuf,
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
    /// Learn as the models in this folder were, and compare with what they reached: exit code 1
    /// where a figure is worse [default: as the one that ships where that is evaluated, or else the
    /// plan is chosen anew]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// Learn nothing: score the models of --models, or those that ship, as they are, on records that
    /// they did not learn from; of those that ship, matrices that ship with them are left out
    #[arg(long, requires = "records", conflicts_with = "plots")]
    as_is: bool,
    /// Leave out how classes never seen are predicted, which takes a model (and a profile, where it
    /// was fitted) for each class
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Cases with a time of an incumbent, which choices are compared with; others are told of.
fn with_incumbent(cases: Vec<Case>) -> Vec<Case> {
    let (cases, bare): (Vec<_>, Vec<_>) = cases.into_iter().partition(Case::has_incumbent);
    if !bare.is_empty() {
        note(&format!(
            "left out: {} cases without a time of {}",
            bare.len(),
            BASELINES.join(" or ")
        ));
    }
    cases
}

/// Trains one model a precision.
pub fn train(train: &Train, home: &Home) -> Result<Answer> {
    let device = device::find_in(&train.input.device, &home.data)?;
    let records = read(&train.input, &device, &|| own(home))?;
    match train.by_features {
        true => fit_by_features(&records, &device, &train.input.precision, &train.fit, home)?,
        false => fit_all(records, device, &train.input.precision, &train.fit, home)?,
    }
    Ok(Answer::Yes)
}

/// Puts what features alone tell into models that are there.
fn fit_by_features(
    records: &Records,
    device: &Device,
    precisions: &[Precision],
    fit: &Fit,
    home: &Home,
) -> Result<()> {
    let cases = with_incumbent(records.cases(device));
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
                     fast as the incumbent, {slower:.1} % slower by over 2 %\n",
                    total.spmvs
                ))?;
            }
        }
    }
    Ok(())
}

/// Fits what kernels reach in a device's profile to records.
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

/// This user's records.
fn own(home: &Home) -> Result<Records> {
    let mut records = Records::default();
    Wisdom::open(&home.data)?.each(|record| {
        records.add(record);
        Ok(())
    })?;
    Ok(records)
}

/// Fits, scores and writes the models of these records of a device, with their cards.
pub fn fit_all(
    records: Records,
    device: Device,
    precisions: &[Precision],
    fit: &Fit,
    home: &Home,
) -> Result<()> {
    let cases = with_incumbent(records.cases(&device));
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

/// Draws the plots of a model where a folder is named for them.
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

/// Cases of fewer candidates are told of: the best of few is soon found.
const FEW: usize = 8;

/// Prints the tables of each precision. The answer is no where figures are worse than the model
/// reached that they are compared with, as its scores say.
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
    let cases = with_incumbent(cases);
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

/// Notes the figures that are worse than what their model reached; the answer is no where there are
/// any.
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

/// The cases that models as they are did not learn from, as far as it is known.
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

/// The model in the folder that is named, or the one that ships where what ships is evaluated, or
/// models as they are, of a device's kin where it has none: it says how to learn, and what was
/// reached.
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

/// The families that a table says; those of names where there is none.
pub fn families(table: Option<&Path>) -> Result<Families> {
    let Some(path) = table else { return Ok(Families::default()) };
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Families::parse(&text).with_context(|| path.display().to_string())
}

/// All record files, or else `others`, with what they lack.
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

/// Adds what records lack, from their matrices.
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

/// A matrix by what it was generated as, or the file of this name in the scale that was measured.
fn found(files: &[corpus::Entry], source: &str, fingerprint: Fingerprint) -> Result<Csr<f64>> {
    let stem = |source: &str| {
        let plain = source.split('*').next().unwrap_or_default();
        corpus::stem(Path::new(plain))
    };
    // Most have the scale that their name tells.
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

/// Reads a file, plain or compressed with zstd, as its name says.
pub fn open_lines(path: &Path) -> Result<Box<dyn BufRead>> {
    let what = || path.display().to_string();
    let file = fs::File::open(path).with_context(what)?;
    Ok(match path.extension().is_some_and(|extension| extension == "zst") {
        true => Box::new(BufReader::new(zstd::Decoder::new(file).with_context(what)?)),
        false => Box::new(BufReader::new(file)),
    })
}

/// The text of such a file.
pub fn read_lines(path: &Path) -> Result<String> {
    let mut text = String::new();
    open_lines(path)?.read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}

/// Level of compression: a device may be waiting.
const LEVEL: i32 = 9;

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
    write_file(path, |out| Ok(out.write_all(bytes)?))
}
