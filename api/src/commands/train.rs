//! `ellect train` and `fit`: models and profiles from records.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::RangedU64ValueParser;
use ellect::device::Device;
use ellect::format::BASELINES;
use ellect::model::{Model, Purpose};
use ellect::{Precision, Wisdom, device, model};
use ellect_training::crossval::Predicted;
use ellect_training::evaluate::{Unseen, report};
use ellect_training::profile::{self, Fitted};
use ellect_training::train::{of_precision, with_by_features};
use ellect_training::{Case, Plan, Records, Settings, Trained, card, conversions, guard};

use super::records::{RecordArgs, own, read};
use super::{Answer, Home};
use crate::installed::{Entry, Installed};
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
    /// Folder to write the models to, whatever they are worth [default: they are kept in the data
    /// folder, and used from there if they choose better than the models in use]
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
    /// Skip the predictions for unseen classes, which take a model (and a profile, if it was
    /// fitted) for each class
    #[arg(long)]
    pub quick: bool,
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
    /// Fit only the times of conversions, to records that tell by which code they ran
    #[arg(long)]
    conversions: bool,
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
    let records = read(&train.input, &device, &|| own(home, &device.name, train.input.several))?;
    if train.input.several && (train.by_features || train.fit.out.is_none()) {
        bail!(
            "models for several vectors are not installed by this command, and have no quick model: \
             name a folder with --out, and leave out --by-features"
        );
    }
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
    let records = read(input, &device, &|| own(home, &device.name, input.several))?;
    if records.timed(&device.name).next().is_none() {
        bail!("no record is of a product timed on {}; --device names another device", device.name);
    }
    if records.cases(&device).is_empty() {
        bail!("no record is of a known matrix; --corpus names the files of their matrices");
    }
    let working = spinner("fitting");
    let fitted = match profile.conversions {
        true => conversions::fit(&records, &device),
        false => profile::fit(&records, &device),
    };
    let text = profile::text(&fitted)?;
    working.finish_and_clear();
    write_file(&profile.output, |out| Ok(out.write_all(text.as_bytes())?))?;
    Ok(Answer::Yes)
}

/// Fits, scores and writes models from the records of a device, one per precision, with their
/// cards.
///
/// Without a folder to write to, a model is installed only if it chooses better than the one in
/// use; it also learns from the shipped records of the device or its proxy.
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
    let fitted = fit.fitted.then(|| Fitted { records, device: device.clone() });
    let settings = settings(fit, fitted);
    for &precision in precisions {
        let cases = of_precision(&cases, precision);
        if cases.is_empty() {
            note(&format!("no case is of {precision}"));
            continue;
        }
        let working = spinner("training");
        let used = Model::open(&home.data, &device, Purpose::of(precision, cases[0].vectors))?;
        let mut trained = match &fit.out {
            Some(_) => ellect_training::train(&cases, &settings)?,
            None => trained_with_shipped(&cases, &device, used.as_ref(), &settings)?,
        };
        trained.model.trained_at = Some(now_s());
        let plan = trained.plan;
        let unseen = if fit.quick { Unseen::Untried } else { Unseen::Tried };
        let report = report(&cases, &trained.predicted, plan, &settings, unseen)?;
        trained.model.scores.extend(report.scores());
        draw(fit, &cases, &trained.predicted, &settings)?;
        let card = card::card(&cases, &trained, &report);
        working.finish_and_clear();
        let stated = match &fit.out {
            Some(out) => write(out, &trained.model, &card)?,
            None => install_if_better(&cases, &trained, &card, used, home)?,
        };
        print(&format!("{stated}: {plan}\n\n{}\n", report.markdown()))?;
    }
    Ok(())
}

/// Returns the seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Writes a model and its card to a folder; returns the path of the model.
fn write(out: &Path, model: &Model, card: &str) -> Result<String> {
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let path = out.join(model::file_name(&model.device, model.purpose()));
    let bytes = model.bytes()?;
    write_file(&path, |out| Ok(out.write_all(&bytes)?))?;
    write_file(&path.with_extension("md"), |out| Ok(out.write_all(card.as_bytes())?))?;
    Ok(path.display().to_string())
}

/// Trains on this user's cases alone, and together with the shipped cases of the device or its
/// proxy; returns the model that chooses better for this user's cases, with its predictions of them.
fn trained_with_shipped(
    own: &[Case],
    device: &Device,
    used: Option<&Model>,
    settings: &Settings,
) -> Result<Trained> {
    let shipped = shipped_cases(own, device);
    let alone = ellect_training::train(own, settings);
    let Some(first) = own.first().filter(|_| !shipped.is_empty()) else { return alone };
    let mut all = own.to_vec();
    all.extend(shipped.into_iter().filter(|case| case.precision == first.precision));
    // All plans would take long on as many cases.
    let of_used = used.map(Plan::of).transpose()?;
    let plan = settings.plan.or(of_used);
    let settings = Settings { plan, fitted: None, ..settings.clone() };
    let mut together = ellect_training::train(&all, &settings)?;
    together.predicted.truncate(own.len());
    let Ok(alone) = alone else { return Ok(together) };
    let choices = |trained: &Trained| guard::held_out(own, &trained.predicted);
    let verdict = guard::compare(own, &choices(&together), None, &choices(&alone));
    Ok(if verdict.after >= verdict.before { together } else { alone })
}

/// Returns the shipped cases of the device, else of its proxy, as cases of the device; without the
/// matrices that this user measured.
fn shipped_cases(own: &[Case], device: &Device) -> Vec<Case> {
    let of = |name: &str| Device::shipped().into_iter().find(|shipped| shipped.name == name);
    let Some(kin) = of(&device.name).or_else(|| device.proxy()) else { return Vec::new() };
    let mut records = Records::default();
    Wisdom::shipped().each_shipped(|record| records.add(record));
    let known: HashSet<_> = own.iter().map(|case| case.fingerprint).collect();
    let cases = with_baseline(records.cases(&kin)).into_iter();
    let cases = cases.filter(|case| !known.contains(&case.fingerprint));
    let renamed = |case| Case { device: device.name.clone(), margin: device.margin, ..case };
    cases.map(renamed).collect()
}

/// Keeps a trained model, and installs it if it chooses better than the one in use; returns what
/// was decided.
fn install_if_better(
    cases: &[Case],
    trained: &Trained,
    card: &str,
    used: Option<Model>,
    home: &Home,
) -> Result<String> {
    let installed = Installed::of(&home.data);
    let model = &trained.model;
    let held_out = guard::held_out(cases, &trained.predicted);
    let used_id = used.as_ref().map(|used| used.name().id);
    let entries = installed.entries()?;
    let known = entries.into_iter().find(|entry| Some(&entry.name.id) == used_id.as_ref());
    let known = known.map(|entry| entry.held_out).unwrap_or_default();
    let verdict = guard::compare(cases, &held_out, used, &known);
    let entry = Entry { name: model.name(), precision: model.precision, verdict, held_out };
    installed.keep(model, card, &entry)?;
    let (device, id) = (&model.device, &entry.name.id);
    let of = format!("model {id} of {device} in {}", model.precision);
    if verdict.is_better() {
        installed.install(device, model.precision, id)?;
        return Ok(format!("{of} is installed: {verdict}; `ellect models rollback` undoes it"));
    }
    let why = match verdict.matrices {
        few if few < guard::LEAST_MATRICES => {
            format!("{few} matrices are too few, {} are needed", guard::LEAST_MATRICES)
        }
        _ => "it is not better than the model in use".to_string(),
    };
    Ok(format!("{of} is kept, not installed, because {why}: {verdict}"))
}

/// Draws the plots of a model if `fit` names a folder for them.
pub fn draw(fit: &Fit, cases: &[Case], predicted: &[Predicted], settings: &Settings) -> Result<()> {
    let (Some(folder), Some(first)) = (&fit.plots, cases.first()) else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let name = model::file_name(&first.device, Purpose::of(first.precision, first.vectors));
    let name = name.trim_end_matches(".model");
    for (plot, svg) in card::plots(cases, predicted, settings)? {
        let path = folder.join(format!("{name}-{plot}.svg"));
        write_file(&path, |out| Ok(out.write_all(svg.as_bytes())?))?;
    }
    Ok(())
}

/// Reads the model of a device from a folder that must have one.
pub fn of_folder(folder: &Path, device: &Device, purpose: impl Into<Purpose>) -> Result<Model> {
    let purpose = purpose.into();
    let model = Model::in_folder(folder, &device.name, purpose)?;
    model.with_context(|| {
        format!("{}: there is no model of {} in {purpose}", folder.display(), device.name)
    })
}

/// Returns the settings of the learners.
pub fn settings(fit: &Fit, fitted: Option<Fitted>) -> Settings {
    let fitted = fitted.map(Arc::new);
    let (commit, plan) = (fit.commit.clone(), fit.plan);
    Settings { folds: fit.folds, seed: fit.seed, commit, fitted, plan }
}
