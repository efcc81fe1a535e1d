//! `POST /tune`: trains models from the stored measurements, as a job.
//!
//! The work runs in a process of this program, `ellect train` or `ellect tune`, so that its memory,
//! its end and its faults are its own. A model is installed only if it chooses better than the one in
//! use.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use clap::{ArgAction, Args, Parser};
use ellect::generate::{Size, Spec};
use ellect::measure::Measurement;
use ellect::unstable::wisdom::Record;
use ellect::{Error, Precision, Wisdom, device};
use ellect_training::Plan as Learning;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OwnedSemaphorePermit;

use super::Service;
use super::access::Role;
use super::failure::{
    ARGUMENT, CANCELED, Failure, INTERRUPTED, NO_WISDOM, TIMEOUT, TRAINING, UNMEASURED,
};
use super::jobs::{self, Entry, Job, Plan, Task, Work};
use super::measured::MOST_WAIT;
use super::places::{Client, Places};
use crate::installed::Installed;
use crate::options::duration;
use crate::query;
use crate::started;

/// Variable of the environment of a process that ends when its standard input does.
pub const ENDS_WITH_INPUT: &str = "ELLECT_ENDS_WITH_INPUT";

/// Exit code of such a process.
pub const PARENT_ENDED: i32 = 3;

/// Longest time of all measurements of one job.
const MOST_BUDGET: Duration = Duration::from_secs(2 * 3600);

/// Longest time of the training in one job, in addition to its measurements.
const MOST_TRAINING: Duration = Duration::from_secs(4 * 3600);

/// Number of lines of a process that are kept for the message of its failure.
const LAST_LINES: usize = 5;

/// Parameters of the training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct Training {
    /// Device whose models are trained: cpu, or another name that GET /devices lists; a device of this
    /// machine, cuda:0 for instance, if generate or matrix is given
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    pub device: String,
    /// Precisions of the models, with commas
    #[arg(long, value_delimiter = ',', default_value = "f64,f32", value_name = "NAMES")]
    pub precision: Vec<Precision>,
    /// Measure generated matrices first: small, full or large
    #[arg(long, value_name = "SIZE", value_parser = as_text::<Size>)]
    pub generate: Option<String>,
    /// Measure these generated matrices first, CLASS:ROWS with commas
    #[arg(long, value_delimiter = ',', value_name = "CLASS:ROWS", value_parser = as_text::<Spec>)]
    pub matrix: Vec<String>,
    /// Time limit of the measurements, 20m for instance; at most 2h
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = as_time)]
    pub budget: String,
    /// Learner and target of the trees, 'extra trees over the estimate' for instance [default: that
    /// of the model in use, or the best in cross-validation]
    #[arg(long, value_name = "TEXT", value_parser = as_text::<Learning>)]
    pub plan: Option<String>,
    /// Skip the predictions for unseen classes of matrices, which take long: true or false
    #[arg(long, default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    pub quick: bool,
}

/// Checks that a text is the form of a `T`; returns it as it is.
fn as_text<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<String, String> {
    text.parse::<T>().map(|_| text.to_string()).map_err(|error| error.to_string())
}

/// Checks that a text is a time; returns it as it is.
fn as_time(text: &str) -> Result<String, String> {
    duration(text).map(|_| text.to_string())
}

/// The parameters of `POST /tune`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Parameters {
    #[command(flatten)]
    training: Training,
    /// Milliseconds to wait for the end, at most 600000; then the answer is status 202 with the path
    /// of the job
    #[arg(long, default_value_t = 0, value_name = "MS", value_parser = ellect::units::count)]
    wait_ms: u64,
}

impl Training {
    /// Tells whether matrices are measured first.
    fn measures(&self) -> bool {
        self.generate.is_some() || !self.matrix.is_empty()
    }

    /// Returns the arguments of the process.
    fn arguments(&self, data: &Path) -> Vec<std::ffi::OsString> {
        let precisions: Vec<_> = self.precision.iter().map(ToString::to_string).collect();
        let command = if self.measures() { "tune" } else { "train" };
        let mut arguments = vec!["--data".into(), data.into(), command.into()];
        let mut add = |name: &str, value: &str| {
            arguments.extend([format!("--{name}").into(), value.into()]);
        };
        add("device", &self.device);
        add("precision", &precisions.join(","));
        self.plan.iter().for_each(|plan| add("plan", plan));
        if self.measures() {
            self.generate.iter().for_each(|size| add("generate", size));
            self.matrix.iter().for_each(|spec| add("matrix", spec));
            let budget = duration(&self.budget).unwrap_or(MOST_BUDGET).min(MOST_BUDGET);
            add("budget", &format!("{}s", budget.as_secs_f64()));
            arguments.push("--resume".into());
        }
        if self.quick {
            arguments.push("--quick".into());
        }
        arguments
    }
}

/// Makes a job of a request to train.
///
/// # Errors
/// 400 for wrong parameters, 403 for the role read, 409 if there is nothing to train from, 503 if too
/// many jobs wait.
pub async fn posted(
    State(service): State<Arc<Service>>,
    Extension(role): Extension<Role>,
    Extension(client): Extension<Client>,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Response, Failure> {
    role.check_writes("training")?;
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let Parameters { training, wait_ms } = query::parsed(&pairs)?;
    check(&service, &training).await?;
    let same = format!("{training:?}");
    let entry = match service.jobs.same(&same) {
        Some(entry) => entry,
        None => {
            let lines = lines(&service, &training).await?;
            let admitted: Result<Vec<_>, _> = lines.iter().map(|places| places.admit()).collect();
            let admitted = admitted?;
            let (id, _) = service.jobs.number(0)?;
            let job = Job::new(id, Task::Tune(training.clone()));
            let entry = service.jobs.enqueue(job, client, Some(same)).await?;
            jobs::start(
                &service.jobs,
                &entry,
                plan_in(&service, &entry, training, lines, admitted),
            );
            entry
        }
    };
    let wait = Duration::from_millis(wait_ms).min(MOST_WAIT);
    match entry.ended_within(wait).await {
        Some(Err(failure)) => Err(failure),
        _ => Ok(match entry.job().status.is_final() {
            true => jobs::shown_of(&service, &entry).await?.into_response(),
            false => jobs::accepted(&entry),
        }),
    }
}

/// Checks that there is, or will be, something to train from.
async fn check(service: &Arc<Service>, training: &Training) -> Result<(), Failure> {
    let Some(wisdom) = service.config.wisdom.clone() else {
        let stated =
            "this service keeps no measurements (no_wisdom), so there is nothing to train from";
        return Err(Failure::new(&NO_WISDOM, stated));
    };
    if training.measures() {
        return Ok(());
    }
    let device = device::find_in(&training.device, &service.config.data)?.name;
    let (name, precisions) = (device.clone(), training.precision.clone());
    let looking = tokio::task::spawn_blocking(move || {
        has(&wisdom, |m| m.device == name && precisions.contains(&m.precision))
    });
    if looking.await.map_err(Failure::internal)?? {
        return Ok(());
    }
    let stated = format!(
        "no timed measurement of {device} is stored; POST /recommend?effort=measure measures a matrix, \
         POST /measurements adds records, and POST /tune?generate=small measures generated matrices \
         first"
    );
    Err(Failure::new(&UNMEASURED, stated))
}

/// Tells whether a timed measurement of this kind is stored.
fn has(wisdom: &Wisdom, is_wanted: impl Fn(&Measurement) -> bool) -> ellect::Result<bool> {
    // The search ends at the first one by an error.
    let found = || Error::argument("found");
    let mut is_found = false;
    let searched = wisdom.each(|record| match record {
        Record::Measurement(m) if m.cost().is_some() && m.is_of_one_vector() && is_wanted(&m) => {
            is_found = true;
            Err(found())
        }
        Record::Measurement(_) | Record::Structure(_) => Ok(()),
    });
    match is_found {
        true => Ok(true),
        false => searched.map(|()| false),
    }
}

/// Returns the lines that a job waits in: that of its device if it measures, then that of this host,
/// on which it trains.
async fn lines(service: &Service, training: &Training) -> Result<Vec<Arc<Places>>, Failure> {
    let host = Arc::clone(&service.devices.host);
    if !training.measures() {
        return Ok(vec![host]);
    }
    let measured = service.devices.open(&training.device).await?;
    measured.backend.check()?;
    let own = Arc::clone(&measured.places);
    Ok(if Arc::ptr_eq(&own, &host) { vec![host] } else { vec![own, host] })
}

/// Returns the plan of a job that an earlier process of the service left.
///
/// # Errors
/// If its device is no longer there.
pub async fn plan(
    service: &Arc<Service>,
    entry: &Arc<Entry>,
    training: &Training,
) -> Result<Plan, Failure> {
    let lines = lines(service, training).await?;
    let admitted = lines.iter().filter_map(|places| places.admit().ok()).collect();
    Ok(plan_in(service, entry, training.clone(), lines, admitted))
}

fn plan_in(
    service: &Arc<Service>,
    entry: &Arc<Entry>,
    training: Training,
    places: Vec<Arc<Places>>,
    admitted: Vec<OwnedSemaphorePermit>,
) -> Plan {
    let (service, entry) = (Arc::clone(service), Arc::clone(entry));
    let work: Work = Box::new(move || {
        let (service, entry) = (Arc::clone(&service), Arc::clone(&entry));
        let training = training.clone();
        Box::pin(async move { trained(&service, &entry, &training).await })
    });
    Plan { places, admitted, work }
}

/// Trains in a process; returns the models and the report.
async fn trained(service: &Service, entry: &Entry, training: &Training) -> Result<Bytes, Failure> {
    let data = &service.config.data;
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (program, first) = started::again().map_err(Failure::internal)?;
    let mut command = Command::new(program);
    command
        .args(first)
        .args(training.arguments(data))
        .env(ENDS_WITH_INPUT, "1")
        .env("NO_COLOR", "1");
    if let Some(address) = &service.config.shared_address {
        // Other users see the arguments of a process, but not its environment.
        command.env("ELLECT_SHARED_WISDOM", address.secret());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    // An interrupt at a terminal goes to the service alone.
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(Failure::internal)?;
    let limit = MOST_TRAINING + if training.measures() { MOST_BUDGET } else { Duration::ZERO };
    let failure = tokio::select! {
        ended = watched(&mut child, entry) => {
            let (status, report, last) = ended.map_err(Failure::internal)?;
            if status.success() {
                return result(service, training, since_s, &report);
            }
            failure(status, &last)
        }
        () = entry.is_asked() => Failure::new(&CANCELED, "the training was stopped"),
        () = tokio::time::sleep(limit) => {
            let stated = format!("the training took over {} s and was stopped", limit.as_secs());
            Failure::new(&TIMEOUT, stated)
        }
    };
    // It has ended already unless it was stopped.
    let _ = child.kill().await;
    Err(failure)
}

/// Waits for the end of a process; returns its status, its output, and the last lines on its standard
/// error, which also tell how far it is.
async fn watched(
    child: &mut Child,
    entry: &Entry,
) -> std::io::Result<(ExitStatus, String, Vec<String>)> {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    // It is closed when the process has ended, or this one ends.
    let _input = child.stdin.take();
    let report = async {
        let mut report = Vec::new();
        match output {
            Some(mut output) => output.read_to_end(&mut report).await.map(|_| report),
            None => Ok(report),
        }
    };
    let lines = async {
        let mut last = Vec::new();
        let Some(errors) = errors else { return Ok(last) };
        let mut lines = BufReader::new(errors).split(b'\n');
        while let Some(line) = lines.next_segment().await? {
            let line = String::from_utf8_lossy(&line).trim().to_string();
            if let Some((done, total, step)) = progress(&line) {
                entry.progressed(done, total, step);
            }
            if last.len() == LAST_LINES {
                last.remove(0);
            }
            last.push(line);
        }
        Ok::<_, std::io::Error>(last)
    };
    let (report, last) = tokio::try_join!(report, lines)?;
    Ok((child.wait().await?, String::from_utf8_lossy(&report).into_owned(), last))
}

/// Parses a line that tells how far a tuning run is: `3/24 heat:400 f64: ...`.
fn progress(line: &str) -> Option<(usize, usize, &str)> {
    let (numbers, step) = line.split_once(' ')?;
    let (done, total) = numbers.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?, step))
}

/// Returns the reason why a process failed, as its last lines tell it.
fn failure(status: ExitStatus, last: &[String]) -> Failure {
    let told = last.iter().rev().find_map(|line| line.strip_prefix("error: "));
    match told {
        // Its options are parameters here.
        Some(told) => Failure::new(&TRAINING, told.replace("--", "")),
        None => {
            tracing::error!("the training process ended by {status}: {}", last.join("; "));
            let stated = format!("the process that trained ended by {status}");
            Failure::new(&INTERRUPTED, stated)
        }
    }
}

/// Returns the models that were trained since a time, and the report; uses the installed ones from
/// now on.
fn result(
    service: &Service,
    training: &Training,
    since_s: u64,
    report: &str,
) -> Result<Bytes, Failure> {
    let mut models = Installed::of(&service.config.data).list().map_err(Failure::internal)?;
    models.retain(|model| {
        model.name.trained_at.is_some_and(|at| at >= since_s)
            && training.precision.contains(&model.precision)
    });
    service.reload();
    let result = json!({"models": models, "report": report});
    serde_json::to_vec(&result).map(Bytes::from).map_err(Failure::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn training(pairs: &[(&str, &str)]) -> ellect::Result<Training> {
        let own = |&(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let pairs: Vec<_> = pairs.iter().map(own).collect();
        query::parsed::<Parameters>(&pairs).map(|parameters| parameters.training)
    }

    #[test]
    fn a_job_trains_from_what_is_stored_unless_it_names_matrices() {
        let words = |pairs: &[(&str, &str)]| {
            let words = training(pairs).expect("legal").arguments(Path::new("data"));
            words
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(words(&[]), "--data data train --device cpu --precision f64,f32 --quick");
        let all = [
            ("precision", "f32"),
            ("generate", "small"),
            ("matrix", "heat:400,banded:400"),
            ("budget", "9h"),
            ("quick", "false"),
        ];
        assert_eq!(
            words(&all),
            "--data data tune --device cpu --precision f32 --generate small --matrix heat:400 --matrix \
             banded:400 --budget 7200s --resume"
        );
        for (name, value) in [
            ("generate", "tiny"),
            ("matrix", "nosuch:400"),
            ("plan", "luck"),
            ("precision", "f16"),
            ("corpus", "/etc"),
        ] {
            let stated = training(&[(name, value)]).expect_err("wrong").to_string();
            assert!(stated.contains(name) && !stated.contains("--"), "{stated}");
        }
    }

    #[test]
    fn lines_of_a_run_tell_how_far_it_is() {
        assert_eq!(progress("3/24 heat:400 f64: 9 timed"), Some((3, 24, "heat:400 f64: 9 timed")));
        for other in ["left out: a.mtx: damaged", "1 2", "1/x a", ""] {
            assert_eq!(progress(other), None, "{other}");
        }
    }
}
