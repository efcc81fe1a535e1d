//! The figures of a choice that carry their uncertainty: the baseline, and the speed-up over it.

use serde::{Serialize, Serializer};

use super::Choice;
use crate::cost::Cost;
use crate::format::Candidate;

/// The baseline that a choice is compared with: times in seconds, written to JSON in microseconds.
///
/// ```
/// use ellect::{Tuner, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("heat", 500, 1)?;
/// let choice = Tuner::without_models(device::find("cpu")?).recommend(&csr, &Workload::default())?;
/// assert_eq!(choice.baseline.candidate.to_string(), "csr");
/// assert_eq!(choice.baseline.setup_s, 0.0, "the caller has the arrays");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Baseline {
    /// The candidate: cuSPARSE's CSR product on a GPU that has it, otherwise `csr`.
    pub candidate: Candidate,
    /// Time of one product, in seconds; `spmv_us` in JSON, in microseconds.
    #[serde(rename = "spmv_us", serialize_with = "in_us")]
    pub spmv_s: f64,
    /// Time of the baseline's own preparation before its first product, in seconds; `setup_us` in
    /// JSON, in microseconds. Break-evens count it.
    #[serde(rename = "setup_us", serialize_with = "in_us")]
    pub setup_s: f64,
}

impl Baseline {
    /// Describes the baseline of a ranking.
    pub(super) fn of(candidate: &Candidate, cost: &Cost) -> Self {
        Baseline { candidate: candidate.clone(), spmv_s: cost.spmv_s, setup_s: cost.convert_s }
    }
}

/// Time of a product with the baseline divided by that with the chosen candidate, and the range that
/// holds it in 9 of 10 cases.
///
/// ```
/// use ellect::{Tuner, Workload, device, generate};
///
/// # fn main() -> ellect::Result<()> {
/// let csr = generate::by_name("elasticity", 2000, 1)?;
/// let choice = Tuner::without_models(device::find("h200")?).recommend(&csr, &Workload::default())?;
/// assert!(choice.speedup.low <= choice.speedup.value);
/// assert!(choice.speedup.value <= choice.speedup.high);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// Expected ratio.
    #[serde(serialize_with = "in_digits")]
    pub value: f64,
    /// Lower end of the range.
    #[serde(serialize_with = "in_digits")]
    pub low: f64,
    /// Upper end of the range.
    #[serde(serialize_with = "in_digits")]
    pub high: f64,
}

impl Speedup {
    /// Returns the ratio of two times, each known up to a relative error: `[baseline, choice]`.
    pub(crate) fn of([baseline_s, choice_s]: [f64; 2], errors: [f64; 2]) -> Self {
        let value = if choice_s > 0.0 { baseline_s / choice_s } else { 1.0 };
        let factor = errors.iter().map(|error| 1.0 + error.max(0.0)).product::<f64>();
        Speedup { value, low: value / factor, high: value * factor }
    }

    /// The baseline compared with itself.
    pub(crate) const NONE: Speedup = Speedup { value: 1.0, low: 1.0, high: 1.0 };
}

impl Choice {
    /// Computes the speed-up over the baseline; `error` returns the relative error of a candidate's
    /// time of one product.
    pub(crate) fn with_speedup(mut self, error: impl Fn(&super::Ranked) -> f64) -> Self {
        self.ranking.iter_mut().for_each(|ranked| ranked.error = error(ranked));
        self.rate();
        self
    }

    /// Computes the speed-up again after another candidate was put first.
    pub fn rate(&mut self) {
        self.speedup = match (self.ranked(&self.candidate), self.ranked(&self.baseline.candidate)) {
            (Some(choice), Some(base)) if choice.candidate != base.candidate => {
                Speedup::of([base.spmv_s, choice.spmv_s], [base.error, choice.error])
            }
            _ => Speedup::NONE,
        };
    }
}

/// Relative error that 9 of 10 errors stay under, for normal errors of logarithms whose absolute
/// values have this median: 1.645 and 0.6745 standard deviations.
pub fn nine_in_ten(median_error: f64) -> f64 {
    (median_error * 1.645 / 0.6745).exp_m1()
}

/// Number of significant digits of times and ratios in JSON: no measurement is more precise.
const DIGITS: i32 = 4;

/// Rounds to [`DIGITS`] significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(places.abs());
    if places >= 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

/// Writes seconds in microseconds.
pub(super) fn in_us<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(seconds * 1e6))
}

/// Writes a number with as many digits as it is worth.
pub(super) fn in_digits<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(rounded(*value))
}

/// Writes a number, or nothing, with as many digits as it is worth.
pub(super) fn if_any<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let numbers = [0.0, 1.0, 8.44449, 1234.56, 123_456.7, 0.000_123_456];
        assert_eq!(numbers.map(rounded), [0.0, 1.0, 8.444, 1235.0, 123_500.0, 0.000_123_5]);
    }

    #[test]
    fn errors_of_both_times_widen_the_range() {
        let exact = Speedup::of([2.0, 1.0], [0.0; 2]);
        assert_eq!(exact, Speedup { value: 2.0, low: 2.0, high: 2.0 });
        let vague = Speedup::of([2.0, 1.0], [0.25, 0.25]);
        assert_eq!((vague.value, vague.low, vague.high), (2.0, 1.28, 3.125));
        // A median error of 10 %: 9 of 10 errors are under 28 %.
        assert!((nine_in_ten(0.1) - 0.276).abs() < 1e-3);
    }
}
