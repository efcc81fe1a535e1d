//! Fits the times of conversions in a device's profile ([`KernelFigures::convert_us`] and
//! [`KernelFigures::convert_ns`]) to measured ones, candidate by candidate.

use std::collections::BTreeMap;

use ellect::Precision;
use ellect::device::{Device, KernelFigures};
use ellect::format::Candidate;
use ellect::measure::Outcome;
use ellect::unstable::cost::kernel_figures;

use crate::profile::{LEAST_SAMPLES, rounded, value};
use crate::records::Records;

/// A timed conversion: number of entries of the layout, and time in seconds.
type Timed = (f64, f64);

/// Least fixed time of a conversion, in microseconds: 0 stands for the device's.
const LEAST_US: f64 = 1.0;

/// Returns the profile with the times of conversions fitted to the records that tell by which code
/// they ran. Candidates with fewer than a dozen of them keep their times.
///
/// The fit minimises the sum of squared relative errors of a fixed time and a time per entry.
pub fn fit(records: &Records, device: &Device) -> Device {
    let mut fit = device.clone();
    for precision in Precision::ALL {
        let mut groups: BTreeMap<&str, Vec<Timed>> = BTreeMap::new();
        for (m, cost) in records.timed(&device.name).filter(|(m, _)| m.precision == precision) {
            let Outcome::Timed(timing) = &m.outcome else { continue };
            let Some(inputs) = m.inputs.as_deref() else { continue };
            if timing.convert_kernels.is_empty() || cost.convert_s <= 0.0 {
                continue;
            }
            let timed = (inputs.work.entries as f64, cost.convert_s);
            groups.entry(&m.candidate).or_default().push(timed);
        }
        for (name, mut timed) in groups {
            let Ok(candidate) = name.parse::<Candidate>() else { continue };
            if timed.len() < LEAST_SAMPLES {
                continue;
            }
            // The order of summation must not depend on the order of the records.
            timed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let (fixed_s, entry_s) = line(&timed);
            let known = kernel_figures(device, &candidate);
            let figures = fit.kernels.entry(candidate.to_string()).or_insert(known);
            let KernelFigures { convert_us, convert_ns, .. } = figures;
            *value(convert_us, precision) = rounded((fixed_s * 1e6).max(LEAST_US));
            *value(convert_ns, precision) = rounded(entry_s * 1e9);
        }
    }
    fit
}

/// Returns the fixed time and the time per entry, both in seconds and not negative, with the least
/// sum of squared relative errors.
fn line(timed: &[Timed]) -> (f64, f64) {
    // With r = 1/t and q = n/t, the sum of (a r + b q - 1)^2 is least where its derivatives by a and
    // b are 0.
    let mut sums = [0.0; 5];
    for (entries, time_s) in timed {
        let (r, q) = (1.0 / time_s, entries / time_s);
        for (sum, term) in sums.iter_mut().zip([r * r, r * q, q * q, r, q]) {
            *sum += term;
        }
    }
    let [rr, rq, qq, r, q] = sums;
    let determinant = rr * qq - rq * rq;
    let (fixed_s, entry_s) = ((r * qq - q * rq) / determinant, (q * rr - r * rq) / determinant);
    match (fixed_s, entry_s) {
        (fixed_s, entry_s) if fixed_s > 0.0 && entry_s > 0.0 => (fixed_s, entry_s),
        (_, entry_s) if entry_s > 0.0 && qq > 0.0 => (0.0, q / qq),
        _ => (r / rr, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_least_relative_errors() {
        let exact: Vec<Timed> =
            [1e3, 1e5, 1e7].map(|entries| (entries, 2e-5 + 1e-10 * entries)).into();
        let (fixed_s, entry_s) = line(&exact);
        assert!((fixed_s / 2e-5 - 1.0).abs() < 1e-9 && (entry_s / 1e-10 - 1.0).abs() < 1e-9);
        // Times that fall with the entries have no time per entry.
        let (fixed_s, entry_s) = line(&[(1e3, 4e-5), (1e7, 2e-5)]);
        assert!((2e-5..4e-5).contains(&fixed_s) && entry_s == 0.0, "{fixed_s} {entry_s}");
        // Times in proportion to the entries and less have no fixed time.
        let (fixed_s, entry_s) = line(&[(1e3, 1e-8), (1e6, 2e-4)]);
        assert!(fixed_s == 0.0 && (1e-11..2e-10).contains(&entry_s), "{fixed_s} {entry_s}");
    }
}
