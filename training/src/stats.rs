//! Means over cases, and the threshold for a loss.

use std::collections::BTreeMap;

/// Slowdown against the baseline, as a share, above which a choice counts as a loss.
pub const LOSS: f64 = 0.02;

/// Returns the geometric mean of the values, or 1 if there are none.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value.ln(), n + 1));
    (sum / count.max(1) as f64).exp()
}

/// Returns the root mean square of the values, or 0 if there are none.
pub fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value * value, n + 1));
    (sum / count.max(1) as f64).sqrt()
}

/// Returns the geometric mean over classes of the geometric mean within each class.
pub fn by_class<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> f64 {
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (class, value) in values {
        classes.entry(class).or_default().push(value);
    }
    geometric_mean(classes.into_values().map(|values| geometric_mean(values.into_iter())))
}
