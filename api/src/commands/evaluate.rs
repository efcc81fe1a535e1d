//! `ellect evaluate`: tables of how well models choose.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use ellect::device::Device;
use ellect::model::{Model, Purpose, file_name};
use ellect::unstable::wisdom::Record;
use ellect::{Precision, Wisdom, device};
use ellect_training::crossval::cross_validate;
use ellect_training::evaluate::{Unseen, evaluate_as_is, replay_scores, report};
use ellect_training::plan::Plan;
use ellect_training::profile::Fitted;
use ellect_training::train::of_precision;
use ellect_training::{Case, Records, Report, Settings, Trained, card};

use super::records::{RecordArgs, read};
use super::train::{Fit, draw, of_folder, settings, with_baseline};
use super::{Answer, Home};
use crate::output::{note, print, spinner, write_file};

/// Arguments of `ellect evaluate`.
#[derive(Debug, Args)]
pub struct Evaluate {
    /// The records.
    #[command(flatten)]
    input: RecordArgs,
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
    /// Learn nothing: replay the choices of the models that ship on the records that ship, and compare
    /// them with the recorded ones: exit code 1 if one moved; with --record, record them
    #[arg(long, conflicts_with_all = ["records", "as_is", "models", "plots"])]
    replay: bool,
    /// Write the scores of the models that ship to scores.json in this folder, and their cards beside
    /// it, after a change of the code that moves choices: models, in a checkout of this program
    #[arg(long, value_name = "DIR", conflicts_with_all = ["records", "as_is", "models"])]
    record: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Cases with fewer candidates than this are noted, because the best of a few is easily found.
const FEW: usize = 8;

/// Prints the evaluation tables of each precision.
///
/// The answer is no if a figure is worse than the score recorded in the model it is compared with.
pub fn evaluate(evaluate: &Evaluate, home: &Home) -> Result<Answer> {
    let input = &evaluate.input;
    let shipped = || {
        let mut records = Records::new(input.several);
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
    // Profiles are fitted to products with one vector.
    let shipped = input.records.is_empty() && device.fitted && !input.several;
    let fitted =
        (evaluate.fit.fitted || shipped).then(|| Fitted { records, device: device.clone() });
    let settings = settings(&evaluate.fit, fitted);
    let cases = if evaluate.as_is { unlearned(evaluate, cases) } else { cases };
    let cases = with_baseline(cases);
    let mut reports: Vec<Report> = Vec::new();
    let mut moved = false;
    for precision in &input.precision {
        let cases = of_precision(&cases, *precision);
        if cases.is_empty() {
            note(&format!("no case is of {precision}"));
            continue;
        }
        if evaluate.replay {
            moved |= replay(evaluate, &device, *precision, &cases)?;
            continue;
        }
        let working = spinner("evaluating");
        let (report, has_moved) =
            evaluate_precision(evaluate, &device, *precision, &cases, &settings)?;
        reports.push(report);
        moved |= has_moved;
        working.finish_and_clear();
    }
    if evaluate.replay {
        return Ok(if moved { Answer::No } else { Answer::Yes });
    }
    match evaluate.json {
        true => print(&(serde_json::to_string_pretty(&reports)? + "\n"))?,
        false => print(&reports.iter().map(Report::markdown).collect::<Vec<_>>().join("\n"))?,
    }
    let fell = note_fallen(&reports);
    Ok(if moved { Answer::No } else { fell })
}

/// Replays the choices of a shipped model, and prints their scores as a line of JSON or of text; tells
/// whether one differs from its card.
fn replay(
    evaluate: &Evaluate,
    device: &Device,
    precision: Precision,
    cases: &[Case],
) -> Result<bool> {
    let Some(model) = compared(evaluate, device, precision)? else {
        bail!("no model of {} in {precision} ships, so there is nothing to replay", device.name);
    };
    let scores = replay_scores(cases, model.clone(), device)?;
    let purpose = model.purpose();
    let name = format!("{}-{purpose}", device.name);
    if let Some(folder) = &evaluate.record {
        record_scores(folder, &name, scores)?;
        return Ok(false);
    }
    let recorded = scores.keys().filter(|key| model.scores.contains_key(*key)).count();
    if recorded == 0 {
        bail!(
            "scores.json holds no replayed scores of {} in {precision}; `ellect evaluate --device {0} \
             --replay --record models` writes them",
            device.name
        );
    }
    let moved = note_moved(&model, &scores);
    match evaluate.json {
        true => print(&(serde_json::json!({ name: scores }).to_string() + "\n"))?,
        false => {
            let state = if moved { "differ from" } else { "agree with" };
            print(&format!("{name}: {recorded} replayed scores {state} the recorded ones\n"))?;
        }
    }
    Ok(moved)
}

/// Evaluates one precision; tells whether the shipped model moved its choices.
fn evaluate_precision(
    evaluate: &Evaluate,
    device: &Device,
    precision: Precision,
    cases: &[Case],
    settings: &Settings,
) -> Result<(Report, bool)> {
    let model = compared(evaluate, device, precision)?;
    if evaluate.as_is {
        let Some(model) = model else {
            bail!(
                "no model of {} in {precision} ships; --models DIR names a folder of others",
                evaluate.input.device
            );
        };
        return Ok((evaluate_as_is(cases, model, device)?, false));
    }
    let plan = match &model {
        Some(model) => Plan::of(model)?,
        None => ellect_training::train(cases, settings)?.plan,
    };
    let predicted = cross_validate(cases, plan, settings)?;
    draw(&evaluate.fit, cases, &predicted, settings)?;
    let unseen = if evaluate.fit.quick { Unseen::Untried } else { Unseen::Tried };
    let mut report = report(cases, &predicted, plan, settings, unseen)?;
    let Some(model) = model else { return Ok((report, false)) };
    let replayed = match is_shipped(evaluate, device) && model.device == device.name {
        true => replay_scores(cases, model.clone(), device)?,
        false => BTreeMap::new(),
    };
    let Some(folder) = &evaluate.record else {
        report.compare(&model.scores);
        return Ok((report, note_moved(&model, &replayed)));
    };
    let scores: BTreeMap<_, _> = report.scores().chain(replayed).collect();
    let mut model = model;
    model.scores.extend(scores.clone());
    record(folder, cases, &Trained { model, plan, predicted }, &report, scores)?;
    Ok((report, false))
}

/// Tells whether shipped records are evaluated with the profile that ships, as the recorded scores
/// were.
fn is_shipped(evaluate: &Evaluate, device: &Device) -> bool {
    evaluate.input.records.is_empty()
        && evaluate.models.is_none()
        && Device::shipped().contains(device)
}

/// Difference of two replayed scores that rounding explains.
const SAME: f64 = 2e-6;

/// Notes each replayed score that differs from the recorded one; tells whether there is one.
///
/// A model of another program, for which nothing was recorded, is not compared.
fn note_moved(model: &Model, replayed: &BTreeMap<String, f64>) -> bool {
    let mut moved = false;
    let several = if model.several { " --several" } else { "" };
    for (key, now) in replayed {
        let Some(then) = model.scores.get(key).filter(|then| (*now - **then).abs() > SAME) else {
            continue;
        };
        moved = true;
        note(&format!(
            "the model of {} in {} chooses otherwise than when its card was written: {key} is {now}, it \
             was {then}; `ellect evaluate --device {0}{several} --quick --record models` writes scores and card again",
            model.device, model.precision
        ));
    }
    moved
}

/// Writes the scores and the card of a shipped model to a folder, which keeps those of other models.
fn record(
    folder: &Path,
    cases: &[Case],
    trained: &Trained,
    report: &Report,
    scores: BTreeMap<String, f64>,
) -> Result<()> {
    let (device, purpose) = (&trained.model.device, trained.model.purpose());
    record_scores(folder, &format!("{device}-{purpose}"), scores)?;
    let card = card::card(cases, trained, report);
    let path = folder.join(file_name(device, purpose)).with_extension("md");
    write_file(&path, |out| Ok(out.write_all(card.as_bytes())?))
}

/// Writes scores of a model to scores.json in a folder; its other scores there stay.
fn record_scores(folder: &Path, model: &str, scores: BTreeMap<String, f64>) -> Result<()> {
    let path = folder.join("scores.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut all: BTreeMap<String, BTreeMap<String, f64>> =
        serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    all.entry(model.to_string()).or_default().extend(scores);
    let text = serde_json::to_string_pretty(&all)? + "\n";
    write_file(&path, |out| Ok(out.write_all(text.as_bytes())?))
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
    let purpose = Purpose { precision, several: evaluate.input.several };
    if let Some(folder) = &evaluate.models {
        return Ok(Some(of_folder(folder, device, purpose)?));
    }
    match evaluate.input.records.is_empty() || evaluate.as_is {
        true => Ok(Model::shipped(device, purpose)?),
        false => Ok(None),
    }
}
