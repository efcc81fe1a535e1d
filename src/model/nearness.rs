//! How near a matrix is to those that a model was trained on.

use serde::{Deserialize, Serialize};

/// The matrices of the training set as points: logarithms of features, standardised.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nearness {
    /// Mean of each coordinate before it is standardised.
    pub mean: Vec<f32>,
    /// One over its standard deviation; 0 where it does not vary.
    pub scale: Vec<f32>,
    /// The points, one after the other.
    pub points: Vec<f32>,
    /// The distance from which on confidence is a half: as far as nine tenths of the training
    /// matrices are from the nearest one of another family.
    pub radius: f32,
}

/// The most features of a model.
const MOST_FEATURES: usize = 128;

/// A coordinate before it is standardised: features span many powers of ten.
pub fn coordinate(feature: f64) -> f64 {
    feature.signum() * feature.abs().ln_1p()
}

impl Nearness {
    /// Confidence in what is said of a matrix with these features: 1 for one of the training set,
    /// a half at [`Nearness::radius`], near 0 far away. Allocates nothing.
    pub fn confidence(&self, features: &[f64]) -> f64 {
        let away = f64::from(self.distance(features) / self.radius.max(f32::MIN_POSITIVE));
        1.0 / (1.0 + away * away)
    }

    /// Root of the mean square of the coordinates' differences to the nearest point.
    pub fn distance(&self, features: &[f64]) -> f32 {
        let width = self.mean.len().max(1);
        let mut at = [0f32; MOST_FEATURES];
        for (i, at) in at.iter_mut().enumerate().take(self.mean.len()) {
            *at = (coordinate(features[i]) as f32 - self.mean[i]) * self.scale[i];
        }
        let away = |point: &[f32]| -> f32 {
            point.iter().zip(&at).map(|(point, at)| (at - point) * (at - point)).sum()
        };
        let nearest = self.points.chunks_exact(width).map(away).fold(f32::INFINITY, f32::min);
        (nearest / width as f32).sqrt()
    }

    /// Whether it is made for so many features.
    ///
    /// # Errors
    /// What is wrong.
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
