//! Choosing and preparing for a matrix that is on the GPU.

use std::cell::OnceCell;
use std::sync::Arc;

use super::{Tuner, VERIFY_SEED, doubtful, first_that_suits, may_stay};
use crate::choose::{self, Choice, Stays, Verify, Workload};
use crate::cost::Cost;
use crate::csr::CsrRef;
use crate::cuda::DeviceCsr;
use crate::error::Result;
use crate::features::Features;
use crate::format::Candidate;
use crate::model::{ALWAYS_LOOK, CONFIDENT, Glance, staying, taken};
use crate::operator::PreparedOperator;
use crate::scalar::Scalar;
use crate::structure::Structure;

/// Who chooses for a matrix that is on the GPU.
enum OnGpu {
    /// The choice was made by what the GPU counts, or by the size.
    Chosen(Box<Choice>),
    /// The host looks at the matrix: that pays.
    Closer,
    /// The host, as for any matrix.
    Host,
}

impl Tuner {
    /// Like [`Tuner::prepare`], for a matrix that is on the GPU that this tuner opened: features are
    /// counted there, and effort `Effort::Predict` chooses by them alone; the matrix is copied to
    /// the host only where so many products are to come that a closer look pays, over 100,000 at
    /// least, or where values are to be replaced.
    ///
    /// # Errors
    /// As [`Tuner::prepare`], and `Error::Argument` where the tuner opened no GPU.
    pub fn prepare_on_gpu<T: Scalar>(
        &self,
        there: &Arc<DeviceCsr<T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        self.prepare_there(there, None, workload)
    }

    /// Prepares a matrix that is on the GPU, and on the host too where that is given.
    pub(super) fn prepare_there<T: Scalar>(
        &self,
        there: &Arc<DeviceCsr<T>>,
        csr: Option<CsrRef<'_, T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let gpu = self.meter.gpu()?;
        let copied = OnceCell::new();
        let on_host = || -> Result<CsrRef<'_, T>> {
            let Some(csr) = csr else {
                let csr = there.to_csr(gpu)?;
                return Ok(copied.get_or_init(|| csr).as_ref());
            };
            Ok(csr)
        };
        let workload = Workload { precision: T::PRECISION, ..*workload };
        let target = choose::target(self.meter.device(), &workload);
        let chosen = self.choose_on_gpu(there, csr, &workload)?;
        let closer = matches!(chosen, OnGpu::Closer);
        if let OnGpu::Chosen(mut choice) = chosen {
            let operator = first_that_suits(&mut choice, |candidate| {
                let target = choose::target_of(candidate, &target);
                PreparedOperator::built(gpu, there, candidate, &target)
            })?;
            if let Some(operator) = operator {
                if workload.verify == Verify::OnPrepare {
                    operator.verify(on_host()?, VERIFY_SEED)?;
                }
                return Ok(operator.with_choice(*choice));
            }
        }
        let csr = on_host()?;
        self.prepare_by(csr, &workload, closer, |structure, candidate, target| {
            PreparedOperator::on_gpu(gpu, there, csr, structure, candidate, target)
        })
    }

    /// What is chosen with no look of the host but at the lengths of rows and a few entries of `csr`,
    /// where it is there: by these and the size, or by features that the GPU counts.
    fn choose_on_gpu<T: Scalar>(
        &self,
        there: &DeviceCsr<T>,
        csr: Option<CsrRef<'_, T>>,
        workload: &Workload,
    ) -> Result<OnGpu> {
        let or_host =
            |choice: Option<Choice>| choice.map(Box::new).map_or(OnGpu::Host, OnGpu::Chosen);
        let Some(predictor) = self.model(workload).filter(|_| may_stay(workload)) else {
            return Ok(OnGpu::Host);
        };
        let (model, device, matrix) = (predictor.model(), self.meter.device(), there.matrix());
        let size = [matrix.nrows, matrix.ncols, matrix.nnz];
        let Some(stay_s) = choose::stay_s(size, device, workload) else { return Ok(OnGpu::Host) };
        let glance = Glance { spmvs: workload.spmvs, stay_s, read_s: 0.0, sample_s: 0.0 };
        // How long an update takes is not told by features.
        let told = model.by_features.as_ref().filter(|_| workload.values.updates() == 0);
        let Some(by) = told else {
            if csr.is_some() {
                return Ok(OnGpu::Host);
            }
            let features = self.meter.gpu()?.features(there)?;
            let feature = |name: &str| features.get(name);
            let Some(look) = staying(&model.look, &glance, feature) else { return Ok(OnGpu::Host) };
            let stays = Stays { look, taken: taken(&model.sight, &glance, feature) };
            return Ok(or_host(choose::stay(features, device, workload, &stays)));
        };
        let nnz = matrix.nnz as u64;
        // What copying the matrix to the host takes is not in that.
        let near = csr.is_some() || workload.spmvs >= ALWAYS_LOOK;
        if near && choose::looks_closer(nnz, stay_s, workload.spmvs) {
            return Ok(OnGpu::Closer);
        }
        // How much rows differ is not known yet.
        let counted = Glance { read_s: choose::counted_s(nnz, f64::MAX), ..glance };
        let at_size = Features::at_size(size);
        if let Some(look) = staying(&by.look, &counted, |name| at_size.get(name)) {
            let taken = csr.and_then(|csr| {
                let read_s = choose::read_s(matrix.nrows as u64);
                let glance = Glance { read_s, sample_s: choose::SAMPLE_S, ..glance };
                model.taken(&Structure::sampled(csr), &glance)
            });
            return Ok(or_host(choose::stay(at_size, device, workload, &Stays { look, taken })));
        }
        let features = self.meter.gpu()?.features(there)?;
        let values = model.features_of(&features);
        let mut told = predictor.by_features(&values, stay_s);
        // Features are of the pattern.
        let by_values = |(candidate, _): &(&Candidate, Cost)| candidate.format.by_values();
        if told.iter().any(by_values) && !self.meter.gpu()?.has_few_values(there)? {
            told.retain(|one| !by_values(one));
        }
        let mut choice = choose::by_features(features, device, workload, &told);
        let confidence = model.nearness.confidence(&values);
        if let Some(choice) = choice.as_mut().filter(|_| confidence < CONFIDENT) {
            choice.explanation.push(doubtful(confidence));
        }
        Ok(or_host(choice))
    }
}
