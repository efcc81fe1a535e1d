//! The events of a tuning run, and how it ended.

use ellect::Precision;
use ellect::format::Candidate;
use ellect::measure::Outcome;

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
    pub(super) fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Timed(_) => &mut self.timed,
            Outcome::Cut { .. } => &mut self.cut,
            Outcome::Refused { .. } => &mut self.refused,
            Outcome::Wrong { .. } | Outcome::Failed { .. } => &mut self.bad,
        } += 1;
    }

    pub(super) fn add(&mut self, other: Tally) {
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
