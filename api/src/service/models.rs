//! The models that requests use.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ellect::device::Device;
use ellect::model::Predictor;
use ellect::{Precision, Result};

/// Cache of models by device and precision.
///
/// The first request that uses a model loads it, because that takes longer than most choices; it is
/// kept as long as the service runs.
#[derive(Default)]
pub struct Models {
    opened: Mutex<HashMap<(String, Precision), Found>>,
}

/// A model; `None` if the device has none.
type Found = Option<Arc<Predictor>>;

impl Models {
    /// Forgets all models, so that they are read again.
    pub fn clear(&self) {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the model of a device, as [`Predictor::open`] finds it.
    ///
    /// # Errors
    /// As [`Predictor::open`]; the next request tries again.
    pub fn open(&self, data: &Path, device: &Device, precision: Precision) -> Result<Found> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (device.name.clone(), precision);
        let found = opened().get(&key).cloned();
        if let Some(model) = found {
            return Ok(model);
        }
        // The lock is not held while a model loads, so requests for other models need not wait;
        // concurrent requests for the same model each load it.
        let model = Predictor::open(data, device, precision)?.map(Arc::new);
        Ok(opened().entry(key).or_insert(model).clone())
    }
}
