//! Measurements behind a choice: those stored in wisdom, and those taken for it.

use std::time::Duration;

use super::subject::Subject;
use super::{Progress, Tuner};
use crate::analysis::Analysis;
use crate::choose::{Known, Workload};
use crate::error::{Error, Result};
use crate::format::{Candidate, Refusal, Target, candidates};
use crate::measure::{Outcome, Protocol};
use crate::scalar::Scalar;
use crate::session::{Session, SessionEvent, Task, TimeLimits, remembered};
use crate::wisdom::{Answer, Stale, Wanted};

/// A measured candidate.
#[derive(Clone)]
pub(super) struct Measured {
    /// The cost, or the reason why the candidate must not be chosen.
    pub(super) known: Known,
    /// Relative error of the time of one product.
    pub(super) error: f64,
    /// Time of a product over that of CSR, if both took turns.
    over_csr: Option<f64>,
}

impl Measured {
    /// Takes the cost of a measurement; a noisy one counts with its uncertainty.
    fn of(candidate: Candidate, outcome: Outcome) -> Self {
        let mut over_csr = None;
        let (cost, error) = match outcome {
            Outcome::Timed(timing) => {
                over_csr = timing.over_csr();
                (Ok(timing.cautious_cost()), timing.error())
            }
            Outcome::Refused { reason }
            | Outcome::Wrong { reason }
            | Outcome::Failed { reason }
            | Outcome::Cut { reason } => (Err(Refusal::new(reason)), 0.0),
        };
        Measured { known: Known { candidate, cost }, error, over_csr }
    }

    /// Sets the time of one product, in seconds.
    fn set_spmv_s(&mut self, spmv_s: f64) {
        if let Ok(cost) = &mut self.known.cost {
            cost.spmv_s = spmv_s;
        }
    }
}

/// Replaces the times of candidates that took turns with CSR by that of CSR times their ratios: a
/// host is slower at some times than at others, by more than formats differ.
fn beside_csr(measured: &mut [Measured]) {
    let base = measured.iter_mut().find(|one| one.known.candidate.is_csr());
    let Some(Ok(cost)) = base.map(|base| &base.known.cost) else { return };
    let base_s = cost.spmv_s;
    for one in measured {
        if let Some(over_csr) = one.over_csr {
            one.set_spmv_s(base_s * over_csr);
        }
    }
}

impl Tuner {
    /// Returns the protocol for products with the workload's vectors.
    fn protocol_for(&self, workload: &Workload) -> Protocol {
        Protocol { vectors: workload.vectors, ..self.protocol }
    }

    /// Looks every candidate up in wisdom; returns the known costs, and the reasons why other
    /// stored measurements are out of date.
    pub(super) fn remembered(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        workload: &Workload,
    ) -> Result<(Vec<Measured>, Vec<Stale>)> {
        let (mut known, mut stale) = (Vec::new(), Vec::new());
        let Some(wisdom) = self.stored.wisdom(workload.effort) else { return Ok((known, stale)) };
        let (print, protocol) = (analysis.fingerprint(), self.protocol_for(workload));
        let wanted = Wanted::of(&self.backend, print, target.precision, target.basis, &protocol);
        for candidate in candidates(target.device.kind) {
            match remembered(&wisdom, &wanted, &candidate, analysis, target)? {
                Answer::Known(measured) => known.push(Measured::of(candidate, measured.outcome)),
                Answer::Missing => {}
                Answer::Stale(why) => stale.push(why),
            }
        }
        beside_csr(&mut known);
        Ok((known, stale))
    }

    /// Measures candidates in order until the budget is spent; the first candidate is measured in
    /// any case. A candidate that is interrupted at the end of the budget remains unknown.
    pub(super) fn measure<T: Scalar>(
        &self,
        subject: &Subject<'_, T>,
        analysis: &Analysis<'_>,
        timed: &[Candidate],
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Measured>> {
        if timed.is_empty() {
            return Ok(Vec::new());
        }
        let target = workload.target(self.backend.device(), T::PRECISION);
        let budget = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0));
        let all = workload.budget_s.map(|seconds| budget(seconds).unwrap_or(Duration::MAX));
        let wisdom = self.stored.wisdom(workload.effort);
        let source = subject.source(&self.source);
        let session = Session::new(&self.backend, subject.csr()?, analysis, target)
            .with_protocol(self.protocol_for(workload))
            .with_limits(TimeLimits { all, always: 1, ..TimeLimits::default() })
            .repeating_noisy()
            .keeping(wisdom.as_deref(), &source);
        let (mut known, total, mut done) = (Vec::new(), timed.len(), 0);
        session.run(timed.iter().map(Task::from), &mut |step| -> Result<()> {
            if matches!(step, SessionEvent::Timing(_)) && self.is_stopped() {
                return Err(Error::Stopped { done, total });
            }
            if let SessionEvent::Measured { measurement, .. }
            | SessionEvent::Interrupted { measurement, .. } = step
            {
                done = usize::min(done + 1, total);
                progress(Progress { done, total, measurement });
            }
            if let SessionEvent::Measured { candidate, measurement } = step {
                // A repeated measurement replaces the noisy one.
                known.retain(|one: &Measured| one.known.candidate != *candidate);
                known.push(Measured::of(candidate.clone(), measurement.outcome.clone()));
            }
            Ok(())
        })?;
        beside_csr(&mut known);
        Ok(known)
    }
}
