//! The models of a data folder: the one in use for each device and precision, and all that were
//! trained.
//!
//! ```text
//! models/cpu-f64.model              the model in use; without one, the model that ships predicts
//! models/kept/cpu-f64-ID.model      every trained model, with its card (.md) and its entry (.json)
//! models/kept/installed.json        for each device and precision, the models that were installed,
//!                                   the latest last
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ellect::Precision;
use ellect::device::Device;
use ellect::model::{Model, ModelName, Purpose, file_name};
use ellect_training::guard::{HeldOut, Verdict};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::output::write_file;

/// A trained model of this user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the model.
    #[serde(flatten)]
    pub name: ModelName,
    /// Precision of the values.
    pub precision: Precision,
    /// Comparison with the model that was in use.
    pub verdict: Verdict,
    /// Choices for its matrices while it had not seen them.
    pub held_out: HeldOut,
}

/// A model that ships or was trained, for a list.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    /// Name of the model.
    #[serde(flatten)]
    pub name: ModelName,
    /// Precision of the values.
    pub precision: Precision,
    /// True of a model for products with several vectors.
    pub several: bool,
    /// `in use`, `kept` or `ships`.
    pub state: &'static str,
    /// Comparison with the model that was in use; `None` for one that ships.
    pub verdict: Option<Verdict>,
}

/// The folder `models` of a data folder.
pub struct Installed {
    folder: PathBuf,
}

impl Installed {
    /// Returns the models of this data folder.
    pub fn of(data: &Path) -> Self {
        Installed { folder: data.join("models") }
    }

    /// Returns the path of the model in use, whether there is one or not.
    pub fn path(&self, device: &str, purpose: impl Into<Purpose>) -> PathBuf {
        self.folder.join(file_name(device, purpose))
    }

    fn kept(&self) -> PathBuf {
        self.folder.join("kept")
    }

    fn kept_path(&self, device: &str, precision: Precision, id: &str) -> PathBuf {
        self.kept().join(format!("{device}-{precision}-{id}.model"))
    }

    /// Returns the entries of all trained models, the oldest first.
    ///
    /// # Errors
    /// Fails where the folder or an entry cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let kept = self.kept();
        let files = match fs::read_dir(&kept) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| kept.display().to_string()),
        };
        let mut entries: Vec<Entry> = Vec::new();
        for file in files {
            let path = file.with_context(|| kept.display().to_string())?.path();
            let is_entry = path.extension().is_some_and(|extension| extension == "json")
                && path.file_name().is_some_and(|name| name != INSTALLED);
            if is_entry {
                entries.extend(read_json::<Entry>(&path)?);
            }
        }
        entries.sort_by(|a, b| {
            a.name.trained_at.cmp(&b.name.trained_at).then(a.name.id.cmp(&b.name.id))
        });
        Ok(entries)
    }

    /// Lists the models that ship and those of this user.
    ///
    /// # Errors
    /// Fails where a model or an entry cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut list = Vec::new();
        for device in Device::shipped() {
            for purpose in Purpose::ALL {
                let Some(model) = Model::shipped(&device, purpose)? else { continue };
                let used = !self.path(&device.name, purpose).exists();
                let state = if used { "in use" } else { "ships" };
                let Purpose { precision, several } = purpose;
                list.push(Listed { name: model.name(), precision, several, state, verdict: None });
            }
        }
        for entry in self.entries()? {
            let history = self.history(&entry.name.device, entry.precision)?;
            let used = history.last() == Some(&entry.name.id);
            let state = if used { "in use" } else { "kept" };
            let Entry { name, precision, verdict, .. } = entry;
            list.push(Listed { name, precision, several: false, state, verdict: Some(verdict) });
        }
        Ok(list)
    }

    /// Returns the ids of the models that were installed for a device and precision, the latest
    /// last.
    ///
    /// # Errors
    /// Fails where the list cannot be read.
    pub fn history(&self, device: &str, precision: Precision) -> Result<Vec<String>> {
        let mut all = self.histories()?;
        Ok(all.remove(&key(device, precision)).unwrap_or_default())
    }

    fn histories(&self) -> Result<BTreeMap<String, Vec<String>>> {
        Ok(read_json(&self.kept().join(INSTALLED))?.unwrap_or_default())
    }

    fn set_history(&self, device: &str, precision: Precision, ids: Vec<String>) -> Result<()> {
        let mut all = self.histories()?;
        all.insert(key(device, precision), ids);
        write_json(&self.kept().join(INSTALLED), &all)
    }

    /// Keeps a trained model with its card.
    ///
    /// # Errors
    /// Fails where a file cannot be written.
    pub fn keep(&self, model: &Model, card: &str, entry: &Entry) -> Result<()> {
        fs::create_dir_all(self.kept()).with_context(|| self.kept().display().to_string())?;
        let path = self.kept_path(&model.device, model.precision, &entry.name.id);
        let bytes = model.bytes()?;
        write_file(&path, |out| Ok(out.write_all(&bytes)?))?;
        write_file(&path.with_extension("md"), |out| Ok(out.write_all(card.as_bytes())?))?;
        write_json(&path.with_extension("json"), entry)
    }

    /// Installs a kept model. A model in use that was not installed by a tuning run is kept first,
    /// so that [`Installed::rollback`] finds it.
    ///
    /// # Errors
    /// Fails where a file cannot be read or written.
    pub fn install(&self, device: &str, precision: Precision, id: &str) -> Result<()> {
        let mut history = self.history(device, precision)?;
        if let Some(used) = Model::in_folder(&self.folder, device, precision)? {
            let used_id = used.name().id;
            let path = self.kept_path(device, precision, &used_id);
            if !path.exists() {
                let bytes = used.bytes()?;
                write_file(&path, |out| Ok(out.write_all(&bytes)?))?;
            }
            if history.last() != Some(&used_id) {
                history.push(used_id);
            }
        }
        self.copy(device, precision, id)?;
        history.retain(|earlier| earlier != id);
        history.push(id.to_string());
        self.set_history(device, precision, history)
    }

    /// Installs the model that was in use before the latest one. Returns the id of the model that is
    /// left and that of the model now in use: `None` for the one that ships. Returns `None` if no
    /// model was installed.
    ///
    /// # Errors
    /// Fails where a file cannot be read or written.
    pub fn rollback(
        &self,
        device: &str,
        precision: Precision,
    ) -> Result<Option<(String, Option<String>)>> {
        let mut history = self.history(device, precision)?;
        let Some(left) = history.pop() else { return Ok(None) };
        let now = history.last().cloned();
        match &now {
            Some(id) => self.copy(device, precision, id)?,
            None => {
                let path = self.path(device, precision);
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        self.set_history(device, precision, history)?;
        Ok(Some((left, now)))
    }

    /// Makes a kept model the one in use.
    fn copy(&self, device: &str, precision: Precision, id: &str) -> Result<()> {
        let kept = self.kept_path(device, precision, id);
        let bytes = fs::read(&kept).with_context(|| kept.display().to_string())?;
        let path = self.path(device, precision);
        write_file(&path, |out| Ok(out.write_all(&bytes)?))?;
        let card = fs::read(kept.with_extension("md")).unwrap_or_default();
        write_file(&path.with_extension("md"), |out| Ok(out.write_all(&card)?))
    }
}

/// Name of the list of installed models.
const INSTALLED: &str = "installed.json";

fn key(device: &str, precision: Precision) -> String {
    format!("{device}-{precision}")
}

/// Reads a JSON file; `None` if there is none.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).with_context(|| path.display().to_string())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    write_file(path, |out| Ok(out.write_all(text.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_returns_to_what_was_in_use_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let installed = Installed::of(folder.path());
        let cpu = ellect::device::find("cpu").expect("it ships");
        let precision = Precision::F64;
        let model = Model::shipped(&cpu, precision).expect("sound").expect("it ships");
        let trained = |seed| Model { seed, trained_at: Some(seed), ..model.clone() };
        let judged = |before, after| Verdict {
            before,
            after,
            worst_before: before,
            worst_after: after,
            matrices: 24,
        };
        let used = || {
            let used = Model::in_folder(&folder.path().join("models"), "cpu", precision);
            used.expect("sound").map(|model| model.seed)
        };
        assert!(installed.entries().expect("none").is_empty());
        assert_eq!(installed.rollback("cpu", precision).expect("nothing"), None);
        // A model that was put there by hand is found again.
        let by_hand = trained(7);
        fs::create_dir_all(folder.path().join("models")).expect("writable");
        fs::write(installed.path("cpu", precision), by_hand.bytes().expect("memory"))
            .expect("writable");
        for (seed, verdict) in [(8, judged(0.82, 0.88)), (9, judged(0.88, 0.9))] {
            let model = trained(seed);
            let name = model.name();
            let entry = Entry { name: name.clone(), precision, verdict, held_out: HeldOut::new() };
            installed.keep(&model, "# a card\n", &entry).expect("writable");
            installed.install("cpu", precision, &name.id).expect("it is kept");
            assert_eq!(used(), Some(seed));
        }
        let entries = installed.entries().expect("two");
        assert_eq!(
            entries.iter().map(|one| one.name.trained_at).collect::<Vec<_>>(),
            [Some(8), Some(9)]
        );
        let ids = [7, 8, 9].map(|seed| trained(seed).name().id);
        assert_eq!(installed.history("cpu", precision).expect("a list"), ids);
        for (left, now) in [(9, Some(8)), (8, Some(7)), (7, None)] {
            let id = |seed| trained(seed).name().id;
            let expected = Some((id(left), now.map(id)));
            assert_eq!(installed.rollback("cpu", precision).expect("one is left"), expected);
            assert_eq!(used(), now);
        }
        assert_eq!(installed.rollback("cpu", precision).expect("none is left"), None);
    }
}
