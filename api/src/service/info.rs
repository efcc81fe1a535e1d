//! Routes that describe the service: what it can do, how it is, and what it knows.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use ellect::Fingerprint;
use ellect::device::{self, Device};
use serde_json::{Value, json};

use super::Service;
use super::failure::{CODES, Failure, MATRIX, WISDOM};
use super::metrics;
use crate::options::Query;
use crate::query::{Parameter, parameters};
use crate::views;

/// The routes, with their methods and meanings.
pub const ROUTES: &[(&str, &str, &str)] = &[
    ("POST, PUT", "/recommend", "choose a format for the matrix in the body"),
    ("GET", "/recommend/{fingerprint}", "choose for a matrix that was posted before"),
    ("GET", "/structures/{fingerprint}", "features and measurements of a measured matrix"),
    ("POST", "/tune", "train models from the stored measurements, as a job"),
    ("GET", "/jobs", "the jobs, the latest first: status=, kind=, limit=, from="),
    ("GET", "/jobs/{id}", "a job with its result"),
    ("DELETE", "/jobs/{id}", "cancel a job"),
    ("GET", "/jobs/{id}/events", "server-sent events of a job until it ends"),
    ("POST", "/measurements", "add records, as `ellect wisdom import`: join=true"),
    ("GET", "/measurements", "all records, as `ellect wisdom export`: device="),
    ("GET", "/formats", "the storage formats and their parameters"),
    ("GET", "/devices", "the profiles of devices"),
    ("GET", "/models", "the trained models by device and precision, with their scores"),
    ("GET", "/models/{device}/{precision}/card", "the card of the model in use, in Markdown"),
    ("POST", "/models/reload", "read the models again"),
    ("GET", "/metrics", "figures for Prometheus"),
    ("GET", "/healthz", "200 while the service is alive"),
    ("GET", "/readyz", "200 if requests can be answered, else 503 with the reason"),
    ("GET", "/version", "the version of the service"),
];

/// Returns the routes that are answered here.
pub fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/", get(usage))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(figures))
        .route("/version", get(async || Json(json!({"version": env!("CARGO_PKG_VERSION")}))))
        .route("/formats", get(async || Json(views::formats())))
        .route("/devices", get(all_devices))
        .route("/structures/{fingerprint}", get(structure))
}

async fn usage() -> String {
    let table = |rows: Vec<(String, String)>| {
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        rows.iter().map(|(name, help)| format!("  {name:width$}  {help}\n")).collect::<String>()
    };
    let routes = ROUTES.iter().map(|(methods, path, help)| (format!("{methods} {path}"), help));
    let routes = table(routes.map(|(route, help)| (route, help.to_string())).collect());
    let codes = CODES
        .iter()
        .map(|code| (format!("{} {}", code.status.as_u16(), code.word), code.meaning.to_string()));
    format!(
        "ellect chooses storage formats for sparse matrix-vector products.\n\
         \n\
         POST /recommend?device=h200&precision=f64&spmvs=1000\n\
         The body is a matrix: Matrix Market, SciPy .npz, Rutherford-Boeing, PETSc, MATLAB 5 or\n\
         JSON; plain, gzip, zstd, bzip2 or xz, or in a tar or zip archive;\n\
         or none, and generate=CLASS:ROWS names a generated matrix:\n\
         POST /recommend?device=h200&generate=elasticity:600000\n\
         The body may also be the only part of a form (multipart/form-data).\n\
         The answer is the JSON of `ellect recommend --json`, or with `Accept: text/plain` the text\n\
         of `ellect recommend`. Its fingerprint asks again without the matrix:\n\
         GET /recommend/FINGERPRINT?device=h200&spmvs=50000\n\
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

async fn healthz() -> Json<Value> {
    let version = env!("CARGO_PKG_VERSION");
    Json(json!({"status": "ok", "version": version, "devices": ellect::measure::names()}))
}

async fn readyz(State(service): State<Arc<Service>>) -> Result<Json<Value>, Failure> {
    if let Some(fault) = service.config.wisdom.as_ref().and_then(|wisdom| wisdom.fault()) {
        return Err(Failure::new(&WISDOM, format!("measurements were not stored: {fault}")));
    }
    // A body that does not fit into memory needs the temporary folder.
    let folder = tokio::task::spawn_blocking(tempfile::NamedTempFile::new);
    folder.await.map_err(Failure::internal)?.map_err(super::body::unstored)?;
    Ok(Json(json!({"status": "ready"})))
}

async fn figures(State(service): State<Arc<Service>>) -> Result<impl IntoResponse, Failure> {
    let wisdom = service.config.wisdom.as_ref();
    let shares = [&service.memory.bodies, &service.memory.matrices];
    let state = metrics::State {
        answers: service.answers.count() as u64,
        connections: service.config.open.count() as u64,
        waiting: service.places.waiting() as u64,
        jobs: service.jobs.counts(),
        reserved: shares.map(|share| share.reserved()),
        budget: shares.map(|share| share.bytes()),
        revision: wisdom.map_or(0, |wisdom| wisdom.revision()),
        faulty: wisdom.is_some_and(|wisdom| wisdom.fault().is_some()),
    };
    let text = service.metrics.text(&state).map_err(Failure::internal)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, kind)], text))
}

async fn all_devices(State(service): State<Arc<Service>>) -> Result<Json<Vec<Device>>, Failure> {
    // Opening this machine's GPUs is left to the processes that measure.
    let listing = tokio::task::spawn_blocking(move || device::all_in(&service.config.data));
    Ok(Json(listing.await.map_err(Failure::internal)??))
}

async fn structure(
    State(service): State<Arc<Service>>,
    Path(fingerprint): Path<String>,
) -> Result<Json<Value>, Failure> {
    let fingerprint: Fingerprint = fingerprint.parse()?;
    let looking = tokio::task::spawn_blocking(move || -> Result<Option<Value>, Failure> {
        let Some(wisdom) = &service.config.wisdom else { return Ok(None) };
        let Some(record) = wisdom.structure(fingerprint)? else { return Ok(None) };
        let mut measurements = wisdom.measurements(fingerprint)?;
        measurements.extend(wisdom.shipped_measurements(fingerprint));
        let mut found = serde_json::to_value(record).map_err(Failure::internal)?;
        found["measurements"] = serde_json::to_value(measurements).map_err(Failure::internal)?;
        Ok(Some(found))
    });
    let found = looking.await.map_err(Failure::internal)??;
    found.map(Json).ok_or_else(|| {
        let stated = format!(
            "no measured matrix has the fingerprint {fingerprint}; POST /recommend?effort=measure \
             measures one"
        );
        Failure::new(&MATRIX, stated)
    })
}
