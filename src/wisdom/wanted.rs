//! Queries of wisdom and their answers.

use crate::fingerprint::Fingerprint;
use crate::format::{Basis, Candidate, Extent};
use crate::measure::provenance::{is_of_host, kernels_now};
use crate::measure::{Backend, Measurement, Outcome, Protocol};
use crate::scalar::Precision;

/// Query for the measurements of one matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted<'a> {
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Name of the device.
    pub device: &'a str,
    /// Current driver of the device; `None` if the device is not present, in which case records of
    /// any driver match.
    pub driver: Option<String>,
    /// Precision of the values.
    pub precision: Precision,
    /// Basis of x and y.
    pub basis: Basis,
    /// Version of the measuring protocol.
    pub protocol: u32,
    /// Number of vectors of a product; timings of other numbers do not answer.
    pub vectors: usize,
}

/// Answer to a query about one candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A measurement under the current driver, kernels and protocol exists.
    Known(Box<Measurement>),
    /// No measurement exists.
    Missing,
    /// The only measurements are from another driver, other kernels or another protocol.
    Stale(Stale),
}

/// Difference between a record and the current state that makes the record stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The property that differs: `driver`, `kernels` or `protocol`.
    pub what: &'static str,
    /// Value in the record.
    pub stored: String,
    /// Current value.
    pub now: String,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stored = if self.stored.is_empty() { "unknown" } else { &self.stored };
        write!(f, "measured with {} {stored}; it is now {}", self.what, self.now)
    }
}

impl Wanted<'_> {
    /// Returns the first difference that makes this measurement stale, if any.
    ///
    /// The caller has matched the names (device, precision, basis and candidate) and the number of
    /// vectors.
    pub fn differs(&self, measurement: &Measurement) -> Option<Stale> {
        let provenance = &measurement.provenance;
        let stale = |what, stored: &str, now: String| Stale { what, stored: stored.into(), now };
        let version = measurement.protocol.version;
        if version != self.protocol {
            return Some(stale("protocol", &version.to_string(), self.protocol.to_string()));
        }
        if let Some(driver) = self.driver.as_ref().filter(|driver| **driver != provenance.driver) {
            return Some(stale("driver", &provenance.driver, driver.to_string()));
        }
        let kernels = kernels_now(&provenance.kernels).filter(|now| *now != provenance.kernels);
        let kernels = kernels.or_else(|| other_image(measurement).and_then(kernels_now));
        let here = self.driver.is_some();
        kernels.filter(|_| here).map(|now| stale("kernels", &provenance.kernels, now))
    }
}

impl<'a> Wanted<'a> {
    /// Builds a query for the measurements that `backend` would take now.
    ///
    /// `protocol` gives the version of the measuring protocol and the number of vectors.
    pub fn of(
        backend: &'a Backend,
        fingerprint: Fingerprint,
        precision: Precision,
        basis: Basis,
        protocol: &Protocol,
    ) -> Self {
        Wanted {
            fingerprint,
            device: &backend.device().name,
            driver: backend.driver(),
            precision,
            basis,
            protocol: protocol.version,
            vectors: protocol.vectors,
        }
    }
}

/// Returns the image that now multiplies the matrix of this measurement on a GPU, if the measurement
/// does not name it: the format has got another kernel for such matrices since.
pub fn other_image(measurement: &Measurement) -> Option<&'static str> {
    let kernels = &measurement.provenance.kernels;
    let matrix = measurement.inputs.as_ref()?.matrix;
    let Candidate { format, params } = measurement.candidate.parse().ok()?;
    let extent = Extent { nrows: matrix.nrows, nnz: matrix.nnz, longest: matrix.longest };
    let image = format.image(&params, extent, measurement.precision)?;
    let is_named = kernels.split(',').any(|part| part.split('=').next() == Some(image));
    (!is_named && !is_of_host(kernels)).then_some(image)
}

/// Tells whether a measurement with this outcome answers a query.
pub(super) fn answers(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Timed(_) | Outcome::Wrong { .. } | Outcome::Failed { .. })
}

/// Returns the latest matching record; else says how the latest of the others differs.
pub(super) fn best(wanted: &Wanted<'_>, mut records: Vec<Measurement>) -> Answer {
    records.retain(|record| answers(&record.outcome));
    records.sort_by_key(|record| std::cmp::Reverse(record.provenance.taken_at));
    let mut stale = None;
    for record in records {
        match wanted.differs(&record) {
            None => return Answer::Known(Box::new(record)),
            Some(differs) => stale = stale.or(Some(differs)),
        }
    }
    stale.map_or(Answer::Missing, Answer::Stale)
}

#[cfg(all(test, feature = "shipped"))]
mod tests {
    use super::*;
    use crate::wisdom::{Record, Wisdom};

    #[test]
    fn a_measurement_by_a_kernel_that_no_longer_runs_is_stale() {
        let (mut all, mut cut) = (0, 0);
        Wisdom::shipped().each_shipped(|record| {
            let Record::Measurement(mut measured) = record else { return };
            all += 1;
            // Some records of `csr` are older than the kernels of large matrices.
            let other = other_image(&measured);
            let is_older = measured.candidate == "csr" && other.is_some();
            assert!(other.is_none() || is_older, "{}: {other:?}", measured.candidate);
            if other.is_none() && measured.provenance.kernels.starts_with("csr_long=") {
                cut += 1;
                measured.provenance.kernels = "csr=0".into();
                assert_eq!(other_image(&measured), Some("csr_long"));
            }
        });
        assert!(all > cut && cut > 0, "{all} and {cut}");
    }
}
