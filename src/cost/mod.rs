//! What a candidate costs: one conversion, one product, the memory, and where each number is from.

use serde::{Deserialize, Serialize};

use crate::choose::Workload;
use crate::format::{Candidate, Target, Work};
use crate::structure::Structure;

/// Where a number comes from, most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Timed on the device.
    Measured,
    /// From a model trained on measurements of the device.
    Predicted,
    /// From the closed formulas of this module and the device profile.
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
    /// Conversion, updates of values and all products of a workload, in seconds.
    pub fn total_s(&self, workload: &Workload) -> f64 {
        self.convert_s
            + workload.values.updates() as f64 * self.update_s
            + workload.spmvs as f64 * self.spmv_s
    }
}

/// The cost of a candidate by closed formulas.
pub fn estimate(
    _candidate: &Candidate,
    work: &Work,
    structure: &Structure<'_>,
    target: &Target<'_>,
) -> Cost {
    let device = target.device;
    let pattern = structure.pattern();
    let vectors = (pattern.nrows() + pattern.ncols()) * target.precision.bytes();
    let bytes = (work.stream_bytes + work.extra_bytes) as f64 + vectors as f64;
    Cost {
        convert_s: work.convert_bytes as f64 / (device.read_gbps * 1e9),
        update_s: 0.0,
        spmv_s: f64::from(work.launches) * device.launch_s + bytes / (device.read_gbps * 1e9),
        bytes: work.layout_bytes,
        source: Source::Estimated,
    }
}
