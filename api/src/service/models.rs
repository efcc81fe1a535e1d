//! The models that requests use, and their routes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::State;
use axum::extract::rejection::PathRejection;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use ellect::Precision;
use ellect::device::{self, Device};
use ellect::model::{ModelName, Predictor, Purpose, file_name};
use ellect_training::guard::Verdict;
use serde::Serialize;
use utoipa::ToSchema;

use super::Service;
use super::access::Role;
use super::failure::{ARGUMENT, Failure, MODEL, NO_MODEL};
use super::schemas;
use crate::installed::{Installed, Listed};

/// Cards of the models that ship, by the name of their file.
const CARDS: [(&str, &str); 6] = [
    ("cpu-f32.model", include_str!("../../../models/cpu-f32.md")),
    ("cpu-f64.model", include_str!("../../../models/cpu-f64.md")),
    ("h200-f32-several.model", include_str!("../../../models/h200-f32-several.md")),
    ("h200-f32.model", include_str!("../../../models/h200-f32.md")),
    ("h200-f64-several.model", include_str!("../../../models/h200-f64-several.md")),
    ("h200-f64.model", include_str!("../../../models/h200-f64.md")),
];

/// Cache of models by device and purpose.
///
/// The first request that uses a model loads it, because that takes longer than most choices; it is
/// kept as long as the service runs.
#[derive(Default)]
pub struct Models {
    opened: Mutex<HashMap<(String, Purpose), Model>>,
    /// Reasons why models do not load.
    faults: Mutex<HashMap<(String, Purpose), String>>,
}

/// A model; `None` if the device has none.
type Model = Option<Arc<Predictor>>;

impl Models {
    /// Forgets all models, so that they are read again.
    pub fn clear(&self) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.faults().clear();
    }

    fn faults(&self) -> MutexGuard<'_, HashMap<(String, Purpose), String>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why a model did not load when it was last asked for, if there is one.
    pub fn fault(&self) -> Option<String> {
        self.faults().values().next().cloned()
    }

    /// Returns the model of a device, as [`Predictor::open`] finds it; `None` if it has none.
    ///
    /// # Errors
    /// As [`Predictor::open`]; the next request tries again.
    pub fn open(&self, data: &Path, device: &Device, purpose: Purpose) -> ellect::Result<Model> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (device.name.clone(), purpose);
        let found = opened().get(&key).cloned();
        if let Some(model) = found {
            return Ok(model);
        }
        // The lock is not held while a model loads, so requests for other models need not wait;
        // concurrent requests for the same model each load it.
        let loaded = Predictor::open(data, device, purpose);
        match &loaded {
            Ok(_) => drop(self.faults().remove(&key)),
            Err(error) => drop(self.faults().insert(key.clone(), error.to_string())),
        }
        let model = loaded?.map(Arc::new);
        Ok(opened().entry(key).or_insert(model).clone())
    }
}

/// A trained model.
#[derive(Serialize, ToSchema)]
#[schema(as = Model)]
pub struct Shown {
    /// Hash of the training, 8 hexadecimal digits.
    id: String,
    /// Name of the device.
    device: String,
    #[schema(value_type = schemas::Precision)]
    precision: Precision,
    /// True for products with several vectors, false for those with one.
    several: bool,
    /// `in use` or `kept`.
    state: &'static str,
    /// Time of the training, in seconds since 1970; null if it was not recorded.
    #[schema(required)]
    trained_at: Option<u64>,
    /// Number of matrices that it was trained on; null if it was not recorded.
    #[schema(required)]
    matrices: Option<u64>,
    /// Comparison with the model that was in use; null for one that ships.
    #[schema(value_type = Option<Object>, required)]
    verdict: Option<Verdict>,
    #[serde(flatten)]
    #[schema(value_type = Used)]
    used: Option<Used>,
}

/// Keys of a model in use alone.
#[derive(Serialize, ToSchema)]
#[schema(as = ModelInUse)]
struct Used {
    /// Name of the device that it was trained for, which may be a proxy.
    #[schema(required = false)]
    trained_on: String,
    /// Learner and target of the trees.
    #[schema(required = false)]
    plan: String,
    /// Names of the formats that it knows.
    #[schema(required = false)]
    formats: Vec<String>,
    /// Figures of the cross-validation, by name.
    #[schema(required = false)]
    scores: BTreeMap<String, f64>,
    /// Path of its card in the service.
    #[schema(required = false)]
    card: String,
}

impl From<Listed> for Shown {
    fn from(listed: Listed) -> Self {
        let Listed { name, precision, several, state, verdict } = listed;
        let ModelName { id, device, trained_at, matrices } = name;
        Shown { id, device, precision, several, state, trained_at, matrices, verdict, used: None }
    }
}

/// Lists the models in use, with their scores, then those that are kept.
///
/// # Errors
/// 500 if one cannot be read.
pub async fn listed(State(service): State<Arc<Service>>) -> Result<Json<Vec<Shown>>, Failure> {
    let listing = tokio::task::spawn_blocking(move || list(&service));
    listing.await.map_err(Failure::internal)?.map_err(Failure::internal).map(Json)
}

fn list(service: &Service) -> anyhow::Result<Vec<Shown>> {
    let data = &service.config.data;
    let all = Installed::of(data).list()?;
    let mut models = Vec::new();
    for device in device::all_in(data)? {
        for purpose in Purpose::ALL {
            let found = service.models.open(data, &device, purpose)?;
            let Some(found) = found else { continue };
            let model = found.model();
            let name = model.name();
            let known = all.iter().find(|one| one.name.id == name.id && one.state == "in use");
            let verdict = known.and_then(|known| known.verdict);
            let used = Used {
                trained_on: model.device.clone(),
                plan: model.plan.clone(),
                formats: model.formats.keys().cloned().collect(),
                scores: model.scores.clone(),
                card: format!("/models/{}/{purpose}/card", device.name),
            };
            let name = ModelName { device: device.name.clone(), ..name };
            let Purpose { precision, several } = purpose;
            let state = "in use";
            let shown = Shown::from(Listed { name, precision, several, state, verdict });
            models.push(Shown { used: Some(used), ..shown });
        }
    }
    models.extend(all.into_iter().filter(|model| model.state == "kept").map(Shown::from));
    Ok(models)
}

/// Reads the models again, and lists them.
///
/// # Errors
/// 403 for the role read, 422 if a model cannot be read.
pub async fn reloaded(
    State(service): State<Arc<Service>>,
    Extension(role): Extension<Role>,
) -> Result<Json<Vec<Shown>>, Failure> {
    role.check_writes("reading models again")?;
    let listing = tokio::task::spawn_blocking(move || {
        service.reload();
        list(&service)
    });
    let unread = |error: anyhow::Error| Failure::new(&MODEL, format!("{error:#}"));
    listing.await.map_err(Failure::internal)?.map_err(unread).map(Json)
}

type Names = Result<axum::extract::Path<(String, String)>, PathRejection>;

/// Shows the card of the model in use for a device and purpose, a text in Markdown.
///
/// # Errors
/// 400 for unknown names, 404 if there is no model or it has no card.
pub async fn card(
    State(service): State<Arc<Service>>,
    names: Names,
) -> Result<impl IntoResponse, Failure> {
    let names = names.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let axum::extract::Path((device, purpose)) = names;
    let purpose: Purpose = purpose.parse()?;
    let reading = tokio::task::spawn_blocking(move || -> Result<Option<String>, Failure> {
        let data = &service.config.data;
        // Only names of profiles become names of files.
        let device = device::find_in(&device, data)?;
        let Some(found) = service.model(&device, purpose)? else { return Ok(None) };
        let own = Installed::of(data).path(&device.name, purpose);
        if own.exists() {
            return Ok(fs::read_to_string(own.with_extension("md")).ok());
        }
        let file = file_name(&found.model().device, purpose);
        let card = CARDS.iter().find(|(name, _)| *name == file);
        Ok(card.map(|(_, card)| card.to_string()))
    });
    let card = reading.await.map_err(Failure::internal)??;
    let none = || Failure::new(&NO_MODEL, "this device has no model of this precision, or no card");
    Ok(([(CONTENT_TYPE, "text/markdown; charset=utf-8")], card.ok_or_else(none)?))
}

#[cfg(test)]
mod tests {
    use ellect::model::Model;

    use super::*;

    #[test]
    fn every_model_that_ships_has_its_card_here() {
        for device in Device::shipped() {
            for purpose in Purpose::ALL {
                if Model::shipped(&device, purpose).expect("it loads").is_none() {
                    continue;
                }
                let file = file_name(&device.name, purpose);
                let (_, card) = CARDS.iter().find(|(name, _)| *name == file).expect("a card");
                let title = format!("# Model of {} in {}", device.name, purpose.precision);
                assert!(card.starts_with(&title), "{purpose}");
            }
        }
    }
}
