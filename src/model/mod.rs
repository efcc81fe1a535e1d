//! Models: times predicted from what was measured on a device, and how far to trust them.
//!
//! A model has one [`Forest`] a format. It is given features of the matrix, the numbers of
//! [`TERMS`] and the candidate's parameters, all by name, and predicts the logarithm of the time of
//! one product over its estimate, its byte floor or a mean of both. How it is trained is the
//! business of the package `ellect-training`; here it is plain numbers.
//!
//! A prediction is never below the byte floor, nor far below the time of a row that few threads
//! walk. A format that the model does not know keeps its estimate.

mod forest;
mod gate;
mod nearness;
mod predictor;
mod quick;
mod rules;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::compress;
use crate::cost::{Known, TERMS};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::features::{FEATURES, Features};
use crate::format::{Candidate, find};
use crate::scalar::Precision;
use crate::structure::Structure;
pub use forest::{Forest, LEAF};
pub(crate) use gate::gate_feature;
use gate::is_gate_input;
pub use gate::{
    ALWAYS_ANALYZE, ANALYZE, GateInputs, GateReason, Gates, InputNeeds, KEEP, LONGEST, QuickPick,
    READING, SAMPLING, SPMVS, keeps, needs, quick_pick, sectors,
};
pub use nearness::{Nearness, coordinate};
pub use predictor::{Inputs, Predictor, input};
pub use quick::{Conversion, QuickCandidate, QuickModel};
pub use rules::{Rule, Rules};

/// The version of model files that this program reads and writes.
pub const SCHEMA: u32 = 4;

/// Below this confidence a prediction should be checked by timing.
pub const CONFIDENT: f64 = 0.5;

/// Models that ship: names of files and their bytes.
static SHIPPED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Level of compression: models are written once and read often.
const LEVEL: i32 = 19;

/// How a zstd file begins.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Why a model was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadFault {
    /// It is no model file.
    #[error("it is no model: {0}")]
    Text(String),
    /// It is of another schema.
    #[error("its schema is {got}, this program reads {SCHEMA}; `ellect train` makes it again")]
    Schema {
        /// The schema of the file.
        got: u32,
    },
    /// It is for another device or precision.
    #[error("it is for {got}, not for {wanted}")]
    Target {
        /// What it is for.
        got: String,
        /// What was asked for.
        wanted: String,
    },
    /// It uses a name that this program does not know.
    #[error("this program knows no {what} '{name}'; train it again")]
    Name {
        /// Feature, term, format or parameter.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Its numbers make no sense.
    #[error("it is damaged ({part}): {what}")]
    Damaged {
        /// A format, or the name of another part.
        part: String,
        /// What is wrong.
        what: String,
    },
}

/// What is known of one format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Regressor {
    /// Inputs after features and terms, as [`input`] reads them: `hack`, or `sort=none`.
    pub parameters: Vec<String>,
    /// Logarithm of the time over what predictions multiply: see [`Model::floor_share`].
    pub forest: Forest,
}

/// A trained model; serializes to a model file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Name of the device.
    pub device: String,
    /// Precision of the values.
    pub precision: Precision,
    /// Hash of the records that it was trained on.
    pub data: String,
    /// Seed of the training.
    pub seed: u64,
    /// The revision of the program that trained it; empty where unknown.
    pub commit: String,
    /// What was learned how: the plan that cross-validation took.
    pub plan: String,
    /// Figures of the cross-validation, by name.
    pub scores: BTreeMap<String, f64>,
    /// Features of the matrix, by name.
    pub features: Vec<String>,
    /// Names of [`TERMS`].
    pub terms: Vec<String>,
    /// Predictions multiply the byte floor to this power times the estimate to the rest of 1.
    pub floor_share: f64,
    /// One regressor a format.
    pub formats: BTreeMap<String, Regressor>,
    /// The training set.
    pub nearness: Nearness,
    /// Which format usually wins, to explain.
    pub rules: Rules,
    /// Whether features, estimates and a conversion pay for the products to come, decided from
    /// [inputs](GateInputs) that are known before an analysis, the size of the matrix and the lengths
    /// of its rows: [`ANALYZE`] or [`KEEP`].
    #[serde(rename = "look")]
    pub gate: Rules,
    /// Candidates usable without analysing the matrix, each with the rules that select it, over the
    /// gate's inputs and a few entries; the first match wins, else the baseline.
    #[serde(rename = "sight")]
    pub quick_picks: Vec<QuickPick>,
    /// Predicts from features alone, where the device counts them.
    #[serde(default, rename = "by_features", skip_serializing_if = "Option::is_none")]
    pub quick: Option<QuickModel>,
}

/// Predictions of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Predicted costs of the candidates that the model knows.
    pub known: Vec<Known>,
    /// Between 0 and 1; see [`Nearness::confidence`] and [`CONFIDENT`].
    pub confidence: f64,
}

impl Model {
    /// Reads a model file, compressed or plain JSON, for this device and precision; all of it or
    /// nothing.
    ///
    /// # Errors
    /// Why not.
    pub fn parse(
        text: &[u8],
        device: &str,
        precision: Precision,
    ) -> std::result::Result<Model, LoadFault> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let text_fault = |e: serde_json::Error| LoadFault::Text(e.to_string());
        let plain;
        let text = match text.starts_with(&ZSTD) {
            true => {
                plain = compress::decode(text).map_err(|e| LoadFault::Text(e.to_string()))?;
                plain.as_slice()
            }
            false => text,
        };
        let model = serde_json::from_slice::<Model>(text).map_err(text_fault);
        // Of another schema, it may not even read.
        let schema = match &model {
            Ok(model) => model.schema,
            Err(_) => serde_json::from_slice::<Head>(text).map_err(text_fault)?.schema,
        };
        if schema != SCHEMA {
            return Err(LoadFault::Schema { got: schema });
        }
        let model = model?;
        if model.device != device || model.precision != precision {
            return Err(LoadFault::Target {
                got: format!("{} in {}", model.device, model.precision),
                wanted: format!("{device} in {precision}"),
            });
        }
        model.check()?;
        Ok(model)
    }

    /// The text of a model file: JSON, compressed with zstd.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let io = |source| Error::Io { what: "compressing a model".into(), source };
        let text = serde_json::to_vec(self).map_err(|error| io(error.into()))?;
        compress::encode(&text, LEVEL).map_err(io)
    }

    /// The model in the folder `models` of a data folder, or else the one that ships; of a device that
    /// has neither, that of its [`Device::kin`], where there is one.
    ///
    /// # Errors
    /// [`Error::Input`] with the reason where there is one that does not load, [`Error::Io`].
    pub fn open(data: &Path, device: &Device, precision: Precision) -> Result<Option<Model>> {
        Model::find(Some(&data.join("models")), device, precision)
    }

    /// The same of what ships alone.
    ///
    /// # Errors
    /// [`Error::Input`] where it does not load.
    pub fn shipped(device: &Device, precision: Precision) -> Result<Option<Model>> {
        Model::find(None, device, precision)
    }

    fn find(folder: Option<&Path>, device: &Device, precision: Precision) -> Result<Option<Model>> {
        let file = file_name(&device.name, precision);
        let parse = |bytes: &[u8], name: &str| {
            Model::parse(bytes, &device.name, precision)
                .map(Some)
                .map_err(|fault| Error::input(format!("model {name}: {fault}")))
        };
        if let Some(path) = folder.map(|folder| folder.join(&file)) {
            let name = path.display().to_string();
            match std::fs::read(&path) {
                Ok(bytes) => return parse(&bytes, &name),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Io { what: name, source }),
            }
        }
        match (SHIPPED.iter().find(|(shipped, _)| *shipped == file), device.kin()) {
            (Some((name, bytes)), _) => parse(bytes, name),
            (None, Some(kin)) => Model::find(folder, &kin, precision),
            (None, None) => Ok(None),
        }
    }

    /// Whether names are known and all numbers make sense.
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
        for (name, regressor) in &self.formats {
            let format = find(name).map_err(|_| unknown("format", name))?;
            for parameter in &regressor.parameters {
                let known = parameter.split('=').next().unwrap_or_default();
                if !format.params().iter().any(|p| p.name == known) {
                    return Err(unknown("parameter", parameter));
                }
            }
            let inputs = self.features.len() + self.terms.len() + regressor.parameters.len();
            regressor.forest.check(inputs).map_err(|what| damaged(name, what))?;
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
        self.nearness.check(self.features.len()).map_err(|what| damaged("nearness", what))
    }

    /// The gates that decide whether an analysis pays.
    pub fn gates(&self) -> Gates<'_> {
        Gates {
            analysis: &self.gate,
            picks: &self.quick_picks,
            counting: self.quick.as_ref().map(|quick| &quick.gate),
        }
    }

    /// Whether to multiply by [`CSR`](crate::format::CSR) rather than by the vendor's library, which
    /// takes `baseline_spmv_s` seconds a product, until the matrix is analysed, however many products
    /// are to come. Reads the lengths of rows.
    pub fn prefers_csr(&self, structure: &Structure<'_>, baseline_spmv_s: f64) -> bool {
        let inputs =
            GateInputs { spmvs: u64::MAX, baseline_spmv_s, row_scan_s: 0.0, sample_s: 0.0 };
        let input = |name: &str| inputs.input(name, |name| gate_feature(structure, name));
        let is_csr = |pick: &&QuickPick| pick.candidate().is_some_and(|pick| pick.is_csr());
        let mut csr = self.quick_picks.iter().filter(is_csr);
        csr.any(|pick| pick.rules.walk(input).is_some_and(|(_, answer)| answer == pick.candidate))
    }

    /// The model's features of a matrix, in its order; 0 where one is not finite.
    pub fn features_of(&self, features: &Features) -> Vec<f64> {
        let value = |name: &String| features.get(name).filter(|v| v.is_finite()).unwrap_or(0.0);
        self.features.iter().map(value).collect()
    }
}

/// `h200-f64.json.zst`: the file of a model in its folder.
pub fn file_name(device: &str, precision: Precision) -> String {
    format!("{device}-{precision}.json.zst")
}
