//! Distance of a matrix from the training set of a model, which gives the confidence in
//! predictions.

use serde::{Deserialize, Serialize};

/// The matrices of the training set as points: logarithms of features, standardised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applicability {
    /// Mean of each coordinate before it is standardised.
    pub mean: Vec<f32>,
    /// Reciprocal of each coordinate's standard deviation; 0 if the coordinate does not vary.
    pub scale: Vec<f32>,
    /// Coordinates of the points, point after point.
    pub points: Vec<f32>,
    /// Distance at which confidence is 0.5: nine tenths of the training matrices are at most this
    /// far from the nearest matrix of another family.
    pub radius: f32,
}

/// Number of coordinates that are compared at a time.
const AT_ONCE: usize = 8;

/// Maximum number of features of a model.
const MOST_FEATURES: usize = 128;

/// Returns a feature's coordinate before it is standardised: a signed logarithm, because features
/// span many powers of ten.
pub fn coordinate(feature: f64) -> f64 {
    feature.signum() * feature.abs().ln_1p()
}

/// Returns the sum of the squared differences between two points; if it exceeds `most`, only that of
/// their first coordinates. The sum never falls from one coordinate to the next.
fn away(point: &[f32], other: &[f32], most: f32) -> f32 {
    let mut sum = 0.0;
    for (point, other) in point.chunks(AT_ONCE).zip(other.chunks(AT_ONCE)) {
        sum = point.iter().zip(other).fold(sum, |sum, (a, b)| sum + (b - a) * (b - a));
        if sum > most {
            break;
        }
    }
    sum
}

impl Applicability {
    /// Returns the confidence in predictions for a matrix with these features: 1 for a matrix of
    /// the training set, 0.5 at [`Applicability::radius`], near 0 far away. Allocates nothing.
    pub fn confidence(&self, features: &[f64]) -> f64 {
        let away = f64::from(self.distance(features) / self.radius.max(f32::MIN_POSITIVE));
        1.0 / (1.0 + away * away)
    }

    /// Returns the distance to the nearest point: the root mean square of the differences of
    /// coordinates.
    pub fn distance(&self, features: &[f64]) -> f32 {
        let width = self.mean.len().max(1);
        let mut at = [0f32; MOST_FEATURES];
        for (i, at) in at.iter_mut().enumerate().take(self.mean.len()) {
            *at = (coordinate(features[i]) as f32 - self.mean[i]) * self.scale[i];
        }
        let nearer = |nearest: f32, point: &[f32]| nearest.min(away(point, &at, nearest));
        let nearest = self.points.chunks_exact(width).fold(f32::INFINITY, nearer);
        (nearest / width as f32).sqrt()
    }

    /// Checks that the points have this number of features and all numbers are finite.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check(&self, features: usize) -> Result<(), String> {
        let all = || self.mean.iter().chain(&self.scale).chain(&self.points);
        let fits = self.mean.len() == features
            && features <= MOST_FEATURES
            && self.scale.len() == features
            && self.points.len().is_multiple_of(features.max(1))
            && !self.points.is_empty();
        match fits && self.radius.is_finite() && all().all(|value| value.is_finite()) {
            true => Ok(()),
            false => Err(format!("points of another width than {features}, or no numbers")),
        }
    }
}
