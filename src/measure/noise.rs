//! The error of a measurement, and noisy measurements.

use super::Timing;
use crate::cost::Cost;

/// Relative error from which on a measurement is noisy: it says little about differences between
/// formats, which are of this size.
const NOISY: f64 = 0.1;

impl Timing {
    /// Returns the relative error of the time of one product: by how much runs exceed the one that
    /// counts, or the median sample of a single run exceeds the shortest.
    pub fn error(&self) -> f64 {
        let counts_s = self.cost().spmv_s;
        let longest_s = self.runs().map(|samples| samples.min_s).fold(counts_s, f64::max);
        match self.reruns.is_empty() {
            true => self.spmv.spread,
            false => longest_s / counts_s - 1.0,
        }
    }

    /// Tells whether the error exceeds 0.1, so that the candidate should be timed again.
    pub fn is_noisy(&self) -> bool {
        self.error() > NOISY
    }

    /// Returns the cost, with the longer end of the error for a noisy measurement: a candidate must
    /// not be chosen for one lucky sample.
    pub fn cautious_cost(&self) -> Cost {
        let cost = self.cost();
        let longer = if self.is_noisy() { 1.0 + self.error() } else { 1.0 };
        Cost { spmv_s: cost.spmv_s * longer, ..cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Samples;

    #[test]
    fn a_noisy_measurement_counts_with_its_error() {
        let timing = |spmv: &[f64], reruns: &[&[f64]]| Timing {
            spmv: Samples::new(spmv.to_vec()),
            reruns: reruns.iter().map(|raw_s| Samples::new(raw_s.to_vec())).collect(),
            products_per_sample: 1,
            convert: Samples::new(vec![1.0]),
            update_s: 0.0,
            bytes: 1,
            convert_kernels: String::new(),
            copies: 1,
        };
        let quiet = timing(&[1.0, 1.02, 1.04], &[]);
        assert!(!quiet.is_noisy() && (quiet.error() - 0.02).abs() < 1e-9);
        assert_eq!(quiet.cautious_cost().spmv_s, 1.0);
        let noisy = timing(&[1.0, 2.0, 3.0], &[]);
        assert!(noisy.is_noisy() && noisy.cautious_cost().spmv_s == 2.0);
        // Several runs count by their minima, of which the median is the cost.
        let repeated = timing(&[1.0, 2.0, 3.0], &[&[1.02, 1.5], &[1.04, 1.1]]);
        assert!(!repeated.is_noisy(), "{}", repeated.error());
        let apart = timing(&[1.0, 1.0], &[&[1.0, 1.0], &[1.5, 1.5]]);
        assert!((apart.error() - 0.5).abs() < 1e-9 && apart.is_noisy());
    }
}
