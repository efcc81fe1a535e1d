//! The cost of a candidate: conversion, update and product times, memory, and the source of each
//! number.

pub(crate) mod balance;
pub(crate) mod estimate;
pub(crate) mod terms;
pub(crate) mod works;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::device::{Device, KernelFigures};
use crate::format::{Candidate, Format};
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
/// profile, else its format's; for a format whose figures another one has, such as one that stores in
/// f32 what another one stores in f64, else those of that one; else the entry for all other formats. A
/// profile may use earlier names of formats.
pub fn kernel_figures(device: &Device, candidate: &Candidate) -> KernelFigures {
    let other = candidate.stand_in();
    let keys = |candidate: &Candidate| {
        let format = candidate.format;
        let params = candidate.to_string().split_off(format.name.len());
        let names = || std::iter::once(&format.name).chain(format.aliases);
        let own = names().map(move |name| Cow::Owned(format!("{name}{params}")));
        own.chain(names().map(|name| Cow::Borrowed(*name)))
    };
    device.figures_of(keys(candidate).chain(other.iter().flat_map(keys)))
}

/// Returns the expected time of a product of this format, where one of the format that stands in for it
/// takes `other_s` and the estimate shrinks to the share `share`.
pub(crate) fn saved_s(format: &Format, other_s: f64, share: f64) -> f64 {
    other_s * (1.0 - format.saves * (1.0 - share.min(1.0)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Kind, PerPrecision};
    use crate::format::candidates;

    #[test]
    fn a_narrow_format_has_the_figures_of_the_wide_one() {
        let device = crate::device::find("h200").expect("shipped");
        let [narrow, wide, other] = ["hll_f32:col=16", "hll:col=16", "hll:col=32"]
            .map(|name| kernel_figures(&device, &name.parse().expect("a candidate")));
        assert_eq!(narrow, wide);
        assert_ne!(narrow, other);
    }

    #[test]
    fn every_stand_in_is_a_candidate() {
        let of_both = crate::format::FORMATS.iter().filter(|format| format.figures_of.is_some());
        assert!(of_both.clone().count() > 0);
        for candidate in [Kind::Gpu, Kind::Host].into_iter().flat_map(candidates) {
            assert_eq!(candidate.stand_in().is_some(), candidate.has_stand_in(), "{candidate}");
        }
    }

    #[test]
    fn figures_under_an_earlier_name_of_a_format_are_found() {
        let reaching = |gbps| KernelFigures {
            bandwidth: PerPrecision::both(gbps),
            ..KernelFigures::default()
        };
        let mut device = crate::device::find("h200").expect("shipped");
        let narrow: Candidate = "hub_ell:kib=130,piece=16".parse().expect("a candidate");
        let wide: Candidate = "hub_ell:kib=130,piece=64".parse().expect("a candidate");
        let of =
            |device: &Device| [&narrow, &wide].map(|c| kernel_figures(device, c).bandwidth.f64);
        device.kernels = [("others", 0.1), ("hubs", 0.2), ("hubs:kib=130,piece=16", 0.3)]
            .map(|(key, share)| (key.to_string(), reaching(share)))
            .into();
        assert_eq!(of(&device), [0.3, 0.2]);
        device.kernels.insert("hub_ell".into(), reaching(0.4));
        assert_eq!(of(&device), [0.3, 0.4], "the candidate's own figures come first");
        device.kernels.insert(narrow.to_string(), reaching(0.5));
        assert_eq!(of(&device), [0.5, 0.4], "the current name comes first");
    }
}
