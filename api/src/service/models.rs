//! The models that requests ask.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ellect::device::Device;
use ellect::model::Predictor;
use ellect::{Precision, Result};

/// Models by device and precision, each loaded by the first request that asks it and kept as long as
/// the service: loading one takes longer than most choices.
#[derive(Default)]
pub struct Models {
    opened: Mutex<HashMap<(String, Precision), Found>>,
}

/// A model; none where there is none of the device.
type Found = Option<Arc<Predictor>>;

impl Models {
    /// The model of a device, as [`Predictor::open`] finds it.
    ///
    /// # Errors
    /// As there; the next request tries again.
    pub fn open(&self, data: &Path, device: &Device, precision: Precision) -> Result<Found> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (device.name.clone(), precision);
        let found = opened().get(&key).cloned();
        if let Some(model) = found {
            return Ok(model);
        }
        // Nobody waits meanwhile who asks another model; who asks this one loads it too.
        let model = Predictor::open(data, device, precision)?.map(Arc::new);
        Ok(opened().entry(key).or_insert(model).clone())
    }
}
