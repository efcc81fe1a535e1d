//! The devices that requests measure on, and the places of requests at work.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use ellect::measure::Meter;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;
use crate::options::timing_meter;

/// Devices that are measured on, each by one process that is kept as long as the service.
pub struct Devices {
    data: PathBuf,
    waiting: u32,
    /// By name; a cell is filled by the first request for its device.
    opened: Mutex<HashMap<String, Arc<Cell>>>,
}

type Cell = OnceCell<Arc<Measured>>;

/// A device that is measured on.
pub struct Measured {
    /// Times on the device, in a process of its own.
    pub meter: Arc<Meter>,
    /// Requests that measure on it: one at a time.
    pub places: Places,
}

impl Devices {
    /// None so far; each is to let so many requests wait.
    pub fn new(data: PathBuf, waiting: u32) -> Self {
        Devices { data, waiting, opened: Mutex::default() }
    }

    /// The device of this name; its process is started where this is the first request for it.
    ///
    /// # Errors
    /// Where there is no such device, or it cannot be measured on.
    pub async fn open(&self, name: &str) -> Result<Arc<Measured>, Failure> {
        let opened = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(opened().entry(name.to_string()).or_default());
        let measured = cell.get_or_try_init(|| self.start(name)).await.cloned();
        if measured.is_err() {
            // Nothing is kept of a name that nobody else asks for just now.
            let mut opened = opened();
            let gone =
                |cell: &Arc<OnceCell<_>>| !cell.initialized() && Arc::strong_count(cell) <= 2;
            if opened.get(name).is_some_and(gone) {
                opened.remove(name);
            }
        }
        measured
    }

    async fn start(&self, name: &str) -> Result<Arc<Measured>, Failure> {
        let (device, data) = (name.to_string(), self.data.clone());
        let starting = tokio::task::spawn_blocking(move || {
            timing_meter(&device, &data).and_then(|meter| meter.check().map(|()| meter))
        });
        let meter = Arc::new(starting.await.map_err(Failure::internal)??);
        Ok(Arc::new(Measured { meter, places: Places::new(1, self.waiting) }))
    }
}

/// Places of requests: those at work, and those that wait besides.
pub struct Places {
    /// Requests at hand, waiting ones among them.
    admitted: Arc<Semaphore>,
    /// Requests at work.
    at_work: Arc<Semaphore>,
}

impl Places {
    /// So many at work at once, and so many that may wait.
    pub fn new(at_work: u32, waiting: u32) -> Self {
        let places = |n: u32| Arc::new(Semaphore::new(n as usize));
        Places { admitted: places(at_work.saturating_add(waiting)), at_work: places(at_work) }
    }

    /// Takes a request on.
    ///
    /// # Errors
    /// 503 where too many wait.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.admitted).try_acquire_owned().map_err(|_| {
            let told = "too many requests are waiting; try again later";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", told)
        })
    }

    /// Waits until a request that was taken on may work.
    ///
    /// # Errors
    /// None: the places are never closed.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.at_work).acquire_owned().await.map_err(Failure::internal)
    }
}
