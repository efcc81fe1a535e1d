//! Models predict times from measurements on a device, and state how far to trust the predictions.
//!
//! A model has one [`Forest`] per format. Its inputs are features of the matrix, the numbers of
//! [`TERMS`] and the candidate's parameters, all by name. It predicts the logarithm of the time of
//! one product divided by the candidate's estimate, its byte floor or a weighted geometric mean of
//! both. The package `ellect-training` trains models; here they are plain numbers.
//!
//! A prediction is never below the byte floor, and never far below the time of the longest row if
//! few threads process it. A format that the model does not know keeps its estimate, and so does a
//! variant with a value of a parameter that the model never saw.

pub(crate) mod applicability;
mod file;
pub(crate) mod forest;
pub(crate) mod gate;
mod name;
pub(crate) mod predictor;
mod purpose;
pub(crate) mod quick;
pub(crate) mod rules;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cost::{Known, TERMS};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::features::{FEATURES, Features};
use crate::format::{Candidate, aliases, find};
use crate::par;
use crate::scalar::Precision;
use applicability::Applicability;
use forest::Forest;
use gate::is_gate_input;
pub(crate) use gate::{
    ALWAYS_ANALYZE, ANALYZE, GateInputs, GateReason, Gates, InputNeeds, KEEP, QuickPick,
    gate_feature, keeps, needs, quick_pick,
};
pub use name::ModelName;
pub use predictor::Predictor;
pub use purpose::Purpose;
use quick::QuickCandidate;
pub(crate) use quick::{QuickModel, Stage};
pub(crate) use rules::Rules;

/// Version of model files that this program reads and writes.
pub const SCHEMA: u32 = 4;

/// Confidence below which a prediction should be checked by timing.
pub const CONFIDENT: f64 = 0.5;

/// Models that ship with the program: file names and contents.
static SHIPPED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Scores of shipped models that a change of the policy moved, by model and figure. They are stored
/// apart from the models, so that a new score does not rewrite a model file.
const RESCORED: &str = include_str!("../../models/scores.json");

/// Reason why a model was not loaded.
///
/// ```
/// use ellect::Precision;
/// use ellect::model::{LoadFault, Model};
///
/// let fault = Model::parse(b"{}", "cpu", Precision::F64).expect_err("it is empty");
/// assert!(matches!(fault, LoadFault::Text(_)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFault {
    /// The file is not a model file.
    #[error("it is no model: {0}")]
    Text(String),
    /// The file has another schema.
    #[error("its schema is {got}, this program reads {SCHEMA}; `ellect train` makes it again")]
    Schema {
        /// Schema of the file.
        got: u32,
    },
    /// The model is for another device or precision.
    #[error("it is for {got}, not for {wanted}")]
    Target {
        /// Device and precision of the model.
        got: String,
        /// Requested device and precision.
        wanted: String,
    },
    /// The model uses a name that this program does not know.
    #[error("this program knows no {what} '{name}'; train it again")]
    Name {
        /// Kind of the name: feature, term, format, parameter or candidate.
        what: &'static str,
        /// The unknown name.
        name: String,
    },
    /// The model contains invalid numbers.
    #[error("it is damaged ({part}): {what}")]
    Damaged {
        /// The format or other part that contains them.
        part: String,
        /// A description of the fault.
        what: String,
    },
}

/// The part of a model that predicts one format.
///
/// ```
/// use ellect::model::Model;
/// use ellect::{Precision, device};
///
/// # fn main() -> ellect::Result<()> {
/// let model = Model::shipped(&device::find("h200")?, Precision::F64)?;
/// assert!(model.is_none_or(|model| model.formats["hll"].parameters.len() > 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regressor {
    /// Inputs after features and terms, in the form that [`input`](predictor::input) reads: `hack`,
    /// or `sort=none`.
    pub parameters: Vec<String>,
    /// Logarithm of the time divided by the figure that predictions multiply: see
    /// [`Model::floor_share`].
    pub forest: Forest,
}

/// A trained model; [`Model::bytes`] returns the contents of its file.
///
/// ```
/// use ellect::model::Model;
/// use ellect::{Precision, device};
///
/// # fn main() -> ellect::Result<()> {
/// let model = Model::shipped(&device::find("cpu")?, Precision::F64)?;
/// assert!(model.is_none_or(|model| model.formats.contains_key("csr")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Version of the file's schema, [`SCHEMA`].
    pub schema: u32,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// True of a model for products with several vectors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub several: bool,
    /// Hash of the records that the model was trained on.
    pub data: String,
    /// Seed of the training.
    pub seed: u64,
    /// Revision of the program that trained the model; empty if unknown.
    pub commit: String,
    /// Time of the training, in seconds since 1970; `None` in models of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_at: Option<u64>,
    /// Plan of the training, which cross-validation selected.
    pub plan: String,
    /// Figures of the cross-validation, by name.
    pub scores: BTreeMap<String, f64>,
    /// Names of the features of a matrix that are inputs.
    pub features: Vec<String>,
    /// Names of the [`TERMS`] that are inputs.
    pub terms: Vec<String>,
    /// Exponent s of the byte floor: predictions are factors of floor^s * estimate^(1 - s), with s
    /// from 0 to 1.
    pub floor_share: f64,
    /// One regressor per format, by the format's name.
    pub formats: BTreeMap<String, Regressor>,
    /// The training set, from which confidence is computed.
    #[serde(rename = "nearness")]
    pub applicability: Applicability,
    /// Rules that name the format that usually wins, for explanations.
    pub rules: Rules,
    /// Rules that decide whether features, estimates and a conversion pay for the products to come:
    /// [`ANALYZE`] or [`KEEP`]. They use the [inputs](GateInputs) that are known before an
    /// analysis, the size of the matrix and its row lengths.
    #[serde(rename = "look")]
    pub gate: Rules,
    /// Candidates usable without analysing the matrix, each with the rules that select it, over the
    /// gate's inputs and a few entries; the first match wins, otherwise the baseline.
    #[serde(rename = "sight")]
    pub quick_picks: Vec<QuickPick>,
    /// The quick model, which predicts from features alone if the device counts them.
    #[serde(default, rename = "by_features", skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickModel>,
}

/// Predictions for one matrix.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::model::{Model, Predictor};
/// use ellect::{Precision, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let cpu = device::find("cpu")?;
/// if let Some(model) = Model::shipped(&cpu, Precision::F64)? {
///     let target = Workload::default().target(&cpu, Precision::F64);
///     let prediction = Predictor::new(model).predict(&Analysis::of(&csr), &target);
///     assert!((0.0..=1.0).contains(&prediction.confidence) && !prediction.known.is_empty());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Predicted costs of the candidates that the model knows.
    pub known: Vec<Known>,
    /// Confidence between 0 and 1; see [`Applicability::confidence`] and [`CONFIDENT`].
    pub confidence: f64,
    /// Time that computing the features took, in seconds; the work of candidates was computed beside it.
    pub features_s: f64,
}

impl Model {
    /// Reads the contents of a model file for this device and purpose: as [`Model::bytes`] returns
    /// them or as earlier versions wrote them, or the model as JSON, each compressed or plain. The
    /// whole file is accepted or none of it. Earlier names of formats are replaced by current ones.
    ///
    /// # Errors
    /// The first fault, as a [`LoadFault`].
    pub fn parse(
        bytes: &[u8],
        device: &str,
        purpose: impl Into<Purpose>,
    ) -> std::result::Result<Model, LoadFault> {
        Model::checked(Bytes::copy_from_slice(bytes), device, purpose.into())
    }

    /// Like [`Model::parse`], without copying the bytes.
    fn checked(
        bytes: Bytes,
        device: &str,
        purpose: Purpose,
    ) -> std::result::Result<Model, LoadFault> {
        let model = Model::read(bytes, device, purpose)?;
        model.check()?;
        Ok(model)
    }

    /// Reads the contents of a model file like [`Model::parse`], but does not check its names and
    /// numbers.
    fn read(bytes: Bytes, device: &str, purpose: Purpose) -> std::result::Result<Model, LoadFault> {
        let mut model = file::decode(bytes)?;
        model.rename();
        if model.device != device || model.purpose() != purpose {
            return Err(LoadFault::Target {
                got: format!("{} in {}", model.device, model.purpose()),
                wanted: format!("{device} in {purpose}"),
            });
        }
        Ok(model)
    }

    /// Replaces aliases of formats by current names, wherever the model names a format or a
    /// candidate.
    fn rename(&mut self) {
        aliases::rename_keys(&mut self.formats);
        self.rules.rename();
        self.gate.rename();
        for pick in &mut self.quick_picks {
            aliases::rename(&mut pick.candidate);
            pick.rules.rename();
        }
        if let Some(quick) = &mut self.quick {
            quick.candidates_mut().for_each(|of| aliases::rename(&mut of.candidate));
        }
    }

    /// Returns the contents of a model file.
    ///
    /// # Errors
    /// [`Error::Io`] if the part that is JSON cannot be written.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let io = |source| Error::Io { what: "writing a model".into(), source };
        file::encode(self).map_err(io)
    }

    /// Opens the model of this device: from the folder `models` of a data folder, otherwise the one
    /// that ships. A device that has neither uses the model of its proxy device ([`Device::proxy`]);
    /// `None` if there is none either.
    ///
    /// # Errors
    /// [`Error::Input`] with the reason if a model does not load; [`Error::Io`] if its file cannot
    /// be read.
    pub fn open(
        data: &Path,
        device: &Device,
        purpose: impl Into<Purpose>,
    ) -> Result<Option<Model>> {
        Model::find(Some(&data.join("models")), device, purpose.into())
    }

    /// Opens the shipped model of this device, or of its proxy device; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Input`] with the reason if it does not load.
    pub fn shipped(device: &Device, purpose: impl Into<Purpose>) -> Result<Option<Model>> {
        Model::find(None, device, purpose.into())
    }

    /// This shipped model with the scores that were computed again since it was trained.
    fn rescored(mut self) -> Model {
        type Scores = BTreeMap<String, BTreeMap<String, f64>>;
        let all: Scores = serde_json::from_str(RESCORED).unwrap_or_default();
        let name = format!("{}-{}", self.device, self.purpose());
        self.scores.extend(all.get(&name).into_iter().flatten().map(|(key, s)| (key.clone(), *s)));
        self
    }

    /// Tells whether a folder holds a model of a device.
    pub fn is_in_folder(folder: &Path, device: &str, purpose: impl Into<Purpose>) -> bool {
        file_names(device, purpose.into()).into_iter().any(|file| folder.join(file).exists())
    }

    /// Reads the model of a device from a folder; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Input`] with the reason if the model does not load; [`Error::Io`] if its file
    /// cannot be read.
    pub fn in_folder(
        folder: &Path,
        device: &str,
        purpose: impl Into<Purpose>,
    ) -> Result<Option<Model>> {
        let purpose = purpose.into();
        for file in file_names(device, purpose) {
            let path = folder.join(file);
            let name = path.display().to_string();
            match std::fs::read(&path) {
                Ok(bytes) => {
                    let model = Model::checked(bytes.into(), device, purpose);
                    return model.map(Some).map_err(|fault| in_file(&name, &fault));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Io { what: name, source }),
            }
        }
        Ok(None)
    }

    fn find(folder: Option<&Path>, device: &Device, purpose: Purpose) -> Result<Option<Model>> {
        let own = folder.map(|folder| Model::in_folder(folder, &device.name, purpose));
        if let Some(model) = own.transpose()?.flatten() {
            return Ok(Some(model));
        }
        let names = file_names(&device.name, purpose);
        let named = |name: &String| SHIPPED.iter().find(|(shipped, _)| shipped == name);
        let shipped = names.iter().find_map(named);
        match (shipped, device.proxy()) {
            (Some((name, bytes)), _) => {
                // A test checks the models that ship.
                let model = Model::read(Bytes::from_static(bytes), &device.name, purpose);
                Ok(Some(model.map_err(|fault| in_file(name, &fault))?.rescored()))
            }
            (None, Some(proxy)) => Model::find(folder, &proxy, purpose),
            (None, None) => Ok(None),
        }
    }

    /// Checks that all names are known and all numbers are valid.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> std::result::Result<(), LoadFault> {
        let unknown = |what, name: &str| LoadFault::Name { what, name: name.to_string() };
        let feature = |name: &str| FEATURES.iter().any(|feature| feature.name == name);
        if let Some(name) = self.features.iter().find(|name| !feature(name)) {
            return Err(unknown("feature", name));
        }
        if let Some(name) = self.terms.iter().find(|name| !TERMS.contains(&name.as_str())) {
            return Err(unknown("term", name));
        }
        let damaged = |part: &str, what| LoadFault::Damaged { part: part.to_string(), what };
        if !(0.0..=1.0).contains(&self.floor_share) {
            return Err(damaged("floor_share", format!("{} is not in 0 to 1", self.floor_share)));
        }
        let all: Vec<(&String, &Regressor)> = self.formats.iter().collect();
        let sound = par::map(all.len(), 1, |i| {
            let (name, Regressor { parameters, forest }) = all[i];
            let inputs = self.features.len() + self.terms.len() + parameters.len();
            forest.check(inputs).err().map(|what| damaged(name, what))
        });
        for (name, regressor) in &self.formats {
            let format = find(name).map_err(|_| unknown("format", name))?;
            for parameter in &regressor.parameters {
                let known = parameter.split('=').next().unwrap_or_default();
                if !format.params.iter().any(|p| p.name == known) {
                    return Err(unknown("parameter", parameter));
                }
            }
        }
        if let Some(fault) = sound.into_iter().flatten().next() {
            return Err(fault);
        }
        let format = |name: &str| find(name).is_ok();
        self.rules.check(feature, format).map_err(|what| damaged("rules", what))?;
        let ends_in = |word: &str, rules: &Rules| {
            rules.check(is_gate_input, |answer| [word, KEEP].contains(&answer))
        };
        ends_in(ANALYZE, &self.gate).map_err(|what| damaged("look", what))?;
        for QuickPick { candidate, rules } in &self.quick_picks {
            candidate.parse::<Candidate>().map_err(|_| unknown("candidate", candidate))?;
            ends_in(candidate, rules).map_err(|what| damaged(candidate, what))?;
        }
        self.quick.as_ref().map_or(Ok(()), |quick| quick.check(self.features.len()))?;
        self.applicability.check(self.features.len()).map_err(|what| damaged("nearness", what))
    }

    /// Returns the gates that decide whether an analysis pays.
    pub fn gates(&self) -> Gates<'_> {
        Gates { analysis: &self.gate, picks: &self.quick_picks, quick: self.quick.as_ref() }
    }

    /// Returns the values of the model's features, in the model's order; 0 for a value that is not
    /// finite.
    pub fn features_of(&self, features: &Features) -> Vec<f64> {
        let value = |name: &String| features.get(name).filter(|v| v.is_finite()).unwrap_or(0.0);
        self.features.iter().map(value).collect()
    }
}

/// Returns the error for a fault of the model in the file `name`.
fn in_file(name: &str, fault: &LoadFault) -> Error {
    Error::input(format!("model {name}: {fault}"))
}

/// Returns the file name of a model in its folder, for instance `h200-f64.model`.
pub fn file_name(device: &str, purpose: impl Into<Purpose>) -> String {
    format!("{device}-{}.model", purpose.into())
}

/// Returns the names that the file of a model may have: the current one, then that of earlier
/// versions, which wrote the whole model as compressed JSON.
fn file_names(device: &str, purpose: Purpose) -> [String; 2] {
    [file_name(device, purpose), format!("{device}-{purpose}.json.zst")]
}

#[cfg(test)]
mod tests;
