//! A tuning run in progress: makes matrices ahead, and measures them one after the other.

use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::Result;
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::cost::CostInputs;
use ellect::device::Kind;
use ellect::format::{BASELINES, Candidate, Target};
use ellect::measure::provenance::{all_kernels, conversion_kernels};
use ellect::measure::{Measurement, Outcome, Protocol, Provenance, Timing};
use ellect::unstable::session::{Overrun, Session, SessionEvent, Task, TimeLimits};
use ellect::unstable::wisdom::Record;
use ellect::{Csr, Error, Fingerprint, Precision, Scalar};

use super::order::Order;
use super::{Done, Earlier, Event, Prepared, Queue, Remembered, Summary, Survey, Tally, Tuning};
use crate::corpus::Entry;

/// Factor by which a matrix may exceed its share of the remaining time: short matrices lend time to
/// long ones.
const LENT: f64 = 1.5;

/// Maximum seconds of samples per candidate.
const MOST_S: f64 = 0.2;

/// Time limit of one candidate in all; a candidate that exceeds it has failed.
const MOST: Duration = Duration::from_secs(30);

/// Expected number of timed candidates per matrix, among which its time is divided.
const TIMED: f64 = 40.0;

/// Number of matrices made ahead, in addition to those in the making.
const AHEAD: usize = 2;

/// Number of threads that make matrices ahead, while others convert on the host.
pub(super) const MAKERS: usize = 3;

/// A run in progress.
pub struct Run<'a> {
    tuning: &'a Tuning<'a>,
    start: Instant,
    of_pattern: HashMap<Fingerprint, String>,
    before: usize,
    all: usize,
    done: usize,
    summary: Summary,
}

impl<'a> Run<'a> {
    /// Creates a run over `all` matrices, counted once per precision, of which `todo` matrices
    /// remain to be measured; `of_pattern` holds the sources of the known matrices by fingerprint.
    pub fn new(
        tuning: &'a Tuning<'a>,
        of_pattern: HashMap<Fingerprint, String>,
        all: usize,
        todo: usize,
    ) -> Self {
        let before = all - todo * tuning.precisions.len();
        let matrices = before / tuning.precisions.len().max(1);
        let summary = Summary { matrices, ..Summary::default() };
        Run { tuning, start: Instant::now(), of_pattern, before, all, done: 0, summary }
    }

    /// Returns the summary of the run so far.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    fn spent_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Returns the seconds left of the budget; `None` without a budget.
    fn left_s(&self) -> Option<f64> {
        self.tuning.budget.map(|budget| (budget.as_secs_f64() - self.spent_s()).max(0.0))
    }

    /// Returns whether less of the budget is left than one matrix needs.
    fn is_over(&self) -> bool {
        let needed_s = self.tuning.share.map_or(0.0, |share| share.as_secs_f64());
        self.left_s().is_some_and(|left_s| left_s <= needed_s)
    }

    /// Returns the seconds for the next matrix in one precision; `None` for no limit.
    fn share_s(&self) -> Option<f64> {
        if let Some(share) = self.tuning.share {
            return Some(share.as_secs_f64());
        }
        let cases = (self.all - self.before).saturating_sub(self.done).max(1);
        self.left_s().map(|left_s| (LENT * left_s / cases as f64).min(left_s))
    }

    /// Measures the matrices of a queue.
    ///
    /// # Errors
    /// Fails where the device or the database fails.
    pub fn of(&mut self, queue: &dyn Queue, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let measured = match self.tuning.backend.device().kind {
            // Making matrices in parallel would disturb the measurements.
            Kind::Host => self.one_by_one(queue, tell),
            Kind::Gpu => self.with_makers(queue, tell),
        };
        queue.close();
        measured
    }

    fn one_by_one(&mut self, queue: &dyn Queue, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        while !self.is_over() {
            let Some(entry) = queue.next() else { return Ok(()) };
            let prepared = self.tuning.prepare(&entry);
            self.take(entry, prepared, queue, tell)?;
        }
        self.summary.left += queue.left();
        Ok(())
    }

    /// Measures matrices while other threads make the next ones.
    fn with_makers(&mut self, queue: &dyn Queue, tell: &mut dyn FnMut(Event<'_>)) -> Result<()> {
        let tuning = self.tuning;
        std::thread::scope(|scope| {
            let (sender, made) = sync_channel(AHEAD);
            for _ in 0..tuning.makers() {
                let sender = sender.clone();
                scope.spawn(move || {
                    while let Some(entry) = queue.next() {
                        let prepared = tuning.prepare(&entry);
                        if sender.send((entry, prepared)).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(sender);
            let mut measured = Ok(());
            for (entry, prepared) in made {
                if measured.is_err() || self.is_over() {
                    break;
                }
                measured = self.take(entry, prepared, queue, tell);
            }
            // The threads wait for nobody then.
            queue.close();
            self.summary.left += queue.left();
            measured
        })
    }

    /// Measures a matrix, or reports why it is skipped.
    fn take(
        &mut self,
        entry: Entry,
        prepared: Result<Prepared>,
        queue: &dyn Queue,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<()> {
        let source = entry.source.as_str();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.done += self.tuning.precisions.len();
                let why = format!("{error:#}");
                queue.done(&entry, Some(&why));
                tell(Event::Skipped { source, why });
                return Ok(());
            }
        };
        let fingerprint = prepared.fingerprint;
        let other = self.of_pattern.entry(fingerprint).or_insert_with(|| source.to_string());
        if other.as_str() != source {
            self.done += self.tuning.precisions.len();
            let why = format!("its pattern is that of {other}");
            queue.done(&entry, None);
            tell(Event::Skipped { source, why });
            return Ok(());
        }
        self.tuning.wisdom.keep(prepared.record.iter().cloned().map(Record::Structure))?;
        let mut earlier = self.tuning.earlier(fingerprint)?;
        for (precision, survey) in &prepared.surveys {
            if self.is_over() {
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
        queue.done(&entry, None);
        self.summary.matrices += 1;
        Ok(())
    }

    /// Measures the candidates of a matrix in one precision, except those that `earlier` makes
    /// unnecessary.
    fn case<T: Scalar>(
        &self,
        prepared: &Prepared,
        csr: &Csr<T>,
        survey: &Survey,
        earlier: &Earlier,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Tally> {
        let tuning = self.tuning;
        let target = Workload::default().target(tuning.backend.device(), T::PRECISION);
        let share_s = self.share_s();
        let protocol = protocol(share_s);
        if let Remembered::Converted { near } = tuning.remembered {
            return self.conversions(csr, earlier.near(near), &target, &protocol);
        }
        let kept = earlier.kept(tuning.remembered);
        let mut tally = Tally { known: kept.len(), ..Tally::default() };
        let decided =
            |candidate: &Candidate, inputs: Option<&CostInputs>, outcome: Outcome| Measurement {
                fingerprint: prepared.fingerprint,
                candidate: candidate.to_string(),
                device: target.device.name.clone(),
                threads: 1,
                precision: T::PRECISION,
                basis: target.basis,
                protocol,
                provenance: Provenance::now(
                    tuning.backend.driver().unwrap_or_default(),
                    all_kernels(target.device.kind, &candidate.to_string()),
                ),
                inputs: inputs.map(|inputs| Box::new(inputs.clone())),
                outcome,
            };
        let Order { timed, hopeless, refused } = Order::of(survey, tuning, earlier, &kept);
        let mut records = Vec::new();
        for (candidate, reason) in refused {
            let outcome = Outcome::Refused { reason: reason.clone() };
            records.push(decided(candidate, None, outcome));
        }
        for (candidate, suits, reason) in hopeless {
            records.push(decided(candidate, Some(&suits.inputs), Outcome::Cut { reason }));
        }
        let analysis = Analysis::sampled(csr);
        let limits = TimeLimits {
            each: Some(MOST),
            all: share_s.map(Duration::from_secs_f64),
            always: BASELINES.len(),
            overrun: Overrun::Failed,
        };
        let session = Session::new(tuning.backend, csr, &analysis, target)
            .with_protocol(protocol)
            .with_limits(limits)
            .keeping(Some(tuning.wisdom), &prepared.entry.source);
        let tasks = timed.into_iter().map(|(candidate, suits)| Task {
            candidate,
            inputs: Some(&suits.inputs),
            earlier: earlier.0.get(&candidate.to_string()),
        });
        session.run(tasks, &mut |step| -> Result<()> {
            match step {
                SessionEvent::Timing(candidate) => {
                    tell(Event::Timing { source: &prepared.entry.source, candidate });
                }
                SessionEvent::Measured { measurement, .. }
                | SessionEvent::Interrupted { measurement, .. } => {
                    tally.count(&measurement.outcome);
                }
                // Not stored, so that a later run times it.
                SessionEvent::Late(_) => tally.late += 1,
            }
            Ok(())
        })?;
        records.iter().for_each(|record| tally.count(&record.outcome));
        tuning.wisdom.keep(records.into_iter().map(|m| Record::Measurement(Box::new(m))))?;
        Ok(tally)
    }

    /// Times the conversions of measured candidates again, and stores them with the times of the
    /// products.
    fn conversions<'m, T: Scalar>(
        &self,
        csr: &Csr<T>,
        measured: impl Iterator<Item = &'m Measurement>,
        target: &Target<'_>,
        protocol: &Protocol,
    ) -> Result<Tally> {
        let Tuning { backend, wisdom, only, .. } = *self.tuning;
        let _held = backend.hold(csr);
        let (mut tally, mut records) = (Tally::default(), Vec::new());
        for measurement in measured {
            let candidate: Candidate = measurement.candidate.parse()?;
            let Outcome::Timed(timing) = &measurement.outcome else { continue };
            if !candidate.is_among(only) || candidate.is_baseline() {
                continue;
            }
            let target = candidate.target(target);
            match backend.conversions(csr, &candidate, &target, protocol) {
                Ok(None) => tally.known += 1,
                Ok(Some(convert)) => {
                    let convert_kernels = conversion_kernels(candidate.format);
                    let timing = Timing { convert, convert_kernels, ..timing.clone() };
                    let outcome = Outcome::Timed(timing);
                    tally.count(&outcome);
                    let mut record = Measurement { outcome, ..measurement.clone() };
                    // The later of two records counts.
                    record.provenance.taken_at =
                        Provenance::now(String::new(), String::new()).taken_at;
                    records.push(Record::Measurement(Box::new(record)));
                }
                Err(Error::Refused { .. }) => tally.refused += 1,
                Err(error) => return Err(error.into()),
            }
        }
        wisdom.keep(records)?;
        Ok(tally)
    }
}

/// Returns the protocol of a matrix with these seconds in one precision, without a limit for `None`.
fn protocol(share_s: Option<f64>) -> Protocol {
    Protocol {
        max_samples: 20,
        max_s: share_s.map_or(MOST_S, |share_s| (share_s / TIMED).clamp(0.01, MOST_S)),
        max_convert_s: MOST_S,
        ..Protocol::default()
    }
}
