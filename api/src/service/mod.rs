//! The HTTP service: `POST /recommend`, `GET /healthz` and `GET /readyz`.
//!
//! The body is a matrix in any form that the readers support. Reading and choosing run on blocking
//! threads, by default as many at once as there are cores; callers beyond a short queue get status
//! 503. Requests that measure wait in a queue of their device, which one long-lived process serves,
//! and do not delay other requests.

mod body;
mod devices;
mod failure;
mod models;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::HeaderMap;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use ellect::choose::Choice;
use ellect::measure::Backend;
use ellect::read::{self, Found, Limits};
use ellect::{Precision, Scalar, Wisdom};
use serde_json::json;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::trace::{DefaultOnResponse, TraceLayer};
use tracing::Level;

use crate::options::{Options, is_gpu_here};
use crate::tuner_of::tuner_of;
use devices::{Devices, Places};
use failure::Failure;
use models::Models;

/// Configuration of a service.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of measurements and device profiles.
    pub data: PathBuf,
    /// Stored measurements, shared by all requests; `None` to use and store none.
    pub wisdom: Option<Arc<Wisdom>>,
    /// Maximum number of bytes of a body.
    pub max_body: u64,
    /// Maximum number of nonzeros of a matrix.
    pub max_nonzeros: u64,
    /// Number of requests processed at once, except those that measure: one on each device.
    pub workers: u32,
    /// Number of requests that may wait in addition, and likewise for each device.
    pub queue: u32,
}

/// Time limit of a request after its body has arrived.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Time limit of the measurements of one request, whatever budget it asks for.
const MAX_BUDGET: Duration = Duration::from_secs(120);

/// Maximum number of rows in addition to the number of entries.
///
/// Each row costs all candidates memory and time, and a body of a few bytes can claim many rows.
const MAX_EMPTY_ROWS: u64 = 1 << 22;

/// Number of bodies that may arrive at once, per request that may be processed or wait; a slow body
/// thus takes no place from other requests.
const BODIES: u32 = 8;

struct Service {
    config: Config,
    /// Limit on the bodies that are arriving.
    arriving: Places,
    /// Limit on the requests that time nothing.
    places: Places,
    devices: Devices,
    models: Models,
}

/// Returns the router of the service.
pub fn router(config: Config) -> Router {
    let served = config.workers.saturating_add(config.queue);
    let service = Service {
        arriving: Places::new(served.saturating_mul(BODIES), 0),
        places: Places::new(config.workers, config.queue),
        devices: Devices::new(config.data.clone(), config.queue),
        models: Models::default(),
        config,
    };
    let layers = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_response(DefaultOnResponse::new().level(Level::INFO)),
        )
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CatchPanicLayer::custom(failure::panicked));
    Router::new()
        .route("/", get(usage))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/recommend", post(recommend))
        .fallback(async || Failure::new(StatusCode::NOT_FOUND, "path", "GET / tells what there is"))
        .method_not_allowed_fallback(async || {
            let stated = "POST /recommend, GET /healthz, GET /readyz and GET / are what there is";
            Failure::new(StatusCode::METHOD_NOT_ALLOWED, "method", stated)
        })
        .layer(layers)
        .with_state(Arc::new(service))
}

fn span(request: &Request<Body>) -> tracing::Span {
    let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    tracing::info_span!("request", method = %request.method(), uri = %request.uri(), id)
}

async fn usage() -> String {
    let options = Options::in_query();
    let width = options.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let options: String =
        options.iter().map(|(name, help)| format!("  {name:width$}  {help}\n")).collect();
    format!(
        "ellect chooses storage formats for sparse matrix-vector products.\n\
         \n\
         POST /recommend?device=h200&precision=f64&spmvs=1000\n\
         The body is a matrix: Matrix Market, SciPy .npz, Rutherford-Boeing, PETSc, MATLAB 5 or\n\
         JSON; plain, gzip, zstd, bzip2 or xz, or in a tar or zip archive;\n\
         or none, and generate=CLASS:ROWS names a generated matrix:\n\
         POST /recommend?device=h200&generate=elasticity:600000\n\
         The answer is the JSON of `ellect recommend --json`.\n\
         {options}\
         \n\
         GET /healthz\n\
         GET /readyz: 503 if measurements could not be stored\n\
         \n\
         A request that fails is answered with {{\"error\": {{\"kind\", \"message\"}}}}.\n"
    )
}

async fn healthz() -> Json<serde_json::Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({"status": "ok", "version": version, "devices": ellect::measure::names()}))
}

async fn readyz(State(service): State<Arc<Service>>) -> Result<Json<serde_json::Value>, Failure> {
    match service.config.wisdom.as_ref().and_then(|wisdom| wisdom.fault()) {
        None => Ok(Json(json!({"status": "ready"}))),
        Some(fault) => {
            let stated = format!("measurements were not stored: {fault}");
            Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "wisdom", stated))
        }
    }
}

async fn recommend(
    State(service): State<Arc<Service>>,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Choice>, Failure> {
    let Query(pairs) = pairs
        .map_err(|error| Failure::new(StatusCode::BAD_REQUEST, "argument", error.body_text()))?;
    let (mut options, body_options) = Options::from_query(&pairs)?;
    if options.measures() {
        options.budget = Some(options.budget.unwrap_or(MAX_BUDGET).min(MAX_BUDGET));
    }
    let config = &service.config;
    body::check(&headers, config.max_body)?;
    // Opening the device first reports a wrong name before a large body is read. Only the process
    // that measures opens a GPU of this machine.
    let device = &options.product.device;
    let measured = match options.measures() || is_gpu_here(device) {
        true => Some(service.devices.open(device).await?),
        false => None,
    };
    let backend = match &measured {
        Some(measured) => Arc::clone(&measured.backend),
        None => Arc::new(options.product.backend(&config.data)?),
    };
    let queued = measured.as_ref().filter(|_| options.measures());
    let places = queued.map_or(&service.places, |measured| &measured.places);
    // If too many requests already wait, the body is not read; while it arrives it holds no place.
    drop(places.admit()?);
    let arriving = service.arriving.admit()?;
    let file = body::spool(body, config.max_body).await?;
    if options.generate.is_some() {
        body::check_empty(&file)?;
    }
    drop(arriving);
    let place = places.admit()?;
    let answer = async {
        let turn = places.turn().await?;
        let (max_nonzeros, held) = (config.max_nonzeros, Arc::clone(&service));
        let log = tracing::Span::current();
        let reading = body_options.reading(limits(max_nonzeros));
        let job = tokio::task::spawn_blocking(move || {
            // Both permits are held until the work is done, even if the caller has disconnected.
            let _held = (place, turn);
            log.in_scope(|| match options.product.precision {
                Precision::F32 => choose::<f32>(file.path(), &options, &reading, backend, &held),
                Precision::F64 => choose::<f64>(file.path(), &options, &reading, backend, &held),
            })
        });
        job.await.map_err(Failure::internal)?
    };
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(choice) => choice.map(Json),
        Err(_) => Err(Failure::new(
            StatusCode::GATEWAY_TIMEOUT,
            "timeout",
            format!("no answer within {} s; ask for less effort", TIMEOUT.as_secs()),
        )),
    }
}

/// Returns the limits of reading a body with at most this number of nonzeros.
fn limits(nonzeros: u64) -> Limits {
    // Text takes about 30 bytes per entry; 64 also bound what compressed data may expand to.
    let bytes = nonzeros.saturating_mul(64);
    Limits { nonzeros, bytes, empty_rows: MAX_EMPTY_ROWS, ..Limits::default() }
}

fn choose<T: Scalar>(
    path: &Path,
    options: &Options,
    reading: &read::Options,
    backend: Arc<Backend>,
    service: &Service,
) -> Result<Choice, Failure> {
    let start = Instant::now();
    let generating = Limits { bytes: service.config.max_body, ..reading.limits };
    let Found { csr, notes } = match options.generated::<T>(&generating, "body")? {
        Some(csr) => Found { csr, notes: Vec::new() },
        None => reading.opened(File::open(path).map_err(Failure::internal)?)?,
    };
    let read_s = start.elapsed().as_secs_f64();
    let tuner = tuner_of(options, backend, service.config.wisdom.clone(), |device, precision| {
        // A model that does not load is a fault of the service, not of the request.
        service.models.open(&service.config.data, device, precision).map_err(Failure::internal)
    })?;
    let mut choice = options.recommend(&csr, tuner, &mut |_| ())?;
    choice.explanation.extend(notes.into_iter().map(|text| format!("The body: {text}.")));
    tracing::info!(
        nrows = csr.nrows(),
        ncols = csr.ncols(),
        nnz = csr.nnz(),
        read_s,
        choose_s = start.elapsed().as_secs_f64() - read_s,
        device = choice.device,
        choice = %choice.candidate,
    );
    Ok(choice)
}
