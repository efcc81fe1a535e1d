//! `POST /measurements` and `GET /measurements`: records of measurements, in and out.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use clap::{ArgAction, Parser};
use ellect::Wisdom;
use ellect::unstable::wisdom::Imported;
use futures_util::stream;
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::{Sender, channel};
use utoipa::ToSchema;

use super::Service;
use super::access::Role;
use super::body::{self, Received};
use super::failure::{ARGUMENT, ENCODING, Failure, NO_WISDOM, RECORDS, WISDOM};
use super::places::Client;
use crate::query::parsed;

/// Bytes of one part of an export.
const PART: usize = 1 << 16;

/// Parts of an export that are made ahead of the client.
const AHEAD: usize = 4;

/// Factor by which records may be larger than the largest body, once decompressed.
const EXPANSION: u64 = 16;

/// The parameters of `POST /measurements`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Adding {
    /// Add timings of a candidate to the stored ones, instead of replacing the older ones: true or
    /// false
    #[arg(long, default_value_t = false, action = ArgAction::Set, value_name = "BOOL")]
    join: bool,
}

/// The parameters of `GET /measurements`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Exporting {
    /// Only measurements of this device [default: all]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

type Pairs = Result<Query<Vec<(String, String)>>, QueryRejection>;

fn parameters<P: Parser>(pairs: Pairs) -> Result<P, Failure> {
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    Ok(parsed(&pairs)?)
}

fn wisdom(service: &Service) -> Result<Arc<Wisdom>, Failure> {
    let none = || Failure::new(&NO_WISDOM, "this service keeps no measurements (no_wisdom)");
    service.config.wisdom.clone().ok_or_else(none)
}

/// The numbers of records that were added and not.
#[derive(Serialize, ToSchema)]
pub struct Added {
    /// Records that were added.
    taken: u64,
    /// Records that were there.
    known: u64,
    /// Lines that are no record.
    skipped: u64,
    /// The first of those lines.
    bad: Vec<BadLine>,
}

/// A line that is no record.
#[derive(Serialize, ToSchema)]
struct BadLine {
    line: u64,
    why: String,
}

/// Adds the records in the lines of the body, as `ellect wisdom import` does.
///
/// # Errors
/// 403 for the role read, 409 if nothing is kept, 422 if no line is a record.
pub async fn added(
    State(service): State<Arc<Service>>,
    Extension(role): Extension<Role>,
    Extension(client): Extension<Client>,
    pairs: Pairs,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<Added>, Failure> {
    role.check_writes("adding measurements")?;
    let Adding { join } = parameters(pairs)?;
    let wisdom = wisdom(&service)?;
    let encoding = headers.get(CONTENT_ENCODING).and_then(|name| name.to_str().ok());
    if !matches!(encoding, None | Some("identity" | "zstd")) {
        let stated = "records may be compressed with zstd, and with nothing else";
        return Err(Failure::new(&ENCODING, stated));
    }
    let limit = service.settings().max_body;
    body::check(&headers, limit)?;
    let admitted = service.places.admit()?;
    let received = body::receive(request, limit, &service.memory.bodies, service.seed).await?;
    let turn = service.places.turn(&client).await?;
    let adding = tokio::task::spawn_blocking(move || {
        let _held = (admitted, turn);
        add(&wisdom, &received, join, limit.saturating_mul(EXPANSION))
    });
    let imported = adding.await.map_err(Failure::internal)??;
    let Imported { taken, known, skipped, bad, .. } = imported;
    let bad: Vec<_> = bad.into_iter().map(|(line, why)| BadLine { line, why }).collect();
    if taken + known == 0 && skipped > 0 {
        let first = bad.first().map(|BadLine { line, why }| format!("line {line}: {why}"));
        let stated = format!("no line of the body is a record; {}", first.unwrap_or_default());
        return Err(Failure::new(&RECORDS, stated).with_detail(json!({"bad": bad})));
    }
    Ok(Json(Added { taken, known, skipped, bad }))
}

fn add(wisdom: &Wisdom, received: &Received, join: bool, most: u64) -> Result<Imported, Failure> {
    let plain = received.reader().map_err(body::unstored)?;
    let lines: Box<dyn io::BufRead + '_> = match received.packed {
        true => {
            let unpacked = zstd::Decoder::with_buffer(plain);
            let wrong =
                |error| Failure::new(&RECORDS, format!("the body is no zstd data: {error}"));
            Box::new(io::BufReader::new(unpacked.map_err(wrong)?.take(most)))
        }
        false => Box::new(plain),
    };
    let start = Instant::now();
    let imported = if join { wisdom.join(lines) } else { wisdom.import(lines) };
    tracing::Span::current().record("read_s", start.elapsed().as_secs_f64());
    imported.map_err(|error| match error {
        // The body broke off or is damaged; the database has its own errors.
        ellect::Error::Io { source, .. } if received.packed => {
            Failure::new(&RECORDS, format!("the body cannot be unpacked: {source}"))
        }
        ellect::Error::Wisdom { .. } | ellect::Error::Io { .. } => {
            tracing::error!("{error}");
            Failure::new(&WISDOM, "the measurements could not be stored; try again later")
        }
        error => error.into(),
    })
}

/// Sends every record as a line of JSON, as `ellect wisdom export` writes it.
///
/// # Errors
/// 409 if nothing is kept, 503 if too many requests wait.
pub async fn exported(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    pairs: Pairs,
) -> Result<Response, Failure> {
    let Exporting { device } = parameters(pairs)?;
    let wisdom = wisdom(&service)?;
    let admitted = service.places.admit()?;
    let turn = service.places.turn(&client).await?;
    let (sender, receiver) = channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let _held = (admitted, turn);
        let mut out = io::BufWriter::with_capacity(PART, Parts(sender.clone()));
        let written = wisdom.export_of(device.as_deref(), &mut out);
        let written = written.map_err(|error| io::Error::other(error.to_string()));
        if let Err(error) = written.and_then(|_| out.flush()) {
            // The connection is cut off, so that the client does not take the part for the whole.
            let _ = sender.blocking_send(Err(error));
        }
    });
    let parts = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|part| (part, receiver))
    });
    let kind = [(CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(parts)).into_response())
}

/// Passes on what is written to it.
struct Parts(Sender<io::Result<Bytes>>);

impl Write for Parts {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(part)));
        sent.map(|()| part.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
