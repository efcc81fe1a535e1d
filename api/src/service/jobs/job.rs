//! A job: work that takes longer than a request waits.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};

use super::super::failure::{Failure, Reason};
use super::super::tune::Training;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It waits for its turn.
    Enqueued,
    /// It is at work.
    Processing,
    /// It ended with a result.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// It ended because a client asked for that.
    Canceled,
}

impl Status {
    /// All states, in the order of a job's life.
    pub const ALL: [Status; 5] =
        [Status::Enqueued, Status::Processing, Status::Succeeded, Status::Failed, Status::Canceled];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Status::Enqueued => "enqueued",
            Status::Processing => "processing",
            Status::Succeeded => "succeeded",
            Status::Failed => "failed",
            Status::Canceled => "canceled",
        }
    }

    /// Tells whether the job has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Canceled)
    }
}

/// The work of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Task {
    /// A recommendation that measures.
    Recommend {
        /// Parameters of the request.
        query: Vec<(String, String)>,
        /// Bytes of the matrix that was sent, kept in a file until the job ends.
        body_bytes: u64,
    },
    /// Training of models.
    Tune(Training),
}

impl Task {
    /// Names of the kinds of work.
    pub const KINDS: [&str; 2] = ["recommend", "tune"];

    /// Returns the name of the kind of work.
    pub fn kind(&self) -> &'static str {
        match self {
            Task::Recommend { .. } => Task::KINDS[0],
            Task::Tune(_) => Task::KINDS[1],
        }
    }

    /// Returns the bytes of the file that is kept for it.
    pub fn body_bytes(&self) -> u64 {
        match self {
            Task::Recommend { body_bytes, .. } => *body_bytes,
            Task::Tune(_) => 0,
        }
    }

    /// Describes the work for people and programs.
    fn details(&self) -> Value {
        match self {
            Task::Recommend { query, body_bytes } => {
                let parameters = query.iter().map(|(name, value)| (name.clone(), json!(value)));
                let parameters: serde_json::Map<String, Value> = parameters.collect();
                json!({"parameters": parameters, "body_bytes": body_bytes})
            }
            Task::Tune(training) => json!(training),
        }
    }
}

/// The part of a job that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Number of steps done.
    pub done: u64,
    /// Number of all steps.
    pub total: u64,
    /// The step done last.
    pub step: String,
}

/// A job, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job; later jobs have higher ones.
    pub id: u64,
    /// The work.
    pub task: Task,
    /// The state.
    pub status: Status,
    /// Seconds since 1970.
    pub enqueued_at: f64,
    /// Seconds since 1970; `None` before the work began.
    pub started_at: Option<f64>,
    /// Seconds since 1970; `None` before the end.
    pub finished_at: Option<f64>,
    /// Seconds from the beginning of the work to its end, by a clock that never steps.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// Beginning of the work, if it was in this process.
    #[serde(skip)]
    begun: Option<Instant>,
    /// Number of times that the work began.
    pub attempts: u32,
    /// The part that is done.
    pub progress: Option<Progress>,
    /// Reason why the work begins again.
    pub again: Option<String>,
    /// The error of a job that failed or was canceled, as in an answer.
    pub error: Option<Reason>,
    /// True after the service stopped work on it, to go on at its next start.
    #[serde(skip)]
    pub left: bool,
}

impl Job {
    /// Creates a job that waits.
    pub fn new(id: u64, task: Task) -> Self {
        Job {
            id,
            task,
            status: Status::Enqueued,
            enqueued_at: now_s(),
            started_at: None,
            finished_at: None,
            duration_s: None,
            begun: None,
            attempts: 0,
            progress: None,
            again: None,
            error: None,
            left: false,
        }
    }

    /// Returns the path of the job in the service.
    pub fn path(&self) -> String {
        format!("/jobs/{}", self.id)
    }

    /// Notes that the work begins.
    pub fn begin(&mut self) {
        self.status = Status::Processing;
        self.started_at = Some(now_s());
        self.begun = Some(Instant::now());
        self.attempts += 1;
    }

    /// Notes that the work waits again, and why.
    pub fn wait_again(&mut self, why: &str) {
        self.status = Status::Enqueued;
        self.started_at = None;
        self.begun = None;
        self.progress = None;
        self.again = Some(why.to_string());
    }

    /// Notes the end.
    pub fn end(&mut self, status: Status, failure: Option<&Failure>) {
        self.status = status;
        self.finished_at = Some(now_s());
        // To the millisecond, as the times are.
        self.duration_s = self.begun.map(|begun| begun.elapsed().as_millis() as f64 / 1e3);
        self.error = failure.map(Failure::reason);
    }

    /// Returns the job as clients see it.
    pub fn shown(&self) -> Shown {
        Shown {
            id: self.id,
            kind: self.task.kind(),
            status: self.status,
            details: self.task.details(),
            progress: self.progress.clone(),
            attempts: self.attempts,
            again: self.again.clone(),
            error: self.error.clone(),
            enqueued_at: self.enqueued_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            duration_s: self.duration_s,
            result: None,
        }
    }
}

/// A job, as clients see it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub struct Shown {
    /// Number of the job; later jobs have higher ones.
    id: u64,
    /// Kind of the work.
    #[schema(schema_with = kinds)]
    kind: &'static str,
    status: Status,
    /// The work: parameters of the request.
    #[schema(value_type = Object)]
    details: Value,
    /// The part that is done; null before the first step.
    #[schema(required)]
    progress: Option<Progress>,
    /// Number of times that the work began.
    attempts: u32,
    /// Reason why the work begins again.
    #[schema(required)]
    again: Option<String>,
    /// The error of a job that failed or was canceled.
    #[schema(required)]
    error: Option<Reason>,
    /// Seconds since 1970.
    enqueued_at: f64,
    /// Seconds since 1970; null before the work began.
    #[schema(required)]
    started_at: Option<f64>,
    /// Seconds since 1970; null before the end.
    #[schema(required)]
    finished_at: Option<f64>,
    /// Seconds of work; null before the end, and of a job that never began.
    #[schema(required)]
    duration_s: Option<f64>,
    /// Result of a job that succeeded, where one job is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
}

/// Returns the schema of the kinds of work.
fn kinds() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Task::KINDS)).build()
}

/// Returns the seconds since 1970, to the millisecond.
fn now_s() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::CANCELED;
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let query = vec![("effort".to_string(), "measure".to_string())];
        let mut job = Job::new(7, Task::Recommend { query, body_bytes: 12 });
        job.begin();
        job.end(Status::Canceled, Some(&Failure::new(&CANCELED, "it was canceled")));
        let line = serde_json::to_vec(&job).expect("plain data");
        let read: Job = serde_json::from_slice(&line).expect("the same form");
        let shown = json!(job.shown());
        assert_eq!(json!(read.shown()), shown);
        assert_eq!(
            (&shown["status"], &shown["error"]["code"]),
            (&json!("canceled"), &json!("canceled"))
        );
        assert_eq!(shown["details"]["parameters"]["effort"], "measure");
        assert!(shown["duration_s"].as_f64().is_some_and(|s| s >= 0.0));
    }
}
