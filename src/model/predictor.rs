//! A model prepared for predictions: names are resolved once.

use std::collections::HashMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use super::{Model, Prediction, Purpose, QuickCandidate, Regressor, Stage};
use crate::analysis::Analysis;
use crate::cost::{Cost, Estimator, Known, Source, TERMS, relate, saved_s, terms, works};
use crate::device::{Device, Kind};
use crate::error::Result;
use crate::features::Features;
use crate::format::{CSR, Candidate, Target, Value};
use crate::par;

/// Lower bound of predictions, as a share of the time of the longest row, if few threads process
/// that whole row: the training set may not contain rows of that length.
const ROW_TRUST: f64 = 0.5;

/// Confidence from which on a prediction counts in full. Below it, the logarithm of the ratio of
/// prediction to estimate is multiplied by the confidence divided by this: trees would apply to
/// matrices unlike all others what holds for the training set.
const TRUSTED: f64 = 0.65;

/// The model input that is derived from a parameter.
#[derive(Debug)]
enum DerivedInput {
    /// The parameter's integer value.
    Number(String),
    /// 1 if the parameter has this word as its value, otherwise 0.
    Word(String, String),
}

impl DerivedInput {
    fn of(parameter: &str) -> DerivedInput {
        match parameter.split_once('=') {
            None => DerivedInput::Number(parameter.to_string()),
            Some((name, word)) => DerivedInput::Word(name.to_string(), word.to_string()),
        }
    }

    /// Returns the input for a candidate; 0 if it has no such parameter.
    fn answer(&self, candidate: &Candidate) -> f32 {
        let (DerivedInput::Number(name) | DerivedInput::Word(name, _)) = self;
        let value = candidate.params.iter().find(|(known, _)| known == name);
        match (value.map(|(_, value)| value), self) {
            (Some(Value::Int(n)), DerivedInput::Number(_)) => n as f32,
            (Some(Value::Word(is)), DerivedInput::Word(_, word)) => f32::from(u8::from(is == word)),
            _ => 0.0,
        }
    }

    /// Tells whether the input tells this value of this parameter from others.
    fn tells(&self, parameter: &str, value: Value) -> bool {
        match (self, value) {
            (DerivedInput::Number(name), Value::Int(_)) => name == parameter,
            (DerivedInput::Word(name, word), Value::Word(is)) => name == parameter && word == is,
            _ => false,
        }
    }
}

/// The inputs of a regressor that are derived from parameters.
#[derive(Debug)]
struct Parameters(Vec<DerivedInput>);

impl Parameters {
    /// Tells whether the regressor learned from such candidates: an input tells each value of their
    /// parameters from the default.
    fn know(&self, candidate: &Candidate) -> bool {
        let default = |name: &str| {
            let param = candidate.format.params.iter().find(|param| param.name == name);
            param.map(|param| param.values[0])
        };
        candidate.params.iter().all(|(name, value)| {
            default(name) == Some(value) || self.0.iter().any(|own| own.tells(name, value))
        })
    }
}

/// A model prepared for predictions.
///
/// ```
/// use ellect::model::{Model, Predictor};
/// use ellect::{Precision, Tuner, device};
///
/// # fn main() -> ellect::Result<()> {
/// let h200 = device::find("h200")?;
/// if let Some(model) = Model::shipped(&h200, Precision::F64)? {
///     let tuner = Tuner::without_models(h200).with_model(Predictor::new(model));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Predictor {
    model: Model,
    /// Places of the model's terms in [`TERMS`].
    terms: Vec<usize>,
    /// Derived inputs of each regressor, by format.
    parameters: HashMap<String, Parameters>,
    /// The candidates of each stage of the [`QuickModel`](super::QuickModel), parsed at their first
    /// use; `None` for one that is not valid.
    quick: [OnceLock<Vec<Option<Candidate>>>; Stage::ALL.len()],
    /// The profile that the model learned from, if this device has another one that was probed.
    learned: Option<Device>,
}

/// Inputs of a model for one matrix; see [`Predictor::inputs`].
#[derive(Clone, Debug)]
pub struct Inputs {
    values: Vec<f32>,
    /// Confidence of the model for this matrix.
    confidence: f64,
}

impl Inputs {
    /// Returns the confidence, between 0 and 1; see
    /// [`Applicability::confidence`](super::Applicability::confidence).
    pub fn confidence(&self) -> f64 {
        self.confidence
    }
}

impl Predictor {
    /// Opens the model that [`Model::open`] finds, and prepares it.
    ///
    /// A model that ships sees this host through the profile that it learned from: a probed profile
    /// only scales its predictions, by the ratio of the estimates for CSR.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open(data: &Path, device: &Device, purpose: impl Into<Purpose>) -> Result<Option<Self>> {
        let purpose = purpose.into();
        let Some(model) = Model::open(data, device, purpose)? else { return Ok(None) };
        let ships = !Model::is_in_folder(&data.join("models"), &device.name, purpose);
        let probed = ships && device.kind == Kind::Host && !device.fitted;
        let known = |other: &Device| other.name == model.device;
        let learned = probed.then(|| Device::shipped().into_iter().find(known)).flatten();
        Ok(Some(Predictor { learned, ..Predictor::new(model) }))
    }

    /// Prepares a model: resolves names.
    pub fn new(model: Model) -> Self {
        let place = |name: &String| TERMS.iter().position(|term| term == name);
        let parameters = model.formats.iter().map(|(name, regressor)| {
            let own = regressor.parameters.iter().map(|parameter| DerivedInput::of(parameter));
            (name.clone(), Parameters(own.collect()))
        });
        Predictor {
            terms: model.terms.iter().filter_map(place).collect(),
            parameters: parameters.collect(),
            quick: Default::default(),
            learned: None,
            model,
        }
    }

    /// Returns the candidates of a stage of the quick model.
    fn quick(&self, stage: Stage) -> impl Iterator<Item = (&Candidate, &QuickCandidate)> {
        let stages = self.model.quick.iter().flat_map(|quick| &quick.stages);
        let own = stages.filter(move |one| one.stage == stage).flat_map(|one| &one.candidates);
        let parsed = self.quick[stage as usize]
            .get_or_init(|| own.clone().map(|of| of.candidate.parse().ok()).collect());
        parsed.iter().zip(own).filter_map(|(candidate, of)| Some((candidate.as_ref()?, of)))
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the inputs for a matrix with these features, in the order of [`Model::features_of`],
    /// with capacity for the inputs of its candidates.
    pub fn inputs(&self, features: &[f64]) -> Inputs {
        let own = self.parameters.values().map(|own| own.0.len()).max();
        let mut values = Vec::with_capacity(features.len() + self.terms.len() + own.unwrap_or(0));
        values.extend(features.iter().map(|&value| value as f32));
        Inputs { values, confidence: self.model.applicability.confidence(features) }
    }

    /// Predicts the time of one product, in seconds, for a candidate with these [`TERMS`]; `None`
    /// if the model does not know the format or the value of a parameter. The lower the confidence, the closer the result is to
    /// the estimate. Allocates nothing.
    pub fn spmv_s(
        &self,
        inputs: &mut Inputs,
        candidate: &Candidate,
        terms: &[f64; TERMS.len()],
    ) -> Option<f64> {
        let name = candidate.format.name;
        let parameters = self.parameters.get(name).filter(|own| own.know(candidate))?;
        let Regressor { forest, .. } = self.model.formats.get(name)?;
        let Inputs { values, confidence } = inputs;
        values.truncate(self.model.features.len());
        values.extend(self.terms.iter().map(|&at| terms[at] as f32));
        values.extend(parameters.0.iter().map(|asked| asked.answer(candidate)));
        // TERMS: floor_us, estimate_floors and row_floors.
        let (floor_s, estimate_floors, row_floors) = (terms[0] * 1e-6, terms[1], terms[6]);
        let estimate_s = floor_s * estimate_floors;
        let least_s = floor_s * (ROW_TRUST * row_floors).max(1.0);
        let over_estimate = forest.sum(values) - self.model.floor_share * estimate_floors.ln();
        let trusted = over_estimate * (*confidence / TRUSTED).min(1.0);
        Some((estimate_s * trusted.exp()).max(least_s))
    }

    /// Predicts the costs of the candidates of one stage of the
    /// [`QuickModel`](super::QuickModel); none if it has no such stage.
    ///
    /// `features` are in the order of [`Model::features_of`], and `baseline_spmv_s` is the time of
    /// one product with the baseline in seconds, estimated from the size. Costs have 0 bytes, and
    /// an update costs as much as a conversion.
    pub fn quick_costs(
        &self,
        stage: Stage,
        features: &[f64],
        baseline_spmv_s: f64,
    ) -> Vec<(&Candidate, Cost)> {
        let values: Vec<f32> = features.iter().map(|&value| value as f32).collect();
        let csr = self.quick(stage).find(|(_, of)| of.candidate == CSR);
        let of_csr = csr.map_or(0.0, |(_, csr)| csr.forest.sum(&values));
        let cost = |of: &QuickCandidate| {
            let convert_s = of.conversion.seconds(baseline_spmv_s);
            let over = match (of.candidate == CSR, of.over_csr) {
                (true, _) => of_csr,
                (false, true) => of_csr + of.forest.sum(&values),
                (false, false) => of.forest.sum(&values),
            };
            let spmv_s = over.exp() * baseline_spmv_s;
            let source = Source::Predicted;
            Cost { convert_s, update_s: convert_s, spmv_s, bytes: 0, source }
        };
        self.quick(stage).map(|(candidate, of)| (candidate, cost(of))).collect()
    }

    /// Predicts every candidate that applies to the matrix.
    ///
    /// A format that stores in f32 what another format stores in f64, or half of its values, and that
    /// the model does not know, is predicted from the other format with the same parameters: it saves a
    /// part of what the estimates tell.
    pub fn predict(&self, analysis: &Analysis<'_>, target: &Target<'_>) -> Prediction {
        self.predict_for(1, analysis, target)
    }

    /// Predicts every candidate that applies to the matrix, for products with this number of vectors; the
    /// model has to be one for such products ([`Purpose`]).
    ///
    /// As [`Predictor::predict`] otherwise.
    pub fn predict_for(
        &self,
        vectors: usize,
        analysis: &Analysis<'_>,
        target: &Target<'_>,
    ) -> Prediction {
        let see = || {
            let learned = self.learned.as_ref().map(|device| Target { device, ..*target });
            let learned =
                learned.map(|target| Estimator::new(analysis, &target).with_vectors(vectors));
            let estimator = Estimator::new(analysis, target).with_vectors(vectors);
            let start = Instant::now();
            let features = Features::of(analysis);
            (features, start.elapsed().as_secs_f64(), estimator, learned)
        };
        let (seen, works) = par::join(see, || works(analysis, target));
        let (features, features_s, estimator, learned) = seen;
        let features = self.model.features_of(&features);
        let matrix = learned.as_ref().unwrap_or(&estimator).matrix_terms();
        let csr = works.iter().find(|(candidate, _)| candidate.is_csr());
        let pace = learned.as_ref().zip(csr).and_then(|(learned, (candidate, work))| {
            let work = work.as_ref().ok()?;
            Some(estimator.cost(candidate, work).spmv_s / learned.cost(candidate, work).spmv_s)
        });
        let pace = pace.filter(|pace| pace.is_finite()).unwrap_or(1.0);
        let mut inputs = self.inputs(&features);
        let suits = works.iter().filter_map(|(candidate, work)| {
            let work = work.as_ref().ok()?;
            let (cost, times) = estimator.cost_and_times(candidate, work);
            let times = learned.as_ref().map_or(times, |learned| learned.times(candidate, work));
            Some((candidate, cost, terms(work, &times, &matrix)))
        });
        let mut suits: Vec<_> = suits.collect();
        relate(suits.iter_mut().map(|(candidate, _, terms)| (*candidate, terms)));
        let spmv_s: Vec<Option<f64>> = suits
            .iter()
            .map(|(candidate, _, terms)| Some(pace * self.spmv_s(&mut inputs, candidate, terms)?))
            .collect();
        // Such a format is expected to be faster by a part of what the estimates tell.
        let borrowed_s = |candidate: &Candidate, estimate: &Cost| {
            let wide = candidate.stand_in()?;
            let at = suits.iter().position(|(other, ..)| **other == wide)?;
            let share = estimate.spmv_s / suits[at].1.spmv_s;
            Some(saved_s(candidate.format, spmv_s[at]?, share))
        };
        let known = suits.iter().zip(&spmv_s).filter_map(|((candidate, estimate, _), own_s)| {
            let spmv_s = own_s.or_else(|| borrowed_s(candidate, estimate))?;
            let cost = Ok(Cost { spmv_s, source: Source::Predicted, ..*estimate });
            Some(Known { candidate: (*candidate).clone(), cost })
        });
        let known = known.collect();
        Prediction { known, confidence: inputs.confidence, features_s }
    }
}

/// Returns the model input for a parameter: for `hack` its integer value, for `sort=none` 1 if the
/// parameter has that value and otherwise 0; 0 if the candidate has no such parameter.
pub fn input(candidate: &Candidate, parameter: &str) -> f32 {
    DerivedInput::of(parameter).answer(candidate)
}
