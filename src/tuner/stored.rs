//! The models and the wisdom of a tuner: those that the caller gave, or those of a data folder,
//! which are opened at their first use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::device::Device;
use crate::error::{Error, WisdomFault};
use crate::model::{Model, Predictor, Purpose};
use crate::wisdom::Wisdom;
use crate::workload::Effort;

/// Models and wisdom of one device.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Models that the caller gave; they precede those of the folder.
    pub(super) models: Vec<Arc<Predictor>>,
    /// Wisdom that the caller gave; it replaces that of the folder.
    pub(super) wisdom: Option<Arc<Wisdom>>,
    folder: Option<Folder>,
}

/// Models and wisdom of a data folder.
#[derive(Debug)]
struct Folder {
    data: PathBuf,
    /// Models in the order of [`Purpose::ALL`].
    models: [OnceLock<FoundModel>; Purpose::ALL.len()],
    wisdom: Mutex<Option<FoundWisdom>>,
}

/// A model that was looked for in a folder.
#[derive(Debug)]
struct FoundModel {
    model: Option<Predictor>,
    warning: Option<String>,
}

/// Wisdom that was opened in a folder.
#[derive(Clone, Debug)]
struct FoundWisdom {
    wisdom: Arc<Wisdom>,
    /// True if the database would have been created had it been missing.
    may_create: bool,
    warning: Option<String>,
}

impl Stored {
    /// Uses this data folder from now on.
    pub(super) fn set_folder(&mut self, data: &Path) {
        let data = data.to_path_buf();
        let models = std::array::from_fn(|_| OnceLock::new());
        self.folder = Some(Folder { data, models, wisdom: Mutex::default() });
    }

    /// Returns the model of this purpose, if there is one; the first call reads it.
    pub(super) fn model(&self, device: &Device, purpose: Purpose) -> Option<&Predictor> {
        let given = self.models.iter().find(|model| model.model().purpose() == purpose);
        if let Some(given) = given {
            return Some(given);
        }
        let folder = self.folder.as_ref()?;
        let place = Purpose::ALL.into_iter().position(|one| one == purpose)?;
        let found = &folder.models[place];
        found.get_or_init(|| FoundModel::open(&folder.data, device, purpose)).model.as_ref()
    }

    /// Returns the wisdom for a choice of this effort; the first call opens it. Only an effort that
    /// measures creates the user's database.
    pub(super) fn wisdom(&self, effort: Effort) -> Option<Arc<Wisdom>> {
        if self.wisdom.is_some() {
            return self.wisdom.clone();
        }
        let folder = self.folder.as_ref()?;
        let may_create = effort >= Effort::Measure;
        let mut found = folder.wisdom.lock().unwrap_or_else(PoisonError::into_inner);
        match found.as_ref() {
            Some(open) if open.wisdom.keeps() || open.may_create || !may_create => {}
            _ => *found = Some(FoundWisdom::open(&folder.data, may_create)),
        }
        found.as_ref().map(|found| Arc::clone(&found.wisdom))
    }

    /// Returns a sentence for each file of the folder that was to be used but could not.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let models = folder.models.iter().filter_map(OnceLock::get);
        let models = models.filter_map(|found| found.warning.clone());
        let wisdom = folder.wisdom.lock().unwrap_or_else(PoisonError::into_inner);
        let wisdom = wisdom.as_ref().and_then(|found| found.warning.clone());
        models.chain(wisdom).collect()
    }
}

impl FoundModel {
    /// Opens the model in the folder; the shipped one if that does not load.
    fn open(data: &Path, device: &Device, purpose: Purpose) -> Self {
        let error = match Predictor::open(data, device, purpose) {
            Ok(model) => return FoundModel { model, warning: None },
            Err(error) => error,
        };
        let shipped = Model::shipped(device, purpose).ok().flatten().map(Predictor::new);
        let instead = match &shipped {
            Some(_) => "the shipped model predicts",
            None => "closed formulas estimate",
        };
        let warning =
            Some(format!("Ignored the user's model of {}: {error}; {instead}.", device.name));
        FoundModel { model: shipped, warning }
    }
}

impl FoundWisdom {
    /// Opens the wisdom in the folder; the shipped records alone if the database cannot be used.
    fn open(data: &Path, may_create: bool) -> Self {
        let opened = match may_create {
            true => Wisdom::open(data),
            false => Wisdom::open_existing(data),
        };
        let (wisdom, fault) = match opened {
            Ok(wisdom) => (wisdom, None),
            Err(error) => (Wisdom::shipped(), Some(error)),
        };
        let warning = match fault {
            None | Some(Error::Wisdom { fault: WisdomFault::NotBuilt, .. }) => None,
            Some(error) => Some(format!("Ignored the user's stored timings: {error}.")),
        };
        FoundWisdom { wisdom: Arc::new(wisdom), may_create, warning }
    }
}
