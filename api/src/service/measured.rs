//! Recommendations that measure, which are jobs.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;

use super::Service;
use super::body::Received;
use super::devices::Measured;
use super::failure::{ARGUMENT, Failure};
use super::jobs::{self, Entry, Job, Plan, Task, Work};
use super::places::Client;
use super::recommend::{Case, answered, options_of, respond};
use crate::options::{BodyOptions, Options};

/// Longest time that a request waits for the end of its job.
pub const MOST_WAIT: Duration = Duration::from_secs(600);

/// A request that measures, and its matrix.
pub struct Asked {
    /// The parameters, as they were sent.
    pub query: Vec<(String, String)>,
    /// Device, number of products and effort of the recommendation.
    pub options: Options,
    /// The parameters about the body and about waiting.
    pub reading: BodyOptions,
    /// The body.
    pub received: Received,
    /// The device.
    pub measured: Arc<Measured>,
    /// The client.
    pub client: Client,
}

/// Makes a job of a request, and waits for its end as long as the request says.
///
/// # Errors
/// 503 if too many jobs wait, or there is no room for the matrix; otherwise as the job.
pub async fn posted(
    service: &Arc<Service>,
    headers: &HeaderMap,
    asked: Asked,
) -> Result<Response, Failure> {
    if asked.received.features().is_some() {
        let stated = "the body names features; measuring needs the matrix itself";
        return Err(Failure::new(&ARGUMENT, stated));
    }
    let wait = Duration::from_millis(asked.reading.wait_ms).min(MOST_WAIT);
    let options = asked.options.clone();
    let reading = BodyOptions { wait_ms: 0, ..asked.reading.clone() };
    let same = format!("{:x} {options:?} {reading:?}", asked.received.hash);
    let entry = match service.jobs.same(&same) {
        Some(entry) => entry,
        None => submitted(service, asked, same).await?,
    };
    match entry.ended_within(wait).await {
        Some(answer) => respond(service, headers, &*answer?, &options, false),
        None => Ok(jobs::accepted(&entry)),
    }
}

/// Keeps the matrix and starts the job.
async fn submitted(
    service: &Arc<Service>,
    asked: Asked,
    same: String,
) -> Result<Arc<Entry>, Failure> {
    let Asked { query, options, reading, received, measured, client } = asked;
    let admitted = measured.places.admit()?;
    let body_bytes = received.bytes;
    let (id, path) = service.jobs.number(body_bytes)?;
    let received = received.keep(path).await?;
    let task = Task::Recommend { query, body_bytes };
    let entry = service.jobs.enqueue(Job::new(id, task), client, Some(same)).await?;
    let case = Case::new(options, reading, received, Arc::clone(&measured.backend));
    let plan = plan(service, &entry, case, &measured, vec![admitted]);
    jobs::start(&service.jobs, &entry, plan);
    Ok(entry)
}

/// Returns the plan of a job that an earlier process of the service left.
///
/// # Errors
/// If the device or the matrix is no longer there.
pub async fn plan_again(
    service: &Arc<Service>,
    entry: &Arc<Entry>,
    query: &[(String, String)],
) -> Result<Plan, Failure> {
    let (options, reading) = options_of(query)?;
    let measured = service.devices.open(&options.product.device).await?;
    let received = Received::kept(service.jobs.body(entry.job().id)).await?;
    let case = Case::new(options, reading, received, Arc::clone(&measured.backend));
    let admitted = measured.places.admit().into_iter().collect();
    Ok(plan(service, entry, case, &measured, admitted))
}

fn plan(
    service: &Arc<Service>,
    entry: &Arc<Entry>,
    case: Case,
    measured: &Measured,
    admitted: Vec<OwnedSemaphorePermit>,
) -> Plan {
    let places = vec![Arc::clone(&measured.places)];
    let case = Arc::new(case.of_job(Arc::clone(entry)));
    let service = Arc::clone(service);
    let work: Work = Box::new(move || {
        let (service, case) = (Arc::clone(&service), Arc::clone(&case));
        Box::pin(async move {
            let answer = answered(&service, &case, Arc::new(())).await?;
            if let Some(job) = &case.job {
                job.answer(Ok(Arc::clone(&answer)));
            }
            answer.json(&case.options)
        })
    });
    Plan { places, admitted, work }
}
