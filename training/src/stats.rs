//! Means over cases, and what counts as a loss.

use std::collections::BTreeMap;

/// Slower than the incumbent by more than this share counts as a loss.
pub const LOSS: f64 = 0.02;

/// The geometric mean; 1 of nothing.
pub fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value.ln(), n + 1));
    (sum / count.max(1) as f64).exp()
}

/// The root of the mean square; 0 of nothing.
pub fn rms(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, n), value| (sum + value * value, n + 1));
    (sum / count.max(1) as f64).sqrt()
}

/// The geometric mean over classes of their geometric means.
pub fn by_class<'a>(values: impl Iterator<Item = (&'a str, f64)>) -> f64 {
    let mut classes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (class, value) in values {
        classes.entry(class).or_default().push(value);
    }
    geometric_mean(classes.into_values().map(|values| geometric_mean(values.into_iter())))
}
