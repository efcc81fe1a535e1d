//! The HTTP service: `POST /recommend` and `GET /healthz`.
//!
//! The body is a matrix in any form that the readers know; it is spooled to a temporary file, so
//! that memory is taken for the matrix alone. Reading and choosing run on threads of their own, as
//! many at once as there are cores; callers beyond a short queue are asked to come back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_ENCODING, HeaderMap, RETRY_AFTER};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ellect::choose::{Choice, Effort};
use ellect::device::Device;
use ellect::measure::Meter;
use ellect::read::{self, Limits};
use ellect::{Error, Precision, Scalar};
use futures_util::StreamExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, Semaphore};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::options::Options;

/// What a service is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder of measurements and device profiles.
    pub data: PathBuf,
    /// The most bytes of a body.
    pub max_body: u64,
    /// The most nonzeros of a matrix.
    pub max_nonzeros: u64,
}

/// Requests that may wait for each one at work.
const QUEUE_PER_WORKER: usize = 8;

/// A request that takes longer is given up.
const TIMEOUT: Duration = Duration::from_secs(600);

struct Service {
    config: Config,
    /// Requests at hand, waiting ones among them.
    admitted: Semaphore,
    /// Requests at work.
    at_work: Semaphore,
    /// Held while a device is measured: nothing else runs on it then.
    measuring: Mutex<()>,
}

/// The routes.
pub fn router(config: Config) -> Router {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let service = Service {
        config,
        admitted: Semaphore::new(workers * (1 + QUEUE_PER_WORKER)),
        at_work: Semaphore::new(workers),
        measuring: Mutex::new(()),
    };
    let layers = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT));
    Router::new()
        .route("/", get(usage))
        .route("/healthz", get(healthz))
        .route("/recommend", post(recommend))
        .layer(layers)
        .with_state(Arc::new(service))
}

fn span(request: &Request<Body>) -> tracing::Span {
    let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    tracing::info_span!("request", method = %request.method(), uri = %request.uri(), id)
}

async fn usage() -> &'static str {
    "ellect chooses storage formats for sparse matrix-vector products.\n\
     \n\
     POST /recommend?device=h200&precision=f64&spmvs=1000\n\
     with a matrix as the body: Matrix Market text, SciPy .npz or JSON CSR, plain, gzip or zstd.\n\
     Options: device, precision, spmvs, updates, basis, effort, memory_limit, budget, top.\n\
     \n\
     GET /healthz\n"
}

async fn healthz() -> Json<serde_json::Value> {
    let devices: Vec<String> = Device::shipped().into_iter().map(|device| device.name).collect();
    Json(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "devices": devices}))
}

/// Why a request was not answered.
struct Failure {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": {"kind": self.kind, "message": self.message}}));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, 1.into());
        }
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (status, kind) = match &error {
            Error::Input { .. } => (StatusCode::BAD_REQUEST, "input"),
            Error::Limit { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "limit"),
            Error::Argument(_) => (StatusCode::BAD_REQUEST, "argument"),
            Error::Device(_) => (StatusCode::BAD_REQUEST, "device"),
            Error::Refused { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Failure { status, kind, message: error.to_string() }
    }
}

fn internal(error: impl std::fmt::Display) -> Failure {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Failure { status, kind: "internal", message: error.to_string() }
}

async fn recommend(
    State(service): State<Arc<Service>>,
    options: Result<Query<Options>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Choice>, Failure> {
    let Query(options) = options.map_err(|error| Failure {
        status: StatusCode::BAD_REQUEST,
        kind: "argument",
        message: error.body_text(),
    })?;
    check_encoding(&headers)?;
    let meter = options.meter(&service.config.data)?;
    let _place = service.admitted.try_acquire().map_err(|_| Failure {
        status: StatusCode::SERVICE_UNAVAILABLE,
        kind: "busy",
        message: "too many requests are waiting; try again later".into(),
    })?;
    let file = spool(body, service.config.max_body).await?;
    let _turn = service.at_work.acquire().await.map_err(internal)?;
    let _alone = match options.effort {
        Effort::Measure | Effort::Exhaustive => Some(service.measuring.lock().await),
        Effort::Estimate | Effort::Predict => None,
    };
    let config = service.config.clone();
    let choice = tokio::task::spawn_blocking(move || match options.precision {
        Precision::F32 => choose::<f32>(file.path(), &options, meter, &config),
        Precision::F64 => choose::<f64>(file.path(), &options, meter, &config),
    });
    Ok(Json(choice.await.map_err(internal)??))
}

/// The readers recognise gzip and zstd by content; other encodings are not known to them.
fn check_encoding(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(()) };
    match encoding.to_str().unwrap_or("").to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" | "zstd" | "identity" => Ok(()),
        other => Err(Failure {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            kind: "encoding",
            message: format!("content encoding is '{other}'; it must be gzip, zstd or identity"),
        }),
    }
}

/// Writes the body to a temporary file, which is gone once it is dropped.
async fn spool(body: Body, limit: u64) -> Result<tempfile::NamedTempFile, Failure> {
    let file = tempfile::NamedTempFile::new().map_err(internal)?;
    let mut sink = tokio::fs::File::create(file.path()).await.map_err(internal)?;
    let mut chunks = body.into_data_stream();
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Failure {
            status: StatusCode::BAD_REQUEST,
            kind: "input",
            message: format!("the body broke off after {bytes} bytes: {error}"),
        })?;
        bytes += chunk.len() as u64;
        if bytes > limit {
            return Err(Failure {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                kind: "limit",
                message: format!(
                    "the body is over the limit of {limit} bytes; send it compressed, or raise \
                     --max-body"
                ),
            });
        }
        sink.write_all(&chunk).await.map_err(internal)?;
    }
    sink.flush().await.map_err(internal)?;
    Ok(file)
}

fn choose<T: Scalar>(
    path: &std::path::Path,
    options: &Options,
    meter: Meter,
    config: &Config,
) -> Result<Choice, Failure> {
    let nonzeros = config.max_nonzeros;
    // Text takes some 30 bytes an entry; what is compressed may unfold to no more.
    let limits = Limits { nonzeros, bytes: nonzeros.saturating_mul(64), ..Limits::default() };
    let csr = read::file::<T>(path, &limits)?;
    Ok(options.recommend(&csr, meter, &mut |_| ())?)
}
