//! Performs the steps of a [`Policy`]: the loop behind every choice, for matrices on the host and
//! on GPUs.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::subject::Subject;
use super::timings::Measured;
use super::{Progress, Tuner, VERIFY_SEED};
use crate::analysis::Analysis;
use crate::choose::policy::{
    CandidateState, Decision, Found, Knowledge, Mode, Place, Policy, Step,
};
use crate::choose::{
    self, Choice, Effort, Known, Ranked, Ranking, Thought, Verify, Workload, baseline_product_s,
    nine_in_ten,
};
use crate::cost::{Cost, Source};
use crate::csr::CsrRef;
use crate::cuda::{DeviceCsr, Gpu};
use crate::device::{Device, Kind};
use crate::error::{Error, Result};
use crate::features::Features;
use crate::format::{Candidate, Target};
use crate::model::{CONFIDENT, Model, Predictor, Stage, gate_feature};
use crate::operator::PreparedOperator;
use crate::par;
use crate::scalar::{Precision, Scalar};
use crate::wisdom::Stale;

/// A choice for a matrix, and the steps that led to it.
pub(super) struct Decided {
    pub(super) choice: Choice,
    /// True if the host analysed the matrix.
    pub(super) analysed: bool,
    /// True if the decision used only the GPU's counts or the size.
    counted: bool,
}

/// Results of the steps before an analysis.
struct Findings {
    found: Found,
    /// Known features: those of the size, or those that a GPU sampled or counted.
    features: Features,
}

/// Results of an analysis.
struct Analysed {
    predicted: Vec<Known>,
    /// Confidence of the model, if there is one.
    confidence: Option<f64>,
    measured: Vec<Measured>,
    stale: Vec<Stale>,
    /// The part that the policy reads.
    state: CandidateState,
}

impl Analysed {
    /// Adds the costs of the candidates that were timed, after which none is timed any more.
    fn add_timed(&mut self, measured: Vec<Measured>) {
        self.measured.extend(measured);
        self.state.timed = true;
    }
}

impl Tuner {
    /// Decides about a matrix; fills `analysis` if the host reads the matrix.
    pub(super) fn decide_about<'s, T: Scalar>(
        &self,
        subject: &'s Subject<'_, T>,
        analysis: &OnceCell<Analysis<'s>>,
        workload: &Workload,
        mode: Mode,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Decided> {
        workload.check(T::PRECISION)?;
        self.check_device(workload.effort)?;
        let (device, size) = (self.backend.device(), subject.size());
        let target = workload.target(device, T::PRECISION);
        let model = self.model(workload, T::PRECISION);
        let [nrows, _, nnz] = size.map(|n| n as u64);
        let baseline_s = baseline_product_s(size, &target, workload.vectors);
        let gates = self.gates(workload, T::PRECISION);
        let place = subject.place(device.kind);
        let mut policy = Policy::new(mode, place, workload, [nrows, nnz], baseline_s, gates);
        // True if the host takes no part in the decision, unless it analyses the matrix.
        let counted = policy.is_quick() || !place.on_host();
        let mut findings = Findings { found: Found::default(), features: Features::at_size(size) };
        let mut analysed: Option<Analysed> = None;
        loop {
            let feature = |name: &str| findings.feature(analysis.get(), name);
            let state = analysed.as_ref().map(|analysed| &analysed.state);
            let step = policy.next(&Knowledge { found: findings.found, feature: &feature, state });
            if findings.find(&step, subject, analysis)? {
                continue;
            }
            let choice = match (step, &mut analysed) {
                (Step::Time(timed), Some(analysed)) => {
                    let analysis = look_at(subject, analysis)?;
                    let timed = self.measure(subject, analysis, &timed, workload, progress)?;
                    analysed.add_timed(timed);
                    continue;
                }
                (Step::Choose(Decision::KeepBaseline(reason)), _) => {
                    let features = findings.features.clone();
                    let kept = choose::keep_baseline(features, &target, workload, &reason);
                    kept.map(|kept| Choice { model: model.map(|m| m.model().name()), ..kept })
                }
                (Step::Choose(Decision::Quick(stage)), _) => {
                    let have = |what| values_have(what, subject, analysis, &target);
                    let features = &findings.features;
                    self.rank_quick(stage, features, &target, workload, baseline_s, have)?
                }
                (Step::Choose(Decision::Ranked), Some(analysed)) => {
                    let analysis = look_at(subject, analysis)?;
                    Some(self.ranked(analysis, &target, workload, analysed))
                }
                // All other steps are an analysis, or require one.
                _ => {
                    analysed =
                        Some(self.analyse(look_at(subject, analysis)?, &target, workload)?);
                    continue;
                }
            };
            match choice {
                Some(mut choice) => {
                    choice.explanation.extend(self.stored.warnings());
                    return Ok(Decided { choice, analysed: analysed.is_some(), counted });
                }
                // A baseline may refuse the size; then every candidate is ranked.
                None => policy = policy.analysing(),
            }
        }
    }

    /// Checks that candidates can be timed on the device, if the effort times some.
    fn check_device(&self, effort: Effort) -> Result<()> {
        if effort >= Effort::Measure { self.backend.check() } else { Ok(()) }
    }

    /// Checks that operators of this tuner run on its device, or that the caller asked for its
    /// products on the host.
    fn check_runs_here(&self) -> Result<()> {
        let device = self.backend.device();
        if device.kind == Kind::Host || self.backend.gpu().is_ok() || self.emulates {
            return Ok(());
        }
        Err(Error::AbsentDevice {
            name: device.name.clone(),
            remedy: "prepare on cuda:0 or cpu; `recommend` chooses for it, and \
                     `Tuner::host_emulation` computes its products on this host"
                .to_string(),
        })
    }

    /// Decides about a matrix, converts it, and returns the operator.
    pub(super) fn prepare_subject<T: Scalar>(
        &self,
        subject: &Subject<'_, T>,
        workload: &Workload,
    ) -> Result<PreparedOperator<T>> {
        self.check_runs_here()?;
        let analysis = OnceCell::new();
        let mut decided =
            self.decide_about(subject, &analysis, workload, Mode::Prepare, &mut |_| ())?;
        let mut operator = self.try_out(subject, &analysis, &mut decided, workload)?;
        let Decided { mut choice, analysed, counted } = decided;
        let target = workload.target(self.backend.device(), T::PRECISION);
        if operator.is_none() && counted && !analysed {
            operator = first_that_suits(&mut choice, |candidate| {
                subject.convert_on_gpu(candidate, &candidate.target(&target))
            })?;
        }
        let operator = match operator {
            Some(operator) => operator,
            None => {
                let csr = subject.csr()?;
                let analysis = analysis.into_inner().unwrap_or_else(|| Analysis::sampled(csr));
                // Only the chosen candidate may request the partition that otherwise only measuring
                // tries.
                let analysis = analysis.with_partitioning();
                first_that_suits(&mut choice, |candidate| {
                    let target = candidate.target(&target);
                    subject.convert(&self.backend, &analysis, candidate, &target)
                })?
            }
        };
        let operator = operator.with_choice(choice);
        if workload.vectors > 1
            && let Some(placed) = operator.on_device()
        {
            placed.ready_many(workload.vectors)?;
        }
        match workload.verify {
            Verify::No => {}
            Verify::OnPrepare => {
                operator.verify_many(subject.csr()?, workload.vectors, VERIFY_SEED)?;
            }
        }
        Ok(operator)
    }

    /// Predicts every candidate and looks up stored measurements in wisdom.
    fn analyse(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        workload: &Workload,
    ) -> Result<Analysed> {
        let model = self.model(workload, target.precision);
        let predict = || model.map(|model| model.predict_for(workload.vectors, analysis, target));
        let (prediction, _) = par::join(predict, || analysis.fingerprint());
        if let (Some(total_ns), Some(prediction)) = (&self.features_ns, &prediction) {
            let ns = (prediction.features_s * 1e9) as u64;
            total_ns.fetch_add(ns, Ordering::Relaxed);
        }
        let confidence = prediction.as_ref().map(|p| p.confidence);
        let predicted = prediction.map_or_else(Vec::new, |prediction| prediction.known);
        let (measured, stale) = match workload.effort {
            Effort::Estimate => (Vec::new(), Vec::new()),
            _ => self.remembered(analysis, target, workload)?,
        };
        let remembered = measured.iter().map(|one| one.known.candidate.clone()).collect();
        let mut state = CandidateState { remembered, ..CandidateState::default() };
        if workload.effort >= Effort::Measure {
            let ranking = Ranking::of(analysis, target, workload, &predicted);
            let untried = ranking.refused().iter().filter(|refused| refused.reason.is_untried());
            state.untried = untried.map(|refused| refused.candidate.clone()).collect();
            let estimated = Ranking::of(analysis, target, workload, &[]).ranked();
            state.candidates = thoughts(&ranking.ranked(), &estimated);
        }
        Ok(Analysed { predicted, confidence, measured, stale, state })
    }

    /// Returns the choice from an analysis and all measurements.
    fn ranked(
        &self,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
        workload: &Workload,
        analysed: &Analysed,
    ) -> Choice {
        let model = self.model(workload, target.precision).map(Predictor::model);
        // The first known cost of a candidate counts, so measurements precede predictions.
        let measured = analysed.measured.iter().map(|one| &one.known);
        let known: Vec<Known> = measured.chain(&analysed.predicted).cloned().collect();
        let choice = choose::choose(analysis, target, workload, &known);
        let error = |ranked: &Ranked| {
            let own = |one: &&Measured| one.known.candidate == ranked.candidate;
            match ranked.source {
                Source::Measured => analysed.measured.iter().find(own).map_or(0.0, |m| m.error),
                Source::Predicted => {
                    model.and_then(prediction_error).unwrap_or(target.device.margin)
                }
                Source::Estimated => target.device.margin,
            }
        };
        let mut choice = choice.with_speedup(error);
        choice.confidence = analysed.confidence;
        choice.model = model.map(Model::name);
        choice.explanation.extend(model.and_then(|model| rule_of_thumb(model, &choice)));
        choice.explanation.extend(model.and_then(|model| of_kin(model, target.device)));
        let doubt = analysed.confidence.filter(|&confidence| confidence < CONFIDENT);
        choice.explanation.extend(doubt.map(doubtful));
        if let Some(first) = analysed.stale.first() {
            let count = analysed.stale.len();
            choice.explanation.push(format!(
                "Ignored {count} stored timings of this matrix as out of date; the first {first}."
            ));
        }
        choice
    }

    /// Returns the choice of a stage of the quick model; `have` tells whether the values have a
    /// property.
    pub(super) fn rank_quick(
        &self,
        stage: Stage,
        features: &Features,
        target: &Target<'_>,
        workload: &Workload,
        baseline_s: Option<f64>,
        have: impl Fn(ValueProperty) -> Result<bool>,
    ) -> Result<Option<Choice>> {
        let predictor = self.model(workload, target.precision);
        let Some((predictor, baseline_s)) = predictor.zip(baseline_s) else { return Ok(None) };
        let model = predictor.model();
        let values = model.features_of(features);
        let mut predicted = predictor.quick_costs(stage, &values, baseline_s);
        // Features describe the pattern only; formats that depend on values need a check of their
        // own.
        let by_values = |(candidate, _): &(&Candidate, Cost)| candidate.format.by_values;
        if predicted.iter().any(by_values) && !have(ValueProperty::Few)? {
            predicted.retain(|one| !by_values(one));
        }
        let narrow = choose::narrow_costs(features, target, workload, &predicted);
        if !narrow.is_empty() && have(ValueProperty::Narrow)? {
            predicted.extend(narrow.iter().map(|(candidate, cost)| (candidate, *cost)));
        }
        let own = model.quick.as_ref().and_then(|quick| quick.stage(stage));
        let margin = own.map_or(0.0, |stage| stage.margin).max(target.device.margin);
        let mut choice =
            choose::rank_quick(stage, features.clone(), target, workload, &predicted, margin);
        // Confidence depends on all features.
        let confidence = match stage {
            Stage::Counted => model.applicability.confidence(&values),
            Stage::Size | Stage::Sampled => 1.0,
        };
        if let Some(choice) = choice.as_mut() {
            choice.confidence = (stage == Stage::Counted).then_some(confidence);
            choice.model = Some(model.name());
            if confidence < CONFIDENT {
                choice.explanation.push(doubtful(confidence));
            }
        }
        Ok(choice)
    }

    /// Returns the choice that [`Tuner::prepare_on_gpu`] makes for this matrix, found out on the
    /// stream of `gpu`. `given` is the matrix on the host, if the caller has it there.
    ///
    /// # Errors
    /// As [`Tuner::prepare_on_gpu`].
    pub(crate) fn decide_on<T: Scalar>(
        &self,
        gpu: &Arc<Gpu>,
        csr: &Arc<DeviceCsr<T>>,
        given: Option<CsrRef<'_, T>>,
        workload: &Workload,
    ) -> Result<Choice> {
        let subject = Subject::on_gpu(gpu, Arc::clone(csr), given);
        let (analysis, mode) = (OnceCell::new(), Mode::Prepare);
        Ok(self.decide_about(&subject, &analysis, workload, mode, &mut |_| ())?.choice)
    }

    /// Tells whether a quick model decides about matrices on a GPU with few products. Otherwise
    /// every decision analyses the matrix.
    pub(crate) fn decides_quickly(&self, precision: Precision, workload: &Workload) -> bool {
        let gates = self.gates(workload, precision);
        let policy = Policy::new(Mode::Prepare, Place::Gpu, workload, [0; 2], Some(0.0), gates);
        policy.is_quick()
    }
}

impl Findings {
    /// Performs a step that precedes an analysis; returns false for any other step.
    fn find<'s, T: Scalar>(
        &mut self,
        step: &Step,
        subject: &'s Subject<'_, T>,
        analysis: &OnceCell<Analysis<'s>>,
    ) -> Result<bool> {
        match step {
            Step::ReadRowLengths => {
                self.found.row_lengths = true;
                look_at(subject, analysis)?;
            }
            Step::SampleColumns => {
                self.found.columns = true;
                look_at(subject, analysis)?;
            }
            Step::SampleFeatures => {
                self.found.sample = true;
                self.features = match subject.sample_features()? {
                    Some(sampled) => sampled,
                    None => Features::sampled(look_at(subject, analysis)?),
                };
            }
            Step::CountFeatures => {
                self.found.features = true;
                self.features = match subject.count_features()? {
                    Some(counted) => counted,
                    None => Features::of(look_at(subject, analysis)?),
                };
            }
            Step::Analyse | Step::Time(_) | Step::Choose(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Returns a feature that was counted, that follows from the size, or that gates compute from
    /// the analysis.
    fn feature(&self, analysis: Option<&Analysis<'_>>, name: &str) -> Option<f64> {
        self.features.get(name).or_else(|| gate_feature(analysis?, name))
    }
}

/// Returns the analysis of the matrix on the host; creates it at the first call.
fn look_at<'c, 's, T: Scalar>(
    subject: &'s Subject<'_, T>,
    analysis: &'c OnceCell<Analysis<'s>>,
) -> Result<&'c Analysis<'s>> {
    if let Some(analysis) = analysis.get() {
        return Ok(analysis);
    }
    let csr = subject.csr()?;
    Ok(analysis.get_or_init(|| Analysis::sampled(csr)))
}

/// A property of the values of a matrix, on which formats depend.
pub(super) enum ValueProperty {
    /// There are few distinct values.
    Few,
    /// A type with fewer bits holds them, exactly or as the target allows.
    Narrow,
}

/// Tells whether the values have a property, as found by the GPU that holds the matrix, else from an
/// analysis on the host.
fn values_have<'s, T: Scalar>(
    what: ValueProperty,
    subject: &'s Subject<'_, T>,
    analysis: &OnceCell<Analysis<'s>>,
    target: &Target<'_>,
) -> Result<bool> {
    let on_gpu = match what {
        ValueProperty::Few => subject.has_few_values()?,
        ValueProperty::Narrow => subject.holds_narrowed(target)?,
    };
    if let Some(found) = on_gpu {
        return Ok(found);
    }
    let analysis = look_at(subject, analysis)?;
    Ok(match what {
        ValueProperty::Few => analysis.few_values().is_some(),
        ValueProperty::Narrow => analysis.holds_narrowed(target),
    })
}

/// Returns the candidates of a ranking with their expected times, as ranked and by estimate alone.
pub(super) fn thoughts(ranking: &[Ranked], estimated: &[Ranked]) -> Vec<(Candidate, Thought)> {
    let thought = |ranked: &Ranked| {
        let same = |other: &&Ranked| other.candidate == ranked.candidate;
        let by_estimate = estimated.iter().find(same).unwrap_or(ranked);
        let [predicted_s, estimated_s] = [ranked, by_estimate].map(|ranked| ranked.total_s);
        (ranked.candidate.clone(), Thought { predicted_s, estimated_s })
    };
    ranking.iter().map(thought).collect()
}

/// Calls `prepare` for the candidates of the ranking in order, and returns the operator of the
/// first one that is not refused; changes the choice to that candidate.
pub(super) fn first_that_suits<O>(
    choice: &mut Choice,
    mut prepare: impl FnMut(&Candidate) -> Result<O>,
) -> Result<O> {
    loop {
        match prepare(&choice.candidate) {
            Err(Error::Refused { candidate, reason }) => {
                if !choice.refuse(&reason) {
                    return Err(Error::Refused { candidate, reason });
                }
            }
            made => return made,
        }
    }
}

/// Returns the relative error that 9 of 10 predictions of a model stay under.
fn prediction_error(model: &Model) -> Option<f64> {
    model.scores.get("median_error").map(|&median| nine_in_ten(median))
}

/// Returns the sentence for a matrix unlike those that the model was trained on.
fn doubtful(confidence: f64) -> String {
    format!(
        "The model was not trained on similar matrices (confidence {confidence:.2} of 1), so its \
         predictions may be wrong. Effort measure times the best candidates."
    )
}

/// Returns the sentence for a model of the proxy device.
fn of_kin(model: &Model, device: &Device) -> Option<String> {
    (model.device != device.name).then(|| {
        format!(
            "No model of {} is there: the model of {} predicts, a device with the same kind of \
             processors. A candidate that was not timed must be expected to save {:.0} %. Effort \
             measure needs no such margin; `ellect tune` trains a model.",
            device.name,
            model.device,
            100.0 * device.margin
        )
    })
}

/// Returns the sentence about the format that usually wins for similar matrices.
fn rule_of_thumb(model: &Model, choice: &Choice) -> Option<String> {
    let (met, format) = model.rules.walk(|name| choice.features.get(name))?;
    let usual = match format == choice.candidate.format.name {
        true => "usually wins, as it does here",
        false => "usually wins, but not here",
    };
    match met.as_slice() {
        [] => None,
        met => Some(format!("Rule of thumb: if {}, {format} {usual}.", met.join(" and "))),
    }
}
