//! The devices that requests measure on, each with a line of requests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ellect::device::Kind;
use ellect::measure::Backend;
use tokio::sync::OnceCell;

use super::failure::Failure;
use super::places::Places;
use crate::options::{Product, timing_backend};

/// The devices to measure on, each with one process that lives as long as the service.
pub struct Devices {
    data: PathBuf,
    waiting: u32,
    /// Limit on the work that occupies this host: measuring on it, and training.
    pub host: Arc<Places>,
    /// Cells by device name; the first request for a device fills its cell.
    opened: Mutex<HashMap<String, Arc<Cell>>>,
    /// Profiles by device name, with the time when they were read.
    profiles: Mutex<HashMap<String, (Instant, Arc<Backend>)>>,
}

/// Time after which the profile of a device is read again.
const PROFILE_AGE: Duration = Duration::from_secs(10);

type Cell = OnceCell<Arc<Measured>>;

/// A device to measure on.
pub struct Measured {
    /// Backend that times on the device, in a separate process.
    pub backend: Arc<Backend>,
    /// Limit on the requests that measure on this device: one at a time. All names of this host
    /// share one.
    pub places: Arc<Places>,
}

impl Devices {
    /// Creates the map without devices; `waiting` requests may wait for each device.
    pub fn new(data: PathBuf, waiting: u32) -> Self {
        let host = Places::new(1, waiting);
        Devices { data, waiting, host, opened: Mutex::default(), profiles: Mutex::default() }
    }

    /// Returns the device with this name; the first request for it starts its process.
    ///
    /// # Errors
    /// If there is no such device, or it cannot be measured on.
    pub async fn open(&self, name: &str) -> Result<Arc<Measured>, Failure> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // Names in upper and lower case are of the same device.
        let name = &name.to_ascii_lowercase();
        let cell = Arc::clone(opened().entry(name.clone()).or_default());
        let measured = cell.get_or_try_init(|| self.start(name)).await.cloned();
        if measured.is_err() {
            // A failed name is removed unless another request is waiting for it, so the map stays
            // small.
            let mut opened = opened();
            let gone =
                |cell: &Arc<OnceCell<_>>| !cell.initialized() && Arc::strong_count(cell) <= 2;
            if opened.get(name).is_some_and(gone) {
                opened.remove(name);
            }
        }
        measured
    }

    /// Returns a backend that cannot time, for a device that is known by its profile.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn profile(&self, product: &Product) -> Result<Arc<Backend>, Failure> {
        let known = || self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        let name = product.device.to_ascii_lowercase();
        if let Some((read, backend)) = known().get(&name)
            && read.elapsed() < PROFILE_AGE
        {
            return Ok(Arc::clone(backend));
        }
        let backend = Arc::new(product.backend(&self.data)?);
        known().insert(name, (Instant::now(), Arc::clone(&backend)));
        Ok(backend)
    }

    /// Returns the number of times that a process that measures was started again.
    pub fn restarts(&self) -> u64 {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = opened.values().filter_map(|cell| cell.get());
        measured.map(|measured| measured.backend.restarts()).sum()
    }

    async fn start(&self, name: &str) -> Result<Arc<Measured>, Failure> {
        let (device, data) = (name.to_string(), self.data.clone());
        let starting = tokio::task::spawn_blocking(move || {
            timing_backend(&device, &data).and_then(|backend| backend.check().map(|()| backend))
        });
        let backend = Arc::new(starting.await.map_err(Failure::internal)??);
        let places = match backend.device().kind {
            Kind::Host => Arc::clone(&self.host),
            Kind::Gpu => Places::new(1, self.waiting),
        };
        Ok(Arc::new(Measured { backend, places }))
    }
}
