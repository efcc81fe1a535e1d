//! Events of a tuning run, and its summary.

use ellect::Precision;
use ellect::format::Candidate;
use ellect::measure::Outcome;

/// An event that a run reports while it is in progress.
#[derive(Debug)]
pub enum Event<'a> {
    /// A candidate is about to be timed.
    Timing {
        /// Source of the matrix.
        source: &'a str,
        /// The candidate.
        candidate: &'a Candidate,
    },
    /// A matrix is done in one precision.
    Case(&'a Done<'a>),
    /// A matrix was left out.
    Skipped {
        /// Source of the matrix.
        source: &'a str,
        /// The reason.
        why: String,
    },
}

/// Report on a matrix that is done in one precision.
#[derive(Debug)]
pub struct Done<'a> {
    /// Source of the matrix.
    pub source: &'a str,
    /// Precision of the values.
    pub precision: Precision,
    /// Number of candidates by outcome.
    pub tally: Tally,
    /// Seconds spent on the device.
    pub took_s: f64,
    /// Number of matrices done; each precision counts separately.
    pub done: usize,
    /// Number of all matrices; each precision counts separately.
    pub all: usize,
    /// Estimated seconds left.
    pub left_s: f64,
}

/// Number of candidates by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Checked and timed.
    pub timed: usize,
    /// Cut because of the estimate.
    pub cut: usize,
    /// Left for a later run: the time for the matrix was over.
    pub late: usize,
    /// Refused by the format.
    pub refused: usize,
    /// Failed, or computed a wrong result.
    pub bad: usize,
    /// Stored by an earlier run.
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

/// Summary of a finished run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of matrices done, including those done by earlier runs.
    pub matrices: usize,
    /// Number of matrices left out for lack of budget.
    pub left: usize,
    /// Number of all candidates by outcome.
    pub tally: Tally,
}
