//! Advice for matrices on a GPU: the decisions of [`Tuner::prepare_on_gpu`] for as many products as
//! there were, and conversions on a second stream.
//!
//! A question carries a mark of the caller's stream. The second stream waits for it before it reads
//! the matrix, so that work of the caller that still writes the matrix comes first. The finished
//! operator is handed over to the caller's stream, where its memory is freed after the products.

use std::sync::Arc;

use super::asker::{Adviser, Answer, Question};
use super::plan::{next_question, repays};
use super::{ANALYSIS_S, Conversion};
use crate::analysis::Analysis;
use crate::choose::quick::feature_sample_s;
use crate::choose::{Choice, Effort, Workload, baseline_spmv_s};
use crate::csr::Csr;
use crate::cuda::{DeviceCsr, Gpu};
use crate::error::{DeviceFault, Error, Result};
use crate::format::{CSR, Candidate, Refusal, Role};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::tuner::Tuner;

/// A matrix on a GPU, with everything that is needed to decide about it and to convert it.
pub(super) struct GpuMatrix<T: Scalar> {
    tuner: Arc<Tuner>,
    csr: Arc<DeviceCsr<T>>,
    /// The matrix on the host, if the caller has it there.
    given: Option<Arc<Csr<T>>>,
    workload: Workload,
    /// The GPU with the caller's stream.
    gpu: Arc<Gpu>,
    /// The GPU with the stream of decisions and conversions.
    side: Arc<Gpu>,
}

/// Number of products before the first question about a matrix without an estimate of a product,
/// which is a huge one.
const UNKNOWN_FIRST: u64 = 1000;

impl<T: Scalar> GpuMatrix<T> {
    /// Opens the second stream if conversions run in the background.
    ///
    /// Nothing is timed to decide, because products of the caller would disturb it: the effort is
    /// at most [`Effort::Predict`].
    ///
    /// # Errors
    /// [`Error::Device`] from the driver; [`Error::Argument`] if the tuner opened no GPU.
    pub fn new(
        tuner: Arc<Tuner>,
        csr: Arc<DeviceCsr<T>>,
        given: Option<Arc<Csr<T>>>,
        workload: Workload,
        conversion: Conversion,
    ) -> Result<Self> {
        let gpu = Arc::clone(tuner.backend().gpu()?);
        let side = match conversion {
            Conversion::Here => Arc::clone(&gpu),
            Conversion::Background => gpu.beside()?,
        };
        let workload = Workload { effort: workload.effort.min(Effort::Predict), ..workload };
        Ok(GpuMatrix { tuner, csr, given, workload, gpu, side })
    }

    /// Returns the operator that multiplies the CSR arrays, on the caller's stream.
    ///
    /// # Errors
    /// [`Error::Device`] from the driver.
    pub fn in_csr(&self) -> Result<PreparedOperator<T>> {
        let candidate: Candidate = CSR.parse()?;
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let built =
            PreparedOperator::built(&self.gpu, &self.csr, &candidate, &candidate.target(&target));
        built?.ok_or_else(|| {
            Error::device(DeviceFault::Unsupported, "no candidate multiplies the CSR arrays")
        })
    }

    /// Returns the number of products after which to ask first: as many as take the time of a
    /// decision. `None` for a matrix without entries.
    pub fn first_question(&self) -> Option<u64> {
        let matrix = self.csr.matrix();
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let decision_s = match self.tuner.decides_quickly(T::PRECISION, &self.workload) {
            true => feature_sample_s(matrix.nrows as u64),
            false => ANALYSIS_S * matrix.nnz as f64,
        };
        let product_s = baseline_spmv_s([matrix.nrows, matrix.ncols, matrix.nnz], &target);
        let first = product_s.map_or(UNKNOWN_FIRST, |s| (decision_s / s).ceil().max(1.0) as u64);
        (matrix.nnz > 0).then_some(first)
    }

    /// Converts to the first candidate of the ranking that the products would repay and that does
    /// not refuse; `None` if there is none.
    fn convert(
        &self,
        choice: &mut Choice,
        question: &Question,
    ) -> Result<Option<PreparedOperator<T>>> {
        while repays(choice, &question.held) {
            let reason = match self.prepare(&choice.candidate, question.updates > 0) {
                Ok(mut operator) => {
                    if let Some(placed) = operator.on_device_mut() {
                        placed.move_to(&self.gpu)?;
                    }
                    return Ok(Some(operator));
                }
                Err(Error::Refused { reason, .. }) => reason,
                // The layout has no room beside the CSR arrays; a smaller one may have.
                Err(Error::Device { fault: DeviceFault::OutOfMemory, what }) => what,
                Err(error) => return Err(error),
            };
            if !choice.refuse(&reason) {
                break;
            }
        }
        Ok(None)
    }

    /// Converts to a candidate on the second stream; `updated` tells whether the values that
    /// multiply now are others than those of the matrix.
    fn prepare(&self, candidate: &Candidate, updated: bool) -> Result<PreparedOperator<T>> {
        let refused = |reason: &str| Err(candidate.refused(&Refusal::new(reason)));
        if candidate.format.role == Role::Vendor {
            return refused("the library's objects cannot be freed without a wait");
        }
        if updated && candidate.format.by_values {
            return refused("it was chosen for values that have been replaced since");
        }
        let target = self.workload.target(self.tuner.device(), T::PRECISION);
        let target = candidate.target(&target);
        match PreparedOperator::built(&self.side, &self.csr, candidate, &target)? {
            Some(built) => return Ok(built),
            None if updated => return refused("the host converts to it, from replaced values"),
            None => {}
        }
        let fetched = match &self.given {
            Some(_) => None,
            None => Some(self.csr.to_csr(&self.side)?),
        };
        let csr = self.given.as_deref().or(fetched.as_ref());
        let Some(csr) = csr else { return refused("the host has no copy of the matrix") };
        let analysis = Analysis::sampled(csr).with_partitioning();
        PreparedOperator::on_gpu(&self.side, &self.csr, csr, &analysis, candidate, &target)
    }

    /// Decides for as many products as there were, and converts if they would repay it.
    fn decide(&self, mut question: Question) -> Result<Answer<T>> {
        if let Some(mark) = question.mark.take() {
            self.side.wait_for(mark)?;
        }
        let workload = Workload { spmvs: question.products, ..self.workload };
        let given = self.given.as_deref().map(Csr::as_ref);
        let mut choice = self.tuner.decide_on(&self.side, &self.csr, given, &workload)?;
        let operator = self.convert(&mut choice, &question)?;
        let held = operator.as_ref().map_or(&question.held, PreparedOperator::candidate);
        let next = next_question(&choice, held, question.products);
        Ok(Answer { operator, choice: Some(choice), next })
    }
}

impl<T: Scalar> Adviser<T> for GpuMatrix<T> {
    fn answer(&mut self, question: Question) -> Result<Answer<T>> {
        let answer = self.decide(question);
        if !Arc::ptr_eq(&self.side, &self.gpu) {
            // The matrix is freed in the order of the caller's stream, so nothing that reads it may
            // be left on the second one, not even after an error.
            self.side.synchronize()?;
        }
        answer
    }
}
