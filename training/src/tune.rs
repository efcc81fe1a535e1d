//! The tuning run: every matrix of a corpus measured on a device, and all of it remembered at once.
//!
//! Matrices are made ahead of the measuring where the device is not the host itself. Of each,
//! candidates are estimated; those far above the best estimate are cut, the others timed in an
//! order that begins with the incumbents and the best of each format, so that a budget which ends
//! early takes the least. A run that was killed goes on where it was: what is remembered and still
//! of use is not measured again, or once more where it is near the best.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ellect::choose::Workload;
use ellect::device::Kind;
use ellect::features::Features;
use ellect::format::{BASELINES, Candidate, Target};
use ellect::measure::provenance::all_kernels;
use ellect::measure::{Measurement, Meter, Outcome, Protocol, Provenance, Seen};
use ellect::structure::Structure;
use ellect::wisdom::{Record, StructureRecord, Wanted};
use ellect::{Csr, Fingerprint, Precision, Scalar, Wisdom};

use crate::corpus::Entry;
use crate::survey::{Suits, survey};

/// A tuning run.
#[derive(Debug)]
pub struct Tuning<'a> {
    /// The device.
    pub meter: &'a Meter,
    /// Where measurements are kept.
    pub wisdom: &'a Wisdom,
    /// Precisions of the values, one after the other.
    pub precisions: &'a [Precision],
    /// Candidates whose text begins so alone; none for all.
    pub only: &'a [String],
    /// Candidates are cut whose estimate is so many times the best one.
    pub cut: f64,
    /// The time of the whole run; none for no limit.
    pub budget: Option<Duration>,
    /// The time of one matrix in one precision; none for its share of the budget. A run ends when
    /// less than that is left.
    pub share: Option<Duration>,
    /// What happens to what is remembered.
    pub remembered: Remembered,
}

/// What a run does with measurements that are remembered and still of use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remembered {
    /// They are not taken again.
    Kept,
    /// The incumbents and what takes at most `near` times the best time are run once more, which joins
    /// the runs before, unless these are `most` already; the others are not taken again.
    Rerun {
        /// At least 1.
        near: f64,
        /// Runs of a candidate in all.
        most: usize,
    },
    /// They are taken again.
    Replaced,
}

/// What a run tells of while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// A candidate is about to be timed.
    Timing {
        /// The matrix.
        source: &'a str,
        /// The candidate.
        candidate: &'a Candidate,
    },
    /// A matrix is done in one precision.
    Case(&'a Done<'a>),
    /// A matrix was left out.
    Skipped {
        /// The matrix.
        source: &'a str,
        /// The reason.
        why: String,
    },
}

/// A matrix that is done in one precision.
#[derive(Debug)]
pub struct Done<'a> {
    /// The matrix.
    pub source: &'a str,
    /// The precision.
    pub precision: Precision,
    /// What became of its candidates.
    pub tally: Tally,
    /// Seconds that it took the device.
    pub took_s: f64,
    /// Matrices, each precision for itself, that are done.
    pub done: usize,
    /// All of them.
    pub all: usize,
    /// Seconds that are likely to be left.
    pub left_s: f64,
}

/// What became of candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Checked and timed.
    pub timed: usize,
    /// Cut by the estimate.
    pub cut: usize,
    /// Left for a run that goes on: the matrix's time was over.
    pub late: usize,
    /// Refused by the format.
    pub refused: usize,
    /// Wrong or failed.
    pub bad: usize,
    /// Remembered from before.
    pub known: usize,
}

impl Tally {
    fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Timed(_) => &mut self.timed,
            Outcome::Cut { .. } => &mut self.cut,
            Outcome::Refused { .. } => &mut self.refused,
            Outcome::Wrong { .. } | Outcome::Failed { .. } => &mut self.bad,
        } += 1;
    }

    fn add(&mut self, other: Tally) {
        self.timed += other.timed;
        self.cut += other.cut;
        self.late += other.late;
        self.refused += other.refused;
        self.bad += other.bad;
        self.known += other.known;
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Matrices that are done, with those that were before.
    pub matrices: usize,
    /// Matrices that the budget left out.
    pub left: usize,
    /// What became of all candidates.
    pub tally: Tally,
}

/// What is remembered of a matrix in one precision, by candidate.
#[derive(Debug, Default)]
struct Earlier(HashMap<String, Measurement>);

impl Earlier {
    /// Candidates that are not to be measured again.
    fn kept(&self, remembered: Remembered) -> HashSet<&str> {
        let spmv_s = |m: &Measurement| m.cost().map(|cost| cost.spmv_s);
        let best_s = self.0.values().filter_map(spmv_s).fold(f64::INFINITY, f64::min);
        let runs = |m: &Measurement| match &m.outcome {
            Outcome::Timed(timing) => timing.runs().count(),
            _ => 0,
        };
        let reruns = |(candidate, m): &(&String, &Measurement)| match (remembered, spmv_s(m)) {
            (Remembered::Rerun { near, most }, Some(spmv_s)) => {
                let is_near = spmv_s <= near * best_s || BASELINES.contains(&candidate.as_str());
                is_near && runs(m) < most
            }
            _ => false,
        };
        let kept = self.0.iter().filter(|one| !reruns(one));
        kept.map(|(candidate, _)| candidate.as_str()).collect()
    }
}

/// A matrix made and looked at, ready to be measured.
struct Prepared {
    entry: Entry,
    csr: Csr<f64>,
    record: StructureRecord,
    surveys: Vec<(Precision, Survey)>,
}

type Survey = Vec<(Candidate, Result<Suits, String>)>;

/// The share of its time that a matrix may run over, so that short ones lend to long ones.
const LENT: f64 = 1.5;
/// The most seconds of samples that one candidate takes.
const MOST_S: f64 = 0.2;
/// The most time of one candidate in all: what takes longer has failed.
const MOST: Duration = Duration::from_secs(30);
/// Candidates that are likely to be timed of one matrix, to share its time among them.
const TIMED: f64 = 40.0;
/// Looks at a matrix that are timed.
const LOOKS: usize = 3;
/// Matrices made ahead, besides those that are being made.
const AHEAD: usize = 2;
/// Threads that make matrices ahead.
const MAKERS: usize = 3;

impl Tuning<'_> {
    /// Measures the entries in their order, and returns when all is done or the budget is spent.
    ///
    /// # Errors
    /// What the device and the database say; a matrix that cannot be made is told of and left out.
    pub fn run(&self, entries: Vec<Entry>, tell: &mut dyn FnMut(Event<'_>)) -> Result<Summary> {
        self.meter.check()?;
        let mut sources: HashMap<String, Fingerprint> = HashMap::new();
        self.wisdom.each_structure(|structure| {
            sources.insert(structure.source, structure.fingerprint);
        })?;
        let all = entries.len() * self.precisions.len();
        let mut todo = Vec::new();
        for entry in entries {
            match sources.get(&entry.source) {
                Some(fingerprint) if self.is_done(*fingerprint)? => {}
                _ => todo.push(entry),
            }
        }
        let mut run = Run {
            tuning: self,
            start: Instant::now(),
            of_pattern: sources.into_iter().map(|(source, print)| (print, source)).collect(),
            before: all - todo.len() * self.precisions.len(),
            all,
            done: 0,
            summary: Summary::default(),
        };
        run.summary.matrices = run.before / self.precisions.len().max(1);
        match self.meter.device().kind {
            // What makes matrices would disturb the measuring.
            Kind::Host => {
                for entry in todo {
                    if run.is_over() {
                        run.summary.left += 1;
                        continue;
                    }
                    let prepared = self.prepare(&entry);
                    run.take(entry, prepared, tell)?;
                }
            }
            Kind::Gpu => run.with_makers(todo, tell)?,
        }
        Ok(run.summary)
    }

    /// Whether nothing of a matrix is to be measured.
    fn is_done(&self, fingerprint: Fingerprint) -> Result<bool> {
        let all = ellect::format::candidates(self.meter.device().kind).len();
        let earlier = self.earlier(fingerprint)?;
        let kept = |p| earlier.get(p).map_or(0, |earlier| earlier.kept(self.remembered).len());
        let of = |p| kept(p) >= all;
        Ok(self.precisions.iter().all(of))
    }

    /// What is remembered of a matrix and still of use.
    fn earlier(&self, fingerprint: Fingerprint) -> Result<HashMap<Precision, Earlier>> {
        let mut earlier: HashMap<Precision, Earlier> = HashMap::new();
        if self.remembered == Remembered::Replaced {
            return Ok(earlier);
        }
        let driver = self.meter.driver();
        for measurement in self.wisdom.measurements(fingerprint)? {
            let wanted = Wanted {
                fingerprint,
                device: &self.meter.device().name,
                driver: driver.as_deref(),
                precision: measurement.precision,
                basis: Workload::default().basis,
                protocol: Protocol::default().version,
            };
            let same = measurement.device == wanted.device && measurement.basis == wanted.basis;
            if same && wanted.differs(&measurement).is_none() {
                let of_precision = earlier.entry(measurement.precision).or_default();
                of_precision.0.insert(measurement.candidate.clone(), measurement);
            }
        }
        Ok(earlier)
    }

    /// Makes a matrix and looks at it.
    fn prepare(&self, entry: &Entry) -> Result<Prepared> {
        let csr = entry.matrix()?;
        let survey_in = |structure: &Structure<'_>, precision| {
            let workload = Workload { precision, ..Workload::default() };
            survey(structure, &workload.target(self.meter.device()))
        };
        let first = *self.precisions.first().context("no precision to tune in")?;
        // What a choice looks at, timed as often as it takes to have it once undisturbed.
        let mut structure = Structure::sampled(&csr);
        let mut analysis_s = f64::INFINITY;
        for _ in 0..LOOKS {
            structure = Structure::sampled(&csr);
            let start = Instant::now();
            rayon::join(
                || rayon::join(|| Features::of(&structure), || survey_in(&structure, first)),
                || structure.fingerprint(),
            );
            analysis_s = analysis_s.min(start.elapsed().as_secs_f64());
        }
        let surveys = self.precisions.iter().map(|&p| (p, survey_in(&structure, p))).collect();
        let record = StructureRecord {
            analysis_s: Some(analysis_s),
            ..StructureRecord::of(&structure, &entry.source, &entry.family)
        };
        drop(structure);
        Ok(Prepared { entry: entry.clone(), csr, record, surveys })
    }
}

/// A run that goes on.
struct Run<'a> {
    tuning: &'a Tuning<'a>,
    start: Instant,
    of_pattern: HashMap<Fingerprint, String>,
    before: usize,
    all: usize,
    done: usize,
    summary: Summary,
}

impl Run<'_> {
    fn spent_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Seconds of the budget that are left.
    fn left_s(&self) -> Option<f64> {
        self.tuning.budget.map(|budget| (budget.as_secs_f64() - self.spent_s()).max(0.0))
    }

    fn is_over(&self) -> bool {
        let needed_s = self.tuning.share.map_or(0.0, |share| share.as_secs_f64());
        self.left_s().is_some_and(|left_s| left_s <= needed_s)
    }

    /// Seconds for the next matrix in one precision.
    fn share_s(&self) -> Option<f64> {
        if let Some(share) = self.tuning.share {
            return Some(share.as_secs_f64());
        }
        let cases = (self.all - self.before).saturating_sub(self.done).max(1);
        self.left_s().map(|left_s| (LENT * left_s / cases as f64).min(left_s))
    }

    /// Measures what other threads make meanwhile.
    fn with_makers(&mut self, todo: Vec<Entry>, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let tuning = self.tuning;
        let mut left = todo.len();
        let todo = Mutex::new(todo.into_iter());
        let next = || todo.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            let (sender, made) = sync_channel(AHEAD);
            for _ in 0..MAKERS {
                let sender = sender.clone();
                let next = &next;
                scope.spawn(move || {
                    while let Some(entry) = next() {
                        let prepared = tuning.prepare(&entry);
                        if sender.send((entry, prepared)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            for (entry, prepared) in made {
                if self.is_over() {
                    break;
                }
                left -= 1;
                self.take(entry, prepared, tell)?;
            }
            self.summary.left += left;
            Ok(())
        })
    }

    /// Measures a matrix, or tells why not.
    fn take(
        &mut self,
        entry: Entry,
        prepared: Result<Prepared>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        let source = entry.source.as_str();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.done += self.tuning.precisions.len();
                tell(Event::Skipped { source, why: format!("{error:#}") });
                return Ok(());
            }
        };
        let fingerprint = prepared.record.fingerprint;
        let other = self.of_pattern.entry(fingerprint).or_insert_with(|| source.to_string());
        if other.as_str() != source {
            self.done += self.tuning.precisions.len();
            tell(Event::Skipped { source, why: format!("its pattern is that of {other}") });
            return Ok(());
        }
        self.tuning.wisdom.keep([Record::Structure(prepared.record.clone())])?;
        let mut earlier = self.tuning.earlier(fingerprint)?;
        for (precision, survey) in &prepared.surveys {
            if self.is_over() {
                self.summary.left += 1;
                return Ok(());
            }
            let start = Instant::now();
            let earlier = earlier.remove(precision).unwrap_or_default();
            let tally = match precision {
                Precision::F32 => {
                    self.case(&prepared, &prepared.csr.cast::<f32>(), survey, &earlier, tell)
                }
                Precision::F64 => self.case(&prepared, &prepared.csr, survey, &earlier, tell),
            }?;
            self.done += 1;
            self.summary.tally.add(tally);
            let rest = (self.all - self.before - self.done) as f64;
            let left_s = self.spent_s() / self.done as f64 * rest;
            tell(Event::Case(&Done {
                source,
                precision: *precision,
                tally,
                took_s: start.elapsed().as_secs_f64(),
                done: self.before + self.done,
                all: self.all,
                left_s: self.left_s().map_or(left_s, |most| left_s.min(most)),
            }));
        }
        self.summary.matrices += 1;
        Ok(())
    }

    /// Measures the candidates of a matrix in one precision that `earlier` leaves to be measured.
    fn case<T: Scalar>(
        &self,
        prepared: &Prepared,
        csr: &Csr<T>,
        survey: &Survey,
        earlier: &Earlier,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Tally> {
        let tuning = self.tuning;
        let workload = Workload { precision: T::PRECISION, ..Workload::default() };
        let target = workload.target(tuning.meter.device());
        let share_s = self.share_s();
        let protocol = Protocol {
            max_samples: 20,
            max_s: share_s.map_or(MOST_S, |share_s| (share_s / TIMED).clamp(0.01, MOST_S)),
            max_convert_s: MOST_S,
            ..Protocol::default()
        };
        let kept = earlier.kept(tuning.remembered);
        let mut tally = Tally { known: kept.len(), ..Tally::default() };
        let decided = |candidate: &Candidate, seen: Option<&Seen>, outcome: Outcome| Measurement {
            fingerprint: prepared.record.fingerprint,
            candidate: candidate.to_string(),
            device: target.device.name.clone(),
            threads: 1,
            precision: T::PRECISION,
            basis: target.basis,
            protocol,
            provenance: Provenance::now(
                tuning.meter.driver().unwrap_or_default(),
                all_kernels(target.device.kind),
            ),
            seen: seen.map(|seen| Box::new(seen.clone())),
            outcome,
        };
        let (timed, hopeless, refused) = self.sort(survey, earlier, &kept);
        let mut records = Vec::new();
        for (candidate, reason) in refused {
            let outcome = Outcome::Refused { reason: reason.clone() };
            records.push(decided(candidate, None, outcome));
        }
        for (candidate, suits, reason) in hopeless {
            records.push(decided(candidate, Some(&suits.seen), Outcome::Cut { reason }));
        }
        let structure = Structure::sampled(csr);
        let _held = tuning.meter.hold(csr);
        let start = Instant::now();
        for (i, (candidate, suits)) in timed.into_iter().enumerate() {
            let spent_s = start.elapsed().as_secs_f64();
            let over = share_s.is_some_and(|share_s| spent_s > share_s);
            if over && i >= BASELINES.len() {
                // Not remembered: a run that goes on has time for it.
                tally.late += 1;
                continue;
            }
            tell(Event::Timing { source: &prepared.entry.source, candidate });
            let target: Target<'_> = candidate.target(&target);
            let measured =
                tuning.meter.measure(csr, &structure, candidate, &target, &protocol, Some(MOST))?;
            let seen = Some(Box::new(suits.seen.clone()));
            let measured = Measurement { seen, ..measured };
            let measured = match earlier.0.get(&measured.candidate) {
                Some(before) => measured.after(before),
                None => measured,
            };
            tally.count(&measured.outcome);
            tuning.wisdom.keep([Record::Measurement(Box::new(measured))])?;
        }
        records.iter().for_each(|record| tally.count(&record.outcome));
        tuning.wisdom.keep(records.into_iter().map(|m| Record::Measurement(Box::new(m))))?;
        Ok(tally)
    }

    /// Candidates to time, in their order; those that are hopeless; and those that do not suit.
    #[allow(clippy::type_complexity, reason = "three lists of one survey, used once")]
    fn sort<'s>(
        &self,
        survey: &'s Survey,
        earlier: &Earlier,
        kept: &HashSet<&str>,
    ) -> (
        Vec<(&'s Candidate, &'s Suits)>,
        Vec<(&'s Candidate, &'s Suits, String)>,
        Vec<(&'s Candidate, &'s String)>,
    ) {
        let (mut timed, mut hopeless, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let best_s = survey
            .iter()
            .filter_map(|(_, suits)| suits.as_ref().ok())
            .map(|suits| suits.cost.spmv_s)
            .fold(f64::INFINITY, f64::min);
        for (candidate, suits) in survey {
            let text = candidate.to_string();
            let only = self.tuning.only;
            match suits {
                _ if kept.contains(text.as_str()) => {}
                _ if !only.is_empty() && !only.iter().any(|only| text.starts_with(only)) => {}
                Err(reason) => refused.push((candidate, reason)),
                Ok(suits) => {
                    let over = suits.cost.spmv_s / best_s;
                    // What was timed and is near the best is not hopeless, whatever its estimate.
                    let timed_before = earlier.0.contains_key(&text);
                    let spared = timed_before || BASELINES.contains(&text.as_str());
                    if over > self.tuning.cut && !spared {
                        let reason = format!(
                            "its estimate is {over:.1} times the best one, over the limit of {}",
                            self.tuning.cut
                        );
                        hopeless.push((candidate, suits, reason));
                    } else {
                        timed.push((candidate, suits));
                    }
                }
            }
        }
        timed.sort_by(|a, b| a.1.cost.spmv_s.total_cmp(&b.1.cost.spmv_s));
        let mut formats = BTreeSet::new();
        let mut rank = |candidate: &Candidate| -> u8 {
            let incumbent = BASELINES.contains(&candidate.to_string().as_str());
            let first = formats.insert(candidate.format.name());
            if incumbent { 0 } else { 1 + u8::from(!first) }
        };
        let mut ranked: Vec<_> = timed.into_iter().map(|pair| (rank(pair.0), pair)).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        (ranked.into_iter().map(|(_, pair)| pair).collect(), hopeless, refused)
    }
}
