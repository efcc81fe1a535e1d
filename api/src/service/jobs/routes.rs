//! The routes of jobs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde_json::{Value, json};

use super::super::Service;
use super::super::access::Role;
use super::super::failure::{ARGUMENT, Failure, JOB};
use super::{Entry, Status, Task};

/// Number of jobs in a list, unless a request asks for another.
const LISTED: usize = 20;

/// Maximum number of jobs in a list.
const MOST_LISTED: usize = 1000;

/// Time that a request to cancel waits for the end of the job.
const CANCELING: Duration = Duration::from_secs(5);

/// Answers that a job has the request, with its path.
pub fn accepted(entry: &Entry) -> Response {
    let job = entry.job();
    (StatusCode::ACCEPTED, [(LOCATION, job.path())], Json(job.shown())).into_response()
}

/// The parameters of a list of jobs.
struct Filter {
    status: Vec<String>,
    kind: Option<String>,
    limit: usize,
    from: u64,
}

impl Filter {
    fn of(pairs: &[(String, String)]) -> Result<Self, Failure> {
        let mut filter = Filter { status: Vec::new(), kind: None, limit: LISTED, from: u64::MAX };
        let wrong = |stated: String| Failure::new(&ARGUMENT, stated);
        let states = Status::ALL.map(Status::name);
        for (name, value) in pairs {
            let number = || {
                let number = value.parse::<u64>().ok();
                number.ok_or_else(|| wrong(format!("'{name}=' is '{value}'; it must be a number")))
            };
            match name.as_str() {
                "status" => {
                    let all = value.split(',').map(str::to_string);
                    filter.status.extend(all);
                    if let Some(unknown) =
                        filter.status.iter().find(|one| !states.contains(&one.as_str()))
                    {
                        let known = states.join(", ");
                        return Err(wrong(format!(
                            "no state is named '{unknown}'; there are: {known}"
                        )));
                    }
                }
                "kind" if Task::KINDS.contains(&value.as_str()) => {
                    filter.kind = Some(value.clone())
                }
                "kind" => {
                    let known = Task::KINDS.join(", ");
                    return Err(wrong(format!("no kind is named '{value}'; there are: {known}")));
                }
                "limit" => match number()? as usize {
                    limit @ 1..=MOST_LISTED => filter.limit = limit,
                    limit => {
                        let stated = format!("'limit=' is {limit}; it must be 1 to {MOST_LISTED}");
                        return Err(wrong(stated));
                    }
                },
                "from" => filter.from = number()?,
                _ => {
                    let stated = format!(
                        "no option is named '{name}'; there are: status, kind, limit, from"
                    );
                    return Err(wrong(stated));
                }
            }
        }
        Ok(filter)
    }
}

/// Lists jobs, the latest first.
pub async fn listed(
    State(service): State<Arc<Service>>,
    pairs: Result<Query<Vec<(String, String)>>, QueryRejection>,
) -> Result<Json<Value>, Failure> {
    let Query(pairs) = pairs.map_err(|error| Failure::new(&ARGUMENT, error.body_text()))?;
    let Filter { status, kind, limit, from } = Filter::of(&pairs)?;
    let jobs = service.jobs.list().into_iter().map(|entry| entry.job());
    let mut jobs: Vec<_> = jobs
        .filter(|job| status.is_empty() || status.iter().any(|one| one == job.status.name()))
        .filter(|job| kind.as_deref().is_none_or(|kind| kind == job.task.kind()))
        .collect();
    let total = jobs.len();
    jobs.retain(|job| job.id <= from);
    let next = jobs.get(limit).map(|job| job.id);
    let shown: Vec<_> = jobs.iter().take(limit).map(|job| job.shown()).collect();
    Ok(Json(json!({"jobs": shown, "total": total, "next": next})))
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
pub async fn shown(State(service): State<Arc<Service>>, id: Id) -> Result<Json<Value>, Failure> {
    let entry = found(&service, id)?;
    shown_of(&service, &entry).await
}

/// Returns a job with its result.
///
/// # Errors
/// None, unless reading panics.
pub async fn shown_of(service: &Arc<Service>, entry: &Entry) -> Result<Json<Value>, Failure> {
    let (jobs, job) = (Arc::clone(&service.jobs), entry.job());
    let mut shown = job.shown();
    if job.status == Status::Succeeded {
        let reading = tokio::task::spawn_blocking(move || jobs.result(job.id));
        let result = reading.await.map_err(Failure::internal)?;
        let result = result.and_then(|text| serde_json::from_slice(&text).ok());
        shown["result"] = result.unwrap_or(Value::Null);
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
        let event = Event::default().event(name).data(job.shown().to_string());
        let goes_on = !job.status.is_final() && !job.left;
        Some((Ok::<_, Infallible>(event), goes_on.then_some((changes, Some(job.status)))))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
