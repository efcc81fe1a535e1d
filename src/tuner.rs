//! The library call: a matrix and a workload in, a choice or a prepared operator out.

#[cfg(feature = "cuda")]
mod on_gpu;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::choose::{
    self, CSR, Choice, Effort, Known, Ranked, Refused, Thought, Verify, Workload, is_csr,
};
use crate::cost::Source;
use crate::csr::CsrRef;
#[cfg(feature = "cuda")]
use crate::cuda::DeviceCsr;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Basis, Candidate, Refusal, Target, candidates};
use crate::measure::{Measurement, Meter, Outcome, Protocol};
use crate::model::{CONFIDENT, Glance, Model, Predictor};
use crate::operator::PreparedOperator;
use crate::scalar::{Precision, Scalar};
use crate::session::{Limits, Session, Step, Task, remembered};
use crate::structure::Structure;
use crate::wisdom::{Answer, Stale, Wanted, Wisdom};

/// Chooses and prepares for one device.
///
/// ```
/// use ellect::choose::Workload;
/// use ellect::{Tuner, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let workload = Workload { spmvs: 10_000, ..Workload::default() };
///
/// // For a GPU that is not here, a choice; for this machine, an operator too.
/// let choice = Tuner::new(device::find("h200")?).recommend(&csr, &workload)?;
/// println!("on an H200: {}", choice.candidate);
/// let operator = Tuner::new(device::find("cpu")?).prepare(&csr, &workload)?;
/// assert_eq!((operator.nrows(), operator.nnz()), (csr.nrows(), csr.nnz()));
/// # Ok(())
/// # }
/// ```
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
    /// [`Error::UnknownDevice`] where there is none; [`Error::Device`] where it does not open.
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

    /// Ranks every candidate for this matrix, however few products are to come: only [`Tuner::prepare`]
    /// counts what looking at it takes.
    ///
    /// # Errors
    /// [`Error::AbsentDevice`] where the effort asks for timing on a device that is not here.
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
        let csr = csr.into();
        let structure = Structure::sampled(csr);
        let workload = Workload { precision: T::PRECISION, ..*workload };
        self.decide(csr, &structure, &workload, progress)
    }

    /// Chooses, converts and hands out the operator. Where the conversion refuses what estimates
    /// from samples of a large matrix took to suit, the next best is taken, and the operator's choice
    /// says so.
    ///
    /// With effort [`Effort::Predict`], models may say that for few products a look does not pay
    /// ([`choose::stay()`]). Where the tuner opened a GPU, the matrix is uploaded first and prepared as
    /// by `prepare_on_gpu`: what the GPU counts takes a small part of a look by the host, which
    /// [`Tuner::recommend`] takes.
    ///
    /// # Errors
    /// As [`Tuner::recommend`], and [`Error::WrongProduct`] where [`Verify`] asked for a check and
    /// it failed.
    pub fn prepare<'a, T: Scalar>(
        &self,
        csr: impl Into<CsrRef<'a, T>>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        let csr = csr.into();
        #[cfg(feature = "cuda")]
        if let (true, Ok(gpu)) = (may_stay(workload), self.meter.gpu()) {
            let there = Arc::new(DeviceCsr::upload(gpu, csr)?);
            return self.prepare_there(&there, Some(csr), workload);
        }
        self.prepare_by(csr, workload, false, |structure, candidate, target| {
            self.meter.prepare(csr, structure, candidate, target)
        })
    }

    /// Chooses, with a look at the matrix where `closer` asks for one or that pays, and prepares.
    fn prepare_by<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        workload: &Workload,
        closer: bool,
        prepare: impl Fn(&Structure<'_>, &Candidate, &Target<'_>) -> Result<PreparedOperator<T>>,
    ) -> Result<PreparedOperator<T>> {
        let structure = Structure::sampled(csr);
        let workload = Workload { precision: T::PRECISION, ..*workload };
        let stays = || self.stay(&structure, &workload);
        let mut choice = match (!closer).then(stays).flatten() {
            Some(choice) => choice,
            None => self.decide(csr, &structure, &workload, &mut |_| ())?,
        };
        // Only the choice may ask for the partition that only measuring tried.
        let structure = structure.with_partitioning();
        let target = choose::target(self.meter.device(), &workload);
        let operator = first_that_suits(&mut choice, |candidate| {
            prepare(&structure, candidate, &choose::target_of(candidate, &target))
        })?;
        let operator = operator.with_choice(choice);
        match workload.verify {
            Verify::No => {}
            Verify::OnPrepare => operator.verify(csr, VERIFY_SEED)?,
        }
        Ok(operator)
    }

    /// Looks at the matrix and ranks every candidate.
    fn decide<T: Scalar>(
        &self,
        csr: CsrRef<'_, T>,
        structure: &Structure<'_>,
        workload: &Workload,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Choice> {
        if workload.effort >= Effort::Measure {
            self.meter.check()?;
        }
        let model = self.model(workload);
        let device = self.meter.device();
        let target = choose::target(device, workload);
        let predict = || model.map(|model| model.predict(structure, &target));
        let (prediction, _) = rayon::join(predict, || structure.fingerprint());
        let doubt = prediction.as_ref().map(|p| p.confidence).filter(|&c| c < CONFIDENT);
        let predicted = prediction.map_or_else(Vec::new, |prediction| prediction.known);
        let untimed = || choose::choose(structure, device, workload, &predicted);
        let mut timed = match workload.effort {
            Effort::Estimate => return Ok(untimed()),
            Effort::Predict => Vec::new(),
            Effort::Measure => few(&untimed(), &choose::choose(structure, device, workload, &[])),
            Effort::Exhaustive => {
                let choice = untimed();
                csr_first(&choice).chain(untried(&choice)).cloned().collect()
            }
        };
        let (mut known, stale) = self.remembered(structure, workload)?;
        timed.retain(|candidate| known.iter().all(|known| known.candidate != *candidate));
        known.extend(self.measure(csr, structure, &timed, workload, progress)?);
        // Of two that know a candidate the first one counts: what was measured.
        known.extend(predicted);
        let mut choice = choose::choose(structure, device, workload, &known);
        choice.explanation.extend(model.and_then(|p| rule_of_thumb(p.model(), &choice)));
        choice.explanation.extend(model.and_then(|p| of_kin(p.model(), device)));
        choice.explanation.extend(doubt.map(doubtful));
        if let Some(first) = stale.first() {
            let count = stale.len();
            choice.explanation.push(format!(
                "Of {count} candidates what is remembered, or ships with this program, is not used: the \
                 first was {first}."
            ));
        }
        Ok(choice)
    }

    /// What is prepared at sight, where the model says that a look does not pay.
    fn stay(&self, structure: &Structure<'_>, workload: &Workload) -> Option<Choice> {
        let model = self.model(workload).filter(|_| may_stay(workload))?.model();
        let (features, device) = (Features::of_size(structure), self.meter.device());
        let read_s = choose::read_s(structure.pattern().nrows() as u64);
        let stay_s = self.stay_s(structure, workload)?;
        let (spmvs, sample_s) = (workload.spmvs, choose::SAMPLE_S);
        let stays = model.stays(structure, &Glance { spmvs, stay_s, read_s, sample_s })?;
        choose::stay(features, device, workload, &stays)
    }

    /// [`choose::stay_s`] of this matrix.
    fn stay_s(&self, structure: &Structure<'_>, workload: &Workload) -> Option<f64> {
        let pattern = structure.pattern();
        let size = [pattern.nrows(), pattern.ncols(), pattern.nnz()];
        choose::stay_s(size, self.meter.device(), workload)
    }

    /// What multiplies the CSR arrays as they are, in the order to try: `csr` first where the model says
    /// that it takes less than the incumbent.
    pub(crate) fn incumbents(
        &self,
        structure: &Structure<'_>,
        workload: &Workload,
    ) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = choose::incumbents(self.meter.device().kind).collect();
        let in_csr = |p: &Predictor| {
            let stay_s = self.stay_s(structure, workload);
            stay_s.is_some_and(|stay_s| p.model().in_csr(structure, stay_s))
        };
        if self.model(workload).is_some_and(in_csr) {
            all.sort_by_key(|candidate| candidate.to_string() != CSR);
        }
        all
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
        let target = choose::target(device, workload);
        for candidate in candidates(device.kind) {
            match remembered(wisdom, &wanted, &candidate, structure, &target)? {
                Answer::Known(measured) => known.push(known_of(candidate, measured.outcome)),
                Answer::Missing => {}
                Answer::Stale(why) => stale.push(why),
            }
        }
        Ok((known, stale))
    }

    /// Measures candidates in order until the budget is spent; the first one always, however long it
    /// takes.
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
        let target = choose::target(self.meter.device(), workload);
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

/// Whether a model may say that a look does not pay: it was trained in the original basis, and who
/// asks for timing has the time.
fn may_stay(workload: &Workload) -> bool {
    workload.effort == Effort::Predict && workload.basis == Basis::Original
}

/// What `prepare` makes of the first of the ranking that it does not refuse, which the choice then
/// is; after one that was timed, of the first that was.
fn first_that_suits<O>(
    choice: &mut Choice,
    mut prepare: impl FnMut(&Candidate) -> Result<O>,
) -> Result<O> {
    loop {
        match prepare(&choice.candidate) {
            Err(Error::Refused { candidate, reason }) if choice.ranking.len() > 1 => {
                let Ranked { candidate: refused, source, .. } = choice.ranking.remove(0);
                let timed = |ranked: &Ranked| ranked.source == Source::Measured;
                if source == Source::Measured
                    && let Some(next) = choice.ranking.iter().position(timed)
                {
                    choice.ranking[..=next].rotate_right(1);
                }
                choice.explanation.push(format!(
                    "{candidate} was taken to suit and refused when it was made ({reason}): the next \
                     best is {}.",
                    choice.ranking[0].candidate
                ));
                let reason = Refusal::new(reason);
                choice.refused.push(Refused { candidate: refused, reason });
                choice.candidate = choice.ranking[0].candidate.clone();
            }
            made => return made,
        }
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

/// The sentence on a matrix unlike those that the model was trained on.
fn doubtful(confidence: f64) -> String {
    format!(
        "The model was trained on no matrix like this one (confidence {confidence:.2} of 1): trust its \
         times only where they were measured; effort measure times the best few."
    )
}

/// The sentence on a model of another device.
fn of_kin(model: &Model, device: &Device) -> Option<String> {
    (model.device != device.name).then(|| {
        format!(
            "No model of {} is there: that of {} predicts, whose processors are of the same make. What \
             was not timed is taken where it is thought to save {:.0} %; effort measure needs no such \
             margin, and `ellect tune` makes a model.",
            device.name,
            model.device,
            100.0 * device.margin
        )
    })
}

/// The sentence on what usually wins among matrices like this one.
fn rule_of_thumb(model: &Model, choice: &Choice) -> Option<String> {
    let (met, format) = model.rules.walk(|name| choice.features.get(name))?;
    let usual = match format == choice.candidate.format.name() {
        true => "usually wins, as here",
        false => "usually wins; this matrix differs",
    };
    match met.as_slice() {
        [] => None,
        met => Some(format!("Where {}, {format} {usual}.", met.join(" and "))),
    }
}

/// CSR, then all others in the order of the ranking.
fn csr_first(choice: &Choice) -> impl Iterator<Item = &Candidate> {
    let all = || choice.ranking.iter().map(|ranked| &ranked.candidate);
    all().filter(|candidate| is_csr(candidate)).chain(all().filter(|candidate| !is_csr(candidate)))
}

/// What only measuring finds out: the process that measures partitions and reorders, not this one.
fn untried(choice: &Choice) -> impl Iterator<Item = &Candidate> {
    let untried = choice.refused.iter().filter(|refused| refused.reason.is_untried());
    untried.map(|refused| &refused.candidate)
}

/// What effort measure times of a ranking, and the ranking by estimates alone.
fn few(choice: &Choice, estimated: &Choice) -> Vec<Candidate> {
    let all = choice.ranking.iter().map(|ranked| {
        let same = |other: &&Ranked| other.candidate == ranked.candidate;
        let by_estimate = estimated.ranking.iter().find(same).unwrap_or(ranked);
        let [predicted_s, estimated_s] = [ranked, by_estimate].map(|ranked| ranked.total_s);
        (&ranked.candidate, Thought { predicted_s, estimated_s })
    });
    choose::best_few(all, choose::FEW).into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
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
