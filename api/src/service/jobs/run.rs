//! The work on jobs: in turns, once more if a process failed, and again after a restart.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::super::Service;
use super::super::failure::{Failure, INTERRUPTED, UNAVAILABLE};
use super::super::places::{Client, Places, Turn};
use super::super::{measured, tune};
use super::job::{Status, Task};
use super::{Asked, Ended, Entry, Jobs};

/// Number of times that the work on a job may begin.
const MOST_ATTEMPTS: u32 = 2;

/// Does the work of a job; it returns the result in JSON, and may be called again after a failure.
pub type Work =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Bytes, Failure>> + Send>> + Send + Sync>;

/// The work of a job, and the turns that it waits for.
pub struct Plan {
    /// Lines to wait in, one after the other.
    pub places: Vec<Arc<Places>>,
    /// Permits to wait there.
    pub admitted: Vec<OwnedSemaphorePermit>,
    /// The work.
    pub work: Work,
}

/// Starts to work on a job.
pub fn start(jobs: &Arc<Jobs>, entry: &Arc<Entry>, plan: Plan) {
    let (jobs, entry) = (Arc::clone(jobs), Arc::clone(entry));
    tokio::spawn(async move {
        let Plan { places, admitted, work } = plan;
        let ended = done(&jobs, &entry, &places, &work).await;
        drop((work, admitted));
        jobs.end(&entry, ended).await;
    });
}

/// Waits for the turn of a job and does its work.
async fn done(jobs: &Arc<Jobs>, entry: &Arc<Entry>, places: &[Arc<Places>], work: &Work) -> Ended {
    loop {
        let turns = tokio::select! {
            turns = turns(places, &entry.client) => turns,
            () = entry.is_asked() => return as_asked(entry),
        };
        let turns = match turns {
            Ok(turns) => turns,
            Err(failure) => return Ended::Failed(failure),
        };
        jobs.change(entry, |job| job.begin()).await;
        let failure = match work().await {
            Ok(result) => return Ended::Succeeded(result),
            Err(failure) => failure,
        };
        drop(turns);
        if entry.asked() != Asked::Nothing {
            return as_asked(entry);
        }
        let of_process = [&UNAVAILABLE, &INTERRUPTED].contains(&failure.code);
        if !of_process || entry.job().attempts >= MOST_ATTEMPTS {
            return Ended::Failed(failure);
        }
        jobs.change(entry, |job| job.wait_again(&failure.message)).await;
    }
}

fn as_asked(entry: &Entry) -> Ended {
    match entry.asked() {
        Asked::Leave => Ended::Left,
        Asked::Cancel | Asked::Nothing => Ended::Canceled,
    }
}

async fn turns(places: &[Arc<Places>], client: &Client) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    for places in places {
        turns.push(places.turn(client).await?);
    }
    Ok(turns)
}

/// Goes on with the jobs that an earlier process of the service left.
pub async fn resume(service: &Arc<Service>) {
    let jobs = &service.jobs;
    let mut left: Vec<_> = jobs.list();
    left.retain(|entry| !entry.job().status.is_final());
    for entry in left.into_iter().rev() {
        let job = entry.job();
        let died = job.status == Status::Processing;
        if died && job.attempts >= MOST_ATTEMPTS {
            let stated = format!(
                "the service ended {} times while it worked on this job; look into its log, then ask \
                 again",
                job.attempts
            );
            jobs.end(&entry, Ended::Failed(Failure::new(&INTERRUPTED, stated))).await;
            continue;
        }
        if died {
            let why = "the service ended while it worked on the job";
            jobs.change(&entry, |job| job.wait_again(why)).await;
        }
        let plan = match &job.task {
            Task::Recommend { query, .. } => measured::plan_again(service, &entry, query).await,
            Task::Tune(training) => tune::plan(service, &entry, training).await,
        };
        match plan {
            Ok(plan) => start(jobs, &entry, plan),
            Err(failure) => jobs.end(&entry, Ended::Failed(failure)).await,
        }
    }
}
