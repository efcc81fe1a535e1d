//! What a candidate costs: one conversion, one product, the memory, and where each number is from.

pub mod balance;
mod estimate;
mod terms;
mod works;

use serde::{Deserialize, Serialize};

use crate::device::{Device, Reach};
use crate::format::Candidate;
use crate::workload::Workload;
pub use estimate::{CostInputs, Estimator, MatrixTerms, Times};
pub use terms::{TERMS, relate, terms};
pub use works::{Known, works};

/// Where a number comes from, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Timed on the device.
    Measured,
    /// From a model trained on measurements of the device.
    Predicted,
    /// From the closed formulas of [`Estimator`] and the device profile.
    Estimated,
}

impl Source {
    /// `"measured"`, `"predicted"` or `"estimated"`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::Predicted => "predicted",
            Source::Estimated => "estimated",
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The kernel figures of a candidate on a device: the candidate's own entry in the device's profile,
/// else its format's, else the entry for other formats.
pub fn reach(device: &Device, candidate: &Candidate) -> Reach {
    device.reach_of([&candidate.to_string(), candidate.format.name()])
}

/// The cost of one candidate for one matrix on one device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time of the conversion from CSR, in seconds.
    pub convert_s: f64,
    /// Time of replacing the values while the pattern stays, in seconds.
    pub update_s: f64,
    /// Time of one product, in seconds.
    pub spmv_s: f64,
    /// Bytes of the layout.
    pub bytes: u64,
    /// Where the times come from.
    pub source: Source,
}

impl Cost {
    /// Conversion and all updates of values of a workload, in seconds: what does not depend on the
    /// number of products.
    pub fn fixed_s(&self, workload: &Workload) -> f64 {
        self.convert_s + workload.values.updates() as f64 * self.update_s
    }

    /// Conversion, updates of values and all products of a workload, in seconds.
    pub fn total_s(&self, workload: &Workload) -> f64 {
        self.fixed_s(workload) + workload.spmvs as f64 * self.spmv_s
    }

    /// Products from which on this is cheaper than `csr`: 0 where it always is or costs the same,
    /// none where it never is.
    pub fn break_even(&self, csr: &Cost, workload: &Workload) -> Option<u64> {
        let more_s = self.fixed_s(workload) - csr.fixed_s(workload);
        let gain_s = csr.spmv_s - self.spmv_s;
        if more_s <= 0.0 && gain_s >= 0.0 {
            return Some(0);
        }
        (gain_s > 0.0).then(|| (more_s / gain_s).ceil() as u64)
    }
}
