//! One line in the log and one count for each request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument, Span};

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
        route = tracing::field::Empty,
        client = request.extensions().get().map(|&ConnectInfo::<SocketAddr>(at)| at.to_string()),
        bytes = tracing::field::Empty,
        body_s = tracing::field::Empty,
        read_s = tracing::field::Empty,
        features_s = tracing::field::Empty,
        choose_s = tracing::field::Empty,
        choice = tracing::field::Empty,
    );
    let path = request.extensions().get::<MatchedPath>();
    let route = path.map_or("other", MatchedPath::as_str).to_string();
    span.record("route", &route);
    let mut noted = Noted { service, route, span: span.clone(), start, status: GONE };
    let response = next.run(request).instrument(span).await;
    noted.status = response.status().as_u16();
    response
}

/// Status in the log of a request whose client has gone before the answer.
const GONE: u16 = 499;

/// A request that is counted and logged when this is dropped, be it answered or given up.
struct Noted {
    service: Arc<Service>,
    route: String,
    span: Span,
    start: Instant,
    status: u16,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let (status, seconds) = (self.status, self.start.elapsed().as_secs_f64());
        self.service.metrics.answered(&self.route, status, seconds);
        self.span.in_scope(|| match status {
            500 => tracing::error!(status, seconds),
            _ => tracing::info!(status, seconds),
        });
    }
}
