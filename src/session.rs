//! The measuring loop: looks candidates up in wisdom, times the unknown ones, and stores the
//! results.
//!
//! All code that times several candidates of one matrix uses this loop: the
//! [`Tuner`](crate::Tuner), and `ellect measure`, `bench` and `tune`. Each timed measurement
//! contains the inputs of its estimate ([`CostInputs`]), so that models can learn from it without
//! the matrix.

use std::time::{Duration, Instant};

use crate::analysis::Analysis;
use crate::cost::CostInputs;
use crate::csr::CsrRef;
use crate::device::Kind;
use crate::error::{Error, Result};
use crate::format::{Candidate, Target};
use crate::measure::{Backend, Measurement, Outcome, Protocol};
use crate::scalar::Scalar;
use crate::wisdom::{Answer, Record, StructureRecord, Wanted, Wisdom};

/// A candidate to measure.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// Candidate to measure.
    pub candidate: &'a Candidate,
    /// Inputs of its estimate, if the caller has them; otherwise the process that times computes
    /// them.
    pub inputs: Option<&'a CostInputs>,
    /// Earlier measurement, whose runs are joined with the new one.
    pub earlier: Option<&'a Measurement>,
}

impl<'a> From<&'a Candidate> for Task<'a> {
    fn from(candidate: &'a Candidate) -> Self {
        Task { candidate, inputs: None, earlier: None }
    }
}

/// Time limits of measuring; by default, only the backend's own limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeLimits {
    /// Time limit of one candidate, including its conversion.
    pub each: Option<Duration>,
    /// Time limit of all candidates together.
    pub all: Option<Duration>,
    /// Number of candidates, from the first on, that are timed even when `all` is spent.
    pub always: usize,
    /// Treatment of a candidate that exceeds a limit.
    pub overrun: Overrun,
}

/// Treatment of a candidate that exceeds a time limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// The candidate is interrupted at either limit and not stored, because it might succeed under
    /// a longer limit.
    #[default]
    Unknown,
    /// A candidate that exceeds its own limit has failed, which is stored; it may run past the
    /// limit of all candidates.
    Failed,
}

impl TimeLimits {
    /// Returns the time left for all candidates, `spent` after the first one began.
    fn left(&self, spent: Duration) -> Option<Duration> {
        self.all.map(|all| all.saturating_sub(spent))
    }

    /// Returns the time limit of the candidate at `place`.
    fn of(&self, place: usize, spent: Duration) -> Option<Duration> {
        let interrupts = self.overrun == Overrun::Unknown && place >= self.always;
        let left = self.left(spent).filter(|_| interrupts);
        [self.each, left].into_iter().flatten().min()
    }
}

/// An event of a session.
#[derive(Clone, Copy, Debug)]
pub enum SessionEvent<'a> {
    /// A candidate is about to be timed.
    Timing(&'a Candidate),
    /// A candidate was measured, now or in a stored measurement.
    Measured {
        /// The measured candidate.
        candidate: &'a Candidate,
        /// Result of the measurement.
        measurement: &'a Measurement,
    },
    /// A candidate exceeded a time limit; nothing is stored.
    Interrupted {
        /// The interrupted candidate.
        candidate: &'a Candidate,
        /// Result of the measurement, an [`Outcome::Failed`].
        measurement: &'a Measurement,
    },
    /// The time was spent before this candidate could be timed.
    Late(&'a Candidate),
}

/// Measures candidates of one matrix on one device.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a, T: Scalar> {
    backend: &'a Backend,
    csr: CsrRef<'a, T>,
    analysis: &'a Analysis<'a>,
    target: Target<'a>,
    protocol: Protocol,
    limits: TimeLimits,
    asked: Option<&'a Wisdom>,
    keeper: Option<&'a Wisdom>,
    source: &'a str,
    repeats: bool,
}

impl<'a, T: Scalar> Session<'a, T> {
    /// Creates a session with the default protocol, without limits and without wisdom.
    ///
    /// `target` holds the memory limit of all candidates except CSR, and the basis of x and y.
    pub fn new(
        backend: &'a Backend,
        csr: impl Into<CsrRef<'a, T>>,
        analysis: &'a Analysis<'a>,
        target: Target<'a>,
    ) -> Self {
        Session {
            backend,
            csr: csr.into(),
            analysis,
            target,
            protocol: Protocol::default(),
            limits: TimeLimits::default(),
            asked: None,
            keeper: None,
            source: "",
            repeats: false,
        }
    }

    /// Sets the measuring protocol.
    pub fn with_protocol(self, protocol: Protocol) -> Self {
        Session { protocol, ..self }
    }

    /// Sets the time limits.
    pub fn with_limits(self, limits: TimeLimits) -> Self {
        Session { limits, ..self }
    }

    /// Looks candidates up in this wisdom and times only the unknown ones.
    pub fn asking(self, wisdom: Option<&'a Wisdom>) -> Self {
        Session { asked: wisdom, ..self }
    }

    /// Stores measurements in this wisdom, if records can be added to it. `source` is the origin of
    /// the matrix; an existing record of the matrix is not replaced.
    pub fn keeping(self, wisdom: Option<&'a Wisdom>, source: &'a str) -> Self {
        Session { keeper: wisdom.filter(|wisdom| wisdom.keeps()), source, ..self }
    }

    /// Times a noisy candidate again on a host, for longer, right after the baseline if that was
    /// timed. Their runs are joined with the first ones; `tell` is called again for the baseline.
    pub fn repeating_noisy(self) -> Self {
        Session { repeats: true, ..self }
    }

    /// Measures candidates in order, and calls `tell` for each step.
    ///
    /// On a device of this process, candidates are converted with a separate analysis, which may
    /// partition the graph; a worker process has such an analysis too.
    ///
    /// # Errors
    /// As [`Backend::measure`], errors of wisdom, and errors of `tell`, which end the session.
    pub fn run<'t, E: From<Error>>(
        &self,
        tasks: impl IntoIterator<Item = Task<'t>>,
        tell: &mut dyn FnMut(SessionEvent<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let start = Instant::now();
        let to_time = Analysis::sampled(self.csr).with_partitioning();
        let _held = self.backend.hold(self.csr);
        let mut named = false;
        let mut base: Option<(&Candidate, Measurement)> = None;
        let mut repeated = 0;
        for (place, task) in tasks.into_iter().enumerate() {
            let candidate = task.candidate;
            if let Some(measurement) = self.known(candidate)? {
                if !std::mem::replace(&mut named, true) {
                    self.keep(None)?;
                }
                tell(SessionEvent::Measured { candidate, measurement: &measurement })?;
                continue;
            }
            let spent = start.elapsed();
            let is_spent = self.limits.left(spent).is_some_and(|left| left.is_zero());
            if is_spent && place >= self.limits.always {
                tell(SessionEvent::Late(candidate))?;
                continue;
            }
            tell(SessionEvent::Timing(candidate))?;
            let limit = self.limits.of(place, spent);
            let mut measurement = self.time(&task, &to_time, limit)?;
            if self.repeats_after(&measurement) && repeated < MOST_REPEATED {
                repeated += 1;
                let left = || {
                    let left = self.limits.left(start.elapsed());
                    [self.limits.each, left].into_iter().flatten().min()
                };
                let with = base.as_ref().map(|(candidate, earlier)| (*candidate, earlier));
                let (own, of_base) = self.repeated(candidate, measurement, with, &to_time, left)?;
                measurement = own;
                if let (Some((base, known)), Some(now)) = (base.as_mut(), of_base) {
                    self.keep(Some(&now))?;
                    tell(SessionEvent::Measured { candidate: base, measurement: &now })?;
                    *known = now;
                }
            }
            let failed = matches!(measurement.outcome, Outcome::Failed { .. });
            let took = start.elapsed().saturating_sub(spent);
            let ended = limit.is_some_and(|limit| took >= limit);
            if failed && ended && self.limits.overrun == Overrun::Unknown {
                tell(SessionEvent::Interrupted { candidate, measurement: &measurement })?;
                continue;
            }
            self.keep(Some(&measurement))?;
            tell(SessionEvent::Measured { candidate, measurement: &measurement })?;
            if candidate.is_baseline() && measurement.cost().is_some() {
                base = Some((candidate, measurement));
            }
        }
        Ok(())
    }

    /// Times a noisy candidate again, for longer, and before it the baseline if it was timed; returns
    /// both with all their runs.
    fn repeated(
        &self,
        candidate: &Candidate,
        measured: Measurement,
        base: Option<(&Candidate, &Measurement)>,
        analysis: &Analysis<'_>,
        left: impl Fn() -> Option<Duration>,
    ) -> Result<(Measurement, Option<Measurement>)> {
        let Protocol { min_samples, max_s, .. } = self.protocol;
        let longer = Protocol { min_samples: 2 * min_samples, max_s: 2.0 * max_s, ..self.protocol };
        let session = Session { protocol: longer, ..*self };
        let again = |candidate: &Candidate, earlier: &Measurement| -> Result<Option<Measurement>> {
            if left().is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let task = Task { candidate, inputs: None, earlier: Some(earlier) };
            let measured = session.time(&task, analysis, left())?;
            Ok(measured.cost().is_some().then_some(measured))
        };
        let base = base.map(|(candidate, earlier)| again(candidate, earlier)).transpose()?;
        let repeated = again(candidate, &measured)?.unwrap_or(measured);
        Ok((repeated, base.flatten()))
    }

    /// Tells whether a candidate is timed again after this measurement.
    fn repeats_after(&self, measurement: &Measurement) -> bool {
        let noisy = matches!(&measurement.outcome, Outcome::Timed(timing) if timing.is_noisy());
        noisy && self.repeats && self.target.device.kind == Kind::Host
    }

    /// Looks a candidate up in the wisdom of this session.
    fn known(&self, candidate: &Candidate) -> Result<Option<Box<Measurement>>> {
        let Some(wisdom) = self.asked else { return Ok(None) };
        let Target { precision, basis, .. } = self.target;
        let print = self.analysis.fingerprint();
        let wanted = Wanted::of(self.backend, print, precision, basis, &self.protocol);
        match remembered(wisdom, &wanted, candidate, self.analysis, &self.target)? {
            Answer::Known(measurement) => Ok(Some(measurement)),
            Answer::Missing | Answer::Stale(_) => Ok(None),
        }
    }

    /// Times one candidate.
    fn time(
        &self,
        task: &Task<'_>,
        analysis: &Analysis<'_>,
        limit: Option<Duration>,
    ) -> Result<Measurement> {
        let Task { candidate, inputs, earlier } = *task;
        let target = candidate.target(&self.target);
        let measured =
            self.backend.measure(self.csr, analysis, candidate, &target, &self.protocol, limit)?;
        let inputs = inputs.cloned().map(Box::new).or(measured.inputs);
        let measured = Measurement { inputs, ..measured };
        Ok(match earlier {
            Some(earlier) => measured.after(earlier),
            None => measured,
        })
    }

    /// Stores a measurement, if there is one, together with the record of its matrix; that record
    /// alone if the measurement was known, so that the matrix is found under this name too.
    fn keep(&self, measurement: Option<&Measurement>) -> Result<()> {
        let Some(wisdom) = self.keeper else { return Ok(()) };
        let of_matrix = wisdom.to_keep(self.analysis.fingerprint(), self.source, || {
            StructureRecord::of(self.analysis, self.source, "")
        })?;
        let measured = measurement.map(|one| Record::Measurement(Box::new(one.clone())));
        let records: Vec<Record> = of_matrix.into_iter().chain(measured).collect();
        if records.is_empty() { Ok(()) } else { wisdom.keep(records) }
    }
}

/// Maximum number of noisy candidates that are timed again.
const MOST_REPEATED: usize = 6;

/// Looks a candidate up in wisdom, for this matrix.
///
/// Returns [`Answer::Missing`] if the candidate depends on values and the stored measurement is of
/// a matrix with the same pattern but different values.
///
/// # Errors
/// As [`Wisdom::ask`].
pub fn remembered(
    wisdom: &Wisdom,
    wanted: &Wanted<'_>,
    candidate: &Candidate,
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> Result<Answer> {
    Ok(match wisdom.ask(wanted, candidate)? {
        Answer::Known(measured) if !of_these_values(&measured, candidate, analysis, target) => {
            Answer::Missing
        }
        answer => answer,
    })
}

/// Tells whether a stored measurement, which is of a pattern, applies to the values of this matrix.
///
/// If the candidate depends on values, its layout must have about the same size for these values.
fn of_these_values(
    measured: &Measurement,
    candidate: &Candidate,
    analysis: &Analysis<'_>,
    target: &Target<'_>,
) -> bool {
    /// Ratio of sizes above which values differ; estimates from samples have smaller errors.
    const MUCH: f64 = 1.25;
    if !candidate.format.by_values {
        return true;
    }
    match (&measured.outcome, candidate.work(analysis, target)) {
        (Outcome::Timed(timing), Ok(work)) => {
            let times = timing.bytes as f64 / work.layout_bytes as f64;
            (1.0 / MUCH..=MUCH).contains(&times)
        }
        (Outcome::Timed(_), Err(_)) => false,
        (Outcome::Refused { .. }, work) => work.is_err(),
        // A failure would repeat.
        _ => true,
    }
}
