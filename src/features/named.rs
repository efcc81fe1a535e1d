//! Features that are given by name instead of being computed from a matrix.

use super::{FEATURES, Features};
use crate::csr::MAX_DIMENSION;
use crate::error::{Error, Result};

/// Names of the features that every matrix has.
const SIZE: [&str; 3] = ["nrows", "ncols", "nnz"];

impl Features {
    /// Collects features by name: those of a matrix that is not at hand, as
    /// [`Choice::features`](crate::choose::Choice::features) lists them in JSON.
    ///
    /// ```
    /// use ellect::features::Features;
    ///
    /// # fn main() -> ellect::Result<()> {
    /// let named = [("nrows", 2.0), ("ncols", 3.0), ("nnz", 4.0)];
    /// let features = Features::named(named)?;
    /// assert_eq!(features.get("nnz"), Some(4.0));
    /// assert!(Features::named([("nosuch", 1.0)]).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] if a name is unknown, a value is not finite, or the size is missing or no
    /// whole number up to 2^32 - 1 (2^48 for `nnz`).
    pub fn named<'a>(values: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self> {
        let mut features = Vec::new();
        for (name, value) in values {
            let Some(feature) = FEATURES.iter().find(|feature| feature.name == name) else {
                let stated = format!("no feature is named '{name}'; `ellect features` lists them");
                return Err(Error::argument(stated));
            };
            if !value.is_finite() {
                let stated = format!("feature '{name}' is {value}; it must be a finite number");
                return Err(Error::argument(stated));
            }
            features.push((feature, value));
        }
        let features = Features(features);
        for name in SIZE {
            let most = if name == "nnz" { 2_f64.powi(48) } else { MAX_DIMENSION as f64 };
            let value = features.get(name);
            if !value.is_some_and(|value| value.fract() == 0.0 && (0.0..=most).contains(&value)) {
                let got = value.map_or("missing".to_string(), |value| value.to_string());
                let stated = format!(
                    "feature '{name}' is {got}; it must be a whole number from 0 to {most}"
                );
                return Err(Error::argument(stated));
            }
        }
        Ok(features)
    }

    /// Returns the features of the size alone.
    pub(crate) fn size(&self) -> Option<[usize; 3]> {
        let [nrows, ncols, nnz] = SIZE.map(|name| self.get(name));
        Some([nrows? as usize, ncols? as usize, nnz? as usize])
    }
}
