//! One line in the log and one count for each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use super::Service;

/// Answers a request by `next`, counts it and logs it.
pub async fn observe(
    State(service): State<Arc<Service>>,
    request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let span = tracing::info_span!(
        "request",
        id,
        method = %request.method(),
        uri = %request.uri(),
        client = request.extensions().get().map(|&ConnectInfo::<SocketAddr>(at)| at.to_string()),
        bytes = tracing::field::Empty,
        body_s = tracing::field::Empty,
        read_s = tracing::field::Empty,
        choose_s = tracing::field::Empty,
        choice = tracing::field::Empty,
    );
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or("other", MatchedPath::as_str).to_string();
    let response = next.run(request).instrument(span.clone()).await;
    let (status, seconds) = (response.status(), start.elapsed().as_secs_f64());
    service.metrics.answered(&route, status.as_u16(), seconds);
    span.in_scope(|| match status {
        StatusCode::INTERNAL_SERVER_ERROR => tracing::error!(status = status.as_u16(), seconds),
        _ => tracing::info!(status = status.as_u16(), seconds),
    });
    response
}
