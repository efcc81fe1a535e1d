//! Figures of the service in the text format of Prometheus.
//!
//! | name | labels | meaning |
//! |---|---|---|
//! | `ellect_requests_total` | `route`, `status` | requests answered |
//! | `ellect_request_seconds` | `route` | time from the head of a request to its answer |
//! | `ellect_stage_seconds` | `stage` | time of `body`, `wait`, `read` and `choose` in one request |
//! | `ellect_answers_total` | `from` | recommendations by origin: `computed` or `kept` |
//! | `ellect_answers_kept` | | answers in the cache |
//! | `ellect_connections` | | open connections |
//! | `ellect_requests_waiting` | | requests that wait for a worker |
//! | `ellect_jobs_enqueued` | | jobs that wait |
//! | `ellect_jobs_processing` | | jobs at work |
//! | `ellect_memory_reserved_bytes` | `share` | memory that requests hold: `bodies` or `matrices` |
//! | `ellect_memory_budget_bytes` | `share` | memory that requests may hold |
//! | `ellect_wisdom_revision` | | writes to the database of measurements |
//! | `ellect_wisdom_faulty` | | 1 if the last write to it failed, else 0 |
//! | `ellect_wisdom_errors_total` | | writes to it that failed, exports included |
//! | `ellect_worker_restarts_total` | | processes that measure that were started again |
//! | `ellect_shared_away` | | 1 if a shared database is named and does not answer, else 0 |
//! | `ellect_shared_outbox` | | measurements that wait to be sent to it |

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct From {
    from: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Share {
    share: &'static str,
}

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

type Level = Gauge<u64, AtomicU64>;

/// The figures, counted since the service started.
pub struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    request_s: Family<Route, Histogram>,
    stage_s: Family<Of, Histogram>,
    answers: Family<From, Counter>,
    /// In the order of [`LEVELS`].
    levels: [Level; LEVELS.len()],
    /// In the order of [`TOTALS`].
    totals: [Counter; TOTALS.len()],
    reserved: Family<Share, Level>,
    budget: Family<Share, Level>,
}

/// Figures that are set from [`State`], by name and meaning.
const LEVELS: [(&str, &str); 9] = [
    ("answers_kept", "Answers in the cache"),
    ("connections", "Open connections"),
    ("requests_waiting", "Requests that wait for a worker"),
    ("jobs_enqueued", "Jobs that wait"),
    ("jobs_processing", "Jobs at work"),
    ("wisdom_revision", "Writes to the database of measurements"),
    ("wisdom_faulty", "1 if the last write to the database of measurements failed"),
    ("shared_away", "1 if a shared database is named and does not answer"),
    ("shared_outbox", "Measurements that wait to be sent to the shared database"),
];

/// Figures that only grow and are set from [`State`], by name and meaning.
const TOTALS: [(&str, &str); 2] = [
    ("wisdom_errors", "Writes to the database of measurements that failed"),
    ("worker_restarts", "Processes that measure that were started again"),
];

/// Names of the shares of memory, as in [`State`].
const SHARES: [&str; 2] = ["bodies", "matrices"];

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 3.0, 14))
}

impl Metrics {
    /// Creates all figures with the value 0.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("ellect");
        let requests = Family::default();
        registry.register("requests", "Requests answered", requests.clone());
        let request_s = Family::new_with_constructor(seconds as fn() -> Histogram);
        let stated = "Time from the head of a request to its answer";
        registry.register_with_unit("request", stated, Unit::Seconds, request_s.clone());
        let stage_s = Family::new_with_constructor(seconds as fn() -> Histogram);
        let stated = "Time of one stage of a recommendation";
        registry.register_with_unit("stage", stated, Unit::Seconds, stage_s.clone());
        let answers = Family::default();
        registry.register("answers", "Recommendations by origin", answers.clone());
        let levels = LEVELS.map(|(name, stated)| {
            let level = Level::default();
            registry.register(name, stated, level.clone());
            level
        });
        let totals = TOTALS.map(|(name, stated)| {
            let total = Counter::default();
            registry.register(name, stated, total.clone());
            total
        });
        let (reserved, budget) = (Family::default(), Family::default());
        let stated = "Memory that requests hold";
        registry.register_with_unit("memory_reserved", stated, Unit::Bytes, reserved.clone());
        let stated = "Memory that requests may hold";
        registry.register_with_unit("memory_budget", stated, Unit::Bytes, budget.clone());
        Metrics {
            registry,
            requests,
            request_s,
            stage_s,
            answers,
            levels,
            totals,
            reserved,
            budget,
        }
    }

    /// Counts an answered request.
    pub fn answered(&self, route: &str, status: u16, seconds: f64) {
        let route = route.to_string();
        self.requests.get_or_create(&Answered { route: route.clone(), status }).inc();
        self.request_s.get_or_create(&Route { route }).observe(seconds);
    }

    /// Counts the time of a stage.
    pub fn stage(&self, stage: &'static str, seconds: f64) {
        self.stage_s.get_or_create(&Of { stage }).observe(seconds);
    }

    /// Counts a recommendation, `computed` or `kept`.
    pub fn recommended(&self, from: &'static str) {
        self.answers.get_or_create(&From { from }).inc();
    }

    /// Returns all figures as text.
    ///
    /// # Errors
    /// If formatting fails.
    pub fn text(&self, state: &State) -> Result<String, std::fmt::Error> {
        let State { answers, connections, waiting, jobs, revision, faulty, .. } = *state;
        let [enqueued, processing] = jobs;
        let values = [
            answers,
            connections,
            waiting,
            enqueued,
            processing,
            revision,
            u64::from(faulty),
            u64::from(state.shared_away),
            state.shared_outbox,
        ];
        for (level, value) in self.levels.iter().zip(values) {
            level.set(value);
        }
        for (total, value) in self.totals.iter().zip([state.failures, state.restarts]) {
            total.inner().store(value, Ordering::Relaxed);
        }
        for (i, share) in SHARES.into_iter().enumerate() {
            self.reserved.get_or_create(&Share { share }).set(state.reserved[i]);
            self.budget.get_or_create(&Share { share }).set(state.budget[i]);
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_name_is_in_the_text() {
        let metrics = Metrics::new();
        metrics.answered("/recommend", 200, 0.01);
        metrics.stage("read", 0.005);
        metrics.recommended("computed");
        let state = State { connections: 3, budget: [1, 2], restarts: 2, ..State::default() };
        let text = metrics.text(&state).expect("it is formatted");
        let documented = include_str!("metrics.rs").lines().filter_map(|line| {
            line.strip_prefix("//! | `").and_then(|rest| rest.split('`').next())
        });
        let documented: Vec<_> = documented.collect();
        assert_eq!(documented.len(), 17);
        for name in documented {
            assert!(text.contains(&format!("\n{name}")), "{name} is not in {text}");
        }
        assert!(text.contains("ellect_connections 3\n"), "{text}");
        assert!(text.contains("ellect_worker_restarts_total 2\n"), "{text}");
        assert!(text.contains("ellect_requests_total{route=\"/recommend\",status=\"200\"} 1"));
    }
}
