//! `ellect tune` measures a corpus on a device, then fits and evaluates models.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use ellect::device;
use ellect::format::{Candidate, candidates_for};
use ellect::generate::{Size, Spec};
use ellect::measure::{Backend, Protocol};
use ellect::{Precision, Wisdom, Workload};
use ellect_training::corpus::{self, Ones};
use ellect_training::tune::{Event, Queue as _, Remembered, Summary, Tally, Tuning};
use xxhash_rust::xxh3::xxh3_128;

use super::records::{families, with_shared, write_lines};
use super::train::{Fit, fit_all};
use super::{Answer, Home, told};
use crate::options::{duration, size, timing_backend};
use crate::output::{bar, note, print};
use crate::shared::{Client, Queue};

/// Arguments of `ellect tune`.
#[derive(Debug, Args)]
pub struct Tune {
    /// Device of this machine: cpu, or cuda:0 with the feature cuda
    #[arg(long, default_value = "cpu", value_name = "NAME")]
    device: String,
    /// A matrix file, or a folder of them; may be repeated
    #[arg(long, value_name = "PATH", num_args = 1..)]
    corpus: Vec<PathBuf>,
    /// Repeat files along the diagonal until they have NNZ nonzeros, 0 for the original size;
    /// several with commas
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "NNZ", value_parser = size)]
    scale: Vec<usize>,
    /// Families of the files: a table with the columns name, family and category [default: derived
    /// from the names]
    #[arg(long, value_name = "FILE.csv")]
    families: Option<PathBuf>,
    /// Treat values that are all 1 as the real values, as in graphs without weights [default: such
    /// a file is a pattern of unknown values, and random values are drawn for it]
    #[arg(long)]
    ones: bool,
    /// Measure generated matrices: small, full or large
    #[arg(long, value_name = "SIZE")]
    generate: Option<Size>,
    /// A generated matrix, as for `generate`: CLASS:ROWS, CLASS:ROWS:rcm; may be repeated
    #[arg(long, value_name = "CLASS:ROWS", num_args = 1..)]
    matrix: Vec<Spec>,
    /// Measure only matrices of these classes, constant27 for instance; several with commas
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    class: Vec<String>,
    /// Measure only every N-th matrix, starting with the K-th: N runs with separate data folders
    /// share a corpus among devices of one kind
    #[arg(long, value_name = "K/N", value_parser = part)]
    part: Option<(usize, usize)>,
    /// Precisions to measure
    #[arg(long, value_delimiter = ',', default_value = "f64,f32")]
    precision: Vec<Precision>,
    /// Time limit of all measurements, 90s, 20m or 2h for instance [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Time limit of one matrix in one precision; a later run measures the candidates that are left
    /// [default: its share of the budget]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    each: Option<Duration>,
    /// Take matrices from a queue in the shared wisdom (--shared-wisdom), so that any number of hosts
    /// with this command measure each matrix once; first every N-th from the K-th on, then all
    /// others; 1/1 where nobody counts hosts. The matrix of a host that dies is taken again. A TIME is
    /// taken as --each
    #[arg(long, value_name = "K/N", value_parser = share, conflicts_with = "part")]
    share: Option<Share>,
    /// With --share K/N: put all matrices of this corpus into the queue again
    #[arg(long, requires = "share")]
    restart: bool,
    /// Continue an earlier run: candidates with a stored measurement are not measured again
    #[arg(long)]
    resume: bool,
    /// Continue likewise, and rerun the baseline and every candidate within TIMES times the best
    /// time; the median of the runs counts
    #[arg(long, value_name = "TIMES", value_parser = times)]
    rerun: Option<f64>,
    /// Maximum number of runs of a candidate in all, with --rerun
    #[arg(long, value_name = "N", requires = "rerun", default_value_t = 3)]
    runs: usize,
    /// Time only the conversions of candidates that were measured within TIMES times the best time,
    /// and keep the times of their products; for a GPU, after a change of its conversion kernels
    #[arg(long, value_name = "TIMES", value_parser = times, conflicts_with_all = ["resume", "rerun", "share", "dry_run"])]
    conversions: Option<f64>,
    /// Measure only candidates whose name begins with this text, a format with a new kernel for
    /// instance; may be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Skip candidates whose estimated time is over TIMES times the best estimate
    #[arg(long, default_value_t = 4.0, value_name = "TIMES", value_parser = times)]
    cut: f64,
    /// Print what would be measured and how long it takes, and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Only measure: fit no models
    #[arg(long)]
    measure_only: bool,
    /// Write all records of the device, even if the budget ends the run; .zst compresses
    #[arg(long, value_name = "FILE.jsonl")]
    export: Option<PathBuf>,
    /// Settings of the fit.
    #[command(flatten)]
    fit: Fit,
}

/// Value of `--share`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    /// Part of a queue that is taken first.
    Queue((usize, usize)),
    /// Time limit of a matrix, which had this name.
    Time(Duration),
}

fn share(text: &str) -> Result<Share, String> {
    match duration(text) {
        Ok(time) => Ok(Share::Time(time)),
        Err(_) => part(text).map(Share::Queue),
    }
}

/// Parses a factor of at least 1.
fn times(text: &str) -> Result<f64, String> {
    let wrong = || format!("it is '{text}'; it must be a number of at least 1, 1.08 for instance");
    text.parse().ok().filter(|times: &f64| *times >= 1.0 && times.is_finite()).ok_or_else(wrong)
}

/// Parses a part of a corpus, `2/4` for the second of four.
fn part(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match numbers {
        Some((k, n)) if (1..=n).contains(&k) => Ok((k, n)),
        _ => Err(format!("part is '{text}'; it must be K/N with K from 1 to N, 2/4 for instance")),
    }
}

/// Measures the corpus, exports the records, and fits and evaluates models.
pub fn run(tune: &Tune, home: &Home) -> Result<Answer> {
    let ones = if tune.ones { Ones::Values } else { Ones::Unknown };
    let families = families(tune.families.as_deref())?;
    let tell = &mut |text: String| note(&text);
    let mut entries = corpus::files(&tune.corpus, &tune.scale, &families, ones, tell)?;
    entries.extend(tune.generate.map_or_else(Vec::new, corpus::specs));
    entries.extend(tune.matrix.iter().copied().map(corpus::generated));
    if entries.is_empty() {
        bail!("there is nothing to measure: name a --corpus, a --matrix or --generate small");
    }
    if !tune.class.is_empty() {
        let known: BTreeSet<String> =
            entries.iter().map(|entry| corpus::class_of(&entry.family).to_string()).collect();
        if let Some(unknown) = tune.class.iter().find(|class| !known.contains(*class)) {
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            bail!("class is '{unknown}'; the matrices that are named are of these: {known}");
        }
        entries.retain(|entry| tune.class.iter().any(|c| c == corpus::class_of(&entry.family)));
    }
    let mut entries = corpus::in_turns(entries);
    if let Some((k, n)) = tune.part {
        entries = entries.into_iter().skip(k - 1).step_by(n).collect();
    }
    if tune.dry_run {
        return print(&planned(tune, &entries, home)?).map(|()| Answer::Yes);
    }
    let backend = tune.backend(home)?;
    let device = backend.device().clone();
    if device::all_in(&home.data)?.iter().all(|known| known.name != device.name) {
        // Models from these records start from this profile, here or on another machine.
        device.save(&home.data)?;
    }
    let wisdom = Wisdom::open(&home.data)?;
    told(&wisdom);
    let (wisdom, client) = home.sharing(wisdom)?;
    let tuning = Tuning {
        backend: &backend,
        wisdom: &wisdom,
        precisions: &tune.precision,
        only: &tune.only,
        cut: tune.cut,
        budget: tune.budget,
        share: tune.each(),
        remembered: tune.remembered(),
    };
    let summary = match tune.queue() {
        None => measure(&tuning, Corpus::Own(entries))?,
        Some(part) => measure_shared(tune, &tuning, entries, part, client.as_deref())?,
    };
    wisdom.close()?;
    print(&stated(&summary))?;
    if let Some(path) = &tune.export {
        let mut lines = Vec::new();
        wisdom.export_of(Some(&device.name), &mut lines)?;
        write_lines(path, &lines)?;
    }
    if tune.measure_only {
        return Ok(Answer::Yes);
    }
    drop(backend);
    let mut records = ellect_training::Records::default();
    let theirs = client.filter(|_| tune.queue().is_some());
    for record in with_shared(&wisdom, theirs.as_deref(), &device.name)? {
        records.add(record);
    }
    fit_all(records, device, &tune.precision, &tune.fit, home)?;
    Ok(Answer::Yes)
}

impl Tune {
    /// Opens the device that measures.
    fn backend(&self, home: &Home) -> Result<Backend> {
        if self.conversions.is_none() {
            return Ok(timing_backend(&self.device, &home.data)?);
        }
        // Conversions on a host are timed with the products of their layouts only. No product runs
        // that might fault, so no process of its own is needed.
        let backend = Backend::open(&self.device, &home.data)?;
        backend.gpu()?;
        Ok(backend)
    }

    /// Returns the treatment of stored measurements.
    fn remembered(&self) -> Remembered {
        match (self.conversions, self.rerun) {
            (Some(near), _) => Remembered::Converted { near },
            (None, Some(near)) => Remembered::Rerun { near, most: self.runs },
            (None, None) if self.resume => Remembered::Kept,
            (None, None) => Remembered::Replaced,
        }
    }

    /// Returns the time limit of one matrix in one precision.
    fn each(&self) -> Option<Duration> {
        match self.share {
            Some(Share::Time(time)) => self.each.or(Some(time)),
            _ => self.each,
        }
    }

    /// Returns the part of the queue that is taken first; `None` if there is no queue.
    fn queue(&self) -> Option<(usize, usize)> {
        match self.share {
            Some(Share::Queue(part)) => Some(part),
            _ => None,
        }
    }
}

/// Returns the name of the queue of a corpus: hosts with the same matrices, settings and kind of
/// device share one.
fn run_name(tuning: &Tuning<'_>, entries: &[corpus::Entry]) -> String {
    let mut sources: Vec<&str> = entries.iter().map(|entry| entry.source.as_str()).collect();
    sources.sort_unstable();
    sources.dedup();
    let device = tuning.backend.device().name.as_str();
    let driver = tuning.backend.driver().unwrap_or_default();
    let precisions: Vec<_> = tuning.precisions.iter().map(ToString::to_string).collect();
    let Tuning { cut, only, .. } = tuning;
    let version = Protocol::default().version;
    let all = format!("{driver}\n{precisions:?}\n{only:?}\n{cut}\n{version}\n{sources:?}");
    format!("{device} {:032x}", xxh3_128(all.as_bytes()))
}

/// Measures what the queue of the corpus in the shared wisdom leaves to this host.
fn measure_shared(
    tune: &Tune,
    tuning: &Tuning<'_>,
    entries: Vec<corpus::Entry>,
    part: (usize, usize),
    client: Option<&Client>,
) -> Result<Summary> {
    let Some(client) = client else {
        bail!(
            "--share takes matrices from a queue in the shared wisdom: name that by --shared-wisdom \
             postgres://USER@HOST/DATABASE"
        );
    };
    let queue = client.queue(&run_name(tuning, &entries), entries, part)?;
    if tune.restart {
        queue.restart()?;
    }
    measure(tuning, Corpus::Shared(&queue))
}

/// Matrices to measure.
enum Corpus<'a> {
    Own(Vec<corpus::Entry>),
    Shared(&'a Queue),
}

/// Says what a run would measure, and how long it takes by the limits of the protocol.
fn planned(tune: &Tune, entries: &[corpus::Entry], home: &Home) -> Result<String> {
    let device = Backend::open(&tune.device, &home.data)?.device().clone();
    let is_chosen = |candidate: &Candidate| candidate.is_among(&tune.only);
    let of = |precision: &Precision| {
        let all = candidates_for(&Workload::default().target(&device, *precision));
        all.iter().filter(|candidate| is_chosen(candidate)).count()
    };
    let candidates = tune.precision.iter().map(of).max().unwrap_or(0);
    let mut text = String::new();
    for entry in entries {
        text += &format!("{} ({})\n", entry.source, entry.family);
    }
    let cases = entries.len() * tune.precision.len();
    let Protocol { min_samples, min_sample_s, max_s, max_convert_s, .. } = Protocol::default();
    let all = (cases * candidates) as f64;
    let least_s = all * f64::from(min_samples) * min_sample_s;
    let most_s = all * (max_s + max_convert_s);
    let most_s = tune.budget.map_or(most_s, |budget| most_s.min(budget.as_secs_f64()));
    text += &format!(
        "{} in {} precisions on {}: at most {candidates} candidates each; those whose estimate is \
         over {} times the best are skipped\n{} to {}\n",
        match entries.len() {
            1 => "1 matrix".to_string(),
            count => format!("{count} matrices"),
        },
        tune.precision.len(),
        device.name,
        tune.cut,
        minutes(least_s.min(most_s)),
        minutes(most_s)
    );
    Ok(text)
}

/// Measures the entries; shows a progress bar on a terminal, otherwise one line per matrix.
fn measure(tuning: &Tuning<'_>, corpus: Corpus<'_>) -> Result<Summary> {
    let matrices = match &corpus {
        Corpus::Own(entries) => entries.len(),
        Corpus::Shared(queue) => queue.left(),
    };
    let bar = bar((matrices * tuning.precisions.len()) as u64, "tuning");
    let mut tell = |event: Event<'_>| match event {
        Event::Timing { source, candidate } => bar.set_message(format!("{source} {candidate}")),
        Event::Case(done) => {
            bar.set_position(done.done as u64);
            let tally = done.tally;
            let line = format!(
                "{}/{} {} {}: {} timed ({}) in {:.1} s; {} to go",
                done.done,
                done.all,
                done.source,
                done.precision,
                tally.timed,
                others(&tally),
                done.took_s,
                minutes(done.left_s)
            );
            bar.suspend(|| note(&line));
        }
        Event::Skipped { source, why } => {
            bar.suspend(|| note(&format!("left out: {source}: {why}")))
        }
    };
    let summary = match corpus {
        Corpus::Own(entries) => tuning.run(entries, &mut tell),
        Corpus::Shared(queue) => tuning.run_shared(queue, &mut tell),
    };
    bar.finish_and_clear();
    summary
}

/// Says what became of the candidates that were not timed.
fn others(tally: &Tally) -> String {
    let all = [
        (tally.known, "known"),
        (tally.refused, "do not apply"),
        (tally.cut, "hopeless"),
        (tally.late, "without time"),
        (tally.bad, "wrong or failed"),
    ];
    let some = all.iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = some.map(|(count, word)| format!("{count} {word}")).collect();
    if words.is_empty() { "all".to_string() } else { words.join(", ") }
}

fn minutes(s: f64) -> String {
    match s {
        s if s >= 3600.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 60.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.0} s"),
    }
}

fn stated(summary: &Summary) -> String {
    let tally = summary.tally;
    let mut text = format!(
        "{} matrices measured: {} candidates timed, {} cut, {} refused, {} wrong or failed\n",
        summary.matrices, tally.timed, tally.cut, tally.refused, tally.bad
    );
    if tally.late > 0 {
        text += &format!(
            "{} candidates had no time left: the same command with --resume goes on\n",
            tally.late
        );
    }
    if summary.left > 0 {
        text += &format!(
            "{} matrices are left: the budget is spent; the same command with --resume goes on\n",
            summary.left
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_several() {
        assert_eq!(part("2/4"), Ok((2, 4)));
        for wrong in ["", "2", "0/4", "5/4", "a/b", "1/0"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
        assert_eq!(share("1/1"), Ok(Share::Queue((1, 1))));
        assert_eq!(share("90s"), Ok(Share::Time(Duration::from_secs(90))));
        assert!(share("3/2").is_err());
    }
}
