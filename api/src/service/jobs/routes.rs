//! The routes of jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use clap::Parser;
use clap::builder::RangedU64ValueParser;
use futures_util::stream;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::Service;
use super::super::access::Role;
use super::super::failure::{ARGUMENT, Failure, JOB};
use super::{Entry, Shown, Status, Task};
use crate::query::parsed;

/// Maximum number of jobs in a list.
const MOST_LISTED: u64 = 1000;

/// Time that a request to cancel waits for the end of the job.
const CANCELING: Duration = Duration::from_secs(5);

/// Answers that a job has the request, with its path.
pub fn accepted(entry: &Entry) -> Response {
    let job = entry.job();
    (StatusCode::ACCEPTED, [(LOCATION, job.path())], Json(job.shown())).into_response()
}

/// The parameters of `GET /jobs`.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct Listing {
    /// Only jobs in these states: enqueued, processing, succeeded, failed or canceled, with commas
    #[arg(long, value_delimiter = ',', value_name = "STATES", value_parser = state)]
    status: Vec<Status>,
    /// Only jobs of this kind: recommend or tune
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<&'static str>,
    /// Maximum number of jobs to list, at most 1000
    #[arg(long, default_value_t = 20, value_name = "N",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=MOST_LISTED))]
    limit: usize,
    /// Only this job and earlier ones: the value of next in the list before
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u64))]
    from: Option<u64>,
}

fn state(text: &str) -> Result<Status, String> {
    let known = || Status::ALL.map(Status::name).join(", ");
    let found = Status::ALL.into_iter().find(|status| status.name() == text);
    found.ok_or_else(|| format!("no state is named '{text}'; there are: {}", known()))
}

fn kind(text: &str) -> Result<&'static str, String> {
    let known = || Task::KINDS.join(", ");
    let found = Task::KINDS.into_iter().find(|kind| *kind == text);
    found.ok_or_else(|| format!("no kind is named '{text}'; there are: {}", known()))
}

/// Jobs, the latest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Jobs)]
pub struct Listed {
    jobs: Vec<Shown>,
    /// Number of all jobs that were asked for.
    total: usize,
    /// Value of from= that goes on with the list; null at its end.
    #[schema(required)]
    next: Option<u64>,
}

/// Lists jobs, the latest first.
pub async fn listed(
    State(service): State<Arc<Service>>,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Listed>, Failure> {
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let Listing { status, kind, limit, from } = parsed(&pairs)?;
    let jobs = service.jobs.list().into_iter().map(|entry| entry.job());
    let mut jobs: Vec<_> = jobs
        .filter(|job| status.is_empty() || status.contains(&job.status))
        .filter(|job| kind.is_none_or(|kind| kind == job.task.kind()))
        .collect();
    let total = jobs.len();
    jobs.retain(|job| from.is_none_or(|from| job.id <= from));
    let next = jobs.get(limit).map(|job| job.id);
    let jobs = jobs.iter().take(limit).map(|job| job.shown()).collect();
    Ok(Json(Listed { jobs, total, next }))
}

type Id = Result<Path<String>, PathRejection>;

fn found(service: &Service, id: Id) -> Result<Arc<Entry>, Failure> {
    let Path(id) = id.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let Ok(id) = id.parse::<u64>() else {
        return Err(Failure::new(
            &ARGUMENT,
            format!("the number of the job is '{id}'; it is no number"),
        ));
    };
    service.jobs.get(id).ok_or_else(|| {
        let stated = format!(
            "no job has the number {id}; the service forgets jobs that ended long ago, and GET /jobs \
             lists the others"
        );
        Failure::new(&JOB, stated)
    })
}

/// Shows a job with its result.
pub async fn shown(State(service): State<Arc<Service>>, id: Id) -> Result<Json<Shown>, Failure> {
    let entry = found(&service, id)?;
    shown_of(&service, &entry).await
}

/// Returns a job with its result.
///
/// # Errors
/// None, unless reading panics.
pub async fn shown_of(service: &Arc<Service>, entry: &Entry) -> Result<Json<Shown>, Failure> {
    let (jobs, job) = (Arc::clone(&service.jobs), entry.job());
    let mut shown = job.shown();
    if job.status == Status::Succeeded {
        let reading = tokio::task::spawn_blocking(move || jobs.result(job.id));
        let result = reading.await.map_err(Failure::internal)?;
        let result = result.and_then(|text| serde_json::from_slice(&text).ok());
        shown.result = Some(result.unwrap_or_default());
    }
    Ok(Json(shown))
}

/// Cancels a job; the status is 202 if its end takes longer than this request waits.
pub async fn canceled(
    State(service): State<Arc<Service>>,
    Extension(role): Extension<Role>,
    id: Id,
) -> Result<Response, Failure> {
    role.check_writes("canceling a job")?;
    let entry = found(&service, id)?;
    service.jobs.cancel(&entry)?;
    entry.ended_within(CANCELING).await;
    let job = entry.job();
    let status = if job.status.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(job.shown())).into_response())
}

/// Sends an event for each change of a job until it ends: `status` if its state is another, otherwise
/// `progress`. The data of both is the job.
pub async fn events(State(service): State<Arc<Service>>, id: Id) -> Result<Response, Failure> {
    let entry = found(&service, id)?;
    let changes = entry.state.subscribe();
    let events = stream::unfold(Some((changes, None)), |next| async move {
        let (mut changes, before) = next?;
        if before.is_some() && changes.changed().await.is_err() {
            return None;
        }
        let job = changes.borrow_and_update().clone();
        let name = if before == Some(job.status) && !job.left { "progress" } else { "status" };
        let event = Event::default().event(name).json_data(job.shown());
        let goes_on = !job.status.is_final() && !job.left;
        Some((event, goes_on.then_some((changes, Some(job.status)))))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
