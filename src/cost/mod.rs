//! The cost of a candidate: conversion, update and product times, memory, and the source of each
//! number.

pub(crate) mod balance;
pub(crate) mod estimate;
pub(crate) mod terms;
pub(crate) mod works;

use serde::{Deserialize, Serialize};

use crate::device::{Device, KernelFigures};
use crate::format::Candidate;
use crate::workload::Workload;
pub use estimate::CostInputs;
pub(crate) use estimate::{Estimator, MatrixTerms, Times};
pub(crate) use terms::{TERMS, relate, terms};
pub(crate) use works::{Known, works};

/// Source of a cost figure, most trusted first.
///
/// ```
/// use ellect::cost::Source;
///
/// assert!(Source::Measured < Source::Predicted);
/// assert_eq!(Source::Estimated.to_string(), "estimated");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Timed on the device.
    Measured,
    /// Predicted by a model that was trained on measurements of the device.
    Predicted,
    /// Estimated with the closed formulas of [`Estimator`] and the device profile.
    Estimated,
}

impl Source {
    /// Returns `"measured"`, `"predicted"` or `"estimated"`.
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

/// Returns the kernel figures of a candidate on a device: the candidate's own entry in the device's
/// profile, else its format's, else the entry for all other formats.
pub fn kernel_figures(device: &Device, candidate: &Candidate) -> KernelFigures {
    device.figures_of([&candidate.to_string(), candidate.format.name])
}

/// The cost of one candidate for one matrix on one device.
///
/// ```
/// use ellect::Workload;
/// use ellect::cost::{Cost, Source};
///
/// let source = Source::Measured;
/// let cost = Cost { convert_s: 2.0, update_s: 0.0, spmv_s: 0.5, bytes: 1000, source };
/// let workload = Workload { spmvs: 100, ..Workload::default() };
/// assert_eq!(cost.total_s(&workload), 52.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time of the conversion from CSR, in seconds.
    pub convert_s: f64,
    /// Time to replace the values for an unchanged pattern, in seconds.
    pub update_s: f64,
    /// Time of one product, in seconds.
    pub spmv_s: f64,
    /// Size of the layout, in bytes.
    pub bytes: u64,
    /// Source of the times.
    pub source: Source,
}

impl Cost {
    /// Returns the time that does not depend on the number of products, in seconds: the conversion
    /// and all updates of a workload.
    pub fn fixed_s(&self, workload: &Workload) -> f64 {
        self.convert_s + workload.values.updates() as f64 * self.update_s
    }

    /// Returns the total time of a workload, in seconds: conversion, updates and all products.
    pub fn total_s(&self, workload: &Workload) -> f64 {
        self.fixed_s(workload) + workload.spmvs as f64 * self.spmv_s
    }

    /// Returns the number of products from which this candidate is cheaper than `csr`: 0 if it
    /// always is or costs the same, `None` if it never is.
    pub fn break_even(&self, csr: &Cost, workload: &Workload) -> Option<u64> {
        let more_s = self.fixed_s(workload) - csr.fixed_s(workload);
        let gain_s = csr.spmv_s - self.spmv_s;
        if more_s <= 0.0 && gain_s >= 0.0 {
            return Some(0);
        }
        (gain_s > 0.0).then(|| (more_s / gain_s).ceil() as u64)
    }
}
