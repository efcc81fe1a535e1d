//! Times candidates under one versioned protocol; only checked products are timed.
//!
//! A candidate is converted, its product is compared with the CSR reference, and then it is timed.
//! The number of products in a sample doubles until a sample is long enough; samples are taken
//! until their median is close to their minimum. On a GPU, several copies of the layout, each with
//! its own x and y, take turns, so that the matrix is streamed from memory as far as the protocol's
//! limits allow; on a host, one layout is multiplied again and again, in turns with CSR, because
//! hosts are slower at some times than at others. The last product is checked again. All samples
//! are kept.

mod backend;
#[cfg_attr(not(feature = "cuda"), path = "gpu_none.rs")]
pub(crate) mod gpu;
mod host;
mod noise;
mod probe;
pub mod provenance;
pub mod worker;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::cost::{Cost, CostInputs, Source};
pub use crate::device::State;
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::format::Basis;
pub use crate::protocol::Protocol;
use crate::scalar::Precision;
pub use backend::{Backend, gpus, names};
pub use host::on_host;
pub use probe::{memory_bytes, probe};
pub use provenance::Provenance;
pub use worker::Worker;

/// Times of one operation, in the order in which they were taken.
///
/// ```
/// use ellect::measure::Samples;
///
/// let samples = Samples::new(vec![3e-6, 1e-6, 2e-6]);
/// assert_eq!((samples.min_s, samples.median_s), (1e-6, 2e-6));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// All samples, in seconds, rounded to [`TICK_S`].
    pub raw_s: Vec<f64>,
    /// Shortest sample, in seconds.
    pub min_s: f64,
    /// Median sample, in seconds.
    pub median_s: f64,
    /// `median_s / min_s - 1`, rounded to 1e-6.
    pub spread: f64,
    /// Shortest time of a product of CSR that took turns with these products, in seconds; on hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_s: Option<f64>,
}

/// Resolution of stored samples, in seconds; finer than any clock in use, so that records hold no
/// meaningless digits.
pub const TICK_S: f64 = 1e-11;

impl Samples {
    /// Summarises samples.
    ///
    /// # Panics
    /// If there are no samples.
    #[track_caller]
    pub fn new(mut raw_s: Vec<f64>) -> Self {
        raw_s.iter_mut().for_each(|sample| *sample = rounded(*sample, TICK_S));
        let mut sorted = raw_s.clone();
        sorted.sort_by(f64::total_cmp);
        let (min_s, median_s) = (sorted[0], sorted[sorted.len() / 2]);
        let spread = if min_s > 0.0 { rounded(median_s / min_s - 1.0, 1e-6) } else { 0.0 };
        Samples { raw_s, min_s, median_s, spread, beside_s: None }
    }

    /// Returns the samples with those of CSR, which took turns with them.
    #[must_use]
    fn beside(self, of_csr: &[f64]) -> Self {
        let shortest_s = of_csr.iter().copied().reduce(f64::min);
        Samples { beside_s: shortest_s.map(|seconds| rounded(seconds, TICK_S)), ..self }
    }

    /// Returns the shortest sample over that of CSR, if both took turns.
    fn over_csr(&self) -> Option<f64> {
        let beside_s = self.beside_s.filter(|&seconds| seconds > 0.0)?;
        Some(self.min_s / beside_s)
    }
}

/// Rounds to a multiple of `tick`, the reciprocal of a whole number, by which it divides, so that
/// the quotient prints with few digits.
fn rounded(value: f64, tick: f64) -> f64 {
    (value / tick).round() / tick.recip().round()
}

/// Result of timing a candidate.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::measure::{Backend, Outcome, Protocol};
/// use ellect::{Precision, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let cpu = Backend::of(device::find("cpu")?);
/// let target = Workload::default().target(cpu.device(), Precision::F64);
/// let (analysis, candidate) = (Analysis::of(&csr), "csr".parse()?);
/// let protocol = Protocol { max_samples: 3, max_s: 0.01, ..Protocol::default() };
/// let measured = cpu.measure(&csr, &analysis, &candidate, &target, &protocol, None)?;
/// if let Outcome::Timed(timing) = measured.outcome {
///     assert_eq!(timing.cost().spmv_s, timing.spmv.min_s);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Time of one product; each sample is the mean over `products_per_sample`.
    pub spmv: Samples,
    /// Times of one product in later runs, each in its own process: on a device, runs differ by
    /// more than the samples within one run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reruns: Vec<Samples>,
    /// Number of products in one sample.
    pub products_per_sample: u64,
    /// Time of the conversion from CSR, each time without any cached analysis.
    pub convert: Samples,
    /// Code that converted on a GPU, as in [`Provenance::kernels`]; empty on a host, and in records
    /// from before it was noted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub convert_kernels: String,
    /// Time of replacing all values, in seconds.
    pub update_s: f64,
    /// Size of the layout, in bytes.
    pub bytes: u64,
    /// Number of copies that took turns.
    pub copies: u32,
}

impl Timing {
    /// Iterates over the samples of all runs, the first run first.
    pub fn runs(&self) -> impl Iterator<Item = &Samples> {
        [&self.spmv].into_iter().chain(&self.reruns)
    }

    /// Returns the time of a product over that of CSR, if both took turns: the median of all runs.
    pub fn over_csr(&self) -> Option<f64> {
        let mut ratios = self.runs().map(Samples::over_csr).collect::<Option<Vec<f64>>>()?;
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    /// Computes the cost from the samples.
    ///
    /// The time of a run is its minimum, because other work on the device only adds time. Of
    /// several runs, the median counts.
    pub fn cost(&self) -> Cost {
        let mut runs: Vec<f64> = self.runs().map(|samples| samples.min_s).collect();
        runs.sort_by(f64::total_cmp);
        let (low, high) = (runs[(runs.len() - 1) / 2], runs[runs.len() / 2]);
        Cost {
            convert_s: self.convert.min_s,
            update_s: self.update_s,
            spmv_s: (low + high) / 2.0,
            bytes: self.bytes,
            source: Source::Measured,
        }
    }
}

/// Outcome of measuring a candidate.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::measure::{Backend, Outcome, Protocol};
/// use ellect::{Precision, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let cpu = Backend::of(device::find("cpu")?);
/// let target = Workload::default().target(cpu.device(), Precision::F64);
/// let (analysis, candidate) = (Analysis::of(&csr), "csr".parse()?);
/// let protocol = Protocol { max_samples: 3, max_s: 0.01, ..Protocol::default() };
/// let measured = cpu.measure(&csr, &analysis, &candidate, &target, &protocol, None)?;
/// assert!(matches!(measured.outcome, Outcome::Timed(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The product was correct and was timed.
    Timed(Timing),
    /// The candidate does not apply to the matrix.
    Refused {
        /// The required and the allowed figures.
        reason: String,
    },
    /// The product was wrong; it was not timed, or its times were discarded.
    Wrong {
        /// The row with the largest error.
        reason: String,
    },
    /// The device could not run it: memory, kernel or library missing, or a fault.
    Failed {
        /// Message of the device.
        reason: String,
    },
    /// A tuning run skipped it: its estimate was hopeless, or the time budget was spent.
    Cut {
        /// Figures behind the decision.
        reason: String,
    },
}

/// Measurement of one candidate on one matrix.
///
/// ```
/// use ellect::analysis::Analysis;
/// use ellect::measure::{Backend, Protocol};
/// use ellect::{Precision, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let cpu = Backend::of(device::find("cpu")?);
/// let target = Workload::default().target(cpu.device(), Precision::F64);
/// let (analysis, candidate) = (Analysis::of(&csr), "csr".parse()?);
/// let protocol = Protocol { max_samples: 3, max_s: 0.01, ..Protocol::default() };
/// let measured = cpu.measure(&csr, &analysis, &candidate, &target, &protocol, None)?;
/// assert_eq!(measured.candidate, "csr");
/// assert!(measured.cost().is_some_and(|cost| cost.spmv_s > 0.0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Fingerprint of the pattern.
    pub fingerprint: Fingerprint,
    /// Candidate as text.
    #[serde(deserialize_with = "crate::format::aliases::deserialize")]
    pub candidate: String,
    /// Name of the device.
    pub device: String,
    /// Number of threads that took part.
    pub threads: u32,
    /// Precision of the values.
    pub precision: Precision,
    /// Basis of x and y.
    #[serde(default)]
    pub basis: Basis,
    /// Protocol of the measurement.
    pub protocol: Protocol,
    /// Origin of the measurement: driver, code and time.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Inputs of the candidate's estimate, if noted; the key in records is `seen`.
    #[serde(rename = "seen", default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Box<CostInputs>>,
    /// Outcome of the measurement.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Measurement {
    /// Appends these runs to those of an earlier measurement with the same key, if both were timed;
    /// a run present in both is kept once.
    #[must_use]
    pub fn after(mut self, earlier: &Measurement) -> Self {
        if let (Outcome::Timed(now), Outcome::Timed(then)) = (&mut self.outcome, &earlier.outcome) {
            let mut runs: Vec<Samples> = then.runs().cloned().collect();
            let later: Vec<Samples> = now.runs().cloned().collect();
            runs.extend(later.into_iter().filter(|run| !then.runs().any(|earlier| earlier == run)));
            now.reruns = runs.split_off(1);
            now.spmv = runs.remove(0);
        }
        self
    }

    /// Tells whether both were timed and `other` contains every run of this one.
    pub fn is_within(&self, other: &Measurement) -> bool {
        match (&self.outcome, &other.outcome) {
            (Outcome::Timed(own), Outcome::Timed(all)) => {
                own.runs().all(|run| all.runs().any(|other| other == run))
            }
            _ => false,
        }
    }

    /// Tells whether the products had one vector, for which models are trained.
    pub fn is_of_one_vector(&self) -> bool {
        self.protocol.vectors == 1
    }

    /// Returns the cost, if the candidate was timed.
    pub fn cost(&self) -> Option<Cost> {
        match &self.outcome {
            Outcome::Timed(timing) => Some(timing.cost()),
            Outcome::Refused { .. }
            | Outcome::Wrong { .. }
            | Outcome::Failed { .. }
            | Outcome::Cut { .. } => None,
        }
    }
}

impl Outcome {
    fn of(result: Result<Timing>) -> Self {
        match result {
            Ok(timing) => Outcome::Timed(timing),
            Err(Error::Refused { reason, .. }) => Outcome::Refused { reason },
            Err(error @ Error::WrongProduct { .. }) => Outcome::Wrong { reason: error.to_string() },
            Err(error) => Outcome::Failed { reason: error.to_string() },
        }
    }
}

/// Takes samples until their spread is small enough or the protocol's limits are reached.
fn take_samples(protocol: &Protocol, mut sample_s: impl FnMut() -> Result<f64>) -> Result<Samples> {
    let mut raw_s = Vec::new();
    let began = Instant::now();
    loop {
        raw_s.push(sample_s()?);
        let taken = raw_s.len() as u32;
        let enough = taken >= protocol.min_samples
            && Samples::new(raw_s.clone()).spread <= protocol.spread
            || taken >= protocol.max_samples
            || began.elapsed().as_secs_f64() > protocol.max_s;
        if enough {
            return Ok(Samples::new(raw_s));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::device::Device;
    use crate::format::Target;

    fn quick() -> Protocol {
        Protocol { min_sample_s: 1e-5, max_samples: 6, max_copies: 3, ..Protocol::default() }
    }

    fn tridiagonal(n: usize) -> Csr<f64> {
        let entries = (0..n).flat_map(|i| {
            (i.saturating_sub(1)..(i + 2).min(n)).map(move |j| (i, j, 1.0 / (1 + i + j) as f64))
        });
        Csr::from_triplets(n, n, entries).expect("indices are in range")
    }

    fn measured(memory_limit: u64) -> Measurement {
        let devices = Device::shipped();
        let device = devices.iter().find(|d| d.name == "cpu").expect("shipped");
        let precision = Precision::F64;
        let target = Target {
            device,
            precision,
            basis: Basis::Original,
            memory_limit,
            stored: Default::default(),
        };
        on_host(&tridiagonal(300), &"csr".parse().expect("a format"), &target, &quick())
    }

    #[test]
    fn several_vectors_are_timed_and_kept_with_their_number() {
        let device = crate::device::find("cpu").expect("shipped");
        let (precision, basis, memory_limit) = (Precision::F64, Basis::Permuted, u64::MAX);
        let target =
            Target { device: &device, precision, basis, memory_limit, stored: Default::default() };
        let protocol = Protocol { vectors: 3, ..quick() };
        let csr = tridiagonal(3000);
        for text in ["csr", "ellr", "hll:sort=512"] {
            let measured = on_host(&csr, &text.parse().expect("a format"), &target, &protocol);
            assert!(measured.cost().is_some(), "{measured:?}");
            let line = serde_json::to_string(&measured).expect("plain data");
            assert!(line.contains(r#""seed":1,"vectors":3}"#), "{line}");
            assert_eq!(serde_json::from_str::<Measurement>(&line).expect("own text"), measured);
            let none = line.replace(r#""vectors":3"#, r#""vectors":0"#);
            let error = serde_json::from_str::<Measurement>(&none).expect_err("no vectors");
            assert!(error.to_string().contains("it must be from 1 to 1024"), "{error}");
        }
        let line = serde_json::to_string(&measured(u64::MAX)).expect("plain data");
        assert!(!line.contains("vectors"), "{line}");
        let few = Device { memory_bytes: 1000, ..device.clone() };
        let target = Target { device: &few, ..target };
        let refused = on_host(&csr, &"csr".parse().expect("a format"), &target, &protocol);
        let Outcome::Refused { reason } = &refused.outcome else { panic!("{refused:?}") };
        assert!(reason.contains("3 vectors take 144000 bytes; 500 are allowed"), "{reason}");
    }

    #[test]
    fn a_timing_keeps_its_samples_and_reads_back() {
        let measurement = measured(u64::MAX);
        let Outcome::Timed(timing) = &measurement.outcome else { panic!("{measurement:?}") };
        assert!(timing.spmv.raw_s.len() >= 5 && timing.spmv.raw_s.len() <= 6);
        assert_eq!((timing.copies, timing.convert.raw_s.len()), (1, 3));
        assert!(timing.spmv.min_s > 0.0 && timing.spmv.min_s <= timing.spmv.median_s);
        let text = serde_json::to_string(&measurement).expect("plain data");
        assert_eq!(serde_json::from_str::<Measurement>(&text).expect("own text"), measurement);
    }

    #[test]
    fn of_several_runs_the_middle_one_counts() {
        let earlier = measured(u64::MAX);
        let taking = |spmv_s: f64| {
            let mut later = earlier.clone();
            let Outcome::Timed(timing) = &mut later.outcome else { panic!("{later:?}") };
            timing.spmv = Samples::new(vec![spmv_s, 2.0 * spmv_s]);
            later
        };
        let spmv_s = |m: &Measurement| m.cost().expect("timed").spmv_s;
        let two = taking(3.0).after(&taking(1.0));
        assert_eq!(spmv_s(&two), 2.0);
        let three = taking(1.5).after(&two);
        assert_eq!(spmv_s(&three), 1.5);
        let runs = |m: &Measurement| -> Vec<f64> {
            let Outcome::Timed(timing) = &m.outcome else { panic!("{m:?}") };
            timing.runs().map(|samples| samples.min_s).collect()
        };
        assert_eq!(runs(&three), [1.0, 3.0, 1.5]);
        assert_eq!(runs(&two.clone().after(&three)), [1.0, 3.0, 1.5], "none counts twice");
        assert_eq!(runs(&two.clone().after(&taking(1.5))), [1.5, 1.0, 3.0]);
        assert!(two.is_within(&three) && !three.is_within(&two));
        let text = serde_json::to_string(&three).expect("plain data");
        assert_eq!(serde_json::from_str::<Measurement>(&text).expect("own text"), three);
    }

    #[test]
    fn a_candidate_over_the_memory_limit_is_refused_not_timed() {
        let measurement = measured(100);
        assert!(
            matches!(&measurement.outcome, Outcome::Refused { reason } if reason.contains("100"))
        );
        assert_eq!(measurement.cost(), None);
    }

    #[test]
    fn samples_are_summarised_by_minimum_and_median() {
        let samples = Samples::new(vec![4.0, 2.0, 3.0]);
        assert_eq!((samples.min_s, samples.median_s, samples.spread), (2.0, 3.0, 0.5));
    }
}
