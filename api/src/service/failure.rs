//! Error answers: `{"error": {"code", "kind", "message", "detail"}}` with a matching HTTP status.

use std::any::Any;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ellect::Error;
use ellect::error::At;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

/// A code of failures: a stable word for programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Code {
    /// The word.
    pub word: &'static str,
    /// HTTP status of answers with this code.
    pub status: StatusCode,
    /// Meaning, for people.
    pub meaning: &'static str,
}

/// Declares the codes, and the table of all of them.
macro_rules! codes {
    ($($name:ident $word:literal $status:ident $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub static $name: Code =
                Code { word: $word, status: StatusCode::$status, meaning: $meaning };
        )*

        /// All codes, in ascending order of status.
        pub static CODES: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    ARGUMENT "argument" BAD_REQUEST "a parameter is unknown or has an illegal value";
    DEVICE "device" BAD_REQUEST "no device has this name, or it is not on the service's machine";
    INPUT "input" BAD_REQUEST "the body is not a matrix, or it is damaged or cut off";
    TOKEN "token" UNAUTHORIZED "the request needs `Authorization: Bearer TOKEN` with a known token";
    ROLE "role" FORBIDDEN "the request needs a token with the role write";
    PATH "path" NOT_FOUND "there is no such path";
    MATRIX "matrix" NOT_FOUND "no matrix with this fingerprint is known; post it once";
    JOB "job" NOT_FOUND "no job has this number";
    NO_MODEL "no_model" NOT_FOUND "there is no such model, or it has no card";
    METHOD "method" METHOD_NOT_ALLOWED "the path does not support this method";
    SLOW_BODY "slow_body" REQUEST_TIMEOUT "the body arrived too slowly";
    FINISHED "finished" CONFLICT "the job has ended and cannot be canceled";
    CANCELED "canceled" CONFLICT "the job was canceled";
    NO_WISDOM "no_wisdom" CONFLICT "the service keeps no measurements (no_wisdom)";
    UNMEASURED "unmeasured" CONFLICT "there are no measurements to train a model from";
    LIMIT "limit" PAYLOAD_TOO_LARGE "the matrix or body is over a limit of this service";
    ENCODING "encoding" UNSUPPORTED_MEDIA_TYPE "the content encoding is not supported";
    REFUSED "refused" UNPROCESSABLE_ENTITY "the requested candidate does not apply to the matrix";
    RECORDS "records" UNPROCESSABLE_ENTITY "no line of the body is a record of a measurement";
    TRAINING "training" UNPROCESSABLE_ENTITY "no model could be trained; the message says why";
    MODEL "model" UNPROCESSABLE_ENTITY "a model file cannot be read";
    MEMORY "memory" TOO_MANY_REQUESTS "other requests hold the memory; try again later";
    CONNECTIONS "connections" TOO_MANY_REQUESTS "too many open connections; try again later";
    INTERNAL "internal" INTERNAL_SERVER_ERROR "a fault of the service; its log has the reason";
    BUSY "busy" SERVICE_UNAVAILABLE "too many requests are waiting; try again later";
    UNAVAILABLE "unavailable" SERVICE_UNAVAILABLE "the device cannot be used now; try again later";
    STORAGE "storage" SERVICE_UNAVAILABLE "the temporary folder has no room; try again later";
    NOT_READY "not_ready" SERVICE_UNAVAILABLE "a part of the service does not work";
    JOBS "jobs" SERVICE_UNAVAILABLE "the matrices of jobs leave no room; try again later";
    INTERRUPTED "interrupted" SERVICE_UNAVAILABLE "a process ended while it worked on the job";
    WISDOM "wisdom" SERVICE_UNAVAILABLE "measurements could not be stored";
    TIMEOUT "timeout" GATEWAY_TIMEOUT "the answer took too long; ask for less effort";
}

/// The reason that a request failed, as it is sent to the caller.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Code, which also decides the HTTP status.
    pub code: &'static Code,
    /// Message for people, a sentence.
    pub message: String,
    /// Figures for programs; `null` if there are none.
    pub detail: Value,
}

/// The answer to a request that failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub struct Body {
    error: Reason,
}

/// The reason that a request or a job failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    #[schema(schema_with = words)]
    code: String,
    /// The code, for programs that were written for earlier versions.
    kind: String,
    /// A sentence for people.
    message: String,
    /// Figures for programs.
    #[schema(value_type = Option<Object>, required)]
    detail: Value,
}

/// Returns the schema of the words of all codes.
fn words() -> Object {
    let meaning =
        |code: &&Code| format!("{} ({}): {}", code.word, code.status.as_u16(), code.meaning);
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(CODES.iter().map(|code| code.word)))
        .description(Some(CODES.iter().map(meaning).collect::<Vec<_>>().join("; ")))
        .build()
}

/// Seconds after which a caller that got status 429 or 503 may try again.
pub const RETRY_AFTER_S: u32 = 5;

impl Failure {
    /// Creates a failure with this code and message.
    pub fn new(code: &'static Code, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), detail: Value::Null }
    }

    /// Adds figures for programs.
    pub fn with_detail(self, detail: Value) -> Self {
        Failure { detail, ..self }
    }

    /// Creates the answer to a fault of the service itself: the cause is logged but not sent.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!("{cause}");
        Failure::new(
            &INTERNAL,
            "the service failed; its log says why, under the x-request-id of this answer",
        )
    }

    /// Returns the reason for the caller.
    pub fn reason(&self) -> Reason {
        let word = self.code.word.to_string();
        let (message, detail) = (self.message.clone(), self.detail.clone());
        Reason { code: word.clone(), kind: word, message, detail }
    }

    /// Returns the body of the answer.
    pub fn body(&self) -> Body {
        Body { error: self.reason() }
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
        let status = self.code.status;
        let mut response = (status, Json(self.body())).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S.into());
        }
        response
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, detail) = match &error {
            Error::Limit { at, what, got, limit, remedy } => {
                let stated = format!(
                    "{at}{what} is {got}, over this service's limit of {limit} (max_{remedy}); send \
                     a smaller matrix, or ask its operator to raise the limit"
                );
                let setting = format!("max_{remedy}");
                let detail = json!({"got": got, "limit": limit, "setting": setting});
                return Failure::new(&LIMIT, stated).with_detail(detail);
            }
            Error::Input { at: At::Line(line), .. } => (&INPUT, json!({"line": line})),
            Error::Input { at: At::Byte(byte), .. } => (&INPUT, json!({"byte": byte})),
            Error::Input { .. } | Error::Shape { .. } => (&INPUT, Value::Null),
            Error::Argument(_) => (&ARGUMENT, Value::Null),
            Error::UnknownDevice { name, known, .. } => {
                (&DEVICE, json!({"device": name, "known": known}))
            }
            Error::AbsentDevice { name, .. } => (&DEVICE, json!({"device": name})),
            Error::Device { .. } => {
                tracing::error!("{error}");
                (&UNAVAILABLE, Value::Null)
            }
            Error::Stopped { done, total } => (&CANCELED, json!({"done": done, "total": total})),
            Error::Refused { candidate, .. } => (&REFUSED, json!({"candidate": candidate})),
            _ => return Failure::internal(error),
        };
        Failure::new(code, error.to_string()).with_detail(detail)
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
            assert_eq!((failure.code.status.as_u16(), failure.code.word), (400, "device"));
        }
        let broken = Error::device(DeviceFault::OutOfMemory, "taking 10 GB of device memory");
        let failure = Failure::from(broken);
        assert_eq!((failure.code.status.as_u16(), failure.code.word), (503, "unavailable"));
        assert!(failure.message.contains("10 GB of device memory; "), "{}", failure.message);
        assert!(failure.into_response().headers().contains_key(RETRY_AFTER));
    }

    #[test]
    fn each_code_has_one_word_and_is_in_order_of_status() {
        assert!(CODES.is_sorted_by_key(|code| code.status.as_u16()));
        for (i, code) in CODES.iter().enumerate() {
            assert!(CODES[..i].iter().all(|other| other.word != code.word), "{}", code.word);
        }
    }

    #[test]
    fn figures_of_an_error_are_sent_to_programs() {
        let failure = Failure::from(Error::line(3, "no number"));
        assert_eq!(failure.detail, json!({"line": 3}));
        let body = json!(failure.body());
        assert_eq!(
            (&body["error"]["code"], &body["error"]["kind"]),
            (&json!("input"), &json!("input"))
        );
    }
}
