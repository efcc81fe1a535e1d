//! The tuning run: measures every matrix of a corpus on a device, and stores every result at once.
//!
//! Where the device is not the host itself, matrices are made ahead of the measurements. All
//! candidates of a matrix are estimated. Those far above the best estimate are cut. The others are
//! timed in an order that begins with the baselines and the best candidate of each format, so that
//! a budget that ends early costs the least. A run that was killed continues where it stopped: a
//! stored measurement that is still valid is not repeated, except for one more run where it is near
//! the best.

mod order;
mod progress;
mod queue;
mod run;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ellect::analysis::Analysis;
use ellect::choose::Workload;
use ellect::features::Features;
use ellect::format::{BASELINES, Candidate, candidates_for};
use ellect::measure::{Backend, Measurement, Outcome, Protocol};
use ellect::unstable::wisdom::{Record, StructureRecord, Wanted};
use ellect::{Csr, Fingerprint, Precision, Wisdom};

use crate::corpus::Entry;
use crate::estimates::{Suits, estimates};
pub use progress::{Done, Event, Summary, Tally};
pub use queue::Queue;
use queue::{Listed, Undone};
use run::{MAKERS, Run};

/// Configuration of a tuning run.
#[derive(Debug)]
pub struct Tuning<'a> {
    /// The device that measures.
    pub backend: &'a Backend,
    /// Database that stores the measurements.
    pub wisdom: &'a Wisdom,
    /// Precisions of the values, measured one after the other.
    pub precisions: &'a [Precision],
    /// Prefixes of candidates to measure; empty for all candidates.
    pub only: &'a [String],
    /// A candidate is cut if its estimate exceeds the best one by this factor.
    pub cut: f64,
    /// Time limit of the whole run; `None` for no limit.
    pub budget: Option<Duration>,
    /// Time for one matrix in one precision; `None` for an equal share of the budget. A run ends
    /// when less than this is left.
    pub share: Option<Duration>,
    /// Treatment of stored measurements.
    pub remembered: Remembered,
}

/// The treatment of measurements that are stored and still valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remembered {
    /// They are not repeated.
    Kept,
    /// The baselines, and candidates within `near` times the best time, are run once more. The new
    /// run joins the earlier ones, unless there are `most` already. Other candidates are not
    /// measured again.
    Rerun {
        /// Ratio to the best time, at least 1.
        near: f64,
        /// Maximum number of runs per candidate.
        most: usize,
    },
    /// They are measured again.
    Replaced,
    /// The conversions of candidates within `near` times the best time are timed again, on a GPU;
    /// the times of their products are kept. Nothing else is measured.
    Converted {
        /// Ratio to the best time, at least 1.
        near: f64,
    },
}

/// Stored measurements of a matrix in one precision, by candidate.
#[derive(Debug, Default)]
struct Earlier(HashMap<String, Measurement>);

impl Earlier {
    /// Returns the candidates that are not to be measured again.
    fn kept(&self, remembered: Remembered) -> HashSet<&str> {
        let best_s = self.best_s();
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

    /// Returns the timed measurements within `near` times the best time.
    fn near(&self, near: f64) -> impl Iterator<Item = &Measurement> {
        let best_s = self.best_s();
        self.0.values().filter(move |m| spmv_s(m).is_some_and(|s| s <= near * best_s))
    }

    /// Returns the time of the fastest product, in seconds; infinite if none was timed.
    fn best_s(&self) -> f64 {
        self.0.values().filter_map(spmv_s).fold(f64::INFINITY, f64::min)
    }
}

/// Returns the time of one product in seconds, if it was timed.
fn spmv_s(measurement: &Measurement) -> Option<f64> {
    measurement.cost().map(|cost| cost.spmv_s)
}

/// A matrix that has been made and analysed, ready to be measured.
struct Prepared {
    entry: Entry,
    csr: Csr<f64>,
    fingerprint: Fingerprint,
    /// Record to store; `None` where only conversions are timed.
    record: Option<StructureRecord>,
    surveys: Vec<(Precision, Survey)>,
}

type Survey = Vec<(Candidate, Result<Suits, String>)>;

/// Number of timed analyses per matrix.
const LOOKS: usize = 3;

impl Tuning<'_> {
    /// Measures the entries in order, and returns when all are done or the budget is spent. A
    /// matrix that cannot be made is reported to `tell` and left out.
    ///
    /// # Errors
    /// Fails where the device or the database fails.
    pub fn run(&self, entries: Vec<Entry>, tell: &mut dyn FnMut(Event<'_>)) -> Result<Summary> {
        self.backend.check()?;
        let mut sources: HashMap<String, Fingerprint> = HashMap::new();
        self.wisdom.each_structure(|analysis| {
            sources.insert(analysis.source, analysis.fingerprint);
        })?;
        let conversions = matches!(self.remembered, Remembered::Converted { .. });
        if conversions {
            self.wisdom.each_shipped(|record| {
                if let Record::Structure(shipped) = record {
                    sources.insert(shipped.source, shipped.fingerprint);
                }
            });
        }
        let all = entries.len() * self.precisions.len();
        let mut todo = Vec::new();
        for entry in entries {
            match sources.get(&entry.source) {
                // Nothing is kept of a matrix without timed products.
                None if conversions => {}
                Some(fingerprint) if self.is_done(*fingerprint)? => {}
                _ => todo.push(entry),
            }
        }
        let of_pattern = sources.into_iter().map(|(source, print)| (print, source)).collect();
        let mut run = Run::new(self, of_pattern, all, todo.len());
        run.of(&Listed::new(todo), tell)?;
        Ok(run.summary())
    }

    /// Measures the matrices of a queue that other runs may share, until all are done or the budget
    /// is spent.
    ///
    /// # Errors
    /// As [`Tuning::run`].
    pub fn run_shared(
        &self,
        queue: &dyn Queue,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Result<Summary> {
        self.backend.check()?;
        let mut sources: HashMap<String, Fingerprint> = HashMap::new();
        self.wisdom.each_structure(|analysis| {
            sources.insert(analysis.source, analysis.fingerprint);
        })?;
        let of_pattern = sources.iter().map(|(source, print)| (*print, source.clone())).collect();
        let left = queue.left();
        let mut run = Run::new(self, of_pattern, left * self.precisions.len(), left);
        run.of(&Undone { queue, tuning: self, sources }, tell)?;
        Ok(run.summary())
    }

    /// Returns whether nothing of a matrix remains to be measured.
    fn is_done(&self, fingerprint: Fingerprint) -> Result<bool> {
        if let Remembered::Converted { .. } = self.remembered {
            return Ok(false);
        }
        let device = self.backend.device();
        let all = |p: &Precision| candidates_for(&Workload::default().target(device, *p)).len();
        let earlier = self.earlier(fingerprint)?;
        let kept = |p| earlier.get(p).map_or(0, |earlier| earlier.kept(self.remembered).len());
        let of = |p| kept(p) >= all(p);
        Ok(self.precisions.iter().all(of))
    }

    /// Returns the stored measurements of a matrix that are still valid.
    fn earlier(&self, fingerprint: Fingerprint) -> Result<HashMap<Precision, Earlier>> {
        let mut earlier: HashMap<Precision, Earlier> = HashMap::new();
        if self.remembered == Remembered::Replaced {
            return Ok(earlier);
        }
        let (basis, protocol) = (Workload::default().basis, Protocol::default());
        let mut stored = Vec::new();
        if let Remembered::Converted { .. } = self.remembered {
            stored = self.wisdom.shipped_measurements(fingerprint);
        }
        // A measurement of this user replaces one that ships.
        stored.extend(self.wisdom.measurements(fingerprint)?);
        for measurement in stored {
            let precision = measurement.precision;
            let wanted = Wanted::of(self.backend, fingerprint, precision, basis, &protocol);
            let same = measurement.device == wanted.device && measurement.basis == wanted.basis;
            let same = same && measurement.is_of_one_vector();
            if same && wanted.differs(&measurement).is_none() {
                let of_precision = earlier.entry(measurement.precision).or_default();
                of_precision.0.insert(measurement.candidate.clone(), measurement);
            }
        }
        Ok(earlier)
    }

    /// Returns the number of threads that make matrices ahead.
    fn makers(&self) -> usize {
        match self.remembered {
            // Nothing that is timed then runs on the host.
            Remembered::Converted { .. } => {
                std::thread::available_parallelism().map_or(MAKERS, |all| all.get().max(MAKERS))
            }
            _ => MAKERS,
        }
    }

    /// Makes a matrix and analyses it.
    fn prepare(&self, entry: &Entry) -> Result<Prepared> {
        let csr = entry.matrix()?;
        if let Remembered::Converted { .. } = self.remembered {
            let surveys = self.precisions.iter().map(|&p| (p, Survey::new())).collect();
            let fingerprint = Analysis::sampled(&csr).fingerprint();
            return Ok(Prepared { entry: entry.clone(), csr, fingerprint, record: None, surveys });
        }
        let survey_in = |analysis: &Analysis<'_>, precision| {
            estimates(analysis, &Workload::default().target(self.backend.device(), precision))
        };
        let first = *self.precisions.first().context("no precision to tune in")?;
        // The analysis that precedes a choice, repeated so that at least one timing is undisturbed.
        let mut analysis = Analysis::sampled(&csr);
        let mut analysis_s = f64::INFINITY;
        for _ in 0..LOOKS {
            analysis = Analysis::sampled(&csr);
            let start = Instant::now();
            rayon::join(
                || rayon::join(|| Features::of(&analysis), || survey_in(&analysis, first)),
                || analysis.fingerprint(),
            );
            analysis_s = analysis_s.min(start.elapsed().as_secs_f64());
        }
        let surveys = self.precisions.iter().map(|&p| (p, survey_in(&analysis, p))).collect();
        let record = StructureRecord {
            analysis_s: Some(analysis_s),
            ..StructureRecord::of(&analysis, &entry.source, &entry.family)
        };
        drop(analysis);
        let fingerprint = record.fingerprint;
        Ok(Prepared { entry: entry.clone(), csr, fingerprint, record: Some(record), surveys })
    }
}
