//! `ellect train` and `fit`: models and profiles from records.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ellect::device::Device;
use ellect::format::BASELINES;
use ellect::model::Model;
use ellect::{Precision, device, model};
use ellect_training::crossval::Predicted;
use ellect_training::evaluate::{Unseen, report};
use ellect_training::profile::{self, Fitted};
use ellect_training::train::{of_precision, with_by_features};
use ellect_training::{Case, Plan, Records, Settings, card};

use super::records::{RecordArgs, own, read};
use super::{Answer, Home};
use crate::output::{note, print, spinner, write_file};

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
    pub fitted: bool,
    /// Folder to write the models to [default: models in the data folder, where they are used]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw regret, predictions and winning formats as SVG files in this folder
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Revision of this program to note in the models
    #[arg(long, default_value = "", value_name = "TEXT")]
    commit: String,
    /// Learner and target of the trees, 'extra trees over the estimate' for instance [default: the best
    /// of all plans in cross-validation, which takes several times as long]
    #[arg(long, value_name = "TEXT")]
    plan: Option<Plan>,
    /// Leave out the evaluation on whole classes that the model did not see, which takes most of the
    /// time
    #[arg(long)]
    quick: bool,
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
    input: RecordArgs,
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
    input: RecordArgs,
    /// File to write the profile to
    #[arg(short, long, value_name = "FILE.json")]
    output: PathBuf,
}

/// Returns the cases in which a baseline was timed, to compare choices with; notes how many others
/// there are.
pub fn with_baseline(cases: Vec<Case>) -> Vec<Case> {
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
        let model = of_folder(&out, device, precision)?;
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
        let unseen = if fit.quick { Unseen::Untried } else { Unseen::Tried };
        let report = report(&cases, &trained.predicted, plan, &settings, unseen)?;
        trained.model.scores.extend(report.scores());
        let model = &trained.model;
        let name = model::file_name(&model.device, model.precision);
        let card_name = Path::new(&name).with_extension("md");
        let write = |name: &Path, bytes: &[u8]| {
            write_file(&out.join(name), |out| Ok(out.write_all(bytes)?))
        };
        write(Path::new(&name), &model.bytes()?)?;
        write(&card_name, card::card(&cases, &trained, &report).as_bytes())?;
        draw(fit, &cases, &trained.predicted, &settings)?;
        working.finish_and_clear();
        print(&format!("{}: {plan}\n\n{}\n", out.join(name).display(), report.markdown()))?;
    }
    Ok(())
}

/// Draws the plots of a model if `fit` names a folder for them.
pub fn draw(fit: &Fit, cases: &[Case], predicted: &[Predicted], settings: &Settings) -> Result<()> {
    let (Some(folder), Some(first)) = (&fit.plots, cases.first()) else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let name = model::file_name(&first.device, first.precision);
    let name = name.trim_end_matches(".model");
    for (plot, svg) in card::plots(cases, predicted, settings)? {
        let path = folder.join(format!("{name}-{plot}.svg"));
        write_file(&path, |out| Ok(out.write_all(svg.as_bytes())?))?;
    }
    Ok(())
}

/// Reads the model of a device from a folder that must have one.
pub fn of_folder(folder: &Path, device: &Device, precision: Precision) -> Result<Model> {
    let model = Model::in_folder(folder, &device.name, precision)?;
    model.with_context(|| {
        format!("{}: there is no model of {} in {precision}", folder.display(), device.name)
    })
}

/// Returns the settings of the learners.
pub fn settings(fit: &Fit, fitted: Option<Fitted>) -> Settings {
    let fitted = fitted.map(Arc::new);
    let (commit, plan) = (fit.commit.clone(), fit.plan);
    Settings { folds: fit.folds, seed: fit.seed, commit, fitted, plan }
}
