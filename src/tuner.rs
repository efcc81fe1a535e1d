//! The library call: a matrix and a workload in, a choice or a prepared operator out.

mod decide;
mod subject;

use std::cell::OnceCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::choose::policy::Mode;
#[cfg(feature = "cuda")]
use crate::choose::policy::may_keep;
use crate::choose::{Choice, Effort, Known, Workload};
use crate::csr::CsrRef;
#[cfg(feature = "cuda")]
use crate::cuda::DeviceCsr;
use crate::device::Device;
use crate::error::Result;
use crate::format::{Candidate, Refusal, candidates};
use crate::measure::{Measurement, Meter, Outcome, Protocol};
use crate::model::Predictor;
use crate::operator::PreparedOperator;
use crate::scalar::{Precision, Scalar};
use crate::session::{Limits, Session, Step, Task, remembered};
use crate::structure::Structure;
use crate::wisdom::{Answer, Stale, Wanted, Wisdom};
use subject::Subject;

/// Chooses and prepares for one device.
#[derive(Debug)]
pub struct Tuner {
    meter: Arc<Meter>,
    protocol: Protocol,
    wisdom: Option<Arc<Wisdom>>,
    source: String,
    models: Vec<Arc<Predictor>>,
}

/// A candidate was measured, `done` of `total`.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Candidates measured so far, this one among them.
    pub done: usize,
    /// Candidates to measure.
    pub total: usize,
    /// What was found.
    pub measurement: &'a Measurement,
}

/// The seed of vectors that a prepared operator is verified on.
const VERIFY_SEED: u64 = 1;

impl Tuner {
    /// A tuner for this device: see [`crate::device::find`].
    pub fn new(device: Device) -> Self {
        Tuner::with_meter(Meter::of(device))
    }

    /// A tuner for the device of this name: `cuda:0` for the first GPU of this machine, to time on
    /// (feature `cuda`), or a profile as [`crate::device::find`] finds it.
    ///
    /// # Errors
    /// [`Error::Device`] where there is none.
    pub fn open(name: &str) -> Result<Self> {
        Ok(Tuner::with_meter(Meter::open(name, &crate::device::data_dir())?))
    }

    /// A tuner that times with this meter, which others may share.
    pub fn with_meter(meter: impl Into<Arc<Meter>>) -> Self {
        Tuner {
            meter: meter.into(),
            protocol: Protocol::default(),
            wisdom: None,
            source: String::new(),
            models: Vec::new(),
        }
    }

    /// The same tuner, timing by this protocol.
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// The same tuner, answering from this wisdom what was measured before (but for
    /// [`Effort::Estimate`]), and adding to it what it measures.
    pub fn with_wisdom(mut self, wisdom: Arc<Wisdom>) -> Self {
        self.wisdom = Some(wisdom);
        self
    }

    /// The same tuner, naming in records where its matrices are from.
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// The same tuner with the models of its device in this data folder (`DIR/models`): efforts
    /// from [`Effort::Predict`] on use them instead of estimates.
    ///
    /// # Errors
    /// As [`Predictor::open`].
    pub fn with_models(mut self, data: &Path) -> Result<Self> {
        for precision in Precision::ALL {
            let model = Predictor::open(data, self.device(), precision)?;
            self.models.extend(model.map(Arc::new));
        }
        Ok(self)
    }

    /// The same tuner with this model of its device, which others may share.
    pub fn with_model(mut self, model: impl Into<Arc<Predictor>>) -> Self {
        self.models.push(model.into());
        self
    }

    /// What times and prepares.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.meter.device()
    }

    /// Ranks every candidate for this matrix, however few products are to come. [`Tuner::decide`] counts
    /// the time of the ranking itself, and so may choose otherwise.
    ///
    /// # Errors
    /// [`Error::Device`] where the effort asks for timing on a device that is not here.
    pub fn recommend<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<Choice> {
        self.recommend_with(csr, workload, &mut |_| ())
    }

    /// Like [`Tuner::recommend`], telling `progress` of each candidate that was measured.
    ///
    /// # Errors
    /// As there.
    pub fn recommend_with<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        let workload = Workload { precision: T::PRECISION, ..*workload };
        let subject = Subject::on_host(csr.into());
        let decided =
            self.decide_about(&subject, &OnceCell::new(), &workload, Mode::Rank, progress)?;
        Ok(decided.choice)
    }

    /// The choice that [`Tuner::prepare`] makes for this matrix, without the conversion.
    ///
    /// The time of the decision counts: with effort [`Effort::Predict`] the model may keep the baseline
    /// without an analysis of the matrix, or choose from features that a GPU counts; such a choice
    /// ranks few candidates and has no fingerprint. Where the tuner opened a GPU, the matrix is
    /// uploaded; for a GPU that is not on this machine, the host finds the features that it would
    /// count. A conversion may still refuse the choice; `prepare` then takes the next best.
    ///
    /// # Errors
    /// As [`Tuner::recommend`], and [`Error::Device`](crate::Error::Device) by a GPU.
    pub fn decide<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<Choice> {
        self.decide_with(csr, workload, &mut |_| ())
    }

    /// Like [`Tuner::decide`], telling `progress` of each candidate that was measured.
    ///
    /// # Errors
    /// As there.
    pub fn decide_with<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        let workload = Workload { precision: T::PRECISION, ..*workload };
        let subject = self.subject(csr.into(), &workload)?;
        let decided =
            self.decide_about(&subject, &OnceCell::new(), &workload, Mode::Prepare, progress)?;
        Ok(decided.choice)
    }

    /// Decides as [`Tuner::decide`], converts the matrix and hands out the operator. Where the conversion
    /// refuses a candidate that estimates from samples of a large matrix expected to apply, the next
    /// best is chosen, and the operator's choice says so.
    ///
    /// Where the tuner opened a GPU, the matrix is uploaded first and prepared as by
    /// `prepare_on_gpu`: counting features there takes a small part of an analysis by the host.
    ///
    /// # Errors
    /// As [`Tuner::decide`], and [`Error::WrongProduct`](crate::Error::WrongProduct) where
    /// [`Verify`](crate::choose::Verify) asked for a check and it failed.
    pub fn prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        self.prepare_subject(&self.subject(csr.into(), workload)?, workload)
    }

    /// Like [`Tuner::prepare`], for a matrix that is on the GPU that this tuner opened: features are
    /// counted there, and effort [`Effort::Predict`] chooses from them alone. The matrix is copied to
    /// the host only where an analysis pays, for 100,000 products at least, or where values are to be
    /// replaced.
    ///
    /// # Errors
    /// As [`Tuner::prepare`], and [`Error::Device`](crate::Error::Device) where the tuner opened no
    /// GPU.
    #[cfg(feature = "cuda")]
    pub fn prepare_on_gpu<T: Scalar>(
        &self,
        csr: &Arc<DeviceCsr<T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let subject = Subject::on_gpu(self.meter.gpu()?, csr.clone(), None);
        self.prepare_subject(&subject, workload)
    }

    /// The matrix where a decision about it is made: uploaded to a GPU that may count its features.
    fn subject<'a, T: Scalar>(
        &'a self,
        csr: CsrRef<'a, T>,
        workload: &Workload,
    ) -> Result<Subject<'a, T>> {
        #[cfg(feature = "cuda")]
        if let (true, Ok(gpu)) = (may_keep(workload), self.meter.gpu()) {
            return Ok(Subject::on_gpu(gpu, Arc::new(DeviceCsr::upload(gpu, csr)?), Some(csr)));
        }
        let _ = workload;
        Ok(Subject::on_host(csr))
    }

    /// The model, where there is one of this precision and the effort asks for it.
    fn model(&self, workload: &Workload) -> Option<&Predictor> {
        let mut models = self.models.iter();
        let model = models.find(|p| p.model().precision == workload.precision)?;
        (workload.effort >= Effort::Predict).then_some(model.as_ref())
    }

    /// What wisdom knows of the candidates, and what of it is not of use any more.
    fn remembered(
        &self,
        structure: &Structure<'_>,
        workload: &Workload,
    ) -> Result<(Vec<Known>, Vec<Stale>)> {
        let (mut known, mut stale) = (Vec::new(), Vec::new());
        let Some(wisdom) = &self.wisdom else { return Ok((known, stale)) };
        let device = self.meter.device();
        let (print, version) = (structure.fingerprint(), self.protocol.version);
        let wanted = Wanted::of(&self.meter, print, workload.precision, workload.basis, version);
        let target = workload.target(device);
        for candidate in candidates(device.kind) {
            match remembered(wisdom, &wanted, &candidate, structure, &target)? {
                Answer::Known(measured) => known.push(known_of(candidate, measured.outcome)),
                Answer::Missing => {}
                Answer::Stale(why) => stale.push(why),
            }
        }
        Ok((known, stale))
    }

    /// Measures candidates in order until the budget is spent; the first one always, whatever it
    /// takes. Of one that the end of the budget cuts off nothing is known.
    fn measure<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        structure: &Structure<'_>,
        timed: &[Candidate],
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Vec<Known>> {
        if timed.is_empty() {
            return Ok(Vec::new());
        }
        let target = workload.target(self.meter.device());
        let budget = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0));
        let all = workload.budget_s.map(|seconds| budget(seconds).unwrap_or(Duration::MAX));
        let session = Session::new(&self.meter, csr, structure, target)
            .with_protocol(self.protocol)
            .with_limits(Limits { all, always: 1, ..Limits::default() })
            .keeping(self.wisdom.as_deref(), &self.source);
        let (mut known, total, mut done) = (Vec::new(), timed.len(), 0);
        session.run(timed.iter().map(Task::from), &mut |step| -> Result<()> {
            if let Step::Measured { measurement, .. } | Step::Interrupted { measurement, .. } = step
            {
                done += 1;
                progress(Progress { done, total, measurement });
            }
            if let Step::Measured { candidate, measurement } = step {
                known.push(known_of(candidate.clone(), measurement.outcome.clone()));
            }
            Ok(())
        })?;
        Ok(known)
    }
}

/// What a measurement tells the choice.
fn known_of(candidate: Candidate, outcome: Outcome) -> Known {
    let cost = match outcome {
        Outcome::Timed(timing) => Ok(timing.cost()),
        Outcome::Refused { reason }
        | Outcome::Wrong { reason }
        | Outcome::Failed { reason }
        | Outcome::Cut { reason } => Err(Refusal::new(reason)),
    };
    Known { candidate, cost }
}

#[cfg(test)]
mod tests {
    use super::decide::first_that_suits;
    use super::*;
    use crate::cost::Source;
    use crate::csr::Csr;
    use crate::error::Error;
    use crate::generate;

    #[test]
    fn what_is_refused_when_it_is_made_leaves_the_next_best() {
        let csr: Csr<f64> = generate::by_name("heat", 5000, 1).expect("a class");
        let device = crate::device::find("h200").expect("shipped");
        let workload =
            Workload { spmvs: 1_000_000, effort: Effort::Estimate, ..Workload::default() };
        let mut choice = Tuner::new(device).recommend(&csr, &workload).expect("an estimate");
        let ranking: Vec<Candidate> =
            choice.ranking.iter().map(|ranked| ranked.candidate.clone()).collect();
        let made = first_that_suits(&mut choice, |candidate| match candidate {
            first if *first == ranking[0] || *first == ranking[1] => {
                Err(first.refused(&Refusal::new("too wide")))
            }
            other => Ok(other.clone()),
        });
        assert_eq!(made.expect("the third suits"), ranking[2]);
        assert_eq!(choice.candidate, ranking[2]);
        assert_eq!(choice.ranking[0].candidate, ranking[2]);
        assert!(choice.refused.iter().any(|r| r.candidate == ranking[1]));
        let told = &choice.explanation[choice.explanation.len() - 2];
        assert!(told.contains("too wide") && told.contains(&ranking[1].to_string()), "{told}");
    }

    #[test]
    fn after_one_that_was_timed_comes_the_next_that_was() {
        let csr: Csr<f64> = generate::by_name("heat", 5000, 1).expect("a class");
        let device = crate::device::find("h200").expect("shipped");
        let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
        let mut choice = Tuner::new(device).recommend(&csr, &workload).expect("an estimate");
        [0, 3].iter().for_each(|&timed| choice.ranking[timed].source = Source::Measured);
        let [first, second, fourth] = [0, 1, 3].map(|at| choice.ranking[at].candidate.clone());
        let made = first_that_suits(&mut choice, |candidate| match candidate {
            refused if *refused == first => Err(first.refused(&Refusal::new("no memory left"))),
            other => Ok(other.clone()),
        });
        assert_eq!(made.expect("the next one suits"), fourth);
        assert_eq!(choice.candidate, fourth);
        assert_eq!([0, 1].map(|at| choice.ranking[at].candidate.clone()), [fourth, second]);
    }

    #[test]
    fn a_refusal_of_the_last_is_an_error() {
        let csr: Csr<f64> = generate::by_name("heat", 500, 1).expect("a class");
        let tuner = Tuner::new(crate::device::find("cpu").expect("shipped"));
        let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
        let mut choice = tuner.recommend(&csr, &workload).expect("an estimate");
        let refuse = |candidate: &Candidate| -> Result<()> {
            Err(candidate.refused(&Refusal::new("never")))
        };
        let error = first_that_suits(&mut choice, refuse).expect_err("all refuse");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(choice.ranking.len(), 1);
    }
}
