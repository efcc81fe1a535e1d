//! The library call: a matrix and a workload in, a choice or a prepared operator out.

mod both;
mod complex;
mod decide;
mod features;
mod progress;
mod stored;
mod subject;
mod timings;
mod trial;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::choose::policy::Mode;
use crate::choose::policy::may_keep;
use crate::choose::{Choice, Effort, Workload};
use crate::csr::CsrRef;
use crate::cuda::DeviceCsr;
use crate::device::Device;
use crate::error::Result;
use crate::measure::{Backend, Protocol, Samples};
use crate::model::{Gates, Model, Predictor, Purpose};
use crate::operator::PreparedOperator;
use crate::scalar::{Precision, Scalar};
use crate::wisdom::Wisdom;
pub use progress::Progress;
use stored::Stored;
use subject::Subject;

/// A tuner chooses candidates and prepares operators for one device.
///
/// ```
/// use ellect::{Csr, Tuner, Workload};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = Csr::from_triplets(2, 2, [(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let tuner = Tuner::open("cpu")?;
/// let operator = tuner.prepare(&csr, &Workload { spmvs: 20, ..Workload::default() })?;
/// assert_eq!(operator.candidate().to_string(), "csr");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tuner {
    backend: Arc<Backend>,
    protocol: Protocol,
    source: String,
    stored: Stored,
    /// True if the host may compute the products of a GPU that is not on this machine.
    emulates: bool,
    /// Set to true by the caller to end measuring.
    stop: Option<Arc<AtomicBool>>,
    /// Nanoseconds of computing features.
    features_ns: Option<Arc<AtomicU64>>,
}

/// Seed of the random vectors that verify a prepared operator.
const VERIFY_SEED: u64 = 1;

impl Tuner {
    /// Creates a tuner for the device with this name: `cuda:0` for the first GPU of this machine,
    /// on which candidates can be timed (feature `cuda`), or the name of a profile that
    /// [`crate::device::find`] finds.
    ///
    /// The tuner uses the models and the measurements that ship, and those of the user's data
    /// folder ([`crate::device::data_dir`]): see [`Tuner::with_data`].
    ///
    /// # Errors
    /// [`Error::UnknownDevice`](crate::Error::UnknownDevice) if no device has this name;
    /// [`Error::Device`](crate::Error::Device) if it cannot be opened;
    /// [`Error::Io`](crate::Error::Io) if the user's profile of the device is not valid.
    pub fn open(name: &str) -> Result<Self> {
        Tuner::open_in(name, &crate::device::data_dir())
    }

    /// Like [`Tuner::open`], with another data folder.
    ///
    /// # Errors
    /// As [`Tuner::open`].
    pub fn open_in(name: &str, data: &Path) -> Result<Self> {
        Ok(Tuner::without_models(Backend::open(name, data)?).with_data(data))
    }

    /// Creates a tuner without models and wisdom for a [`Device`] or a [`Backend`], which other
    /// tuners may share.
    ///
    /// Closed formulas estimate all times, unless models or wisdom are added.
    ///
    /// ```
    /// use ellect::choose::Workload;
    /// use ellect::cost::Source;
    /// use ellect::{Tuner, device, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = generate::by_name("heat", 500, 1)?;
    /// let tuner = Tuner::without_models(device::find("h200")?);
    /// let choice = tuner.recommend(&csr, &Workload::default())?;
    /// assert!(choice.ranking.iter().all(|ranked| ranked.source == Source::Estimated));
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_models(backend: impl Into<Arc<Backend>>) -> Self {
        Tuner {
            backend: backend.into(),
            protocol: Protocol::default(),
            source: String::new(),
            stored: Stored::default(),
            emulates: false,
            stop: None,
            features_ns: None,
        }
    }

    /// Adds the models and the wisdom of this data folder, behind those that were given before.
    ///
    /// They are opened when a choice first needs them. A model that does not load is replaced by
    /// the one that ships. If the user's database cannot be opened, because another process has it
    /// open for instance, the shipped measurements are used. Explanations of choices say so, and so
    /// does [`Tuner::warnings`].
    ///
    /// The database stays open as long as the tuner lives. Efforts from [`Effort::Measure`] on
    /// store their measurements in it and create it if it is missing; other efforts write nothing.
    pub fn with_data(mut self, data: &Path) -> Self {
        self.stored.set_folder(data);
        self
    }

    /// Sets the measuring protocol.
    pub fn with_protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Lets this host compute the products of operators for a GPU that is not on this machine, to
    /// check layouts for instance; [`PreparedOperator::runs_on`] tells where an operator runs.
    ///
    /// ```
    /// use ellect::device::Kind;
    /// use ellect::{Error, Tuner, Workload, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let csr = generate::by_name("heat", 500, 1)?;
    /// let (tuner, workload) = (Tuner::open("h200")?, Workload::default());
    /// assert!(matches!(tuner.prepare(&csr, &workload), Err(Error::AbsentDevice { .. })));
    /// let operator = tuner.host_emulation().prepare(&csr, &workload)?;
    /// assert_eq!(operator.runs_on(), Kind::Host);
    /// # Ok(())
    /// # }
    /// ```
    pub fn host_emulation(mut self) -> Self {
        self.emulates = true;
        self
    }

    /// Lets another thread end measuring: once `stop` is true, a choice that measures fails with
    /// [`Error::Stopped`](crate::Error::Stopped) before the next candidate.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// use ellect::choose::{Effort, Workload};
    /// use ellect::{Error, Tuner, device, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let stop = Arc::new(AtomicBool::new(true));
    /// let tuner = Tuner::without_models(device::find("cpu")?).stopping_when(Arc::clone(&stop));
    /// let csr = generate::by_name("heat", 500, 1)?;
    /// let workload = Workload { effort: Effort::Measure, ..Workload::default() };
    /// let stopped = tuner.recommend(&csr, &workload);
    /// assert!(matches!(stopped, Err(Error::Stopped { done: 0, .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stopping_when(mut self, stop: Arc<AtomicBool>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Adds the time that each prediction takes to compute a matrix's features, in nanoseconds, to
    /// `total_ns`. It is a part of the time of a choice.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use ellect::{Tuner, Workload, device, generate};
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let total_ns = Arc::new(AtomicU64::new(0));
    /// let data = std::env::temp_dir().join("ellect-none");
    /// let tuner = Tuner::without_models(device::find("cpu")?).with_models(&data)?;
    /// let tuner = tuner.timing_features(Arc::clone(&total_ns));
    /// tuner.recommend(&generate::by_name("heat", 500, 1)?, &Workload::default())?;
    /// println!("{} ns", total_ns.load(Ordering::Relaxed));
    /// # Ok(())
    /// # }
    /// ```
    pub fn timing_features(mut self, total_ns: Arc<AtomicU64>) -> Self {
        self.features_ns = Some(total_ns);
        self
    }

    /// Tells whether the caller asked to end measuring.
    fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Sets the wisdom. The tuner uses its stored measurements (except with [`Effort::Estimate`])
    /// and stores new measurements in it.
    pub fn with_wisdom(mut self, wisdom: Arc<Wisdom>) -> Self {
        self.stored.wisdom = Some(wisdom);
        self
    }

    /// Sets the origin of the tuner's matrices, which new records contain.
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Loads the models of the tuner's device from this data folder (`DIR/models`). Efforts from
    /// [`Effort::Predict`] on use them instead of estimates.
    ///
    /// # Errors
    /// As [`Predictor::open`].
    pub fn with_models(mut self, data: &Path) -> Result<Self> {
        for purpose in Purpose::ALL {
            let model = Predictor::open(data, self.device(), purpose)?;
            self.stored.models.extend(model.map(Arc::new));
        }
        Ok(self)
    }

    /// Adds a model of the tuner's device, which other tuners may share.
    pub fn with_model(mut self, model: impl Into<Arc<Predictor>>) -> Self {
        self.stored.models.push(model.into());
        self
    }

    /// Returns a sentence for each model and database of the data folder that could not be used.
    pub fn warnings(&self) -> Vec<String> {
        self.stored.warnings()
    }

    /// Returns the backend, which times candidates and prepares operators.
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        self.backend.device()
    }

    /// Ranks every candidate for this matrix, for any number of products. [`Tuner::decide`] also
    /// counts the time of the decision, and so may choose another candidate.
    ///
    /// If the workload has products with the transpose, the choice also holds that of the transpose
    /// ([`Choice::transposed`]), as [`Tuner::prepare_both`] makes them.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) if the effort requires timing and the device is not
    /// on this machine.
    pub fn recommend<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<Choice> {
        self.recommend_with(csr, workload, &mut |_| ())
    }

    /// Like [`Tuner::recommend`]; calls `progress` after each measured candidate.
    ///
    /// # Errors
    /// As [`Tuner::recommend`].
    pub fn recommend_with<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        self.choose(csr.into(), workload, Mode::Rank, progress)
    }

    /// Returns the choice that [`Tuner::prepare`] makes for this matrix, without converting the
    /// matrix and without the trial that may follow on a host ([`Trials`](crate::choose::Trials)).
    ///
    /// The time of the decision counts. With [`Effort::Predict`], the model may keep the baseline
    /// without analysing the matrix, or choose from features that a GPU counts; such a choice ranks
    /// few candidates and has no fingerprint. If the tuner opened a GPU, the matrix is uploaded.
    /// For a GPU that is not on this machine, the host computes the features that the GPU would
    /// count. The conversion of the chosen candidate may still refuse the matrix; `prepare` then
    /// uses the next best candidate.
    ///
    /// # Errors
    /// As [`Tuner::recommend`], and [`Error::Device`](crate::Error::Device) if the GPU fails.
    pub fn decide<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<Choice> {
        self.decide_with(csr, workload, &mut |_| ())
    }

    /// Like [`Tuner::decide`]; calls `progress` after each measured candidate.
    ///
    /// # Errors
    /// As [`Tuner::decide`].
    pub fn decide_with<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        self.choose(csr.into(), workload, Mode::Prepare, progress)
    }

    /// Decides as [`Tuner::decide`], converts the matrix and returns the operator.
    ///
    /// On a host, the two or three most promising candidates may first be timed next to CSR
    /// ([`Trials`](crate::choose::Trials)), so the choice may differ from that of `decide`.
    ///
    /// Estimates from samples of a large matrix may expect a candidate to apply whose conversion
    /// then refuses the matrix. In that case the next best candidate is chosen, and the operator's
    /// choice says so.
    ///
    /// If the tuner opened a GPU, the matrix is first uploaded and then prepared as by
    /// `prepare_on_gpu`: counting features on the GPU takes a small part of the time of an analysis
    /// on the host.
    ///
    /// # Errors
    /// As [`Tuner::decide`]; [`Error::AbsentDevice`](crate::Error::AbsentDevice) for a GPU that is
    /// not on this machine, without [`Tuner::host_emulation`]; and
    /// [`Error::WrongProduct`](crate::Error::WrongProduct) if [`Verify`](crate::choose::Verify)
    /// requires a check and the check fails.
    pub fn prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        self.prepare_subject(&self.subject(csr.into(), workload)?, workload)
    }

    /// Like [`Tuner::prepare`], for a matrix on the GPU that this tuner opened.
    ///
    /// The GPU counts the features, and [`Effort::Predict`] chooses from them alone. The matrix is
    /// copied to the host only if an analysis pays, which requires at least 100,000 products, or if
    /// values are to be replaced.
    ///
    /// # Errors
    /// As [`Tuner::prepare`], and [`Error::Device`](crate::Error::Device) if the tuner opened no
    /// GPU.
    pub fn prepare_on_gpu<T: Scalar>(
        &self,
        csr: &Arc<DeviceCsr<T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let subject = Subject::on_gpu(self.backend.gpu()?, csr.clone(), None);
        self.prepare_subject(&subject, workload)
    }

    /// Times preparing an operator `times` times: by [`Tuner::prepare_on_gpu`], for a copy of the
    /// matrix that is there already, if the tuner opened a GPU, otherwise by [`Tuner::prepare`]. An
    /// untimed call comes first, which loads the model and the kernels.
    ///
    /// # Errors
    /// As [`Tuner::prepare`].
    ///
    /// # Panics
    /// If `times` is 0.
    pub fn time_prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
        times: usize,
    ) -> Result<Samples> {
        let csr = csr.into();
        let gpu = self.backend.gpu().ok();
        let there = gpu.map(|gpu| DeviceCsr::upload(gpu, csr).map(Arc::new)).transpose()?;
        let prepare = || match &there {
            Some(there) => self.prepare_on_gpu(there, workload),
            None => self.prepare(csr, workload),
        };
        prepare()?;
        let time = |_| {
            let start = Instant::now();
            prepare().map(|_operator| start.elapsed().as_secs_f64())
        };
        Ok(Samples::new((0..times).map(time).collect::<Result<_>>()?))
    }

    /// Places the matrix for the decision: uploads it to a GPU that may count its features,
    /// otherwise leaves it on the host.
    fn subject<'a, T: Scalar>(
        &'a self,
        csr: CsrRef<'a, T>,
        workload: &Workload,
    ) -> Result<Subject<'a, T>> {
        if let (true, Ok(gpu)) = (may_keep(workload), self.backend.gpu()) {
            return Ok(Subject::on_gpu(gpu, Arc::new(DeviceCsr::upload(gpu, csr)?), Some(csr)));
        }
        Ok(Subject::on_host(csr))
    }

    /// Returns the trees that decide without an analysis; `None` for several vectors, for which every
    /// decision analyses the matrix.
    fn gates(&self, workload: &Workload, precision: Precision) -> Option<Gates<'_>> {
        let model = self.model(workload, precision).map(Predictor::model);
        model.filter(|model| !model.several).map(Model::gates)
    }

    /// Returns the model of this precision and number of vectors if there is one, and the effort uses
    /// models.
    fn model(&self, workload: &Workload, precision: Precision) -> Option<&Predictor> {
        let model = || self.stored.model(self.device(), Purpose::of(precision, workload.vectors));
        (workload.effort >= Effort::Predict).then(model).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::decide::first_that_suits;
    use super::*;
    use crate::cost::Source;
    use crate::csr::Csr;
    use crate::error::Error;
    use crate::format::{Candidate, Refusal};
    use crate::generate;

    #[test]
    fn a_candidate_refused_in_conversion_leaves_the_next_best() {
        let csr: Csr<f64> = generate::by_name("heat", 5000, 1).expect("a class");
        let device = crate::device::find("h200").expect("shipped");
        let workload =
            Workload { spmvs: 1_000_000, effort: Effort::Estimate, ..Workload::default() };
        let mut choice =
            Tuner::without_models(device).recommend(&csr, &workload).expect("an estimate");
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
        let stated = &choice.explanation[choice.explanation.len() - 2];
        assert!(
            stated.contains("too wide") && stated.contains(&ranking[1].to_string()),
            "{stated}"
        );
    }

    #[test]
    fn after_a_timed_candidate_comes_the_next_timed_one() {
        let csr: Csr<f64> = generate::by_name("heat", 5000, 1).expect("a class");
        let device = crate::device::find("h200").expect("shipped");
        let workload = Workload { effort: Effort::Estimate, ..Workload::default() };
        let mut choice =
            Tuner::without_models(device).recommend(&csr, &workload).expect("an estimate");
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
        let tuner = Tuner::without_models(crate::device::find("cpu").expect("shipped"));
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
