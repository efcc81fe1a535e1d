//! Jobs: work that goes on after its request was answered, and after a restart of the service.

mod file;
mod job;
mod routes;
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use tokio::sync::watch;

use super::answers::Answer;
use super::failure::{CANCELED, FINISHED, Failure, JOBS, STORAGE};
use super::places::Client;
use crate::output::write_file;
use file::{Folder, Paths};
pub use job::{Job, Progress, Shown, Status, Task};
pub use routes::{Listed, Listing, accepted, canceled, events, listed, shown, shown_of};
pub use run::{Plan, Work, resume, start};

/// Limits on the jobs that are kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of jobs that have ended.
    pub ended: usize,
    /// Maximum number of bytes of the matrices of all others.
    pub bytes: u64,
}

/// Maximum number of bytes of the results of all jobs that have ended.
const MOST_RESULTS: u64 = 256 << 20;

/// A request to end a job early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nobody asked: the job goes on.
    Nothing,
    /// A client wants no result.
    Cancel,
    /// The service stops; the job goes on at its next start.
    Leave,
}

/// The end of the work on a job in this process.
pub enum Ended {
    /// With this result in JSON.
    Succeeded(Bytes),
    /// With an error.
    Failed(Failure),
    /// As a client asked.
    Canceled,
    /// For the next start of the service.
    Left,
}

/// A job of this process.
pub struct Entry {
    client: Client,
    /// Text that is the same for requests with the same answer.
    same: Option<String>,
    state: watch::Sender<Job>,
    asked: watch::Sender<Asked>,
    /// True once anybody asked; read by the thread that measures.
    stop: Arc<AtomicBool>,
    /// Answer of a recommendation, for the requests that wait for it.
    outcome: OnceLock<Result<Arc<Answer>, Failure>>,
}

impl Entry {
    fn new(job: Job, client: Client, same: Option<String>) -> Arc<Self> {
        Arc::new(Entry {
            client,
            same,
            state: watch::Sender::new(job),
            asked: watch::Sender::new(Asked::Nothing),
            stop: Arc::default(),
            outcome: OnceLock::new(),
        })
    }

    /// Returns the job as it is now.
    pub fn job(&self) -> Job {
        self.state.borrow().clone()
    }

    /// Returns the flag that ends measuring.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Returns the request to end the job early, if there is one.
    pub fn asked(&self) -> Asked {
        *self.asked.borrow()
    }

    /// Waits for a request to end the job early.
    pub async fn is_asked(&self) {
        let mut asked = self.asked.subscribe();
        // The sender lives as long as the job.
        let _ = asked.wait_for(|asked| *asked != Asked::Nothing).await;
    }

    fn ask(&self, asked: Asked) {
        self.asked.send_modify(|now| {
            if *now != Asked::Cancel {
                *now = asked;
            }
        });
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Notes the part of the job that is done.
    pub fn progressed(&self, done: usize, total: usize, step: &str) {
        let (done, total, step) = (done as u64, total as u64, step.to_string());
        self.state.send_modify(|job| job.progress = Some(Progress { done, total, step }));
    }

    /// Notes the answer for the requests that wait for it.
    pub fn answer(&self, answer: Result<Arc<Answer>, Failure>) {
        // Only the first end counts.
        let _ = self.outcome.set(answer);
    }

    /// Waits until the job ends, but at most this time.
    ///
    /// Returns the answer of a recommendation; `None` if there is none yet.
    pub async fn ended_within(&self, wait: Duration) -> Option<Result<Arc<Answer>, Failure>> {
        let mut state = self.state.subscribe();
        let over = state.wait_for(|job| job.status.is_final() || job.left);
        let _ = tokio::time::timeout(wait, over).await;
        self.outcome.get().cloned()
    }
}

/// All jobs of a service.
pub struct Jobs {
    paths: Paths,
    bounds: Bounds,
    /// Taken before `all`, if both are.
    folder: Mutex<Folder>,
    all: Mutex<BTreeMap<u64, Arc<Entry>>>,
    next: AtomicU64,
    stopping: AtomicBool,
}

impl Jobs {
    /// Opens the jobs of a data folder; without one that can be written to, they are forgotten at the
    /// end, with a warning.
    ///
    /// # Errors
    /// If another process uses the folder.
    pub fn open(data: &Path, bounds: Bounds) -> Result<Arc<Self>> {
        let opened = Folder::open(data).or_else(|error| {
            if error.chain().any(|cause| cause.is::<std::io::Error>()) {
                tracing::warn!("{error:#}: jobs do not survive a restart");
                return Folder::temporary();
            }
            Err(error)
        });
        let (folder, found) = opened?;
        if found.bad > 0 {
            tracing::warn!("jobs: {} lines cannot be read and are left out", found.bad);
        }
        folder.sweep(&found.jobs);
        let next = found.jobs.keys().next_back().map_or(1, |last| last + 1);
        let entry = |(id, job)| (id, Entry::new(job, Client::default(), None));
        let jobs = Jobs {
            paths: folder.paths.clone(),
            bounds,
            folder: Mutex::new(folder),
            all: Mutex::new(found.jobs.into_iter().map(entry).collect()),
            next: AtomicU64::new(next),
            stopping: AtomicBool::new(false),
        };
        jobs.remove_oldest(None);
        Ok(Arc::new(jobs))
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a job, if it is known.
    pub fn get(&self, id: u64) -> Option<Arc<Entry>> {
        self.all().get(&id).cloned()
    }

    /// Returns all jobs, the latest first.
    pub fn list(&self) -> Vec<Arc<Entry>> {
        self.all().values().rev().cloned().collect()
    }

    /// Returns the number of jobs that wait and that are at work.
    pub fn counts(&self) -> [u64; 2] {
        let all = self.all();
        let of = |status| all.values().filter(|one| one.state.borrow().status == status).count();
        [Status::Enqueued, Status::Processing].map(|status| of(status) as u64)
    }

    /// Returns the job that will have the answer of this request, if there is one.
    pub fn same(&self, same: &str) -> Option<Arc<Entry>> {
        let all = self.all();
        let is_same = |one: &&Arc<Entry>| {
            one.same.as_deref() == Some(same)
                && one.asked() == Asked::Nothing
                && !one.state.borrow().status.is_final()
        };
        all.values().find(is_same).cloned()
    }

    /// Returns the number of the next job and the path of its matrix.
    ///
    /// # Errors
    /// 503 if the matrices of the jobs that have not ended leave no room for `bytes` more.
    pub fn number(&self, bytes: u64) -> Result<(u64, std::path::PathBuf), Failure> {
        let open = |one: &Arc<Entry>| {
            let job = one.state.borrow();
            if job.status.is_final() { 0 } else { job.task.body_bytes() }
        };
        let held: u64 = self.all().values().map(open).sum();
        if held.saturating_add(bytes) > self.bounds.bytes {
            let stated = format!(
                "the matrices of jobs take {held} bytes, and this one {bytes}: over this service's limit \
                 of {} (job_bytes); try again when jobs have ended, or ask its operator to raise it",
                self.bounds.bytes
            );
            return Err(Failure::new(&JOBS, stated));
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Ok((id, self.paths.body(id)))
    }

    /// Returns the path of the matrix of a job.
    pub fn body(&self, id: u64) -> std::path::PathBuf {
        self.paths.body(id)
    }

    /// Adds a job that waits; it is on disk when this returns.
    ///
    /// # Errors
    /// 503 if it cannot be stored.
    pub async fn enqueue(
        self: &Arc<Self>,
        job: Job,
        client: Client,
        same: Option<String>,
    ) -> Result<Arc<Entry>, Failure> {
        let id = job.id;
        let entry = Entry::new(job, client, same);
        self.all().insert(id, Arc::clone(&entry));
        if self.stopping.load(Ordering::Relaxed) {
            entry.ask(Asked::Leave);
        }
        if let Err(failure) = self.save(&entry).await {
            self.all().remove(&id);
            let _ = fs::remove_file(self.paths.body(id));
            return Err(failure);
        }
        Ok(entry)
    }

    /// Writes the present state of a job to disk.
    async fn save(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<(), Failure> {
        let (jobs, entry) = (Arc::clone(self), Arc::clone(entry));
        let saving = tokio::task::spawn_blocking(move || jobs.save_now(&entry.job()));
        saving.await.map_err(Failure::internal)?
    }

    fn save_now(&self, job: &Job) -> Result<(), Failure> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let unsaved = |error: anyhow::Error| {
            tracing::error!("storing a job: {error:#}");
            Failure::new(&STORAGE, "the service has no room for this job now; try again later")
        };
        folder.add(job).map_err(|error| unsaved(error.into()))?;
        if folder.is_long() {
            let others = self.list().into_iter().map(|entry| entry.job());
            let mut all: Vec<Job> = others.filter(|other| other.id != job.id).collect();
            all.push(job.clone());
            folder.write_anew(all.iter()).map_err(unsaved)?;
        }
        Ok(())
    }

    /// Changes a job and writes it to disk; a failure to write is only logged.
    async fn change(self: &Arc<Self>, entry: &Arc<Entry>, change: impl FnOnce(&mut Job)) {
        entry.state.send_modify(change);
        // The failure is in the log; the job goes on.
        let _ = self.save(entry).await;
    }

    /// Notes the end of the work on a job.
    async fn end(self: &Arc<Self>, entry: &Arc<Entry>, ended: Ended) {
        let (jobs, entry) = (Arc::clone(self), Arc::clone(entry));
        let ending = tokio::task::spawn_blocking(move || jobs.end_now(&entry, ended));
        if let Err(error) = ending.await {
            tracing::error!("the end of a job: {error}");
        }
    }

    fn end_now(&self, entry: &Entry, ended: Ended) {
        let id = entry.job().id;
        let (status, failure) = match ended {
            Ended::Left => {
                let mut job = entry.job();
                if job.status == Status::Processing {
                    job.attempts -= 1;
                    job.wait_again("the service stopped; the work goes on at its next start");
                }
                job.left = true;
                let _ = self.save_now(&job);
                entry.state.send_replace(job);
                return;
            }
            Ended::Succeeded(result) => {
                let path = self.paths.result(id);
                match write_file(&path, |out| Ok(out.write_all(&result)?)) {
                    Ok(()) => (Status::Succeeded, None),
                    Err(error) => {
                        tracing::error!("storing the result of a job: {error:#}");
                        let stated = "the service has no room for the result; try again later";
                        (Status::Failed, Some(Failure::new(&STORAGE, stated)))
                    }
                }
            }
            Ended::Failed(failure) => (Status::Failed, Some(failure)),
            Ended::Canceled => {
                let stated = "the job was canceled: DELETE /jobs/ID asked for that";
                (Status::Canceled, Some(Failure::new(&CANCELED, stated)))
            }
        };
        if let Some(failure) = &failure {
            entry.answer(Err(failure.clone()));
        }
        let mut job = entry.job();
        job.end(status, failure.as_ref());
        let why = failure.map(|failure| failure.message).unwrap_or_default();
        tracing::info!(job = id, status = status.name(), why);
        let _ = self.save_now(&job);
        let _ = fs::remove_file(self.paths.body(id));
        self.remove_oldest(Some(id));
        // Clients see the end once all of it is done.
        entry.state.send_replace(job);
    }

    /// Asks a job to end early.
    ///
    /// # Errors
    /// 409 if it has ended.
    pub fn cancel(&self, entry: &Entry) -> Result<(), Failure> {
        let job = entry.job();
        if job.status.is_final() {
            let stated = format!("job {} has {}; it cannot be canceled", job.id, job.status.name());
            return Err(Failure::new(&FINISHED, stated));
        }
        entry.ask(Asked::Cancel);
        Ok(())
    }

    /// Lets all jobs wait for the next start of the service.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        for entry in self.all().values() {
            if !entry.state.borrow().status.is_final() {
                entry.ask(Asked::Leave);
            }
        }
    }

    /// Waits until no job is at work and all that were left are on disk.
    pub async fn rest(&self) {
        for entry in self.list() {
            let mut state = entry.state.subscribe();
            // Jobs that wait are left, too, so that their state is known.
            let _ = state.wait_for(|job| job.status.is_final() || job.left).await;
        }
    }

    /// Reads the result of a job; `None` if it has none.
    pub fn result(&self, id: u64) -> Option<Vec<u8>> {
        fs::read(self.paths.result(id)).ok()
    }

    /// Removes the jobs that ended first, until as many are left as are kept; `ending` counts as one
    /// that has ended.
    fn remove_oldest(&self, ending: Option<u64>) {
        let mut all = self.all();
        let (mut ended, mut bytes, mut gone) = (0, 0, Vec::new());
        for (&id, entry) in all.iter().rev() {
            if Some(id) == ending || entry.state.borrow().status.is_final() {
                ended += 1;
                bytes += fs::metadata(self.paths.result(id)).map_or(0, |file| file.len());
                if ended > self.bounds.ended || bytes > MOST_RESULTS {
                    gone.push(id);
                }
            }
        }
        for id in gone {
            all.remove(&id);
            let _ = fs::remove_file(self.paths.result(id));
        }
    }
}
