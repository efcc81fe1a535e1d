//! Advice for matrices on the host: one analysis, then one conversion at the break-even.

use std::sync::Arc;

use super::asker::{Adviser, Answer, Question};
use super::plan::ConversionPlan;
use crate::analysis::Analysis;
use crate::choose::{Choice, Workload};
use crate::csr::Csr;
use crate::error::Result;
use crate::format::Candidate;
use crate::model::ALWAYS_ANALYZE;
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// A matrix on the host, with everything that is needed to analyse and convert it.
pub(super) struct HostMatrix<T: Scalar> {
    pub tuner: Arc<Tuner>,
    pub csr: Arc<Csr<T>>,
    pub workload: Workload,
    /// The result of the analysis, after the first question.
    pub plan: Option<(Choice, Option<ConversionPlan>)>,
}

impl<T: Scalar> HostMatrix<T> {
    pub fn prepare(&self, candidate: &Candidate) -> Result<PreparedOperator<T>> {
        let analysis = Analysis::sampled(&*self.csr).with_partitioning();
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let target = candidate.target(&target);
        self.tuner.backend().prepare(&*self.csr, &analysis, candidate, &target)
    }

    /// Ranks the candidates against the current one, for a large number of products, because the
    /// real number is unknown.
    fn analyse(&self, held: &Candidate) -> Result<(Choice, Option<ConversionPlan>)> {
        let workload = Workload { spmvs: ALWAYS_ANALYZE, ..self.workload };
        let choice = self.tuner.recommend(&*self.csr, &workload)?;
        let plan = ConversionPlan::of(&choice, held);
        Ok((choice, plan))
    }
}

impl<T: Scalar> Adviser<T> for HostMatrix<T> {
    fn answer(&mut self, question: Question) -> Result<Answer<T>> {
        let (choice, mut plan) = match self.plan.take() {
            Some(known) => known,
            None => self.analyse(&question.held)?,
        };
        let kept = Answer { operator: None, choice: Some(choice.clone()), next: None };
        if let Some(plan) = plan.as_mut().filter(|_| question.updates > 0) {
            // These formats were chosen for the old values and may not apply to the new ones.
            plan.candidates.retain(|candidate| !candidate.format.by_values);
        }
        let Some(plan) = plan.filter(|plan| !plan.candidates.is_empty()) else { return Ok(kept) };
        let next = (question.products < plan.from).then_some(plan.from);
        let operator = match next {
            Some(_) => None,
            None => plan.first(|candidate| self.prepare(candidate))?,
        };
        self.plan = Some((choice, Some(plan)));
        Ok(Answer { operator, next, ..kept })
    }
}
