//! Routes that describe the service: what it can do, how it is, and what it knows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use ellect::device::{self, Device};
use ellect::generate::CLASSES;
use serde::Serialize;
use utoipa::ToSchema;

use super::Service;
use super::failure::{CODES, Failure, NOT_READY, WISDOM};
use super::metrics;
use super::routes::ROUTES;
use crate::options::Query;
use crate::query::{Parameter, parameters};
use crate::shared::{State as SharedState, Status as SharedStatus};
use crate::views;

/// Media type of the figures.
pub const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Describes the service in text.
pub async fn usage() -> String {
    let table = |rows: Vec<(String, String)>| {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().map(|(name, help)| format!("  {name:width$}  {help}\n")).collect::<String>()
    };
    let routes = ROUTES
        .iter()
        .map(|route| (format!("{} {}", route.method, route.path), route.help.to_string()));
    let routes = table(routes.collect());
    let codes = CODES
        .iter()
        .map(|code| (format!("{} {}", code.status.as_u16(), code.word), code.meaning.to_string()));
    format!(
        "ellect chooses storage formats for sparse matrix-vector products.\n\
         \n\
         POST /recommend?device=h200&precision=f64&spmvs=1000\n\
         The body is a matrix: Matrix Market, SciPy .npz, Rutherford-Boeing, PETSc, MATLAB or\n\
         JSON; plain, gzip, zstd, bzip2 or xz, or in a tar or zip archive;\n\
         or none, and generate=CLASS:ROWS names a generated matrix:\n\
         POST /recommend?device=h200&generate=elasticity:600000\n\
         The body may also be the only part of a form (multipart/form-data).\n\
         The answer is the JSON of `ellect recommend --json`, or with `Accept: text/plain` the text\n\
         of `ellect recommend`. Its fingerprint asks again without the matrix:\n\
         GET /recommend/FINGERPRINT?device=h200&spmvs=50000\n\
         `Accept: text/html` gets a page. GET /docs describes every route, GET /openapi.json for\n\
         programs.\n\
         effort=measure is a job: an answer that takes longer than wait_ms is status 202, with the\n\
         path of the job in the header location.\n\
         {}\
         \n\
         Routes\n\
         {routes}\
         \n\
         A request that fails is answered with {{\"error\": {{\"code\", \"message\", \"detail\"}}}}:\n\
         {}",
        table(parameters::<Query>().into_iter().map(in_a_line).collect()),
        table(codes.collect())
    )
}

/// Returns a parameter with its meaning and its default.
fn in_a_line(parameter: Parameter) -> (String, String) {
    let Parameter { name, mut help, default } = parameter;
    if !default.is_empty() {
        help += &format!(" [default: {default}]");
    }
    (name, help)
}

/// The answer of a service that is alive.
#[derive(Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`.
    status: &'static str,
    version: &'static str,
    /// Names of the devices that can measure.
    devices: Vec<String>,
}

/// Tells that the service is alive.
pub async fn healthz() -> Json<Health> {
    Json(Health { status: "ok", version: VERSION, devices: ellect::measure::names() })
}

/// The answer of a service that can answer requests.
#[derive(Serialize, ToSchema)]
pub struct Ready {
    /// Always `ready`.
    status: &'static str,
    /// The shared database, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<SharedStatus>,
}

/// Tells whether requests can be answered.
///
/// # Errors
/// 503 with the reason if they cannot.
pub async fn readyz(State(service): State<Arc<Service>>) -> Result<Json<Ready>, Failure> {
    if let Some(fault) = service.config.wisdom.as_ref().and_then(|wisdom| wisdom.fault()) {
        return Err(Failure::new(&WISDOM, format!("measurements were not stored: {fault}")));
    }
    if let Some(fault) = service.models.fault() {
        tracing::error!("{fault}");
        let stated = "a model does not load; POST /models/reload says why, and the log does";
        return Err(Failure::new(&NOT_READY, stated));
    }
    // A body that does not fit into memory needs the temporary folder.
    let folder = tokio::task::spawn_blocking(tempfile::NamedTempFile::new);
    folder.await.map_err(Failure::internal)?.map_err(super::body::unstored)?;
    // The service answers without the shared database, so it is ready all the same.
    let shared = service.config.shared.as_ref().map(|shared| shared.status());
    Ok(Json(Ready { status: "ready", shared }))
}

/// Tells the figures of the service.
///
/// # Errors
/// 500 if stored measurements cannot be counted.
pub async fn figures(State(service): State<Arc<Service>>) -> Result<impl IntoResponse, Failure> {
    let counting = Arc::clone(&service);
    let count = move || {
        let wisdom = counting.config.wisdom.as_ref();
        wisdom.map_or(Ok(0), |wisdom| counting.metrics.records(wisdom))
    };
    let records = tokio::task::spawn_blocking(count).await.map_err(Failure::internal)??;
    let wisdom = service.config.wisdom.as_ref();
    let shared = service.config.shared.as_ref().map(|shared| shared.status());
    let shares = [&service.memory.bodies, &service.memory.matrices];
    let state = metrics::State {
        answers: service.answers.count() as u64,
        connections: service.config.open.count() as u64,
        waiting: service.places.waiting() as u64,
        jobs: service.jobs.counts(),
        reserved: shares.map(|share| share.reserved()),
        budget: shares.map(|share| share.bytes()),
        records,
        revision: wisdom.map_or(0, |wisdom| wisdom.revision()),
        failures: wisdom.map_or(0, |wisdom| wisdom.failures()),
        restarts: service.devices.restarts(),
        shared_away: shared.as_ref().is_some_and(|s| s.state != SharedState::Connected),
        shared_outbox: shared.map_or(0, |shared| shared.outbox),
        faulty: wisdom.is_some_and(|wisdom| wisdom.fault().is_some()),
    };
    Ok(([(CONTENT_TYPE, METRICS)], service.metrics.text(&state)))
}

/// Lists the profiles of devices.
///
/// # Errors
/// 500 if one cannot be read.
pub async fn all_devices(
    State(service): State<Arc<Service>>,
) -> Result<Json<Vec<Device>>, Failure> {
    // Opening this machine's GPUs is left to the processes that measure.
    let listing = tokio::task::spawn_blocking(move || device::all_in(&service.config.data));
    Ok(Json(listing.await.map_err(Failure::internal)??))
}

/// The version of the service.
#[derive(Serialize, ToSchema)]
pub struct Version {
    version: &'static str,
}

/// Tells the version.
pub async fn version() -> Json<Version> {
    Json(Version { version: VERSION })
}

/// Lists the formats.
pub async fn formats() -> Json<Vec<views::Format>> {
    Json(views::formats())
}

/// A class of generated matrices.
#[derive(Serialize, ToSchema)]
pub struct Class {
    /// Name, as generate= takes it.
    name: &'static str,
    /// Description, in one phrase.
    doc: &'static str,
    /// Approximate number of entries per row of a large matrix.
    entries_per_row: f64,
    /// Orders of the rows in which the class is available.
    orders: Vec<String>,
}

/// Lists the classes of generated matrices.
pub async fn classes() -> Json<Vec<Class>> {
    let classes = CLASSES.iter().map(|class| Class {
        name: class.name,
        doc: class.doc,
        entries_per_row: class.per_row,
        orders: class.orders.iter().map(ToString::to_string).collect(),
    });
    Json(classes.collect())
}
