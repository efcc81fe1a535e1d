//! Error answers: `{"error": {"kind", "message"}}` with a matching HTTP status.

use std::any::Any;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use ellect::Error;
use serde_json::json;

/// The reason that a request failed, as it is sent to the caller.
#[derive(Debug)]
pub struct Failure {
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// Kind of failure: a stable word for programs.
    pub kind: &'static str,
    /// Message for people, a sentence.
    pub message: String,
}

/// Seconds after which a caller that got status 503 may try again.
const RETRY_AFTER_S: u32 = 5;

impl Failure {
    /// Creates a failure with this status, kind and message.
    pub fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Failure { status, kind, message: message.into() }
    }

    /// Creates the answer to a fault of the service itself: the cause is logged but not sent.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!("{cause}");
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the service failed; its log says why, under the x-request-id of this answer",
        )
    }
}

/// Returns the answer to a request whose handler panicked.
pub fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    Failure::internal(format!("panic: {}", text.unwrap_or_default())).into_response()
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": {"kind": self.kind, "message": self.message}}));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S.into());
        }
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Error::Limit { at, what, got, limit, remedy } = &error {
            let stated = format!(
                "{at}{what} is {got}, over this service's limit of {limit} (max_{remedy}); send a \
                 smaller matrix, or ask its operator to raise the limit"
            );
            return Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "limit", stated);
        }
        let (status, kind) = match &error {
            Error::Input { .. } | Error::Shape { .. } => (StatusCode::BAD_REQUEST, "input"),
            Error::Argument(_) => (StatusCode::BAD_REQUEST, "argument"),
            Error::UnknownDevice { .. } | Error::AbsentDevice { .. } => {
                (StatusCode::BAD_REQUEST, "device")
            }
            Error::Device { .. } => {
                tracing::error!("{error}");
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
            Error::Refused { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "refused"),
            _ => return Failure::internal(error),
        };
        Failure::new(status, kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use ellect::device;
    use ellect::error::DeviceFault;
    use ellect::measure::Backend;

    use super::*;

    #[test]
    fn a_device_of_another_name_is_asked_for_and_a_broken_one_is_waited_for() {
        let unknown = device::find("nosuch").expect_err("no such device");
        let absent = Backend::of(device::find("h200").expect("ships")).check().expect_err("absent");
        for error in [unknown, absent] {
            let failure = Failure::from(error);
            assert_eq!((failure.status.as_u16(), failure.kind), (400, "device"));
        }
        let broken = Error::device(DeviceFault::OutOfMemory, "taking 10 GB of device memory");
        let failure = Failure::from(broken);
        assert_eq!((failure.status.as_u16(), failure.kind), (503, "unavailable"));
        assert!(failure.message.contains("10 GB of device memory; "), "{}", failure.message);
        assert!(failure.into_response().headers().contains_key(RETRY_AFTER));
    }
}
