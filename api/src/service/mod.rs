//! The HTTP service: `/recommend` and the routes that describe the service.
//!
//! A body is a matrix in any form that the readers support. Reading and choosing run on blocking
//! threads, by default as many at once as there are cores; callers beyond a short queue get status
//! 503. Requests that measure are jobs: they wait in a line of their device, which one long-lived
//! process serves, and do not delay other requests. A request reserves the memory that its matrix may take before
//! it reads the matrix. Answers are kept by the hash of the body, by that of the matrix, and by its
//! fingerprint.

mod accept;
pub mod access;
mod answers;
mod body;
pub mod connections;
mod devices;
mod drain;
mod failure;
mod html;
mod info;
pub mod jobs;
mod measured;
pub mod memory;
mod metrics;
mod models;
mod observe;
mod openapi;
mod page;
mod pictures;
mod places;
mod queries;
mod recommend;
mod records;
mod room;
mod rooms;
mod routes;
mod schemas;
mod structures;
pub mod tune;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, LOCATION, RETRY_AFTER,
};
use axum::http::{HeaderName, Method};
use axum::middleware::{from_fn_with_state, map_request};
use ellect::Wisdom;
use ellect::device::Device;
use ellect::model::{Predictor, Purpose};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};

use answers::Answers;
use devices::Devices;
use failure::{Failure, METHOD, PATH};
use jobs::Jobs;
use memory::Budget;
use metrics::Metrics;
use models::Models;
use pictures::Pictures;
use places::Places;
use queries::Queries;
use structures::Summaries;

use crate::shared::{Address, Client};

/// Configuration of a service.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of measurements and device profiles.
    pub data: PathBuf,
    /// Stored measurements, shared by all requests; `None` to use and store none.
    pub wisdom: Option<Arc<Wisdom>>,
    /// The database that several hosts share, if one is named.
    pub shared: Option<Arc<Client>>,
    /// Its address, for processes that train.
    pub shared_address: Option<Address>,
    /// Memory that all requests may take together, in bytes.
    pub memory: u64,
    /// Number of requests processed at once, except those that measure: one on each device.
    pub workers: u32,
    /// Number of requests that may wait in addition, and likewise for each device.
    pub queue: u32,
    /// The open connections.
    pub open: Arc<connections::Open>,
    /// Origins of pages in browsers that may ask; `None` if none may.
    pub origins: Option<AllowOrigin>,
    /// True if `GET /` shows browsers a page.
    pub page: bool,
}

/// The part of the configuration that a service takes over again while it runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Maximum number of bytes of a body.
    pub max_body: u64,
    /// Maximum number of nonzeros of a matrix; `None` for as many as fit into the memory.
    pub max_nonzeros: Option<u64>,
    /// The tokens of callers.
    pub tokens: access::Tokens,
}

/// Number of bodies that may arrive at once, per request that may be processed or wait; a slow body
/// thus takes no place from other requests.
const BODIES: u32 = 8;

/// Part of the memory of all requests that kept answers may take in addition.
const OF_ANSWERS: u64 = 16;

/// Maximum number of bytes of kept answers.
const MOST_ANSWERS: u64 = 256 << 20;

/// Part of the memory of all requests that kept pictures of matrices may take in addition.
const OF_PICTURES: u64 = 64;

/// Maximum number of bytes of kept pictures.
const MOST_PICTURES: u64 = 64 << 20;

/// State that all requests share.
pub struct Service {
    config: Config,
    settings: RwLock<Arc<Settings>>,
    memory: Budget,
    /// Limit on the bodies that are arriving.
    arriving: Arc<Places>,
    /// Limit on the requests that time nothing.
    places: Arc<Places>,
    devices: Devices,
    /// Work that goes on after its request was answered.
    pub jobs: Arc<Jobs>,
    models: Models,
    answers: Answers,
    queries: Queries,
    pictures: Pictures,
    summaries: Summaries,
    metrics: Metrics,
    /// Start of the hashes of bodies, different in each process.
    seed: u64,
    /// Number of times that models were read again.
    reloads: AtomicU64,
}

impl Service {
    /// Creates the state of a service with these jobs.
    ///
    /// # Errors
    /// If its figures cannot be counted.
    pub fn new(config: Config, settings: Settings, jobs: Arc<Jobs>) -> anyhow::Result<Self> {
        let served = config.workers.saturating_add(config.queue);
        Ok(Service {
            memory: Budget::new(config.memory),
            arriving: Places::new(served.saturating_mul(BODIES), 0),
            places: Places::new(config.workers, config.queue),
            devices: Devices::new(config.data.clone(), config.queue),
            jobs,
            models: Models::default(),
            answers: Answers::new((config.memory / OF_ANSWERS).min(MOST_ANSWERS)),
            queries: Queries::new(),
            pictures: Pictures::new((config.memory / OF_PICTURES).min(MOST_PICTURES), &config.data),
            summaries: Summaries::default(),
            metrics: Metrics::new()?,
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
            reloads: AtomicU64::new(0),
            settings: RwLock::new(Arc::new(settings)),
            config,
        })
    }

    /// Returns the settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings.
    pub fn set(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Returns the model of a device.
    fn model(
        &self,
        device: &Device,
        purpose: impl Into<Purpose>,
    ) -> Result<Option<Arc<Predictor>>, Failure> {
        // A model that does not load is a fault of the service, not of the request.
        self.models.open(&self.config.data, device, purpose.into()).map_err(Failure::internal)
    }

    /// Reads models again when they are next used, and forgets what followed from the old ones.
    pub fn reload(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.models.clear();
        self.answers.clear();
    }
}

/// Returns the router of the service.
pub fn router(service: Arc<Service>) -> Router {
    let layers = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(from_fn_with_state(Arc::clone(&service), observe::observe))
        .layer(CatchPanicLayer::custom(failure::panicked))
        .option_layer(service.config.origins.clone().map(cors))
        .layer(map_request(drain::drained))
        .layer(from_fn_with_state(Arc::clone(&service), access::checked))
        .layer(DefaultBodyLimit::disable());
    routes::router()
        .fallback(async || {
            Failure::new(&PATH, "there is no such path; GET / lists those there are")
        })
        .method_not_allowed_fallback(async || {
            Failure::new(&METHOD, "this path has another method; GET / lists what there is")
        })
        .layer(layers)
        .with_state(service)
}

/// Time for which a browser remembers that it may ask.
const ALLOWED: Duration = Duration::from_secs(3600);

/// Lets pages of these origins ask from browsers.
fn cors(origins: AllowOrigin) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE])
        .expose_headers([LOCATION, RETRY_AFTER, HeaderName::from_static("x-request-id")])
        .max_age(ALLOWED)
}
