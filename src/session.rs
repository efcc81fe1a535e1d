//! The measuring loop: asks wisdom, times what it does not know, keeps what was found.
//!
//! Whoever times several candidates of one matrix does it here: the [`Tuner`](crate::Tuner), and
//! `ellect measure`, `bench` and `tune`. Each measurement that was timed holds the inputs of its
//! estimate ([`CostInputs`]), so that models learn from it without the matrix.

use std::time::{Duration, Instant};

use crate::cost::CostInputs;
use crate::csr::CsrRef;
use crate::error::{Error, Result};
use crate::format::{Candidate, Target};
use crate::measure::{Measurement, Meter, Outcome, Protocol};
use crate::scalar::Scalar;
use crate::structure::Structure;
use crate::wisdom::{Answer, Record, StructureRecord, Wanted, Wisdom};

/// A candidate to measure.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The candidate.
    pub candidate: &'a Candidate,
    /// The inputs of its estimate, where the caller has them; else the process that times notes them.
    pub inputs: Option<&'a CostInputs>,
    /// An earlier measurement, whose runs are joined with the new one.
    pub earlier: Option<&'a Measurement>,
}

impl<'a> From<&'a Candidate> for Task<'a> {
    fn from(candidate: &'a Candidate) -> Self {
        Task { candidate, inputs: None, earlier: None }
    }
}

/// The time that measuring may take. By default there is no limit but the meter's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The time of one candidate, its conversion included.
    pub each: Option<Duration>,
    /// The time of all candidates together.
    pub all: Option<Duration>,
    /// The number of candidates, the first ones, that are timed even when `all` is spent.
    pub always: usize,
    /// What becomes of a candidate that does not end in time.
    pub overrun: Overrun,
}

/// What becomes of a candidate that does not end in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overrun {
    /// It is interrupted at either limit and not kept: under a longer limit it might not fail.
    #[default]
    Unknown,
    /// It has failed if it takes longer than its own limit, and that is kept; it may end after the
    /// limit of all candidates.
    Failed,
}

impl Limits {
    /// The time left for all candidates, `spent` after the first one began.
    fn left(&self, spent: Duration) -> Option<Duration> {
        self.all.map(|all| all.saturating_sub(spent))
    }

    /// The limit of the candidate at `place`.
    fn of(&self, place: usize, spent: Duration) -> Option<Duration> {
        let interrupts = self.overrun == Overrun::Unknown && place >= self.always;
        let left = self.left(spent).filter(|_| interrupts);
        [self.each, left].into_iter().flatten().min()
    }
}

/// An event of a session.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// A candidate is about to be timed.
    Timing(&'a Candidate),
    /// A candidate was measured, now or as wisdom remembers.
    Measured {
        /// The candidate.
        candidate: &'a Candidate,
        /// The result.
        measurement: &'a Measurement,
    },
    /// A candidate did not end in time; nothing of it is kept.
    Interrupted {
        /// The candidate.
        candidate: &'a Candidate,
        /// The result, an [`Outcome::Failed`].
        measurement: &'a Measurement,
    },
    /// The time was spent before this candidate.
    Late(&'a Candidate),
}

/// Measures candidates of one matrix on one device.
#[derive(Clone, Copy, Debug)]
pub struct Session<'a, T: Scalar> {
    meter: &'a Meter,
    csr: CsrRef<'a, T>,
    structure: &'a Structure<'a>,
    target: Target<'a>,
    protocol: Protocol,
    limits: Limits,
    asked: Option<&'a Wisdom>,
    keeper: Option<&'a Wisdom>,
    source: &'a str,
}

impl<'a, T: Scalar> Session<'a, T> {
    /// A session that times by the default protocol without limits, asks no wisdom and keeps nothing.
    ///
    /// The target holds the memory limit of all candidates but CSR, and the basis of x and y.
    pub fn new(
        meter: &'a Meter,
        csr: impl Into<CsrRef<'a, T>>,
        structure: &'a Structure<'a>,
        target: Target<'a>,
    ) -> Self {
        Session {
            meter,
            csr: csr.into(),
            structure,
            target,
            protocol: Protocol::default(),
            limits: Limits::default(),
            asked: None,
            keeper: None,
            source: "",
        }
    }

    /// The same session with this protocol.
    pub fn with_protocol(self, protocol: Protocol) -> Self {
        Session { protocol, ..self }
    }

    /// The same session within these limits.
    pub fn with_limits(self, limits: Limits) -> Self {
        Session { limits, ..self }
    }

    /// The same session, not timing what this wisdom knows.
    pub fn asking(self, wisdom: Option<&'a Wisdom>) -> Self {
        Session { asked: wisdom, ..self }
    }

    /// The same session, keeping measurements in this wisdom, where that can be added to. `source` says
    /// where the matrix is from; a record of the matrix that is there already stays.
    pub fn keeping(self, wisdom: Option<&'a Wisdom>, source: &'a str) -> Self {
        Session { keeper: wisdom.filter(|wisdom| wisdom.keeps()), source, ..self }
    }

    /// Measures candidates in their order, and tells each step.
    ///
    /// On a device of this process, candidates are converted with a structure of their own, which may
    /// partition the graph; a process that measures has one too.
    ///
    /// # Errors
    /// As [`Meter::measure`], the errors of wisdom, and those of `tell`, which end the session.
    pub fn run<'t, E: From<Error>>(
        &self,
        tasks: impl IntoIterator<Item = Task<'t>>,
        tell: &mut dyn FnMut(Step<'_>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let start = Instant::now();
        let to_time = Structure::sampled(self.csr).with_partitioning();
        let _held = self.meter.hold(self.csr);
        for (place, task) in tasks.into_iter().enumerate() {
            let candidate = task.candidate;
            if let Some(measurement) = self.known(candidate)? {
                tell(Step::Measured { candidate, measurement: &measurement })?;
                continue;
            }
            let spent = start.elapsed();
            let is_spent = self.limits.left(spent).is_some_and(|left| left.is_zero());
            if is_spent && place >= self.limits.always {
                tell(Step::Late(candidate))?;
                continue;
            }
            tell(Step::Timing(candidate))?;
            let limit = self.limits.of(place, spent);
            let measurement = self.time(&task, &to_time, limit)?;
            let failed = matches!(measurement.outcome, Outcome::Failed { .. });
            let took = start.elapsed().saturating_sub(spent);
            let ended = limit.is_some_and(|limit| took >= limit);
            if failed && ended && self.limits.overrun == Overrun::Unknown {
                tell(Step::Interrupted { candidate, measurement: &measurement })?;
                continue;
            }
            self.keep(&measurement)?;
            tell(Step::Measured { candidate, measurement: &measurement })?;
        }
        Ok(())
    }

    /// What the wisdom that is asked knows of a candidate.
    fn known(&self, candidate: &Candidate) -> Result<Option<Box<Measurement>>> {
        let Some(wisdom) = self.asked else { return Ok(None) };
        let Target { precision, basis, .. } = self.target;
        let version = self.protocol.version;
        let print = self.structure.fingerprint();
        let wanted = Wanted::of(self.meter, print, precision, basis, version);
        match remembered(wisdom, &wanted, candidate, self.structure, &self.target)? {
            Answer::Known(measurement) => Ok(Some(measurement)),
            Answer::Missing | Answer::Stale(_) => Ok(None),
        }
    }

    /// Times one candidate.
    fn time(
        &self,
        task: &Task<'_>,
        structure: &Structure<'_>,
        limit: Option<Duration>,
    ) -> Result<Measurement> {
        let Task { candidate, inputs, earlier } = *task;
        let target = candidate.target(&self.target);
        let measured =
            self.meter.measure(self.csr, structure, candidate, &target, &self.protocol, limit)?;
        let inputs = inputs.cloned().map(Box::new).or(measured.inputs);
        let measured = Measurement { inputs, ..measured };
        Ok(match earlier {
            Some(earlier) => measured.after(earlier),
            None => measured,
        })
    }

    /// Keeps a measurement, and with it the record of its matrix.
    fn keep(&self, measurement: &Measurement) -> Result<()> {
        let Some(wisdom) = self.keeper else { return Ok(()) };
        let of_matrix = wisdom.to_keep(self.structure.fingerprint(), || {
            StructureRecord::of(self.structure, self.source, "")
        })?;
        let measured = Record::Measurement(Box::new(measurement.clone()));
        wisdom.keep(of_matrix.into_iter().chain([measured]))
    }
}

/// What wisdom knows of a candidate for this matrix. [`Answer::Missing`] where it knows a matrix of
/// the same pattern whose values differ, and the candidate depends on values.
///
/// # Errors
/// As [`Wisdom::ask`].
pub fn remembered(
    wisdom: &Wisdom,
    wanted: &Wanted<'_>,
    candidate: &Candidate,
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> Result<Answer> {
    Ok(match wisdom.ask(wanted, candidate)? {
        Answer::Known(measured) if !of_these_values(&measured, candidate, structure, target) => {
            Answer::Missing
        }
        answer => answer,
    })
}

/// Whether a measurement, which is of a pattern, applies to the values of this matrix: where the
/// candidate depends on values, its layout has to take about as many bytes for these.
fn of_these_values(
    measured: &Measurement,
    candidate: &Candidate,
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> bool {
    /// Estimates of layouts from samples are off by less.
    const MUCH: f64 = 1.25;
    if !candidate.format.by_values() {
        return true;
    }
    match (&measured.outcome, candidate.work(structure, target)) {
        (Outcome::Timed(timing), Ok(work)) => {
            let times = timing.bytes as f64 / work.layout_bytes as f64;
            (1.0 / MUCH..=MUCH).contains(&times)
        }
        (Outcome::Timed(_), Err(_)) => false,
        (Outcome::Refused { .. }, work) => work.is_err(),
        // What failed would fail again.
        _ => true,
    }
}
