//! Request bodies, spooled to a temporary file so that only the matrix takes memory.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use super::failure::Failure;

/// Time without new data after which a body is rejected.
const STALLED: Duration = Duration::from_secs(30);

/// Time within which the whole body must arrive, because it holds a place that others could use.
const ARRIVING: Duration = Duration::from_secs(600);

/// Rejects a request whose headers already show that it will fail.
///
/// The readers recognise compression by content; of the encodings of HTTP they support gzip and zstd.
pub fn check(headers: &HeaderMap, limit: u64) -> Result<(), Failure> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING) {
        let encoding = encoding.to_str().unwrap_or_default().to_ascii_lowercase();
        if !matches!(encoding.as_str(), "gzip" | "x-gzip" | "zstd" | "identity") {
            return Err(Failure::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "encoding",
                format!("content encoding is '{encoding}'; it must be gzip, zstd or identity"),
            ));
        }
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    within(length.unwrap_or(0), limit)
}

/// Writes the body to a temporary file, which is deleted when the value is dropped.
pub async fn spool(body: Body, limit: u64) -> Result<tempfile::NamedTempFile, Failure> {
    let file = tempfile::NamedTempFile::new().map_err(Failure::internal)?;
    let mut sink = tokio::fs::File::create(file.path()).await.map_err(Failure::internal)?;
    let mut chunks = body.into_data_stream();
    let mut bytes = 0;
    let start = Instant::now();
    loop {
        let patience = STALLED.min(ARRIVING.saturating_sub(start.elapsed()));
        let chunk = match tokio::time::timeout(patience, chunks.next()).await {
            Ok(None) => break,
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(error))) => {
                return Err(Failure::new(
                    StatusCode::BAD_REQUEST,
                    "input",
                    format!("the body broke off after {bytes} bytes: {error}"),
                ));
            }
            Err(_) => {
                return Err(Failure::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "timeout",
                    format!(
                        "the body is at {bytes} bytes after {} s; all of it must arrive within {} s, \
                         and none of it more than {} s after what was before",
                        start.elapsed().as_secs(),
                        ARRIVING.as_secs(),
                        STALLED.as_secs()
                    ),
                ));
            }
        };
        bytes += chunk.len() as u64;
        within(bytes, limit)?;
        sink.write_all(&chunk).await.map_err(Failure::internal)?;
    }
    sink.flush().await.map_err(Failure::internal)?;
    Ok(file)
}

/// Rejects a body that is sent in addition to the name of a generated matrix.
pub fn check_empty(file: &tempfile::NamedTempFile) -> Result<(), Failure> {
    match file.as_file().metadata().map_err(Failure::internal)?.len() {
        0 => Ok(()),
        bytes => Err(Failure::new(
            StatusCode::BAD_REQUEST,
            "argument",
            format!(
                "the body has {bytes} bytes, and generate names a matrix too; send one of the two"
            ),
        )),
    }
}

fn within(bytes: u64, limit: u64) -> Result<(), Failure> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Failure::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "limit",
        format!(
            "the body has {bytes} bytes or more, over this service's limit of {limit} (max_body); send it \
             compressed, or ask its operator to raise the limit"
        ),
    ))
}
