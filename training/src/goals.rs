//! Goals of the figures of an evaluation, by kind of device.
//!
//! A host's goals are lower than a GPU's: its formats differ less, and its timings repeat less well
//! (`tests/results/hosts.md`).

use ellect::Precision;
use ellect::device::Kind;

/// Goals of one kind of device.
pub struct Goals {
    /// Least best/chosen of the model.
    pub prediction: f64,
    /// Least worst best/chosen of the model.
    pub prediction_worst: f64,
    /// Least best/chosen with the two best timed.
    pub two_timed: f64,
    /// Least worst best/chosen with the two best timed.
    pub two_timed_worst: f64,
    /// Least best/chosen of effort `measure`.
    pub measured: f64,
    /// Least worst best/chosen of effort `measure`.
    pub measured_worst: f64,
    /// Least speed-up of effort `measure` on matrices with at least 1,000,000 nonzeros, in f32 and
    /// f64.
    pub speedup_large: [f64; 2],
    /// Largest median relative error of predictions.
    pub median_error: f64,
    /// Least best/chosen of the estimate.
    pub estimate: f64,
    /// Least speed-ups of totals by number of products, for matrices on a host.
    pub total_speedups: &'static [(u64, f64)],
    /// Least ratios of the least possible total to the total by number of products, for matrices on
    /// a host.
    pub total_of_least: &'static [(u64, f64)],
    /// Least speed-ups of totals by number of products, for matrices on the device.
    pub there_speedups: &'static [(u64, f64)],
    /// Least ratios of the least possible total to the total by number of products, for matrices on
    /// the device.
    pub there_of_least: &'static [(u64, f64)],
}

impl Goals {
    /// Returns the goals of this kind of device.
    pub const fn of(kind: Kind) -> &'static Goals {
        match kind {
            Kind::Gpu => &GPU,
            Kind::Host => &HOST,
        }
    }

    /// Returns the least speed-up of effort `measure` on large matrices in this precision.
    pub const fn speedup_large(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.speedup_large[0],
            Precision::F64 => self.speedup_large[1],
        }
    }
}

const GPU: Goals = Goals {
    prediction: 0.985,
    prediction_worst: 0.85,
    two_timed: 0.998,
    two_timed_worst: 0.95,
    measured: 0.998,
    measured_worst: 0.95,
    speedup_large: [1.9, 1.6],
    median_error: 0.08,
    estimate: 0.93,
    total_speedups: &[(100, 1.1), (1000, 1.3), (10_000, 1.45)],
    total_of_least: &[],
    there_speedups: &[(100, 1.1), (1000, 1.5), (10_000, 1.6)],
    there_of_least: &[
        (10, 0.85),
        (30, 0.88),
        (100, 0.93),
        (300, 0.95),
        (1000, 0.97),
        (10_000, 0.97),
    ],
};

const HOST: Goals = Goals {
    prediction: 0.93,
    prediction_worst: 0.5,
    two_timed: 0.985,
    two_timed_worst: 0.65,
    measured: 0.99,
    measured_worst: 0.75,
    speedup_large: [1.2, 1.12],
    median_error: 0.12,
    estimate: 0.9,
    total_speedups: &[(100, 1.0), (1000, 1.0)],
    total_of_least: &[(10_000, 0.95)],
    there_speedups: &[],
    there_of_least: &[],
};
