//! Figures of the service in the text format of Prometheus.
//!
//! | name | labels | meaning |
//! |---|---|---|
//! | `ellect_requests_total` | `route`, `status` | requests answered |
//! | `ellect_request_seconds` | `route` | time from the head of a request to its answer |
//! | `ellect_stage_seconds` | `stage` | time of `body`, `wait`, `read` and `choose` in one request, and of `features`, a part of `choose` |
//! | `ellect_answers_total` | `from` | recommendations by origin: `computed` or `kept` |
//! | `ellect_answers_kept` | | answers in the cache |
//! | `ellect_connections` | | open connections |
//! | `ellect_requests_waiting` | | requests that wait for a worker |
//! | `ellect_jobs_enqueued` | | jobs that wait |
//! | `ellect_jobs_processing` | | jobs at work |
//! | `ellect_memory_reserved_bytes` | `share` | memory that requests hold: `bodies` or `matrices` |
//! | `ellect_memory_budget_bytes` | `share` | memory that requests may hold |
//! | `ellect_wisdom_records` | | stored measurements, without those that ship |
//! | `ellect_wisdom_revision` | | writes to the database of measurements |
//! | `ellect_wisdom_faulty` | | 1 if the last write to it failed, else 0 |
//! | `ellect_wisdom_errors_total` | | writes to it that failed, exports included |
//! | `ellect_worker_restarts_total` | | processes that measure that were started again |
//! | `ellect_shared_away` | | 1 if a shared database is named and does not answer, else 0 |
//! | `ellect_shared_outbox` | | measurements that wait to be sent to it |

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ellect::Wisdom;
use metrics::with_local_recorder;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusRecorder};

/// State of the service that is read when the figures are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Answers in the cache.
    pub answers: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests that wait for a worker.
    pub waiting: u64,
    /// Jobs that wait, and jobs at work.
    pub jobs: [u64; 2],
    /// Reserved bytes of bodies and of matrices.
    pub reserved: [u64; 2],
    /// Budget of bodies and of matrices, in bytes.
    pub budget: [u64; 2],
    /// Stored measurements.
    pub records: u64,
    /// Writes to the database of measurements.
    pub revision: u64,
    /// Writes that failed, exports included.
    pub failures: u64,
    /// Restarts of processes that measure.
    pub restarts: u64,
    /// True if the last write failed.
    pub faulty: bool,
    /// True if the shared database does not answer.
    pub shared_away: bool,
    /// Measurements that wait to be sent to it.
    pub shared_outbox: u64,
}

/// The figures, counted since the service started.
pub struct Metrics {
    recorder: PrometheusRecorder,
    /// Times that were noted.
    noted: AtomicU64,
    /// Number of stored measurements, and the revision of the database at which they were counted.
    records: Mutex<Option<[u64; 2]>>,
}

const REQUESTS: &str = "ellect_requests_total";
const REQUEST_S: &str = "ellect_request_seconds";
const STAGE_S: &str = "ellect_stage_seconds";
const ANSWERS: &str = "ellect_answers_total";
const RESERVED: &str = "ellect_memory_reserved_bytes";
const BUDGET: &str = "ellect_memory_budget_bytes";

/// Upper limits of the buckets of times, in seconds.
const BUCKETS: [f64; 14] =
    [1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];

/// Times are kept one by one until this many have come, and are then counted in buckets.
const KEPT: u64 = 1024;

/// Names of the shares of memory, as in [`State`].
const SHARES: [&str; 2] = ["bodies", "matrices"];

impl State {
    /// Figures that rise and fall, by name and meaning.
    fn levels(&self) -> [(&'static str, &'static str, u64); 10] {
        let [enqueued, processing] = self.jobs;
        [
            ("ellect_answers_kept", "Answers in the cache", self.answers),
            ("ellect_connections", "Open connections", self.connections),
            ("ellect_requests_waiting", "Requests that wait for a worker", self.waiting),
            ("ellect_jobs_enqueued", "Jobs that wait", enqueued),
            ("ellect_jobs_processing", "Jobs at work", processing),
            ("ellect_wisdom_records", "Stored measurements, without those that ship", self.records),
            ("ellect_wisdom_revision", "Writes to the database of measurements", self.revision),
            (
                "ellect_wisdom_faulty",
                "1 if the last write to the database of measurements failed",
                u64::from(self.faulty),
            ),
            (
                "ellect_shared_away",
                "1 if a shared database is named and does not answer",
                u64::from(self.shared_away),
            ),
            (
                "ellect_shared_outbox",
                "Measurements that wait to be sent to the shared database",
                self.shared_outbox,
            ),
        ]
    }

    /// Figures that only grow, by name and meaning.
    fn totals(&self) -> [(&'static str, &'static str, u64); 2] {
        [
            (
                "ellect_wisdom_errors_total",
                "Writes to the database of measurements that failed",
                self.failures,
            ),
            (
                "ellect_worker_restarts_total",
                "Processes that measure that were started again",
                self.restarts,
            ),
        ]
    }
}

impl Metrics {
    /// Creates figures that have counted nothing.
    ///
    /// # Errors
    /// If the buckets of times are not accepted.
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.build_recorder();
        let state = State::default();
        with_local_recorder(&recorder, || {
            describe_counter!(REQUESTS, "Requests answered");
            describe_histogram!(REQUEST_S, "Time from the head of a request to its answer");
            describe_histogram!(STAGE_S, "Time of one stage of a recommendation");
            describe_counter!(ANSWERS, "Recommendations by origin");
            describe_gauge!(RESERVED, "Memory that requests hold");
            describe_gauge!(BUDGET, "Memory that requests may hold");
            for (name, meaning, _) in state.levels() {
                describe_gauge!(name, meaning);
            }
            for (name, meaning, _) in state.totals() {
                describe_counter!(name, meaning);
            }
        });
        Ok(Metrics { recorder, noted: AtomicU64::new(0), records: Mutex::default() })
    }

    /// Counts an answered request.
    pub fn answered(&self, route: &str, status: u16, seconds: f64) {
        let route = route.to_string();
        with_local_recorder(&self.recorder, || {
            let status = status.to_string();
            counter!(REQUESTS, "route" => route.clone(), "status" => status).increment(1);
            histogram!(REQUEST_S, "route" => route).record(seconds);
        });
        self.note();
    }

    /// Counts the time of a stage.
    pub fn stage(&self, stage: &'static str, seconds: f64) {
        with_local_recorder(&self.recorder, || {
            histogram!(STAGE_S, "stage" => stage).record(seconds);
        });
        self.note();
    }

    /// Counts times that came in buckets, so that few are kept one by one.
    fn note(&self) {
        if self.noted.fetch_add(1, Ordering::Relaxed) % KEPT == KEPT - 1 {
            self.recorder.handle().run_upkeep();
        }
    }

    /// Counts a recommendation, `computed` or `kept`.
    pub fn recommended(&self, from: &'static str) {
        with_local_recorder(&self.recorder, || counter!(ANSWERS, "from" => from).increment(1));
    }

    /// Returns the number of stored measurements. They are counted again only after a write.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn records(&self, wisdom: &Wisdom) -> ellect::Result<u64> {
        let mut known = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = wisdom.revision();
        let count = match *known {
            Some([count, at]) if at == revision => count,
            _ => wisdom.count()?,
        };
        *known = Some([count, revision]);
        Ok(count)
    }

    /// Returns all figures as text.
    #[allow(clippy::cast_precision_loss)] // Gauges are floating-point numbers.
    pub fn text(&self, state: &State) -> String {
        with_local_recorder(&self.recorder, || {
            for (name, _, value) in state.levels() {
                gauge!(name).set(value as f64);
            }
            for (name, _, value) in state.totals() {
                counter!(name).absolute(value);
            }
            for (i, share) in SHARES.into_iter().enumerate() {
                gauge!(RESERVED, "share" => share).set(state.reserved[i] as f64);
                gauge!(BUDGET, "share" => share).set(state.budget[i] as f64);
            }
        });
        self.recorder.handle().render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_name_is_in_the_text() {
        let metrics = Metrics::new().expect("its buckets are sound");
        metrics.answered("/recommend", 200, 0.01);
        metrics.stage("read", 0.005);
        metrics.recommended("computed");
        let state = State { connections: 3, budget: [1, 2], restarts: 2, ..State::default() };
        let text = metrics.text(&state);
        let documented = include_str!("metrics.rs").lines().filter_map(|line| {
            line.strip_prefix("//! | `").and_then(|rest| rest.split('`').next())
        });
        let documented: Vec<_> = documented.collect();
        assert_eq!(documented.len(), 18);
        for name in documented {
            assert!(text.contains(&format!("\n{name}")), "{name} is not in {text}");
        }
        assert!(text.contains("ellect_connections 3\n"), "{text}");
        assert!(text.contains("ellect_worker_restarts_total 2\n"), "{text}");
        assert!(text.contains("ellect_requests_total{route=\"/recommend\",status=\"200\"} 1"));
    }
}
